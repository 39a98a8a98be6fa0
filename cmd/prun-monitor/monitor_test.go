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

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

const second = time.Second

var usual = limits{stall: 600 * second, timeout: 3600 * second, poll: 15 * second, window: 10 * second}

// scene is a state directory and the result beside it.
type scene struct {
	t      *testing.T
	dir    string
	result string
	lock   *atomicfile.Lock
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, dir: filepath.Join(t.TempDir(), "prun-task-0a1b2c3d-u-1-0123456789abcdef"), result: filepath.Join(t.TempDir(), "r.md")}
	s.check(os.Mkdir(s.dir, 0o700))
	s.file(state.FileResult, s.result+"\n")
	return s
}

func (s *scene) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) file(name, text string) {
	s.t.Helper()
	s.check(os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// tail makes the tail n bytes long.
func (s *scene) tail(n int) { s.t.Helper(); s.file(state.FileTail, strings.Repeat("x", n)) }

// land writes a result that is age old.
func (s *scene) land(text string, age time.Duration) {
	s.t.Helper()
	s.check(os.WriteFile(s.result, []byte(text), 0o600))
	when := time.Now().Add(-age)
	s.check(os.Chtimes(s.result, when, when))
}

// identify records this process, or a dead one, as the supervisor.
func (s *scene) identify(alive bool) {
	s.t.Helper()
	id := state.Identity{Supervisor: pid.Self(), Machine: pid.Machine(), Result: s.result}
	if !alive {
		id.Supervisor.PID, id.Supervisor.Start, id.Supervisor.Inode = 99999999, 1, 0
	}
	s.check(state.Unit{Dir: s.dir}.WriteIdentity(id))
	lock, err := atomicfile.TryLock(filepath.Join(s.dir, state.FileLock))
	s.check(err)
	if alive {
		s.lock = lock
		s.t.Cleanup(func() { _ = lock.Close() })
	} else {
		s.check(lock.Unlock())
	}
}

func (s *scene) settle(o state.Outcome) {
	s.t.Helper()
	s.check(state.Unit{Dir: s.dir}.PublishOutcome(o))
}

const (
	good     = "# u result\nConclusion: done\n"
	fallback = "# u result (FALLBACK, worker wrote no result file)\n"
	agy      = "# a-1_B result (FALLBACK, Agy wrote no final result)\n"
)

// TestStatus runs a monitor over one unit in fake time. The wall clock stands
// still: only what a file's own times say depends on it.
func TestStatus(t *testing.T) {
	type step struct {
		at     time.Duration
		do     func(s *scene)
		status string
		event  event
	}
	dead := func(s *scene) { s.file(state.FileDispatchPID, "99999999\n") }
	live := func(s *scene) { s.file(state.FileDispatchPID, fmt.Sprintf("%d\n", os.Getpid())) }
	for _, c := range []struct {
		name   string
		limits limits
		steps  []step
	}{
		{"settled, result: done at once, whatever its age", usual, []step{
			{0, func(s *scene) { s.land(good, 0); s.settle(state.Outcome{Cause: state.Exited}) }, "done", allDone}}},
		{"settled, FALLBACK", usual, []step{
			{0, func(s *scene) { s.land(fallback, 0); s.settle(state.Outcome{Cause: state.Failed}) }, "failed(fallback)", fail}}},
		{"settled, agy's FALLBACK", usual, []step{
			{0, func(s *scene) { s.land(agy, 0); s.settle(state.Outcome{Cause: state.Failed}) }, "failed(fallback)", fail}}},
		{"settled, FALLBACK in line 2 is the worker's words", usual, []step{
			{0, func(s *scene) { s.land("x\n"+fallback, 0); s.settle(state.Outcome{Cause: state.Exited}) }, "done", allDone}}},
		{"settled and failed, with a result: done, as before", usual, []step{
			{0, func(s *scene) { s.land(good, 0); s.settle(state.Outcome{Cause: state.IdleStall}) }, "done", allDone}}},
		{"settled without a result", usual, []step{
			{0, func(s *scene) { s.settle(state.Outcome{Cause: state.LaunchFailed}) }, "failed(dispatch-dead)", fail}}},
		{"settled, and the result lands later: nothing latches", usual, []step{
			{0, func(s *scene) { s.settle(state.Outcome{Cause: state.Exited}) }, "failed(dispatch-dead)", fail},
			{1, func(s *scene) { s.land(good, 0) }, "done", allDone}}},
		{"live unit, quiet result", usual, []step{
			{0, func(s *scene) { s.identify(true); s.land(good, 60*second) }, "finishing", nothing},
			{10 * second, nil, "done", allDone}}},
		{"old unit, a result from the future lands by being watched", usual, []step{
			{0, func(s *scene) { s.land(good, -24*3600*second) }, "finishing", nothing},
			{9 * second, nil, "finishing", nothing},
			{10 * second, nil, "done", allDone}}},
		{"a result that is still written is never stalled or dead", limits{stall: second, timeout: 3600 * second, poll: second, window: 10 * second}, []step{
			{0, func(s *scene) { dead(s); s.land("1", 0) }, "finishing", nothing},
			{9 * second, func(s *scene) { s.land("12", 0) }, "finishing", nothing},
			{18 * second, func(s *scene) { s.land("123", 0) }, "finishing", nothing},
			{28 * second, nil, "done", allDone}}},
		{"an empty result is none", usual, []step{{0, func(s *scene) { s.land("", 60*second) }, "growing", nothing}}},
		{"a directory at the result path is none", usual, []step{{0, func(s *scene) { s.check(os.Mkdir(s.result, 0o700)) }, "growing", nothing}}},
		{"a FIFO at the result path is none and blocks nobody", usual, []step{
			{0, func(s *scene) { s.check(syscall.Mkfifo(s.result, 0o600)) }, "growing", nothing}}},
		{"a FIFO as the tail does not grow", usual, []step{
			{0, func(s *scene) { live(s); s.check(syscall.Mkfifo(filepath.Join(s.dir, state.FileTail), 0o600)) }, "growing", nothing},
			{30 * second, nil, "growing", nothing}}},
		{"silence", usual, []step{
			{0, func(s *scene) { live(s); s.tail(5) }, "growing", nothing},
			{30 * second, nil, "growing", nothing},
			{60 * second, nil, "growing", nothing}}},
		{"stall at the threshold", limits{stall: 30 * second, timeout: 3600 * second, poll: 15 * second, window: 10 * second}, []step{
			{0, func(s *scene) { live(s); s.tail(5) }, "growing", nothing},
			{29 * second, nil, "growing", nothing},
			{30 * second, nil, "stalled(30s)", stall},
			{31 * second, func(s *scene) { s.tail(6) }, "growing", nothing},
			{32 * second, func(s *scene) { s.land(good, 60*second); s.settle(state.Outcome{}) }, "done", allDone}}},
		{"a touched tail has not grown", limits{stall: 30 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { live(s); s.tail(5) }, "growing", nothing},
			{30 * second, func(s *scene) { s.tail(5) }, "stalled(30s)", stall}}},
		{"no threshold, no stall", limits{timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { live(s) }, "growing", nothing},
			{30 * second, nil, "growing", nothing},
			{3000 * second, nil, "growing", nothing}}},
		{"a monitor that was stopped for an hour", limits{stall: 60 * second, timeout: 36000 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { live(s); s.tail(5) }, "growing", nothing},
			{3600 * second, nil, "growing", nothing}}},
		{"old rule: dead only at the threshold", limits{stall: 30 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { dead(s); s.tail(5) }, "growing", nothing},
			{15 * second, nil, "growing", nothing},
			{30 * second, nil, "failed(dispatch-dead)", fail}}},
		{"old rule: garbage is dead", limits{stall: 15 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{15 * second, func(s *scene) { s.file(state.FileDispatchPID, "12abc\n") }, "failed(dispatch-dead)", fail}}},
		{"old rule: no pid is stalled", limits{stall: 15 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{15 * second, nil, "stalled(15s)", stall}}},
		{"old rule: an empty pid is stalled", limits{stall: 15 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{15 * second, func(s *scene) { s.file(state.FileDispatchPID, "\n") }, "stalled(15s)", stall}}},
		{"lost: at the second look", usual, []step{
			{0, func(s *scene) { s.identify(false); s.tail(5) }, "growing", nothing},
			{15 * second, nil, "failed(dispatch-dead)", fail}}},
		{"lost with nothing said: at the second look", usual, []step{
			{0, func(s *scene) { s.identify(false) }, "growing", nothing},
			{15 * second, nil, "failed(dispatch-dead)", fail}}},
		{"lost, but somebody still writes", usual, []step{
			{0, func(s *scene) { s.identify(false); s.tail(5) }, "growing", nothing},
			{15 * second, func(s *scene) { s.tail(6) }, "growing", nothing},
			{20 * second, nil, "growing", nothing},
			{30 * second, nil, "failed(dispatch-dead)", fail}}},
		{"lost without a stall threshold", limits{timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { s.identify(false) }, "growing", nothing},
			{15 * second, nil, "failed(dispatch-dead)", fail}}},
		{"alive and silent", usual, []step{
			{0, func(s *scene) { s.identify(true); s.tail(5) }, "growing", nothing},
			{15 * second, nil, "growing", nothing}}},
		{"alive, then killed", usual, []step{
			{0, func(s *scene) { s.identify(true); s.tail(5) }, "growing", nothing},
			{15 * second, nil, "growing", nothing},
			{30 * second, func(s *scene) { s.identifyDead() }, "failed(dispatch-dead)", fail}}},
		{"queued: no limit runs", limits{stall: 30 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { s.identify(true); s.file(state.FileQueued, "3\n") }, "queued(3)", nothing},
			{100 * second, nil, "queued(3)", nothing},
			{115 * second, func(s *scene) { s.check(os.Remove(filepath.Join(s.dir, state.FileQueued))) }, "growing", nothing},
			{130 * second, nil, "stalled(30s)", stall}}},
		{"queued and then lost", usual, []step{
			{0, func(s *scene) { s.identify(false); s.file(state.FileQueued, "3\n") }, "growing", nothing},
			{15 * second, nil, "failed(dispatch-dead)", fail}}},
		{"no such directory", limits{stall: 30 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { s.check(os.RemoveAll(s.dir)) }, "growing", nothing},
			{30 * second, nil, "stalled(30s)", stall}}},
		{"the directory goes while it is watched", limits{stall: 30 * second, timeout: 3600 * second, poll: 15 * second, window: second}, []step{
			{0, func(s *scene) { live(s); s.tail(5) }, "growing", nothing},
			{30 * second, func(s *scene) { s.check(os.RemoveAll(s.dir)) }, "stalled(30s)", stall}}},
		{"no time at all, but it is done", limits{poll: 15 * second, window: 10 * second}, []step{
			{0, func(s *scene) { s.land(good, 0); s.settle(state.Outcome{Cause: state.Exited}) }, "done", allDone}}},
		{"no time at all", limits{poll: 15 * second, window: 10 * second}, []step{{0, nil, "growing", timeUp}}},
		{"landed in the last second", limits{timeout: 5 * second, poll: 15 * second, window: 10 * second}, []step{
			{0, func(s *scene) { s.identify(true) }, "growing", nothing},
			{5 * second, func(s *scene) { s.land(good, 0); s.settle(state.Outcome{Cause: state.Exited}) }, "done", allDone}}},
		{"the time is up", limits{timeout: 5 * second, poll: 15 * second, window: 10 * second}, []step{
			{0, func(s *scene) { s.identify(true) }, "growing", nothing},
			{5 * second, nil, "growing", timeUp}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			m := newMonitor([]string{s.dir}, c.limits)
			for i, step := range c.steps {
				if step.do != nil {
					step.do(s)
				}
				e, next := m.pass(step.at, time.Now())
				if e != step.event || m.units[0].status != step.status {
					t.Fatalf("step %d: %q %q, want %q %q", i, e, m.units[0].status, step.event, step.status)
				}
				if e == nothing && (next <= 0 || next > c.limits.poll || next > c.limits.timeout-step.at) {
					t.Errorf("step %d: next look in %v", i, next)
				}
			}
		})
	}
}

