package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
)

const helperVariable = "PRUN_SNAPSHOT_HELPER"

// The test binary is the tool when it is told so: a signal is for a process.
func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		cli.Main(tool(), new(options))
	}
	// Under nohup HUP is ignored, and every child would inherit that. What is caught
	// here is not: it has its default again in whatever is executed.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// A copy that is told to stop takes its temporary file with it, and the status
// says by what.
func TestSignal(t *testing.T) {
	root, dest := t.TempDir(), filepath.Join(t.TempDir(), "d")
	u := unit(t, root, "a", "x", "")
	// A hole is large and costs no disk; reading it takes longer than a signal.
	if err := os.Truncate(filepath.Join(u, "tail"), 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		c := exec.Command(os.Args[0], "--unit", u, "--dest", dest)
		c.Env = append(os.Environ(), helperVariable+"=1", "GORACE=atexit_sleep_ms=0")
		var errs strings.Builder
		c.Stderr = &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(20 * time.Second)
		for seen := false; !seen; {
			for _, name := range names(t, dest) {
				fi, err := os.Stat(filepath.Join(dest, name))
				seen = err == nil && strings.HasSuffix(name, ".part") && fi.Size() > 0
			}
			if time.Now().After(deadline) {
				c.Process.Kill()
				t.Fatal("no temporary file")
			}
		}
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(20*time.Second, func() { c.Process.Kill() })
		err := c.Wait()
		timer.Stop()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 128+int(s) {
			t.Errorf("%v: %v, stderr %q", s, err, errs.String())
		}
		if got := names(t, dest); len(got) != 0 {
			t.Errorf("%v: the directory holds %q", s, got)
		}
	}
}
