//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

const second = time.Second

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func write(tb testing.TB, name, text string) {
	tb.Helper()
	check(tb, os.WriteFile(name, []byte(text), 0o600))
}

// realTemp is a directory without links in its path.
func realTemp(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	check(tb, err)
	return dir
}

func run(environ []string, args ...string) (status int, out, diag string) {
	var stdout, stderr bytes.Buffer
	status = cli.Execute(tool, new(options), &cli.Env{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: environ})
	return status, stdout.String(), stderr.String()
}

// TestLanding gathers one file in fake time.
func TestLanding(t *testing.T) {
	type step struct {
		at     time.Duration
		do     func(name string)
		landed bool
	}
	future := func(name string) {
		write(t, name, "x")
		when := time.Now().Add(24 * time.Hour)
		check(t, os.Chtimes(name, when, when))
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"quiet for the window", []step{
			{0, func(n string) { write(t, n, "x") }, false}, {9 * second, nil, false}, {11 * second, nil, true}}},
		{"from the future", []step{{0, future, false}, {9 * second, nil, false}, {10 * second, nil, true}}},
		{"from 1970: the change is from now", []step{
			{0, func(n string) { write(t, n, "x"); check(t, os.Chtimes(n, time.Unix(0, 0), time.Unix(0, 0))) }, false}, {11 * second, nil, true}}},
		{"rewritten with equal size", []step{
			{0, func(n string) { write(t, n, "x") }, false}, {9 * second, future, false}, {18 * second, nil, false}, {19 * second, nil, true}}},
		{"gone and back", []step{
			{0, func(n string) { write(t, n, "x") }, false}, {5 * second, func(n string) { check(t, os.Remove(n)) }, false},
			{11 * second, future, false}, {21 * second, nil, true}}},
		{"empty", []step{{0, func(n string) { write(t, n, "") }, false}, {60 * second, nil, false}}},
		{"directory", []step{{0, func(n string) { check(t, os.Mkdir(n, 0o700)) }, false}, {60 * second, nil, false}}},
		{"FIFO", []step{{0, func(n string) { check(t, syscall.Mkfifo(n, 0o600)) }, false}, {60 * second, nil, false}}},
		{"dangling link", []step{{0, func(n string) { check(t, os.Symlink("nowhere", n)) }, false}, {60 * second, nil, false}}},
		{"FALLBACK lands too", []step{
			{0, func(n string) { write(t, n, "# u result (FALLBACK, worker wrote no result file)\n") }, false}, {11 * second, nil, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(realTemp(t), "r")
			var out bytes.Buffer
			g := &gathering{limits: limits{poll: 5 * second, window: 10 * second}, out: printer{env: &cli.Env{Stdout: &out}}}
			g.addFile(name)
			for i, s := range c.steps {
				if s.do != nil {
					s.do(name)
				}
				remaining, next, err := g.pass(s.at, time.Now())
				if err != nil || (remaining == 0) != s.landed || next <= 0 || next > 5*second {
					t.Errorf("step %d: %d remain, next in %v, %v", i, remaining, next, err)
				}
			}
			want := ""
			if c.steps[len(c.steps)-1].landed {
				want = "DONE " + name + "\n"
			}
			if out.String() != want {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

func TestRun(t *testing.T) {
	dir := realTemp(t)
	t.Chdir(dir)
	write(t, "a", "x")
	check(t, os.Mkdir("real", 0o700))
	write(t, "real/b", "x")
	check(t, os.Symlink("real", "link"))
	check(t, os.Symlink("real/b", "b"))
	write(t, "--json", "x")
	at := func(name string) string { return "DONE " + dir + "/" + name + "\n" }
	window := []string{"PRUN_GATHER_STABLE_WINDOW=0"}
	const start = "GATHER-START count="
	for _, c := range []struct {
		environ   []string
		args      []string
		status    int
		out, diag string
	}{
		{window, []string{"a"}, 0, start + "1 timeout=3600s\n" + at("a"), ""},
		{window, []string{"--", "a", "a", dir + "/a", "link/b", "b", "--json"}, 0,
			start + "6 timeout=3600s\n" + at("a") + at("a") + at("a") + at("real/b") + at("b") + at("--json"), ""},
		{append(window, "AGENT_CONFIG_GATHER_TIMEOUT=0"), []string{"a", "none"}, 2, start + "2 timeout=0s\n" + at("a") + "TIMEOUT remaining=1\n", ""},
		{append(window, "AGENT_CONFIG_GATHER_TIMEOUT=007"), []string{"a"}, 0, start + "1 timeout=007s\n" + at("a"), ""},
		{append(window, "AGENT_CONFIG_GATHER_TIMEOUT=-5", "PRUN_GATHER_POLL=x"), []string{"a"}, 0, start + "1 timeout=3600s\n" + at("a"),
			"prun-gather: warning: AGENT_CONFIG_GATHER_TIMEOUT=\"-5\": not a number of whole seconds; using the default 3600\n" +
				"prun-gather: warning: PRUN_GATHER_POLL=\"x\": not a number of seconds; using the default 5\n"},
		{nil, nil, 2, "", "usage: prun-gather <result-file> [<result-file> ...]\n"},
		{nil, []string{"--"}, 2, "", "usage: gather.sh <result-file> [<result-file> ...]\n"},
		{nil, []string{"--timeout=0", "", "real"}, 2, start + "2 timeout=0s\nTIMEOUT remaining=2\n", ""},
		{nil, []string{"--ledger", "none"}, 2, "", "prun-gather: error: read ledger: open none: no such file or directory\n"},
	} {
		status, out, diag := run(c.environ, c.args...)
		if status != c.status || out != c.out || diag != c.diag {
			t.Errorf("%q %q: %d\n%s%s", c.environ, c.args, status, out, diag)
		}
	}
}

// makeUnit makes a state directory whose result is name.md beside it.
func makeUnit(tb testing.TB, base, name string, before *state.FileMark) state.Unit {
	tb.Helper()
	u := state.Unit{Dir: filepath.Join(base, state.Name("0a1b2c3d", name, 4711, "0123456789abcdef"))}
	check(tb, os.Mkdir(u.Dir, 0o700))
	check(tb, u.WriteEntry(state.FileResult, filepath.Join(base, name+".md")))
	check(tb, u.WriteIdentity(state.Identity{Unit: name, Result: filepath.Join(base, name+".md"), ResultBefore: before}))
	return u
}

func whole(id string) string {
	return "# " + id + " result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n\nText.\n"
}

func TestUnits(t *testing.T) {
	base := realTemp(t)
	landed := makeUnit(t, base, "landed", nil)
	write(t, base+"/landed.md", "x")
	check(t, landed.PublishOutcome(state.Outcome{Cause: state.Exited}))
	failed := makeUnit(t, base, "failed", nil)
	write(t, base+"/failed.md", "x")
	check(t, failed.PublishOutcome(state.Outcome{Cause: state.HardTimeout, Reason: "too long"}))
	none := makeUnit(t, base, "none", nil)
	check(t, none.PublishOutcome(state.Outcome{Cause: state.LaunchFailed}))
	running := makeUnit(t, base, "running", nil)
	write(t, base+"/old.md", "x")
	mark, err := state.MarkFile(base + "/old.md")
	check(t, err)
	old := makeUnit(t, base, "old", mark)

	status, out, diag := run(nil, "--unit", landed.Dir, "--unit="+failed.Dir, "--unit", none.Dir)
	want := "GATHER-START count=3 timeout=3600s\nDONE " + base + "/landed.md\nDONE " + base + "/failed.md\nDONE " + none.Dir + "\n"
	told := "prun-gather: warning: " + failed.Name() + " has a result, but its backend failed: hard-timeout, exit status 124: too long\n" +
		"prun-gather: warning: " + none.Name() + " ended without a result: launch-failed, exit status 70\n"
	if status != 0 || out != want || diag != told {
		t.Errorf("%d\n%s%s", status, out, diag)
	}
	// A unit that runs is waited for, and what stood at its result path before it
	// is not its result.
	status, out, _ = run([]string{"PRUN_GATHER_STABLE_WINDOW=0"}, "--timeout", "0", "--unit", running.Dir, "--unit", old.Dir, "--unit", landed.Dir)
	if status != 2 || out != "GATHER-START count=3 timeout=0s\nDONE "+base+"/landed.md\nTIMEOUT remaining=2\n" {
		t.Errorf("%d\n%s", status, out)
	}
	status, out, _ = run(nil, "--json", "--timeout", "0", "--unit", failed.Dir, "--unit", none.Dir, "--unit", running.Dir)
	var objects []map[string]any
	for text := range strings.Lines(out) {
		var o map[string]any
		check(t, json.Unmarshal([]byte(text), &o))
		objects = append(objects, o)
	}
	if status != 2 || len(objects) != 4 || objects[0]["count"] != 3.0 || objects[1]["backend_failed"] != true || objects[1]["landed"] != true ||
		objects[2]["landed"] != false || objects[2]["path"] != none.Dir || objects[3]["remaining"] != 1.0 {
		t.Errorf("%d %v", status, objects)
	}
}

func TestLedger(t *testing.T) {
	base := realTemp(t)
	ledger := base + "/ledger.jsonl"
	ok, bad := state.Outcome{Cause: state.Exited}, state.Outcome{Cause: state.Failed, ExitCode: new(3)}
	var want []string
	add := func(name, text string, o *state.Outcome, kind string) state.Unit {
		var mark *state.FileMark
		path := filepath.Join(base, name+".md")
		if name == "stale" {
			write(t, path, text)
			var err error
			mark, err = state.MarkFile(path)
			check(t, err)
		}
		u := makeUnit(t, base, name, mark)
		if name != "stale" && text != "-" {
			write(t, path, text)
		}
		check(t, state.AppendLedger(ledger, state.Entry{ID: name, StateDir: u.Dir, ResultFile: path, Status: state.LedgerDispatched}))
		if o != nil {
			check(t, u.PublishOutcome(*o))
		}
		if kind != "" {
			want = append(want, "UNRECONCILED "+name+" "+kind+" "+path)
		}
		return u
	}
	add("good", whole("good"), &ok, "")
	add("missing", "-", &bad, "missing")
	add("empty", "", &bad, "empty")
	add("fallback", "# fallback result (FALLBACK, Agy wrote no final result)\n", &bad, "fallback")
	add("stale", whole("stale"), &ok, "stale")
	add("wrong", whole("another"), &ok, "malformed")
	add("short", "# short result\nConclusion: x\n", &ok, "malformed")
	add("failed", whole("failed"), &bad, "failed")

	status, out, diag := run([]string{"PRUN_GATHER_STABLE_WINDOW=0"}, "--ledger", ledger)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	var done []string
	for _, name := range []string{"good", "fallback", "stale", "wrong", "short", "failed"} {
		done = append(done, "DONE "+filepath.Join(base, name+".md"))
	}
	if status != exitUnreconciled || !slices.Equal(lines, slices.Concat([]string{"GATHER-START count=8 timeout=3600s"}, done, want)) {
		t.Errorf("%d\n%s%s", status, out, diag)
	}

	// The last line of a unit counts, an unreadable one is told, and a unit whose
	// directory is gone has ended when the ledger says so.
	gone := add("gone", "-", nil, "missing")
	check(t, os.RemoveAll(gone.Dir))
	status, out, _ = run(nil, "--timeout", "0", "--ledger", ledger)
	if status != exitTimeout || !strings.HasSuffix(out, "UNRECONCILED gone missing "+base+"/gone.md\nTIMEOUT remaining=1\n") {
		t.Errorf("%d\n%s", status, out)
	}
	check(t, state.EndLedger(ledger, gone.Dir, bad))
	f, err := os.OpenFile(ledger, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteString("half a li")
	check(t, err)
	check(t, f.Close())
	status, out, diag = run(nil, "--ledger", ledger)
	if status != exitUnreconciled || strings.Contains(out, "TIMEOUT") || !strings.Contains(diag, ledger+": line 11: unfinished") {
		t.Errorf("%d\n%s%s", status, out, diag)
	}

	all := base + "/all.jsonl"
	check(t, state.AppendLedger(all, state.Entry{ID: "good", StateDir: filepath.Join(base, state.Name("0a1b2c3d", "good", 4711, "0123456789abcdef")),
		ResultFile: base + "/good.md", Status: state.LedgerDone}))
	if status, out, diag := run(nil, "--ledger", all); status != 0 || out != "GATHER-START count=1 timeout=3600s\nDONE "+base+"/good.md\n" || diag != "" {
		t.Errorf("%d\n%s%s", status, out, diag)
	}
	write(t, base+"/none.jsonl", "")
	if status, out, _ := run(nil, "--ledger", base+"/none.jsonl"); status != 0 || out != "GATHER-START count=0 timeout=3600s\n" {
		t.Errorf("an empty ledger: %d\n%s", status, out)
	}
}

// An old directory knows what was there before only to the second.
func TestStaleOldDirectory(t *testing.T) {
	base := realTemp(t)
	u := state.Unit{Dir: base + "/u"}
	check(t, os.Mkdir(u.Dir, 0o700))
	write(t, base+"/r.md", whole("u"))
	mark, err := state.MarkFile(base + "/r.md")
	check(t, err)
	check(t, u.WriteEntry(state.FilePreMtime, fmt.Sprint(mark.MTime.Unix())))
	target := newEntry(state.Entry{ID: "u", StateDir: u.Dir, ResultFile: base + "/r.md"}, 0)
	if k, _ := target.reconcile(); k != stale {
		t.Errorf("%q", k)
	}
	check(t, os.Chtimes(base+"/r.md", time.Now().Add(time.Hour), time.Now().Add(time.Hour)))
	if k, _ := target.reconcile(); k != reconciled {
		t.Errorf("%q", k)
	}
	check(t, u.ReplaceEntry(state.FilePreMtime, "0"))
	if k, _ := target.reconcile(); k != reconciled {
		t.Errorf("%q", k)
	}
}

// What changes while it waits ends the wait: a line of the ledger, an outcome, a
// file that is moved into place.
func TestWoken(t *testing.T) {
	if !immediate {
		t.Skip("changes are polled for here")
	}
	base := realTemp(t)
	gone, unit := makeUnit(t, base, "gone", nil), makeUnit(t, base, "unit", nil)
	check(t, os.RemoveAll(gone.Dir))
	ledger := base + "/l"
	check(t, state.AppendLedger(ledger, state.Entry{ID: "gone", StateDir: gone.Dir, ResultFile: base + "/gone.md"}))
	for name, change := range map[string]func(){
		"ledger":  func() { check(t, state.EndLedger(ledger, gone.Dir, state.Outcome{Cause: state.Failed})) },
		"outcome": func() { check(t, unit.PublishOutcome(state.Outcome{Cause: state.Failed})) },
		"file":    func() { write(t, base+"/.f", "x"); check(t, os.Rename(base+"/.f", base+"/sub/f")) },
	} {
		t.Run(name, func(t *testing.T) {
			g := &gathering{limits: limits{timeout: 60 * second, poll: 30 * second}, out: printer{env: &cli.Env{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}}}
			switch name {
			case "ledger":
				check(t, g.addLedger(ledger))
			case "outcome":
				g.addUnit(unit.Dir)
			case "file":
				g.addFile(base + "/sub/f")
				check(t, os.Mkdir(base+"/sub", 0o700))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*second)
			defer cancel()
			done := make(chan error)
			go func() { _, err := g.wait(ctx, time.Now()); done <- err }()
			select {
			case <-done:
				t.Fatal("through before anything happened")
			case <-time.After(200 * time.Millisecond):
			}
			start := time.Now()
			change()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 2*second {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

// A thousand files: memory, and processor time of a pass.
func TestThousandFiles(t *testing.T) {
	base := realTemp(t)
	g := &gathering{limits: limits{poll: 5 * second, window: 10 * second}, out: printer{env: &cli.Env{}}}
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("%s/%d.md", base, i))
		g.addFile(names[i])
	}
	before := cpu(t)
	const passes = 10
	for i := range passes {
		if remaining, _, err := g.pass(time.Duration(i)*5*second, time.Now()); remaining != 1000 || err != nil {
			t.Fatal(remaining, err)
		}
	}
	pass := (cpu(t) - before) / passes
	t.Logf("a pass over 1000 files takes %v of CPU", pass)
	if !race && pass > 50*time.Millisecond {
		t.Errorf("a pass takes %v of CPU", pass)
	}
	if !immediate || race {
		t.Skip("the kernel's count of memory is read on Linux, and the race detector has its own needs")
	}
	cmd := exec.Command(os.Args[0], append([]string{"--timeout=1"}, names...)...)
	cmd.Env = append(os.Environ(), "PRUN_TEST_GATHER=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitTimeout {
		t.Fatalf("%v: %s", err, out)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("a gathering of 1000 files: %d KiB", usage.Maxrss)
	if usage.Maxrss > 30<<10 {
		t.Errorf("%d KiB resident", usage.Maxrss)
	}
}

func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestMain(m *testing.M) {
	if os.Getenv("PRUN_TEST_GATHER") != "" {
		cli.Main(tool, new(options))
	}
	os.Exit(m.Run())
}
