package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// binary is prun-dispatch with crash points, built once; userDir is where its
// units are counted, away from the user's own.
var binary, userDir string

func TestMain(m *testing.M) {
	// Under nohup HUP is ignored, and every child would inherit that. What is caught
	// here is not: it has its default again in whatever is executed.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "prun-dispatch-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "prun-dispatch")
	build := exec.Command("go", "build", "-tags", "forceposix crashpoints", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	os.Chmod(dir, 0o755)
	userDir = filepath.Join(dir, "user")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// unitRun is one prun-dispatch under test. Everything that it starts carries a
// mark in its environment, so that nothing can hide from the test.
type unitRun struct {
	t      *testing.T
	mark   string
	base   string
	result string
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	done   chan struct{}
}

// begin starts one unit on the command backend. script is run by sh.
func begin(t *testing.T, env []string, args []string, script string) *unitRun {
	t.Helper()
	return beginAs(t, nil, env, args, script)
}

// beginAs is begin with the process attributes of another user or cgroup.
func beginAs(t *testing.T, attr *syscall.SysProcAttr, env []string, args []string, script string) *unitRun {
	t.Helper()
	dir := t.TempDir()
	if attr != nil {
		openUp(t, dir)
	}
	u := &unitRun{
		t: t, mark: "PRUN_TEST_MARK=" + filepath.Base(filepath.Dir(dir)) + filepath.Base(dir) + strconv.Itoa(int(time.Now().UnixNano())),
		base: filepath.Join(dir, "s"), result: filepath.Join(dir, "r"), done: make(chan struct{}),
	}
	prompt := filepath.Join(dir, "p")
	if err := os.WriteFile(prompt, []byte("the request\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(u.base, 0o755); err != nil {
		t.Fatal(err)
	}
	words := append([]string{"--backend", "command", "--prompt-file", prompt, "--result-file", u.result, "--unit-id", "u"}, args...)
	words = append(words, "--", "sh", "-c", script)
	u.cmd = exec.Command(binary, words...)
	u.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + u.base, u.mark}, env...)
	u.cmd.Dir = dir
	if attr != nil {
		u.cmd.SysProcAttr = attr
		if err := os.Chmod(u.base, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	u.cmd.Stdout, u.cmd.Stderr = &u.stdout, &u.stderr
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { u.cmd.Wait(); close(u.done) }()
	t.Cleanup(u.clear)
	return u
}

// openUp lets another user work in a test's directory.
func openUp(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
}

// wait returns the front door's exit status; 128+n for a signal.
func (u *unitRun) wait() int {
	u.t.Helper()
	select {
	case <-u.done:
	case <-time.After(2 * time.Minute):
		u.t.Fatalf("prun-dispatch did not end\n%s", u.describe())
	}
	ws := u.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// marked lists the living processes that carry the mark.
func (u *unitRun) marked() []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil || p == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil || !bytes.Contains(b, []byte(u.mark)) {
			continue
		}
		if id, err := pid.Of(p); err == nil {
			if alive, _ := id.Alive(); alive {
				found = append(found, p)
			}
		}
	}
	return found
}

// empty waits until nothing of the unit is alive.
func (u *unitRun) empty(limit time.Duration) {
	u.t.Helper()
	// How soon is the promise itself here.
	u.within(limit, "nothing of the unit is alive", func() bool { return len(u.marked()) == 0 })
}

// until waits for what a test needs before it goes on. The limits say what to
// expect of a machine that has time; a few times as much is when to give up on
// one that has none.
func (u *unitRun) until(limit time.Duration, what string, ok func() bool) {
	u.t.Helper()
	u.within(4*limit, what, ok)
}

func (u *unitRun) within(limit time.Duration, what string, ok func() bool) {
	u.t.Helper()
	deadline := time.Now().Add(limit)
	// A look at every process costs milliseconds; the machine has others.
	for step := 2 * time.Millisecond; !ok(); step = min(2*step, 40*time.Millisecond) {
		if time.Now().After(deadline) {
			u.t.Fatalf("not within %v: %s\n%s", limit, what, u.describe())
		}
		<-time.After(step)
	}
}

// unit waits for the state directory.
func (u *unitRun) unit() state.Unit {
	u.t.Helper()
	var dir string
	u.until(5*time.Second, "a state directory", func() bool {
		dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*"))
		if len(dirs) == 1 {
			dir = dirs[0]
		}
		return dir != ""
	})
	return state.Unit{Dir: dir}
}

// outcome waits for the outcome.
func (u *unitRun) outcome() state.Outcome {
	u.t.Helper()
	unit := u.unit()
	var o *state.Outcome
	u.until(10*time.Second, "an outcome", func() bool {
		got, err := unit.ReadOutcome()
		if err != nil {
			u.t.Fatalf("read outcome: %v", err)
		}
		o = got
		return o != nil
	})
	return *o
}

// says waits for a text in the tail.
func (u *unitRun) says(text string) {
	u.t.Helper()
	unit := u.unit()
	u.until(5*time.Second, "tail says "+text, func() bool {
		b, _ := os.ReadFile(unit.Path(state.FileTail))
		return strings.Contains(string(b), text)
	})
}

func (u *unitRun) identity() state.Identity {
	u.t.Helper()
	id, err := u.unit().ReadIdentity()
	if err != nil || id == nil {
		u.t.Fatalf("read identity: %v %v", id, err)
	}
	return *id
}

// kill sends SIGKILL to a recorded process.
func (u *unitRun) kill(id pid.ID) {
	u.t.Helper()
	if err := id.Signal(syscall.SIGKILL); err != nil {
		u.t.Logf("kill %d: %v", id.PID, err)
	}
}

func (u *unitRun) clear() {
	for range 200 {
		left := u.marked()
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			if id, err := pid.Of(p); err == nil {
				_ = id.Signal(syscall.SIGKILL)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (u *unitRun) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stdout: %s\nstderr: %s\n", u.stdout.String(), u.stderr.String())
	filepath.WalkDir(filepath.Dir(u.base), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() && fi.Size() < 2000 {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&b, "== %s\n%s\n", strings.TrimPrefix(path, u.base), text)
		}
		return nil
	})
	for _, p := range u.marked() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		fmt.Fprintf(&b, "alive %d: %s\n", p, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	return b.String()
}

// rounds is how often a random story is repeated.
func rounds(t *testing.T, def int) int {
	if s := os.Getenv("PRUN_TEST_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("PRUN_TEST_ROUNDS: %v", err)
		}
		return n
	}
	return def
}

// modes runs a story with a cgroup, where one can be had, and without.
func modes(t *testing.T, story func(t *testing.T, env []string)) {
	for _, mode := range []string{"cgroup", "subreaper"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "cgroup" && !cgroupUsable() {
				t.Skip("condition not met: a writable cgroup v2")
			}
			story(t, []string{"PRUN_CONTAINMENT=" + mode})
		})
	}
}