// identifyDead makes the unit one whose supervisor has died.
func (s *scene) identifyDead() {
	s.check(s.lock.Unlock())
	id, err := state.Unit{Dir: s.dir}.ReadIdentity()
	s.check(err)
	id.Supervisor.PID, id.Supervisor.Start, id.Supervisor.Inode = 99999999, 1, 0
	s.check(state.Unit{Dir: s.dir}.WriteIdentity(*id))
}

// A relative path in an old directory is relative to the monitor, the recorded
// absolute one is not.
func TestRelativeResult(t *testing.T) {
	s := newScene(t)
	t.Chdir(filepath.Dir(s.result))
	s.land(good, 0)
	s.file(state.FileResult, "r.md\r\n")
	m := newMonitor([]string{s.dir}, limits{timeout: second, poll: second})
	if e, _ := m.pass(0, time.Now()); e != allDone {
		t.Errorf("old directory: %q %q", e, m.units[0].status)
	}
	t.Chdir(t.TempDir())
	m = newMonitor([]string{s.dir}, limits{timeout: second, poll: second})
	if e, _ := m.pass(0, time.Now()); e != nothing {
		t.Errorf("old directory from elsewhere: %q", e)
	}
	s.identify(true)
	m = newMonitor([]string{s.dir}, limits{timeout: second, poll: second})
	if e, _ := m.pass(0, time.Now()); e != allDone {
		t.Errorf("with an identity: %q", e)
	}
}

