package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// The old watchdog ends a worker that is not its own, with what is below it, and
// leaves the reason.
func TestWineReapWatch(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	worker := exec.Command(built(t, "fakeagent"), "child-quiet 60", "hang")
	worker.Env = append(winEnv(), "FAKEAGENT_LIFE=40s", "FAKEAGENT_PIDS="+pids)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { worker.Wait(); close(ended) }()
	t.Cleanup(func() { worker.Process.Kill(); <-ended })
	var child pid.ID
	for deadline := time.Now().Add(20 * time.Second); ; pauseWin() {
		b, err := os.ReadFile(pids)
		if n, cerr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && cerr == nil {
			if child, err = pid.Of(n); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no child: %q %v", b, err)
		}
	}
	watchdog := exec.Command(built(t, "prun-dispatch"), "__reap-watch", "--state-dir", dir,
		"--worker-pid", strconv.Itoa(worker.Process.Pid), "--tail", filepath.Join(dir, "tail"))
	watchdog.Env = append(winEnv(), "PRUN_STALL_THRESHOLD=1", "PRUN_WATCH_POLL_SECONDS=0.2")
	if out, err := watchdog.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("watchdog: %v, said %q", err, out)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the worker lives")
	}
	if child.Verdict() != pid.Gone {
		t.Errorf("its child is %v", child.Verdict())
	}
	if b, err := os.ReadFile(filepath.Join(dir, "reap-reason")); string(b) != "idle-stall\n" {
		t.Errorf("reason %q %v", b, err)
	}
}

func pauseWin() { <-time.After(20 * time.Millisecond) }
