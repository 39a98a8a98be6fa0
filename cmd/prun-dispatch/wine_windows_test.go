package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// These stories run real programs on Windows, or under Wine (make test-windows). The programs are built before, into
// the directory that PRUN_TEST_BIN names.

// built returns the built program, and skips where there is none.
func built(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PRUN_TEST_BIN")
	if dir == "" {
		t.Skip("PRUN_TEST_BIN names no directory with built programs (make test-windows does)")
	}
	path := filepath.Join(dir, name+".exe")
	if _, err := os.Stat(path); err != nil {
		t.Skip(name + " is not built here")
	}
	return path
}

// A winUnit is one prun-dispatch under test.
type winUnit struct {
	t      *testing.T
	dir    string // of the test; holds spaces and letters of other scripts
	base   string
	result string
	pids   string // the fake agent writes the numbers of its children there
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	ended  chan struct{}
}

// A winSpec is what differs between the stories.
type winSpec struct {
	bin     string   // the prun-dispatch to run; "" the built one
	front   []string // before the options
	options []string
	worker  []string // after --; nil: the fake agent with steps
	steps   []string
	env     []string
	console bool // a console of its own, for CTRL_C
}

const createNoWindow = 0x08000000

func launchWin(t *testing.T, s winSpec) *winUnit {
	t.Helper()
	if s.bin == "" {
		s.bin = built(t, "prun-dispatch")
	}
	dir := filepath.Join(t.TempDir(), "dir with späces и 雪")
	u := &winUnit{
		t: t, dir: dir, base: filepath.Join(dir, "state"), result: filepath.Join(dir, "a result.md"),
		pids: filepath.Join(dir, "pids"), ended: make(chan struct{}),
	}
	for _, d := range []string{dir, u.base} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	prompt := filepath.Join(dir, "the prompt.md")
	if err := os.WriteFile(prompt, []byte("the request\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(s.front), "--prompt-file", prompt, "--result-file", u.result, "--unit-id", "u-1")
	args = append(args, s.options...)
	switch {
	case s.worker != nil:
		args = append(append(args, "--"), s.worker...)
	case len(s.front) == 0:
		args = append(args, "--", built(t, "fakeagent"))
	}
	u.cmd = exec.Command(s.bin, args...)
	u.cmd.Dir = dir
	u.cmd.Env = append(winEnv(),
		"PRUN_STATE_BASE="+u.base, "PRUN_BACKEND=command", "FAKEAGENT_LIFE=40s", "FAKEAGENT_PIDS="+u.pids,
		"FAKEAGENT_SCRIPT="+strings.Join(s.steps, "\n"))
	u.cmd.Env = append(u.cmd.Env, s.env...)
	u.cmd.Stdout, u.cmd.Stderr = &u.stdout, &u.stderr
	if s.console {
		u.cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: createNoWindow}
	}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { u.cmd.Wait(); close(u.ended) }()
	t.Cleanup(func() {
		u.cmd.Process.Kill()
		<-u.ended
		// A unit that a failed story left running would hold its files.
		if u.stateDirs() != nil {
			if id, err := u.unit().ReadIdentity(); err == nil && id != nil {
				id.Supervisor.Signal(syscall.SIGKILL)
				u.gone("supervisor", id.Supervisor)
			}
			if w, err := u.unit().ReadWorker(); err == nil && w != nil {
				u.gone("worker", w.Worker)
			}
		}
	})
	return u
}

// winEnv is this process's environment without what would steer the tools.
func winEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(strings.ToUpper(e), "=")
		if strings.HasPrefix(name, "PRUN_") || strings.HasPrefix(name, "FAKEAGENT_") || name == "TMPDIR" {
			continue
		}
		env = append(env, e)
	}
	return env
}

// until polls for a condition. It counts looks, not time, so that a machine that stands still for a while fails no test.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 12000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("gave up waiting for %s", what)
}

// wait returns the exit status of the front door.
func (u *winUnit) wait() int {
	u.t.Helper()
	until(u.t, "the end of prun-dispatch", func() bool {
		select {
		case <-u.ended:
			return true
		default:
			return false
		}
	})
	return u.cmd.ProcessState.ExitCode()
}

