//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSignals(t *testing.T) {
	for name, want := range map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "SEGV": syscall.SIGSEGV} {
		c := helper(t, "kill "+name)
		err := c.Run()
		if got := c.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for steps, want := range map[string]int{"ignore TERM": -1, "on TERM 7": 7} {
		ready := filepath.Join(t.TempDir(), "ready")
		c := helper(t, steps, "touch "+ready, "hang")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		poll(t, "the signal's rule", func() bool { _, err := os.Stat(ready); return err == nil })
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if want < 0 {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		c.Wait()
		got := c.ProcessState.Sys().(syscall.WaitStatus)
		if want < 0 && got.Signal() != syscall.SIGKILL || want >= 0 && got.ExitStatus() != want {
			t.Errorf("%s: %v", steps, got)
		}
	}
}

func helper(t *testing.T, steps ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, steps...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "FAKEAGENT_TEST=1", raceExit, "FAKEAGENT_AS=x", "FAKEAGENT_LIFE=20s")
	return c
}
