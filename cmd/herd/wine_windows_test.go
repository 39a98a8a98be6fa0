package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// These stories run the built program on Windows, or under Wine (make test-windows), from the directory that
// PRUN_TEST_BIN names.

type winHerd struct {
	t     *testing.T
	dir   string
	state string
	bin   string
	env   []string
}

func newWinHerd(t *testing.T) *winHerd {
	t.Helper()
	bin := os.Getenv("PRUN_TEST_BIN")
	if bin == "" {
		t.Skip("PRUN_TEST_BIN names no directory with built programs (make test-windows does)")
	}
	h := &winHerd{t: t, bin: bin, dir: filepath.Join(t.TempDir(), "a kit with späces 雪")}
	h.state = filepath.Join(h.dir, "state")
	if err := os.Mkdir(h.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(strings.ToUpper(e), "=")
		if !strings.HasPrefix(name, "PRUN_") && !strings.HasPrefix(name, "FAKEAGENT_") && !strings.HasPrefix(name, "DELEGATE_") {
			h.env = append(h.env, e)
		}
	}
	h.env = append(h.env, "DELEGATE_STATE_DIR="+h.state, "DELEGATE_CODEX_BIN="+filepath.Join(bin, "fakeagent.exe"), "FAKEAGENT_AS=codex",
		"DELEKIT_DEVICE_ID=dev", "FAKEAGENT_LIFE=40s", "FAKEAGENT_PIDS="+filepath.Join(h.dir, "pids"))
	t.Cleanup(func() { h.end() })
	return h
}

// end kills what a failed story left, so that its directory can be removed.
func (h *winHerd) end() {
	filepath.WalkDir(h.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != state.FileIdentity {
			return nil
		}
		if id, err := (state.Unit{Dir: filepath.Dir(path)}).ReadIdentity(); err == nil && id != nil {
			id.Supervisor.Signal(syscall.SIGKILL)
			h.until("the supervisor to be gone", func() bool { return id.Supervisor.Verdict() != pid.Alive })
		}
		return nil
	})
}

// until polls for a condition. It counts looks, not time, so that a machine that stands still for a while fails no test.
func (h *winHerd) until(what string, ok func() bool) {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 12000 {
		if ok() {
			return
		}
		<-tick.C
	}
	h.t.Fatalf("gave up waiting for %s", what)
}

// run runs a verb; steps are the fake agent's for a turn that it starts.
func (h *winHerd) run(code int, steps []string, args ...string) (stdout, stderr string) {
	h.t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(filepath.Join(h.bin, "herd.exe"), args...)
	c.Dir = h.dir
	c.Env = append(append([]string{}, h.env...), "FAKEAGENT_SCRIPT="+strings.Join(steps, "\n"))
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != code {
		h.t.Fatalf("herd %q: exit status %d, want %d\n%s%s", args, got, code, &out, &errs)
	}
	if strings.Contains(out.String(), "\r") {
		h.t.Errorf("herd %q prints carriage returns: %q", args, out.String())
	}
	return out.String(), errs.String()
}

func (h *winHerd) spawn(steps ...string) {
	h.t.Helper()
	out, _ := h.run(0, steps, "spawn", "readonly", "the order", "--name", "t1", "--project-root", h.dir)
	if !strings.Contains(out, "t1") {
		h.t.Errorf("spawn printed %q", out)
	}
}

// identities are the supervisor and the worker of the newest turn, once both are recorded.
func (h *winHerd) identities() (supervisor, worker pid.ID) {
	h.t.Helper()
	h.until("worker.json", func() bool {
		filepath.WalkDir(h.state, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != state.FileWorker {
				return nil
			}
			u := state.Unit{Dir: filepath.Dir(path)}
			w, err := u.ReadWorker()
			id, err2 := u.ReadIdentity()
			if err == nil && err2 == nil && w != nil && id != nil {
				supervisor, worker = id.Supervisor, w.Worker
			}
			return nil
		})
		return worker.PID > 0
	})
	return supervisor, worker
}