func (u *winUnit) want(status int) {
	u.t.Helper()
	if got := u.wait(); got != status {
		u.t.Fatalf("exit status %d, want %d\nstdout: %s\nstderr: %s", got, status, &u.stdout, &u.stderr)
	}
}

func (u *winUnit) stateDirs() []string {
	list, _ := filepath.Glob(filepath.Join(u.base, "prun-task-*"))
	return list
}

// unit is the one state directory, once it is there.
func (u *winUnit) unit() state.Unit {
	u.t.Helper()
	until(u.t, "the state directory", func() bool { return len(u.stateDirs()) > 0 })
	dirs := u.stateDirs()
	if len(dirs) != 1 {
		u.t.Fatalf("state directories: %q", dirs)
	}
	return state.Unit{Dir: dirs[0]}
}

func (u *winUnit) read(path string) string {
	u.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(b)
}

func (u *winUnit) has(path string, parts ...string) {
	u.t.Helper()
	text := u.read(path)
	for _, p := range parts {
		if !strings.Contains(text, p) {
			u.t.Errorf("%s lacks %q:\n%s", filepath.Base(path), p, text)
		}
	}
}

func (u *winUnit) says(parts ...string) {
	u.t.Helper()
	for _, p := range parts {
		if !strings.Contains(u.stderr.String(), p) {
			u.t.Errorf("standard error lacks %q:\n%s", p, &u.stderr)
		}
	}
}

func (u *winUnit) outcome() state.Outcome {
	u.t.Helper()
	var o *state.Outcome
	until(u.t, "the outcome", func() bool {
		var err error
		o, err = u.unit().ReadOutcome()
		return err == nil && o != nil
	})
	return *o
}

// identities returns the supervisor and the worker once both are recorded.
func (u *winUnit) identities() (supervisor, worker pid.ID) {
	u.t.Helper()
	until(u.t, "worker.json", func() bool {
		w, err := u.unit().ReadWorker()
		if err == nil && w != nil {
			worker = w.Worker
		}
		return worker.PID > 0
	})
	id, err := u.unit().ReadIdentity()
	if err != nil || id == nil {
		u.t.Fatalf("identity: %v", err)
	}
	return id.Supervisor, worker
}

// children returns the identities of what the fake agent has left behind.
func (u *winUnit) children(n int) []pid.ID {
	u.t.Helper()
	var ids []pid.ID
	until(u.t, "the numbers of the worker's children", func() bool {
		b, _ := os.ReadFile(u.pids)
		ids = nil
		for _, f := range strings.Fields(string(b)) {
			p, err := strconv.Atoi(f)
			if err != nil {
				return false
			}
			if id, err := pid.Of(p); err == nil {
				ids = append(ids, id)
			}
		}
		return len(ids) == n
	})
	return ids
}

func (u *winUnit) gone(what string, ids ...pid.ID) {
	u.t.Helper()
	for _, id := range ids {
		until(u.t, what+" to be gone", func() bool { return id.Verdict() == pid.Gone })
	}
}

// plainFiles: every file of ours has LF line ends, and no temporary name is left.
func (u *winUnit) plainFiles() {
	u.t.Helper()
	err := filepath.WalkDir(u.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if b, err := os.ReadFile(path); err != nil {
			u.t.Errorf("read %s: %v", path, err)
		} else if bytes.Contains(b, []byte("\r")) {
			u.t.Errorf("%s holds a carriage return: %q", path, b)
		}
		if strings.Contains(d.Name(), ".prun-") && !strings.HasPrefix(d.Name(), ".prun-claim") {
			u.t.Errorf("a temporary file is left: %s", path)
		}
		return nil
	})
	if err != nil {
		u.t.Error(err)
	}
}

// contained: what the outcome says about the tree.
func (u *winUnit) contained(cause state.Cause) state.Outcome {
	u.t.Helper()
	o := u.outcome()
	if o.Cause != cause || o.Containment != "job" || !o.ProvenEmpty {
		u.t.Errorf("outcome %+v", o)
	}
	return o
}

