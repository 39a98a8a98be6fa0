package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/state"
)

// E38: after a restart of the machine nothing of a lane can be alive, and its
// record says so by itself.
func TestAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.sh("r", "p", "echo words; sleep 60")
	w.until(5*time.Second, "its words", func() bool { return w.value("r", "p", "result.md") == "words" })
	id, u := w.identity("r", "p"), w.unit("r", "p")
	w.kill9(id.Keeper)
	w.kill9(id.Supervisor)
	w.clear()
	for _, name := range []string{state.FileIdentity, state.FileWorker} {
		b, err := os.ReadFile(u.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		b = []byte(strings.ReplaceAll(string(b), id.Supervisor.Boot, "00000000-0000-0000-0000-000000000000"))
		if err := os.WriteFile(u.Path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := w.laneStatus("r", "p")
	if j.Status != "interrupted" || j.Gone == nil || !*j.Gone || len(j.Alive) > 0 {
		t.Errorf("%+v", j)
	}
	if a := w.ok("collect", "--run", "r", "--phase", "p"); !strings.HasSuffix(a.out, "\n\nwords\n") {
		t.Errorf("collect says %s", a.out)
	}
	w.sh("r", "p", "exit 0")
	if got := w.wait("r", "p"); got != "succeeded" {
		t.Errorf("started again: %s", got)
	}
}

// E83: the worktree or the state is taken away under a running lane: the tree
// is ended all the same and nothing is made again half-way.
func TestGroundIsTakenAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "worktree", "state", "unit")
	for p := range trees {
		w.sh("r", p, "setsid sleep 60 & echo up; sleep 60", "--timeout", "4")
		w.until(5*time.Second, "the worker", func() bool { return w.value("r", p, "result.md") == "up" })
	}
	stateDir := w.lane("r", "state")
	os.RemoveAll(trees["worktree"])
	os.RemoveAll(stateDir)
	os.RemoveAll(w.unit("r", "unit").Dir)
	w.empty(20 * time.Second)
	if w.exists(stateDir) {
		t.Error("a removed lane is there again")
	}
	if got := w.wait("r", "worktree"); got != "failed" {
		t.Errorf("the lane without a worktree is %s", got)
	}
	if got := w.laneStatus("r", "unit").Status; got != "failed" && got != "interrupted" {
		t.Errorf("the lane without its unit is %s", got)
	}
	w.fails(2, "worktree is gone", "start", "--run", "r", "--phase", "worktree", "--brief", w.path("brief.md"), "--runner", "command", "--", "true")
	w.fails(2, "lane not found", "cancel", "--run", "r", "--phase", "state")
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
}

// E99: no environment value, and no argument that may hold a secret, is in any
// file of ours; the brief is in its own file and the worker's input alone.
func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.write("brief.md", "BRIEFWORD\n")
	a := w.callIn(w.repo, []string{"API_TOKEN=ENVWORD"}, "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--backend-arg", "ARGWORD", "--", "sh", "-c", "cat >/dev/null; : COMMANDWORD")
	if a.code != 0 {
		t.Fatalf("%+v", a)
	}
	w.wait("r", "p")
	found := map[string]int{}
	err := filepath.WalkDir(w.path("state"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		for _, word := range []string{"ENVWORD", "ARGWORD", "COMMANDWORD", "BRIEFWORD"} {
			if strings.Contains(string(b), word) {
				found[word]++
			}
		}
		if fi, serr := d.Info(); serr == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, fi.Mode())
		}
		return err
	})
	if err != nil || found["ENVWORD"]+found["ARGWORD"]+found["COMMANDWORD"] > 0 || found["BRIEFWORD"] != 2 {
		t.Errorf("%v, %v", found, err)
	}
}

// E93: no place for the state is an error before anything is made.
func TestNoHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command(binary, "init")
	cmd.Dir, cmd.Env = w.repo, []string{"PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=relative"}
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "AGENT_FANOUT_STATE_HOME") {
		t.Errorf("%v: %s", err, out)
	}
	if got := w.git("repo", "branch", "--list", "int-*"); got != "" {
		t.Errorf("something was made: %s", got)
	}
	// A place that cannot be written.
	w.env = append(w.env, "AGENT_FANOUT_STATE_HOME=/proc/nowhere")
	w.fails(2, "agent-fanout: ", "init")
}

// A limit on all workers holds lanes back; who gives up says why.
func TestLanesWaitForASlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "PRUN_USER_DIR="+w.path("user"))
	trees := w.run("r", "a", "b", "c")
	w.sh("r", "a", "touch up; while [ ! -e go ]; do sleep 0.02; done")
	w.until(5*time.Second, "the first", func() bool { return w.exists(trees["a"] + "/up") })
	w.sh("r", "b", "touch up", "--max-workers", "1")
	w.sh("r", "c", "touch up", "--max-workers", "1", "--queue-timeout", "1")
	if got := w.wait("r", "c"); got != "failed" {
		t.Errorf("c is %s", got)
	}
	if j := w.laneStatus("r", "c"); !strings.Contains(j.Reason, "slot") || j.ExitCode != "75" {
		t.Errorf("%+v", j)
	}
	if w.exists(trees["b"] + "/up") {
		t.Error("the second did not wait")
	}
	if got := w.laneStatus("r", "b").Status; got != "dispatching" {
		t.Errorf("b is %s", got)
	}
	w.write(trees["a"]+"/go", "")
	if got := w.wait("r", "b"); got != "succeeded" {
		t.Errorf("b is %s", got)
	}
	var o map[string]any
	b, err := os.ReadFile(w.unit("r", "b").Path(state.FileOutcome))
	if err != nil || json.Unmarshal(b, &o) != nil {
		t.Errorf("%v %s", err, b)
	}
	// A lane in the queue can be cancelled.
	w.sh("r", "c", "touch up", "--max-workers", "1")
	w.wait("r", "c")
	w.ok("add-lane", "--run", "r", "--phase", "d")
	w.ok("add-lane", "--run", "r", "--phase", "e")
	w.sh("r", "d", "sleep 60")
	w.until(5*time.Second, "the fourth", func() bool { return w.laneStatus("r", "d").Status == "running" })
	w.sh("r", "e", "true", "--max-workers", "1")
	if a := w.ok("cancel", "--run", "r", "--phase", "e"); a.out != "cancelled\n" {
		t.Errorf("cancel in the queue: %+v", a)
	}
}
