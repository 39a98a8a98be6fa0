package state

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestOldDirectoriesRead reads directories as every version wrote them. A
// change that breaks one of these breaks somebody's finished work.
func TestOldDirectoriesRead(t *testing.T) {
	type want struct {
		unit     string
		path     PathState
		result   ResultState
		tail     int64
		pid      string
		liveness Liveness
	}
	const dead = "99999999"
	wants := map[string]want{
		"codex-sh-0.7.17/prun-task-3f1c0a9e-u1-99999999-00aa11bb22cc33dd":     {"u1", PathResolved, ResultPresent, 119, dead, LegacyDead},
		"codex-sh-0.7.17/prun-task-nohash-u-2-99999999-0123456789abcdef":      {"u-2", PathResolved, ResultMissing, 67, dead, LegacyDead},
		"codex-sh-0.7.17/prun-task-3f1c0a9e-u3-99999999-ffffffffffffffff":     {"u3", PathInvalid, ResultUnknown, 0, "", LegacyUnknown},
		"codex-ps1-0.7.17/prun-task-9a0b1c2d-win_1-99999999-89abcdef01234567": {"win_1", PathResolved, ResultPresent, 70, dead, LegacyDead},
		"agy-2026.10/prun-task-07e1d2c3-a1-99999999-a1b2c3d4e5f60718":         {"a1", PathResolved, ResultMissing, 164, dead, LegacyDead},
		"agy-2026.10/prun-task-07e1d2c3-blocked-99999999-1122334455667788":    {"blocked", PathResolved, ResultMissing, 0, dead, LegacyDead},
		"agy-2026.10-windows/prun-task-07e1d2c3-a1-99999999-a1b2c3d4e5f60718": {"a1", PathResolved, ResultPresent, 164, dead, LegacyDead},
		"1.0/prun-task-5d41402a-n1-99999999-a1b2c3d4e5f60718":                 {"n1", PathResolved, ResultPresent, 8, dead, Settled},
		"1.0/prun-task-5d41402a-n2-99999999-b1b2c3d4e5f60718":                 {"n2", PathResolved, ResultMissing, 8, dead, LivenessLost},
	}
	base := filepath.Join(root, "testdata", "state")
	found, err := filepath.Glob(filepath.Join(base, "*", Prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range found {
		rel, err := filepath.Rel(base, dir)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.ToSlash(rel)
		w, ok := wants[name]
		if !ok {
			t.Errorf("%s: nothing is said about it", name)
			continue
		}
		delete(wants, name)
		t.Run(name, func(t *testing.T) {
			if unit, ok := UnitOf(filepath.Base(dir)); !ok || unit != w.unit {
				t.Errorf("UnitOf = %q %v, want %q", unit, ok, w.unit)
			}
			u := Unit{Dir: dir}
			if text, err := u.ReadEntry(FileResult); err == nil && runtime.GOOS == "windows" && strings.HasPrefix(text, "/") {
				// A path of another system: without a drive it is not absolute here.
				w.path, w.result = PathInvalid, ResultUnknown
			}
			o := u.Observe(ObserveOptions{LegacyPID: true})
			if o.PathState != w.path || o.Result != w.result || len(o.Errors) > 0 {
				t.Errorf("Observe = %+v", o)
			}
			if o.TailBytes == nil || *o.TailBytes != w.tail {
				t.Errorf("tail of %d bytes, want %d", *o.TailBytes, w.tail)
			}
			if o.LegacyPID == nil || *o.LegacyPID != w.pid {
				t.Errorf("legacy pid %q, want %q", *o.LegacyPID, w.pid)
			}
			if got, why := u.Liveness(); got != w.liveness {
				t.Errorf("Liveness = %v (%s), want %v", got, why, w.liveness)
			}
		})
	}
	for name := range wants {
		t.Errorf("%s is missing", name)
	}
}

// TestUnknownKeysSurvive writes a record back that a later version wrote.
func TestUnknownKeysSurvive(t *testing.T) {
	old := filepath.Join(root, "testdata", "state", "1.0", "prun-task-5d41402a-n1-99999999-a1b2c3d4e5f60718")
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "unit"), os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	u := Unit{Dir: filepath.Join(dir, "unit")}
	id, err := u.ReadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if id.Unit != "n1" || id.Supervisor.PID != 99999999 || id.StallAfter != 600 || id.LeafInode != 4711 {
		t.Errorf("identity %+v", id)
	}
	if err := u.WriteIdentity(*id); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(u.Path(FileIdentity))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(text), `,"from_a_later_version":{"kept":[1,2,3]}}`+"\n") {
		t.Errorf("the key was lost: %s", text)
	}
	o, err := u.ReadOutcome()
	if err != nil {
		t.Fatal(err)
	}
	if o.Cause != Failed || o.ExitCode != nil || o.Signal != 9 || *o.Usage.Total != 1234 || o.Usage.Output != nil || ExitStatus(*o) != 137 {
		t.Errorf("outcome %+v", o)
	}
	again, err := encodeJSON(*o)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(again), `,"exit_status":137,"from_a_later_version":"kept <&>"}`) {
		t.Errorf("the key was lost: %s", again)
	}
	x, err := u.ReadWorkerExit()
	if err != nil || x.Code != 0 || x.Signal != 9 || x.Ended.IsZero() {
		t.Errorf("worker exit %+v, %v", x, err)
	}
	w, err := u.ReadWorker()
	if err != nil || w.Worker.PID != 99999996 {
		t.Errorf("worker %+v, %v", w, err)
	}
}

// TestAbsentIsNoError reads a directory that is not there.
func TestAbsentIsNoError(t *testing.T) {
	u := Unit{Dir: filepath.Join(t.TempDir(), "none")}
	if id, err := u.ReadIdentity(); id != nil || err != nil {
		t.Errorf("identity %v, %v", id, err)
	}
	if w, err := u.ReadWorker(); w != nil || err != nil {
		t.Errorf("worker %v, %v", w, err)
	}
	if x, err := u.ReadWorkerExit(); x != nil || err != nil {
		t.Errorf("worker exit %v, %v", x, err)
	}
	if o, err := u.ReadOutcome(); o != nil || err != nil {
		t.Errorf("outcome %v, %v", o, err)
	}
	if _, err := u.ReadEntry(FileModel); !isMissing(err) {
		t.Errorf("entry: %v", err)
	}
	if _, waiting := u.Queued(); waiting {
		t.Error("a unit that is not there waits for a slot")
	}
	if err := u.PublishOutcome(Outcome{Cause: Lost}); err == nil {
		t.Error("an outcome was published nowhere")
	}
	if _, err := os.Lstat(u.Dir); !isMissing(err) {
		t.Error("reading made a directory")
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