func TestPrecedence(t *testing.T) {
	done := func(s *scene) { s.land(good, 0); s.settle(state.Outcome{Cause: state.Exited}) }
	failed := func(s *scene) { s.land(fallback, 0); s.settle(state.Outcome{Cause: state.Failed}) }
	silent := func(*scene) {}
	works := func(s *scene) { s.tail(5) }
	for _, c := range []struct {
		units []func(*scene)
		any   bool
		want  event
	}{
		{[]func(*scene){done, done}, false, allDone},
		{[]func(*scene){done, works}, false, timeUp},
		{[]func(*scene){done, silent}, false, stall},
		{[]func(*scene){done, silent, failed}, false, fail},
		{[]func(*scene){done, works}, true, anyDone},
		{[]func(*scene){done, done}, true, anyDone},
		{[]func(*scene){works, works}, true, timeUp},
		{[]func(*scene){done, failed}, true, fail},
		{[]func(*scene){done, silent}, true, stall},
	} {
		var dirs []string
		for _, do := range c.units {
			s := newScene(t)
			do(s)
			dirs = append(dirs, s.dir)
		}
		m := newMonitor(dirs, limits{stall: second, timeout: second, poll: second, window: second, any: c.any})
		if e, _ := m.pass(second, time.Now()); e != c.want {
			t.Errorf("%d units, any %v: %q, want %q", len(c.units), c.any, e, c.want)
		}
	}
}