func (h *winHerd) status() (s struct {
	State     string `json:"state"`
	SessionID string `json:"session_id"`
}) {
	h.t.Helper()
	out, _ := h.run(0, nil, "status", "t1", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		h.t.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

func TestWineHerdTurns(t *testing.T) {
	h := newWinHerd(t)
	h.spawn("text the first answer")
	out, _ := h.run(0, nil, "result", "t1", "--wait", "--timeout", "60")
	if !strings.Contains(out, "the first answer") {
		t.Errorf("result: %q", out)
	}
	first := h.status()
	if first.State != "done" || first.SessionID == "" {
		t.Errorf("status %+v", first)
	}
	h.run(0, []string{"text QUESTION: this or that?"}, "send", "t1", "go on")
	h.run(4, nil, "wait", "t1", "--timeout", "60")
	h.run(0, []string{"text the last answer"}, "send", "t1", "that")
	h.run(0, nil, "wait", "t1", "--timeout", "60")
	if s := h.status(); s.State != "done" || s.SessionID != first.SessionID {
		t.Errorf("status %+v", s)
	}
	out, _ = h.run(0, nil, "list", "--all")
	if !strings.Contains(out, "t1") {
		t.Errorf("list: %q", out)
	}
	h.run(0, nil, "peek", "t1")
	h.run(0, nil, "logs", "t1")
	filepath.WalkDir(h.state, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("\r")) {
				t.Errorf("%s holds a carriage return", path)
			}
		}
		return nil
	})
}

func TestWineHerdStalls(t *testing.T) {
	h := newWinHerd(t)
	h.run(0, []string{"say words", "child-setsid", "hang"}, "spawn", "readonly", "the order", "--name", "t1", "--project-root", h.dir, "--stall-after", "1")
	supervisor, worker := h.identities()
	h.run(1, nil, "wait", "t1", "--timeout", "60")
	if s := h.status(); s.State != "stalled" {
		t.Errorf("status %+v", s)
	}
	for _, id := range []pid.ID{supervisor, worker} {
		h.until("the turn to be gone", func() bool { return id.Verdict() == pid.Gone })
	}
}

func TestWineHerdKill(t *testing.T) {
	h := newWinHerd(t)
	h.spawn("say words", "child-setsid", "hang")
	supervisor, worker := h.identities()
	asked := time.Now()
	h.run(0, nil, "kill", "t1")
	// Asked and obeyed: a supervisor that does not answer is given 20 seconds.
	if took := time.Since(asked); took > 15*time.Second {
		t.Errorf("kill took %v", took)
	}
	for _, id := range []pid.ID{supervisor, worker} {
		h.until("the turn to be gone", func() bool { return id.Verdict() == pid.Gone })
	}
	if s := h.status(); s.State != "killed" {
		t.Errorf("status %+v", s)
	}
}

func TestWineHerdSupervisorKilled(t *testing.T) {
	h := newWinHerd(t)
	h.spawn("say words", "child-setsid", "hang")
	supervisor, worker := h.identities()
	h.until("the session", func() bool { return h.status().SessionID != "" })
	if err := supervisor.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.until("the worker to be gone", func() bool { return worker.Verdict() == pid.Gone })
	if s := h.status(); s.State != "failed" {
		t.Errorf("status %+v", s)
	}
	h.run(0, []string{"text recovered"}, "send", "t1", "go on")
	h.run(0, nil, "wait", "t1", "--timeout", "60")
}

// What a turn with full access leaves running stays, although it holds the turn's output, and ends with kill.
func TestWineHerdKeeps(t *testing.T) {
	h := newWinHerd(t)
	h.run(0, []string{"child", "text done with this"}, "spawn", "full", "the order", "--name", "t1", "--project-root", h.dir)
	h.run(0, nil, "wait", "t1", "--timeout", "30")
	var child pid.ID
	h.until("the child's number", func() bool {
		b, _ := os.ReadFile(filepath.Join(h.dir, "pids"))
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil {
			child, err = pid.Of(n)
		}
		return err == nil
	})
	if s := h.status(); s.State != "done" || child.Verdict() != pid.Alive {
		t.Errorf("status %+v, the child is %v", s, child.Verdict())
	}
	h.run(0, nil, "kill", "t1")
	h.until("the child to be gone", func() bool { return child.Verdict() == pid.Gone })
}
