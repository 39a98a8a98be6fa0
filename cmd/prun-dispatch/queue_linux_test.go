package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/state"
)

// queue is the environment of a test's own count of workers.
func queue(t *testing.T) []string {
	t.Helper()
	return []string{"PRUN_USER_DIR=" + filepath.Join(t.TempDir(), "user")}
}

// More units than slots: never more than the limit run, all finish, and who
// waits says so on disk.
func TestQueue(t *testing.T) {
	env := queue(t)
	gate := filepath.Join(t.TempDir(), "gate")
	script := `echo started; while ! [ -e ` + gate + ` ]; do sleep 0.02; done; echo '# u result' >"$PRUN_RESULT_FILE"`
	var units []*unitRun
	for range 6 {
		u := begin(t, env, []string{"--max-workers", "2"}, script)
		u.unit()
		units = append(units, u)
	}
	counts := func() (running, queued int) {
		for _, u := range units {
			if w, _ := u.unit().ReadWorker(); w != nil {
				running++
			}
			if _, waiting := u.unit().Queued(); waiting {
				queued++
			}
		}
		return running, queued
	}
	units[0].until(10*time.Second, "two run and four wait", func() bool {
		running, queued := counts()
		if running > 2 {
			t.Fatalf("%d workers run, the limit is 2", running)
		}
		return running == 2 && queued == 4
	})
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		if got := u.wait(); got != 0 {
			t.Errorf("exit %d\n%s", got, u.describe())
		}
		if _, waiting := u.unit().Queued(); waiting {
			t.Errorf("a settled unit is still queued\n%s", u.describe())
		}
	}
}

// A unit that waited long enough ends blocked, with 75 and a FALLBACK.
func TestQueueTimeout(t *testing.T) {
	env := queue(t)
	first := begin(t, env, []string{"--max-workers", "1"}, `echo started; sleep 60`)
	first.says("started")
	u := begin(t, env, []string{"--max-workers", "1", "--queue-timeout", "1"}, `echo never`)
	if got := u.wait(); got != 75 {
		t.Errorf("exit %d, want 75\n%s", got, u.describe())
	}
	o := u.outcome()
	if o.Cause != state.Blocked || o.Result != state.ResultFallback || o.ExitCode != nil {
		t.Errorf("outcome %+v", o)
	}
	b, err := os.ReadFile(u.result)
	if err != nil || !strings.Contains(string(b), "no slot was free") {
		t.Errorf("result %q %v", b, err)
	}
}

// A slot is free the moment its holder dies, however it dies.
func TestQueueSurvivesKills(t *testing.T) {
	env := queue(t)
	first := begin(t, env, []string{"--max-workers", "1"}, `echo started; sleep 60`)
	first.says("started")
	waiter := begin(t, env, []string{"--max-workers", "1"}, `echo never`)
	waiter.until(5*time.Second, "queued", func() bool { _, q := waiter.unit().Queued(); return q })
	u := begin(t, env, []string{"--max-workers", "1"}, `echo started; echo '# u result' >"$PRUN_RESULT_FILE"`)
	u.until(5*time.Second, "queued", func() bool { _, q := u.unit().Queued(); return q })
	// A waiter dies, and then the holder.
	waiter.kill(waiter.identity().Supervisor)
	first.kill(first.identity().Supervisor)
	if got := u.wait(); got != 0 {
		t.Errorf("exit %d\n%s", got, u.describe())
	}
	first.empty(2 * time.Second)
}

// A stop reaches a unit that waits.
func TestQueuedUnitIsStopped(t *testing.T) {
	env := queue(t)
	first := begin(t, env, []string{"--max-workers", "1"}, `echo started; sleep 60`)
	first.says("started")
	u := begin(t, env, []string{"--max-workers", "1"}, `echo never`)
	u.until(5*time.Second, "queued", func() bool { _, q := u.unit().Queued(); return q })
	u.cmd.Process.Signal(os.Interrupt)
	if got := u.wait(); got != 130 {
		t.Errorf("exit %d, want 130\n%s", got, u.describe())
	}
	if o := u.outcome(); o.Cause != state.Interrupted || o.TailBytes != 0 {
		t.Errorf("outcome %+v", o)
	}
}