func run(environ []string, args ...string) (status int, out, diag string) {
	var stdout, stderr bytes.Buffer
	status = cli.Execute(tool, new(options), &cli.Env{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: environ})
	return status, stdout.String(), stderr.String()
}

func TestRun(t *testing.T) {
	s := newScene(t)
	s.land(good, 0)
	s.settle(state.Outcome{Cause: state.HardTimeout, Reason: "no end in sight"})
	name := filepath.Base(s.dir)
	done := "MONITOR-EVENT all-done\nUNIT " + name + " done\n"
	told := "prun-monitor: warning: " + name + " has a result, but its backend failed: hard-timeout, exit status 124: no end in sight\n"
	for _, c := range []struct {
		environ   []string
		args      []string
		status    int
		out, diag string
	}{
		{nil, []string{"--", s.dir + "/"}, 0, "MONITOR-START units=1 stall-threshold=600s timeout=3600s\n" + done, told},
		{[]string{"PRUN_STALL_THRESHOLD=010", "PRUN_MONITOR_TIMEOUT= ", "PRUN_MONITOR_POLL=", "PRUN_MONITOR_STABLE_WINDOW=0.5"}, []string{s.dir}, 0,
			"MONITOR-START units=1 stall-threshold=010s timeout=3600s\n" + done, told},
		{[]string{"PRUN_MONITOR_TIMEOUT=abc", "PRUN_MONITOR_POLL=abc"}, []string{"--st=5", s.dir}, 0,
			"MONITOR-START units=1 stall-threshold=5s timeout=3600s\n" + done,
			"prun-monitor: warning: PRUN_MONITOR_TIMEOUT=\"abc\": not a number of whole seconds; using the default 3600\n" +
				"prun-monitor: warning: PRUN_MONITOR_POLL=\"abc\": not a number of seconds; using the default 15\n" + told},
		{nil, nil, 2, "MONITOR-EVENT usage-error\n", "monitor: need at least one <state-dir>\nUsage: prun-monitor <state-dir> [<state-dir> ...]\n"},
		{nil, []string{"--"}, 2, "MONITOR-EVENT usage-error\n", "monitor: need at least one <state-dir>\nUsage: monitor.sh <state-dir> [<state-dir> ...]\n"},
		{[]string{"PRUN_MONITOR_TIMEOUT=0"}, []string{"--", "--any"}, 2,
			"MONITOR-START units=1 stall-threshold=600s timeout=0s\nMONITOR-EVENT timeout\nUNIT --any growing\n", ""},
		{nil, []string{"--timeout", "0", "a\nb/c\x1b\xff"}, 2,
			"MONITOR-START units=1 stall-threshold=600s timeout=0s\nMONITOR-EVENT timeout\nUNIT c\\x1b\\xff growing\n",
			"prun-monitor: warning: a\\x0ab/c\\x1b\\xff does not exist; it is waited for all the same\n"},
	} {
		status, out, diag := run(c.environ, c.args...)
		if status != c.status || out != c.out || diag != c.diag {
			t.Errorf("%q %q: %d\n%s%s", c.environ, c.args, status, out, diag)
		}
	}
}

