package main

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// A cleanup that meets a start or the making of a lane: whoever comes second is
// refused, and nothing lives on or lies about that the run does not know.
func TestCleanupMeetsStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range rounds(t, 2) {
		id := "r" + strings.Repeat("x", n)
		w.run(id, "p")
		var start, add, clean answer
		var wait sync.WaitGroup
		wait.Go(func() {
			start = w.call("start", "--run", id, "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--", "sh", "-c", "echo x >x; sleep 60")
		})
		wait.Go(func() { add = w.call("add-lane", "--run", id, "--phase", "q") })
		wait.Go(func() { clean = w.call("cleanup", "--run", id, "--drop-worktrees", "--force") })
		wait.Wait()
		if clean.code != 0 && clean.code != 2 && clean.code != 1 {
			t.Errorf("cleanup: %+v", clean)
		}
		for what, a := range map[string]answer{"start": start, "add-lane": add} {
			if a.code != 0 && a.code != 2 {
				t.Errorf("%s: %+v", what, a)
			}
		}
		// Whatever happened, another cleanup ends it.
		w.ok("cleanup", "--run", id, "--drop-worktrees", "--force")
		w.empty(5 * time.Second)
		if got := w.git("repo", "branch", "--list", "*-"+id+"*"); got != "" {
			t.Errorf("branches left: %s", got)
		}
		if got := w.git("repo", "worktree", "list"); strings.Contains(got, "_int-"+id) {
			t.Errorf("worktrees left: %s", got)
		}
	}
}

// An init that was killed at any moment leaves a run that can be seen and
// cleaned up, and nothing that it does not know of.
func TestInitKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range rounds(t, 6) {
		id := "k" + strings.Repeat("x", n)
		cmd := exec.Command(binary, "init", "--sid", id)
		cmd.Dir, cmd.Env = w.repo, w.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(10+n*n*7) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		w.clear()
		a := w.call("status", "--run", id, "--json")
		if a.code == 2 && strings.Contains(a.err, "run not found") {
			continue // nothing was made
		}
		if a.code != 0 {
			t.Fatalf("%+v", a)
		}
		if s := w.status(id).Status; s != "failed" && s != "active" {
			t.Errorf("round %d: status %s", n, s)
		}
		w.fails(2, "sid already claimed", "init", "--sid", id)
		w.ok("cleanup", "--run", id, "--drop-worktrees", "--force")
	}
	if got := w.git("repo", "branch", "--list", "int-*"); got != "" {
		t.Errorf("branches left: %s", got)
	}
	if got := strings.Count(w.git("repo", "worktree", "list"), "\n"); got != 0 {
		t.Errorf("%d worktrees left", got)
	}
	// The repository is as good as before.
	w.git("repo", "fsck", "--no-dangling")
	w.ok("init", "--sid", "after")
}