func TestWineRun(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"out hello", "err from stderr", "result"}})
	u.want(0)
	if want := "STATE-DIR " + u.unit().Dir + "\n"; u.stdout.String() != want {
		t.Errorf("standard output %q, want %q", &u.stdout, want)
	}
	o := u.contained(state.Exited)
	if o.Result != state.ResultWorker || o.Leftovers != 0 {
		t.Errorf("outcome %+v", o)
	}
	u.has(u.result, "# u-1 result\n")
	u.has(u.unit().Path(state.FileTail), "hello\n", "from stderr\n")
	u.plainFiles()
	supervisor, worker := u.identities()
	u.gone("the supervisor", supervisor)
	u.gone("the worker", worker)
}

func TestWineExitStatus(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"out working", "exit 7"}})
	u.want(7)
	u.contained(state.Failed)
	u.has(u.result, "# u-1 result (FALLBACK, ", "working\n")
	u.plainFiles()

	u = launchWin(t, winSpec{worker: []string{"cmd", "/c", "echo from cmd& exit 3"}})
	u.want(3)
	u.has(u.unit().Path(state.FileTail), "from cmd")
}

func TestWineNoProgram(t *testing.T) {
	u := launchWin(t, winSpec{worker: []string{"no-such-program"}})
	u.want(127)
	u.has(u.result, "FALLBACK", "no-such-program: command not found")
	u = launchWin(t, winSpec{worker: []string{`C:\no\such program.exe`}})
	u.want(127)

	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("no program\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	u = launchWin(t, winSpec{worker: []string{text}})
	u.want(126)
	if o := u.outcome(); o.Cause != state.LaunchFailed {
		t.Errorf("outcome %+v", o)
	}
}

func TestWineIdleReap(t *testing.T) {
	u := launchWin(t, winSpec{options: []string{"--stall", "1"}, steps: []string{"out the last words", "child", "child-setsid", "hang"}})
	children := u.children(2)
	u.want(124)
	u.says("reaping worker process tree (idle-stall)", "the last words")
	u.has(u.result, "FALLBACK", "the last words\n")
	u.contained(state.IdleStall)
	u.gone("a child of the worker", children...)
	u.plainFiles()
}

func TestWineHardTimeout(t *testing.T) {
	u := launchWin(t, winSpec{options: []string{"--timeout", "1"}, steps: []string{"child-talk", "drip 0.1 0"}})
	children := u.children(1)
	u.want(124)
	u.says("(hard-timeout)")
	u.contained(state.HardTimeout)
	u.gone("a child of the worker", children...)
}

func TestWineLeftovers(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"child", "child-double", "result"}})
	u.want(0)
	o := u.contained(state.Exited)
	if o.Leftovers != 2 {
		t.Errorf("%d leftovers, want 2", o.Leftovers)
	}
}

func TestWineFrontKilled(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"out begun", "await go", "result"}, env: []string{"PRUN_SCRATCH_CWD=."}})
	supervisor, worker := u.identities()
	u.cmd.Process.Kill()
	u.wait()
	for what, id := range map[string]pid.ID{"supervisor": supervisor, "worker": worker} {
		if id.Verdict() != pid.Alive {
			t.Fatalf("the %s is %v after the front door's death", what, id.Verdict())
		}
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	o := u.contained(state.Exited)
	if o.Result != state.ResultWorker {
		t.Errorf("outcome %+v", o)
	}
	u.has(u.result, "# u-1 result\n")
	u.gone("the supervisor", supervisor)
}

func TestWineSupervisorKilled(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"out the last words", "child-setsid", "hang"}})
	supervisor, worker := u.identities()
	children := u.children(1)
	if err := supervisor.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	u.gone("the worker", worker)
	u.gone("a child of the worker", children...)
	if took := time.Since(killed); took > 2*time.Second && os.Getenv("PRUN_TEST_WINE") == "" {
		t.Errorf("the tree took %v to close", took)
	}
	u.want(70)
	if o := u.outcome(); o.Cause != state.Lost {
		t.Errorf("outcome %+v", o)
	}
	u.has(u.result, "FALLBACK", "the last words\n")
}