func TestJSON(t *testing.T) {
	s, w := newScene(t), newScene(t)
	s.land(good, 0)
	s.settle(state.Outcome{Cause: state.Failed, ExitCode: new(3)})
	w.identify(true)
	status, out, _ := run(nil, "--json", "--any", s.dir, w.dir)
	if status != 0 {
		t.Errorf("status %d", status)
	}
	var got []map[string]any
	for text := range strings.Lines(out) {
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		got = append(got, o)
	}
	if len(got) != 4 || got[0]["line"] != "MONITOR-START" || got[0]["units"] != 2.0 || got[1]["event"] != "any-done" {
		t.Fatalf("%v", got)
	}
	if u := got[2]; u["status"] != "done" || u["backend_failed"] != true || u["result"] != s.result || u["outcome"].(map[string]any)["exit_code"] != 3.0 {
		t.Errorf("%v", u)
	}
	if u := got[3]; u["status"] != "growing" || u["backend_failed"] != nil || u["outcome"] != nil {
		t.Errorf("%v", u)
	}
}

// many makes n live, silent units whose results go into one directory.
func many(tb testing.TB, n int) (dirs []string) {
	tb.Helper()
	base, results := tb.TempDir(), tb.TempDir()
	id := state.Identity{Supervisor: pid.Self(), Machine: pid.Machine()}
	for i := range n {
		u := state.Unit{Dir: filepath.Join(base, state.Name("0a1b2c3d", fmt.Sprint("u", i), 4711, fmt.Sprintf("%016x", i)))}
		if err := os.Mkdir(u.Dir, 0o700); err != nil {
			tb.Fatal(err)
		}
		id.Result, id.DirIno, id.DirDev = filepath.Join(results, fmt.Sprint(i)), 0, 0
		text, err := json.Marshal(id)
		if err != nil {
			tb.Fatal(err)
		}
		for name, text := range map[string]string{state.FileIdentity: string(text), state.FileTail: "x", state.FileResult: id.Result} {
			if err := os.WriteFile(u.Path(name), []byte(text), 0o600); err != nil {
				tb.Fatal(err)
			}
		}
		lock, err := atomicfile.TryLock(u.Path(state.FileLock))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = lock.Close() })
		dirs = append(dirs, u.Dir)
	}
	return dirs
}

