package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

// helperVariable makes the test binary the tool: only a process of its own can
// give up being root.
const helperVariable = "PRUN_REPORT_AS_UID"

const nobody = 65534

func TestMain(m *testing.M) {
	if text := os.Getenv(helperVariable); text != "" {
		uid, err := strconv.Atoi(text)
		if err == nil && uid != os.Getuid() {
			err = syscall.Setgroups(nil)
			if err == nil {
				err = syscall.Setgid(uid)
			}
			if err == nil {
				err = syscall.Setuid(uid)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Exit(cli.Execute(tool(), new(options), &cli.Env{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}))
	}
	os.Exit(m.Run())
}

// reportAs runs the tool in a process of that user, 20 seconds at most.
func reportAs(t *testing.T, uid int, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), helperVariable+"="+strconv.Itoa(uid), "GORACE=atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if ctx.Err() != nil {
		t.Fatalf("%q did not return", args)
	}
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// pathology is one way in which a state directory can be spoilt, and what the
// report says of it. Errors are "stage name"; those after "|" only nobody has.
type pathology struct {
	name   string // part of the directory's name
	make   func(p place)
	path   state.PathState
	result state.ResultState
	errs   string // of the contract
	more   string // with --detail
	// What a user without rights says instead.
	nobodyPath   state.PathState
	nobodyResult state.ResultState
	nobodyErrs   string
}

// place is a unit to be spoilt, beside good and bad targets.
type place struct {
	t   *testing.T
	dir string // of the unit
	out string // a directory for results
}

func (p place) entry(text string) { p.file(state.FileResult, text) }

func (p place) file(name, text string) { write(p.t, filepath.Join(p.dir, name), text) }

func (p place) at(name string) string { return filepath.Join(p.out, name) }

func (p place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p place) mkdir(name string) { p.must(os.MkdirAll(filepath.Join(p.dir, name), 0o700)) }

func (p place) fifo(name string) { p.must(syscall.Mkfifo(filepath.Join(p.dir, name), 0o600)) }

func (p place) link(name, to string) {
	os.Remove(filepath.Join(p.dir, name))
	p.must(os.Symlink(to, filepath.Join(p.dir, name)))
}

func (p place) mode(name string, m fs.FileMode) {
	p.must(os.Chmod(filepath.Join(p.dir, name), m))
}

func pathologies() []pathology {
	const (
		res, abs, inv, unr = state.PathResolved, state.PathAbsent, state.PathInvalid, state.PathUnreadable
		here, none, void   = state.ResultPresent, state.ResultMissing, state.ResultEmpty
		dark               = state.ResultUnknown
	)
	long := strings.Repeat("x", 200)
	return []pathology{
		// The table of the contract.
		{name: "present", make: func(p place) { p.entry(p.at("full")) }, path: res, result: here},
		{name: "empty", make: func(p place) { p.entry(p.at("empty")) }, path: res, result: void},
		{name: "missing", make: func(p place) { p.entry(p.at("none")) }, path: res, result: none},
		{name: "absent", make: func(p place) {}, path: abs, result: dark},
		{name: "blank", make: func(p place) { p.entry(" \n\t") }, path: inv, result: dark},
		{name: "escaping", make: func(p place) { p.entry("../r.md") }, path: inv, result: dark},
		{name: "inside", make: func(p place) { p.entry("r.md"); p.file("r.md", "x") }, path: res, result: here},
		{name: "nul", make: func(p place) { p.entry("/a\x00b") }, path: unr, result: dark, errs: "result ValueError"},
		// Results that are no files (E46).
		{name: "result-dir", make: func(p place) { p.entry(p.at("dir")) }, path: res, result: dark, errs: "result-target NotARegularFile"},
		{name: "result-fifo", make: func(p place) { p.entry(p.at("fifo")) }, path: res, result: dark, errs: "result-target NotARegularFile"},
		{name: "result-device", make: func(p place) { p.entry("/dev/null") }, path: res, result: dark, errs: "result-target NotARegularFile"},
		{name: "result-socket", make: func(p place) { p.entry(p.at("socket")) }, path: res, result: dark, errs: "result-target NotARegularFile"},
		{name: "result-link", make: func(p place) { p.entry(p.at("link")) }, path: res, result: here},
		{name: "result-dangling", make: func(p place) { p.entry(p.at("dangling")) }, path: res, result: none},
		{name: "result-loop", make: func(p place) { p.entry(p.at("loop")) }, path: res, result: dark, errs: "result-target OSError"},
		{name: "result-below-file", make: func(p place) { p.entry(p.at("full/r.md")) }, path: res, result: dark, errs: "result-target NotADirectoryError"},
		{name: "result-long", make: func(p place) { p.entry(p.at(long + long)) }, path: res, result: dark, errs: "result-target OSError"},
		{name: "result-locked", make: func(p place) { p.entry(p.at("locked/r.md")) }, path: res, result: none,
			nobodyResult: dark, nobodyErrs: "result-target PermissionError"},
		// State files that are no files, too large, or closed (E89).
		{name: "entry-dir", make: func(p place) { p.mkdir(state.FileResult) }, path: unr, result: dark, errs: "result-entry NotARegularFile"},
		{name: "entry-fifo", make: func(p place) { p.fifo(state.FileResult) }, path: unr, result: dark, errs: "result-entry NotARegularFile"},
		{name: "entry-device", make: func(p place) { p.link(state.FileResult, "/dev/zero") }, path: unr, result: dark, errs: "result-entry NotARegularFile"},
		{name: "entry-loop", make: func(p place) { p.link(state.FileResult, state.FileResult) }, path: unr, result: dark, errs: "result-entry OSError"},
		{name: "entry-link", make: func(p place) { p.file("other", p.at("full")); p.link(state.FileResult, "other") }, path: res, result: here},
		{name: "entry-65536", make: func(p place) { p.entry("/" + strings.Repeat("x", 65535)) }, path: res, result: dark, errs: "result-target OSError"},
		{name: "entry-65537", make: func(p place) { p.entry("/" + strings.Repeat("x", 65536)) }, path: unr, result: dark, errs: "result-entry EntryTooLarge"},
		{name: "entry-zeros", make: func(p place) { p.entry(strings.Repeat("\x00", 64)) }, path: unr, result: dark, errs: "result ValueError"},
		{name: "entry-closed", make: func(p place) { p.entry(p.at("full")); p.mode(state.FileResult, 0) }, path: res, result: here,
			nobodyPath: unr, nobodyResult: dark, nobodyErrs: "result-entry PermissionError"},
		{name: "tail-dir", make: func(p place) { os.Remove(filepath.Join(p.dir, "tail")); p.mkdir(state.FileTail) }, path: abs, result: dark, errs: "tail NotARegularFile"},
		{name: "tail-fifo", make: func(p place) { os.Remove(filepath.Join(p.dir, "tail")); p.fifo(state.FileTail) }, path: abs, result: dark, errs: "tail NotARegularFile"},
		{name: "tail-loop", make: func(p place) { p.link(state.FileTail, state.FileTail) }, path: abs, result: dark, errs: "tail OSError"},
		{name: "tail-device", make: func(p place) { p.link(state.FileTail, "/dev/zero") }, path: abs, result: dark, errs: "tail NotARegularFile"},
		{name: "tail-none", make: func(p place) { os.Remove(filepath.Join(p.dir, "tail")) }, path: abs, result: dark},
		{name: "tail-closed", make: func(p place) { p.mode(state.FileTail, 0) }, path: abs, result: dark},
		{name: "pid-dir", make: func(p place) { p.mkdir(state.FileDispatchPID) }, path: abs, result: dark, errs: "legacy-pid NotARegularFile"},
		{name: "pid-fifo", make: func(p place) { p.fifo(state.FileDispatchPID) }, path: abs, result: dark, errs: "legacy-pid NotARegularFile"},
		{name: "pid-large", make: func(p place) { p.file(state.FileDispatchPID, strings.Repeat("1", 70000)) }, path: abs, result: dark, errs: "legacy-pid EntryTooLarge"},
		{name: "pid-odd", make: func(p place) { p.file(state.FileDispatchPID, "-1\n99999\x1b[31m\xff\n") }, path: abs, result: dark},
		{name: "pid-planted", make: func(p place) {
			p.file(state.FileDispatchPID, "1\n")
			if os.Getuid() == 0 {
				p.must(os.Chown(filepath.Join(p.dir, state.FileDispatchPID), 1234, 1234))
			}
			p.mode(state.FileDispatchPID, 0o644)
		}, path: abs, result: dark},
		{name: "closed", make: func(p place) { p.entry(p.at("full")); p.mode(".", 0) }, path: res, result: here,
			nobodyPath: unr, nobodyResult: dark, nobodyErrs: "result-entry PermissionError,tail PermissionError,legacy-pid PermissionError"},
		// Records that are not whole. Only --detail reads them.
		{name: "identity-zeros", make: func(p place) { p.file(state.FileIdentity, strings.Repeat("\x00", 400)) }, path: abs, result: dark, more: "identity MalformedRecord"},
		{name: "identity-cut", make: func(p place) { p.file(state.FileIdentity, `{"schema_version": 1, "unit": "u`) }, path: abs, result: dark, more: "identity MalformedRecord"},
		{name: "identity-large", make: func(p place) { p.file(state.FileIdentity, `{"x":"`+strings.Repeat("x", 2<<20)+`"}`) }, path: abs, result: dark, more: "identity EntryTooLarge"},
		{name: "identity-dir", make: func(p place) { p.mkdir(state.FileIdentity) }, path: abs, result: dark, more: "identity NotARegularFile"},
		{name: "identity-fifo", make: func(p place) { p.fifo(state.FileIdentity) }, path: abs, result: dark, more: "identity NotARegularFile"},
		{name: "identity-null", make: func(p place) { p.file(state.FileIdentity, "null") }, path: abs, result: dark, more: "identity MalformedRecord"},
		{name: "identity-odd", make: func(p place) {
			p.file(state.FileIdentity, `{"supervisor":{"pid":-1},"keeper":{"pid":1,"start":1,"boot":"x"},"front":{"pid":99999999999}}`)
		}, path: abs, result: dark},
		{name: "identity-planted", make: func(p place) {
			p.file(state.FileIdentity, `{"supervisor":{"pid":1,"start":5,"boot":"other"},"keeper":{"pid":0},"machine":"elsewhere"}`)
		}, path: abs, result: dark},
		{name: "worker-cut", make: func(p place) { p.file(state.FileWorker, `{`) }, path: abs, result: dark, more: "worker MalformedRecord"},
		{name: "outcome-empty", make: func(p place) { p.file(state.FileOutcome, "") }, path: abs, result: dark, more: "outcome MalformedRecord"},
		{name: "outcome-link", make: func(p place) { p.link(state.FileOutcome, "/dev/zero") }, path: abs, result: dark, more: "outcome NotARegularFile"},
		{name: "outcome-bytes", make: func(p place) {
			p.file(state.FileOutcome, "{\"cause\":\"failed\",\"reason\":\"\xff\\u001b]0;x\\u0007\",\"model\":\"\u2028\"}")
		}, path: abs, result: dark},
		{name: "stamp-odd", make: func(p place) { p.file(state.FileTimestamp, "-99999999999999999999\n") }, path: abs, result: dark},
		// Foreign bytes in names and paths (E81).
		{name: "a b'\"$(id)%☃\n\x1b[31m", make: func(p place) { p.entry(p.at("full")) }, path: res, result: here},
		{name: "\xff\xfe-bytes", make: func(p place) { p.entry(p.at("b\xffd")) }, path: res, result: here},
		{name: "-dash", make: func(p place) { p.entry(p.at("full") + "/") }, path: res, result: dark, errs: "result-target NotADirectoryError"},
	}
}

// targets makes what results can be.
func targets(t *testing.T, out string) {
	write(t, filepath.Join(out, "full"), "x")
	write(t, filepath.Join(out, "empty"), "")
	write(t, filepath.Join(out, "b\xffd"), "x")
	write(t, filepath.Join(out, "locked", "x"), "")
	for _, err := range []error{
		os.Mkdir(filepath.Join(out, "dir"), 0o755),
		syscall.Mkfifo(filepath.Join(out, "fifo"), 0o600),
		os.Symlink("full", filepath.Join(out, "link")),
		os.Symlink("nowhere", filepath.Join(out, "dangling")),
		os.Symlink("loop", filepath.Join(out, "loop")),
		bindSocket(filepath.Join(out, "socket")),
		os.Chmod(filepath.Join(out, "locked"), 0),
		os.Chmod(out, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func bindSocket(name string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return syscall.Bind(fd, &syscall.SockaddrUnix{Name: name})
}

// fingerprint is every name below dir with all that a look can see of it, the
// content included, and no time of access.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.Getuid() != 0 && os.IsPermission(err) {
				return nil
			}
			return err
		}
		fi, err := os.Lstat(name)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v %d %v", fi.Mode(), fi.Size(), fi.ModTime().UnixNano())
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(name)
			if err == nil {
				text += fmt.Sprintf(" %x", sha256.Sum256(data))
			}
		}
		seen[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// Three hundred units with everything that can be wrong with them, as root and as
// nobody: every row is right, the status is 1, nothing blocks, nothing is changed.
func TestPathologies(t *testing.T) {
	top, err := os.MkdirTemp("", "prun-report-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command("chmod", "-R", "u+rwX", top).Run()
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	root, out := filepath.Join(top, "state"), filepath.Join(top, "out")
	targets(t, out)
	kinds := make(map[string]pathology)
	total := 0
	for round := 0; total < 300; round++ {
		for i, c := range pathologies() {
			base := fmt.Sprintf("prun-task-0123abcd-%s-%d-%016x", c.name, 1000*round+i, round)
			p := place{t: t, dir: filepath.Join(root, base), out: out}
			p.file(state.FileTail, strings.Repeat("x", i+1))
			p.mode(state.FileTail, 0o644)
			p.mode(".", 0o755)
			c.make(p)
			kinds[p.dir] = c
			total++
		}
	}
	// The files themselves are open to nobody but where a case closes them.
	openTree(t, root, kinds)
	for _, err := range []error{
		os.Symlink("nowhere", filepath.Join(root, "prun-task-dangling")),
		os.Symlink("prun-task-loop", filepath.Join(root, "prun-task-loop")),
		os.Symlink(out, filepath.Join(root, "prun-task-link")),
		syscall.Mkfifo(filepath.Join(root, "prun-task-fifo"), 0o600),
		os.Chmod(root, 0o755), os.Chmod(top, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "prun-task-file"), "")
	before := fingerprint(t, top)

	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, nobody)
	}
	for _, uid := range uids {
		t.Run("uid "+strconv.Itoa(uid), func(t *testing.T) {
			checkJSON(t, uid, root, kinds)
			checkText(t, uid, root, len(kinds)+1)
		})
	}
	if after := fingerprint(t, top); !maps.Equal(before, after) {
		for name := range before {
			if before[name] != after[name] {
				t.Errorf("%q: %s became %s", name, before[name], after[name])
			}
		}
		t.Error("the tree was changed")
	}
}

func openTree(t *testing.T, root string, kinds map[string]pathology) {
	for dir, c := range kinds {
		if strings.HasSuffix(c.name, "closed") {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink == 0 {
				os.Chmod(filepath.Join(dir, e.Name()), 0o755)
			}
		}
	}
}

func checkJSON(t *testing.T, uid int, root string, kinds map[string]pathology) {
	for _, detail := range []bool{false, true} {
		args := []string{"--root", root, "--root", root + "/prun-task-fifo", "--json", "--include-legacy-pid", "--summary"}
		if detail {
			args = append(args, "--detail")
		}
		stdout, stderr, status := reportAs(t, uid, args...)
		if status != 1 || stderr != "" {
			t.Fatalf("status %d, stderr %q", status, stderr)
		}
		a := decode(t, stdout)
		if a.UnitCount != len(kinds)+1 || len(a.Units) != a.UnitCount || a.Summary.Units != a.UnitCount {
			t.Errorf("%d units, count %d, want %d", len(a.Units), a.UnitCount, len(kinds)+1)
		}
		wantDiscovery := []map[string]string{
			{"stage": "unit-entry", "unit": root + "/prun-task-dangling", "error": "FileNotFoundError"},
			{"stage": "unit-entry", "unit": root + "/prun-task-loop", "error": "OSError"},
			{"stage": "root", "root": root + "/prun-task-fifo", "error": "NotADirectoryError"},
		}
		slices.SortFunc(a.Discovery, func(x, y map[string]string) int { return strings.Compare(y["stage"]+x["unit"], x["stage"]+y["unit"]) })
		if fmt.Sprint(a.Discovery) != fmt.Sprint(wantDiscovery) {
			t.Errorf("discovery errors %v", a.Discovery)
		}
		byName := make(map[string]answerUnit)
		for _, u := range a.Units {
			byName[u.Unit] = u
		}
		for dir, c := range kinds {
			u, ok := byName[strings.ToValidUTF8(dir, "\ufffd")]
			if !ok {
				u, ok = byName[goReads(dir)]
			}
			if !ok {
				t.Errorf("%q is not listed", dir)
				continue
			}
			checkUnit(t, uid, detail, c, u)
		}
	}
}

// goReads is what encoding/json makes of our spelling of such a name: one
// replacement a byte.
func goReads(name string) string {
	var b strings.Builder
	for _, r := range name {
		b.WriteRune(r)
	}
	return b.String()
}

func checkUnit(t *testing.T, uid int, detail bool, c pathology, u answerUnit) {
	path, result, errs := c.path, c.result, c.errs
	if uid != 0 {
		if c.nobodyPath != "" {
			path = c.nobodyPath
		}
		if c.nobodyResult != "" {
			result = c.nobodyResult
		}
		if c.nobodyErrs != "" {
			errs = c.nobodyErrs
		}
	}
	var want, got []string
	if errs != "" {
		want = strings.Split(errs, ",")
	}
	if detail && c.more != "" {
		want = append(want, c.more)
	}
	for _, e := range u.Errors {
		got = append(got, e.Stage+" "+e.Error)
	}
	if detail && c.name == "closed" && uid != 0 {
		want = append(want, "identity PermissionError", "worker PermissionError", "outcome PermissionError")
	}
	if u.PathState != path || u.Result != result || !slices.Equal(got, want) {
		t.Errorf("%q (detail %v): %s %s %q, want %s %s %q", c.name, detail, u.PathState, u.Result, got, path, result, want)
	}
	if !slices.Contains(state.LegalPairs[u.PathState], u.Result) {
		t.Errorf("%q: %s and %s", c.name, u.PathState, u.Result)
	}
	if seen := !strings.Contains(strings.Join(got, ","), "tail "); seen != (u.TailBytes != nil) {
		t.Errorf("%q: tail_bytes %v beside %q", c.name, u.TailBytes, got)
	}
	if u.Identity != nil {
		for _, p := range []*struct {
			PID     int
			Verdict string
			Reason  *string
		}{u.Identity.Front, u.Identity.Keeper, u.Identity.Supervisor, u.Identity.Worker} {
			if p != nil && p.Verdict == "alive" {
				t.Errorf("%q: process %d is alive", c.name, p.PID)
			}
		}
	}
}

// One unit is one line, whatever its name.
func checkText(t *testing.T, uid int, root string, units int) {
	stdout, stderr, status := reportAs(t, uid, "--root", root, "--include-legacy-pid")
	if status != 1 || !strings.Contains(stderr, "This sweep is incomplete") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	rows := 0
	for i, l := range strings.Split(strings.TrimSuffix(stdout, "\n"), "\n") {
		switch {
		case strings.HasPrefix(l, "prun-task-"):
			rows++
			if cells := []rune(l); string(cells[52:53])+string(cells[62:63])+string(cells[76:77]) != "   " {
				t.Errorf("row %q is not aligned", l)
			}
		case i < 2, strings.HasPrefix(l, "    error ["):
		case l == "", strings.HasPrefix(l, "Snapshotting"), strings.HasPrefix(l, "This output"), strings.HasPrefix(l, "promoting"):
		default:
			t.Errorf("line %q belongs to nothing", l)
		}
		if strings.ContainsFunc(l, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("line %q has a control byte", l)
		}
	}
	if rows != units {
		t.Errorf("%d rows for %d units", rows, units)
	}
	if wide, _, _ := reportAs(t, uid, "--root", root, "--detail"); strings.Count(wide, "\n") < units+4 || strings.Contains(wide, "\x1b") {
		t.Errorf("the wide table has %d lines", strings.Count(wide, "\n"))
	}
}