// CTRL_C in the console of a front door. (CTRL_BREAK is not implemented by Wine 8: there the worker itself is never
// asked, as pkg/proc asks with that, and its job is ended at once.)
func TestWineStop(t *testing.T) {
	u := launchWin(t, winSpec{console: true, steps: []string{"out begun", "child", "hang"}})
	children := u.children(1)
	supervisor, worker := u.identities()
	if err := sendInterrupt(u.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	u.want(130)
	u.says("stopping worker process tree (SIGINT)")
	u.has(u.result, "FALLBACK", "SIGINT")
	u.contained(state.Interrupted)
	u.gone("a part of the unit", append(children, supervisor, worker)...)
}

// sendInterrupt sends CTRL_C to every program in the console of p, which is not ours.
func sendInterrupt(p int) error {
	kernel := syscall.NewLazyDLL("kernel32.dll")
	// A process has one console; that of a test, where there is one, is given up.
	kernel.NewProc("FreeConsole").Call()
	if ok, _, err := kernel.NewProc("AttachConsole").Call(uintptr(p)); ok == 0 {
		return fmt.Errorf("attach to its console: %w", err)
	}
	defer kernel.NewProc("FreeConsole").Call()
	// We are in it too, for the moment.
	ours := make(chan os.Signal, 1)
	signal.Notify(ours, os.Interrupt)
	defer signal.Stop(ours)
	const ctrlC = 0
	if ok, _, err := kernel.NewProc("GenerateConsoleCtrlEvent").Call(ctrlC, 0); ok == 0 {
		return fmt.Errorf("send CTRL_C: %w", err)
	}
	<-ours
	return nil
}

func TestWineDetach(t *testing.T) {
	u := launchWin(t, winSpec{options: []string{"--detach"}, steps: []string{"out begun", "await go", "result"}, env: []string{"PRUN_SCRATCH_CWD=."}})
	// Also says that nobody who lives on holds the caller's pipes.
	u.want(0)
	supervisor, _ := u.identities()
	if supervisor.Verdict() != pid.Alive {
		t.Errorf("the supervisor is %v", supervisor.Verdict())
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if o := u.contained(state.Exited); o.Result != state.ResultWorker {
		t.Errorf("outcome %+v", o)
	}
	u.gone("the supervisor", supervisor)
}

func TestWineJSON(t *testing.T) {
	ledger := filepath.Join(t.TempDir(), "the ledger.jsonl")
	u := launchWin(t, winSpec{options: []string{"--json", "--ledger", ledger}, steps: []string{"out hello"}})
	u.want(0)
	lines := strings.Split(strings.TrimSuffix(u.stderr.String(), "\n"), "\n")
	text, ok := strings.CutPrefix(lines[len(lines)-1], "OUTCOME ")
	var o state.Outcome
	if err := json.Unmarshal([]byte(text), &o); !ok || err != nil || o.Unit != "u-1" || o.Result != state.ResultFallback {
		t.Errorf("%v: last line %q", err, lines[len(lines)-1])
	}
	entries, warnings, err := state.ReadLedger(ledger)
	if err != nil || len(warnings) > 0 || len(entries) != 1 || entries[0].Status != state.LedgerDone || entries[0].StateDir != u.unit().Dir {
		t.Errorf("ledger: %v %v %+v", err, warnings, entries)
	}
	if b, _ := os.ReadFile(ledger); bytes.Count(b, []byte("\n")) != 2 || bytes.Contains(b, []byte("\r")) {
		t.Errorf("ledger: %q", b)
	}
}

func TestWineRefusals(t *testing.T) {
	u := launchWin(t, winSpec{options: []string{"--unit-id", "no/unit"}, steps: []string{"out never"}})
	u.want(2)
	if u.stdout.Len() != 0 || len(u.stateDirs()) != 0 {
		t.Errorf("a refused unit left %q, %q", &u.stdout, u.stateDirs())
	}
	u = launchWin(t, winSpec{options: []string{"--result-file", t.TempDir()}, steps: []string{"out never"}})
	u.want(2)
}

// Two live units cannot have one result path.
func TestWineClaim(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"await go"}, env: []string{"PRUN_SCRATCH_CWD=."}})
	u.identities()
	second := exec.Command(u.cmd.Path, u.cmd.Args[1:]...)
	second.Dir, second.Env = u.cmd.Dir, u.cmd.Env
	out, err := second.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "in use by another live unit") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	u.want(0)
}