// A thousand silent units: a pass every fifteen seconds within one hundredth of
// a core, and an end that is noticed at once.
func TestThousandUnits(t *testing.T) {
	dirs := many(t, 1000)
	m := newMonitor(dirs, usual)
	m.pass(0, time.Now())
	before := cpu(t)
	const passes = 5
	for i := range passes {
		if e, _ := m.pass(time.Duration(i+1)*15*second, time.Now()); e != nothing {
			t.Fatalf("event %q", e)
		}
	}
	pass := (cpu(t) - before) / passes
	t.Logf("a pass over 1000 units takes %v of CPU", pass)
	limit := 150 * time.Millisecond
	if race {
		limit *= 10
	}
	if pass > limit {
		t.Errorf("a pass takes %v of CPU, more than %v", pass, limit)
	}

	// On a machine that has other work, the time to notice is its own and that of
	// others. The best of a few is not.
	best := time.Hour
	for try := 0; try < 10 && (try == 0 || best > 150*time.Millisecond); try++ {
		ended := 700 - try
		best = min(best, noticed(t, dirs, ended))
		dirs = slices.Delete(dirs, ended, ended+1)
	}
	t.Logf("woken after %v", best)
	if immediate && !race && best > 150*time.Millisecond {
		t.Errorf("noticed after %v", best)
	}
}

// noticed is how long a monitor of many units takes to notice that one has ended.
func noticed(t *testing.T, dirs []string, ended int) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*second)
	defer cancel()
	l := usual
	l.any = true
	m := newMonitor(dirs, l)
	u := state.Unit{Dir: dirs[ended]}
	started, seen := make(chan struct{}), make(chan event)
	go func() {
		close(started)
		e, err := m.wait(ctx, time.Now())
		if err != nil {
			t.Error(err)
		}
		seen <- e
	}()
	<-started
	// Whenever it comes, before, within or after the first pass, it is seen. The
	// time is taken when the waiter has settled down.
	select {
	case <-seen:
		t.Fatal("an event before there was one")
	case <-time.After(second):
	}
	id, err := u.ReadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(id.Result, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := u.PublishOutcome(state.Outcome{Cause: state.Exited}); err != nil {
		t.Fatal(err)
	}
	if e := <-seen; e != anyDone {
		t.Errorf("event %q", e)
	}
	return time.Since(start)
}

func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkPass(b *testing.B) {
	m := newMonitor(many(b, 1000), usual)
	m.pass(0, time.Now())
	at := 15 * second
	for b.Loop() {
		m.pass(at, time.Now())
		at += 15 * second
	}
}

// TestMemory starts the test binary as a monitor of a thousand units and asks
// the kernel what it needs.
func TestMemory(t *testing.T) {
	if !immediate || race {
		t.Skip("the kernel's count is read from /proc, and the race detector has its own needs")
	}
	args := append([]string{"--timeout=2"}, many(t, 1000)...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "PRUN_TEST_MONITOR=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitTimeout {
		t.Fatalf("%v: %s", err, out)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("a monitor of 1000 units: %d KiB, %v of CPU in two seconds", usage.Maxrss, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if usage.Maxrss > 30<<10 {
		t.Errorf("%d KiB resident", usage.Maxrss)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("PRUN_TEST_MONITOR") != "" {
		cli.Main(tool, new(options))
	}
	os.Exit(m.Run())
}
