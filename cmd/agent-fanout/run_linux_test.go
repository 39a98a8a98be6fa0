package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// onlyValues reports whether every line is key=value of the given keys, in
// their order.
func onlyValues(t *testing.T, text string, keys ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != len(keys) {
		t.Fatalf("want the lines %v, got\n%s", keys, text)
	}
	for i, k := range keys {
		if !strings.HasPrefix(lines[i], k+"=") {
			t.Errorf("line %d: want %s=, got %q", i+1, k, lines[i])
		}
	}
}

// A run from start to end: what a user of the suite does first.
func TestRunFromInitToCleanup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.ok("init")
	onlyValues(t, a.out, "run", "state_dir", "integration_worktree")
	id := a.value("run")
	if !regexp.MustCompile(`^\d{14}-[0-9a-f]{8}$`).MatchString(id) {
		t.Errorf("run id %q", id)
	}
	if got := a.value("integration_worktree"); got != filepath.Join(w.repo, ".worktrees/_int-"+id) {
		t.Errorf("integration worktree %s", got)
	}
	if got := w.git("repo", "config", "branch.int-"+id+".agentFanoutBase"); got != "main" {
		t.Errorf("recorded base %q", got)
	}
	if got := w.git("repo", "status", "--porcelain"); got != "" {
		t.Errorf("the checkout shows %q", got)
	}
	a = w.ok("add-lane", "--run", id, "--phase", "p")
	onlyValues(t, a.out, "run", "phase", "worktree")
	tree := a.value("worktree")
	if want := filepath.Join(w.repo, ".worktrees/_int-"+id, ".worktrees", id+"-p"); tree != want {
		t.Errorf("worktree %s, want %s", tree, want)
	}
	if got := w.git(tree, "branch", "--show-current"); got != "wt-"+id+"-p" {
		t.Errorf("branch %q", got)
	}
	a = w.ok("start", "--run", id, "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--",
		"sh", "-c", "cat; echo said >&2; echo new > new.txt; pwd > where")
	onlyValues(t, a.out, "run", "phase", "status")
	if a.value("status") != "dispatching" {
		t.Errorf("status %q", a.value("status"))
	}
	if got := w.wait(id, "p"); got != "succeeded" {
		t.Fatalf("status %s", got)
	}
	if got := w.read(filepath.Join(w.lane(id, "p"), "result.md")); got != "the brief\n" {
		t.Errorf("result %q: the brief's bytes are what the runner gets", got)
	}
	if got := w.read(tree + "/where"); got != tree+"\n" {
		t.Errorf("the worker ran in %q", got)
	}
	if got := w.value(id, "p", "exit-code"); got != "0" {
		t.Errorf("exit code %q", got)
	}
	a = w.ok("status", "--run", id)
	if a.out != "RUN\tPHASE\tSTATUS\tWORKTREE\n"+id+"\tp\tsucceeded\t"+tree+"\n" {
		t.Errorf("status says\n%s", a.out)
	}
	if a := w.ok("logs", "--run", id, "--phase", "p"); a.out != "said\n" {
		t.Errorf("log %q", a.out)
	}
	if a := w.call("logs", "--run", id, "--phase", "p", "--events"); a.code != 1 || a.out+a.err != "" {
		t.Errorf("events of a command lane: %+v", a)
	}
	a = w.ok("collect", "--run", id, "--phase", "p")
	head, report, found := strings.Cut(a.out, "\n\n")
	if !found || report != "the brief\n" || !strings.HasPrefix(head, "status=succeeded\nworktree="+tree+"\nresult=") {
		t.Errorf("collect says\n%s", a.out)
	}
	if a := w.ok("apply", "--run", id, "--phase", "p"); a.value("status") != "applied" || a.value("files") != "2" {
		t.Errorf("apply says\n%s", a.out)
	}
	if got := w.git(".worktrees/../repo/.worktrees/_int-"+id, "status", "--porcelain"); got != "A  new.txt\nA  where" {
		t.Errorf("integration worktree: %q", got)
	}
	a = w.ok("list")
	if !strings.HasPrefix(a.out, "RUN\tSTATUS\tREPO\tSTATE_DIR\n"+id+"\tactive\t"+w.repo+"\t") {
		t.Errorf("list says\n%s", a.out)
	}
	w.fails(2, "--drop-worktrees requires --force acknowledgment", "cleanup", "--run", id, "--drop-worktrees")
	a = w.ok("cleanup", "--run", id, "--drop-worktrees", "--force")
	if !strings.HasSuffix(a.out, "cleaned\n") {
		t.Errorf("cleanup says\n%s", a.out)
	}
	if got := w.git("repo", "worktree", "list"); strings.Contains(got, id) {
		t.Errorf("worktrees left: %s", got)
	}
	if got := w.git("repo", "branch", "--list", "*"+id+"*"); got != "" {
		t.Errorf("branches left: %s", got)
	}
	// The report outlives everything.
	if a := w.ok("collect", "--run", id, "--phase", "p"); !strings.HasSuffix(a.out, "\n\nthe brief\n") {
		t.Errorf("collect after cleanup says\n%s", a.out)
	}
	w.empty(5 * time.Second)
}

// A1: a lane that was never started breaks neither form of status.
func TestCreatedLanesAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "one", "two")
	w.sh("r", "two", "exit 0")
	w.wait("r", "two")
	a := w.ok("status", "--run", "r")
	if n := strings.Count(a.out, "\n"); n != 3 || !strings.Contains(a.out, "r\tone\tcreated\t") {
		t.Errorf("status says\n%s", a.out)
	}
	a = w.ok("status", "--run", "r", "--json")
	var got map[string]any
	if err := json.Unmarshal([]byte(a.out), &got); err != nil {
		t.Fatalf("%v\n%s", err, a.out)
	}
	lanes := got["lanes"].([]any)
	if len(lanes) != 2 || lanes[0].(map[string]any)["status"] != "created" {
		t.Errorf("lanes %v", lanes)
	}
	for _, k := range []string{"run", "status", "main", "integration_worktree", "state_dir"} {
		if _, ok := got[k].(string); !ok {
			t.Errorf("no key %s", k)
		}
	}
	for _, k := range []string{"phase", "status", "worktree", "result", "run_log"} {
		if _, ok := lanes[0].(map[string]any)[k].(string); !ok {
			t.Errorf("no key %s in a lane", k)
		}
	}
	if a := w.call("logs", "--run", "r", "--phase", "one"); a.code != 1 || a.out+a.err != "" {
		t.Errorf("logs of a created lane: %+v", a)
	}
	// And it blocks no cleanup.
	w.ok("cleanup", "--run", "r")
}

// A run is found from any worktree, and is one of the repository's, not of the
// worktree it was asked in.
func TestLinkedWorktreeDiscovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git("repo", "worktree", "add", "-q", "-b", "side", w.path("linked"))
	w.mkdir("linked/deep")
	a := w.callIn(w.path("linked/deep"), nil, "init", "--sid", "r")
	if a.code != 0 || a.value("integration_worktree") != filepath.Join(w.repo, ".worktrees/_int-r") {
		t.Fatalf("init in a linked worktree: %+v", a)
	}
	if s := w.status("r"); s.Main != w.repo {
		t.Errorf("main %s", s.Main)
	}
	if a := w.callIn(w.root, nil, "init", "--repo", w.path("linked"), "--sid", "r2"); a.code != 0 || a.value("integration_worktree") != filepath.Join(w.repo, ".worktrees/_int-r2") {
		t.Errorf("init --repo: %+v", a)
	}
}

func TestInitRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("init", "--sid", "r")
	w.fails(2, "agent-fanout: sid already claimed", "init", "--sid", "r")
	for _, bad := range []string{"../x", "/abs", ".", "..", "a..b", "-x", "a b", "x.lock", "x.", strings.Repeat("x", 65), "é"} {
		w.fails(2, "agent-fanout: invalid sid", "init", "--sid="+bad)
	}
	if a := w.callIn(w.root, nil, "init"); a.code != 2 || !strings.Contains(a.err, "agent-fanout: not inside a git worktree") || a.out != "" {
		t.Errorf("outside a repository: %+v", a)
	}
	w.fails(2, "base not found: nosuch", "init", "--sid", "r3", "--base-ref", "nosuch")
	w.write("repo/a.txt", "dirty\n")
	w.fails(2, "uncommitted changes", "init", "--sid", "r4")
	// What failed can be seen and cleaned up.
	if s := w.status("r4"); s.Status != "failed" || !strings.Contains(s.Error, "uncommitted changes") || len(s.Lanes) != 0 {
		t.Errorf("status of a failed run: %+v", s)
	}
	if !strings.Contains(w.ok("list").out, "r4\tfailed\t") {
		t.Error("list does not show the failed run")
	}
	w.fails(2, "run is not active", "add-lane", "--run", "r4", "--phase", "p")
	w.ok("cleanup", "--run", "r4", "--drop-worktrees", "--force")
	w.fails(2, "run not found: nosuch", "status", "--run", "nosuch")
	w.fails(2, "run not found", "status", "--run", "../r")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if a := w.call(); a.code != 2 || !strings.HasPrefix(a.out, "Usage: agent-fanout") || a.err != "" {
		t.Errorf("no words: %+v", a)
	}
	if a := w.call("frobnicate"); a.code != 2 || !strings.HasPrefix(a.err, "agent-fanout: ") || a.out != "" {
		t.Errorf("unknown command: %+v", a)
	}
	if a := w.call("status", "--nosuch"); a.code != 2 || !strings.HasPrefix(a.err, "agent-fanout: ") || a.out != "" {
		t.Errorf("unknown option: %+v", a)
	}
	w.run("r", "p")
	w.fails(2, "lane already exists", "add-lane", "--run", "r", "--phase", "p")
	w.fails(2, "run not found", "add-lane", "--run", "x", "--phase", "p")
	w.fails(2, "invalid phase", "add-lane", "--run", "r", "--phase", "../p")
	w.fails(2, "brief", "start", "--run", "r", "--phase", "p", "--brief", w.path("nosuch"), "--runner", "command", "--", "true")
	w.write("blank.md", " \n")
	w.fails(2, "brief is empty", "start", "--run", "r", "--phase", "p", "--brief", w.path("blank.md"), "--runner", "command", "--", "true")
	w.fails(2, "runner", "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "nosuch")
	if got := w.laneStatus("r", "p").Status; got != "created" {
		t.Errorf("a refused start left status %s", got)
	}
	// The directories that hold prompts and output are nobody else's to read.
	for _, d := range []string{"state", "state/claims", "state/claims/r", w.lane("r", "p"), filepath.Dir(w.lane("r", "p"))} {
		if fi, err := os.Stat(w.path(d)); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", d, fi.Mode(), err)
		}
	}
}

// Several inits at once, in one repository: all of them, each its own.
func TestConcurrentInit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 8
	answers := make([]answer, n)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() { answers[i] = w.call("init") })
	}
	wait.Wait()
	seen := map[string]bool{}
	for _, a := range answers {
		if a.code != 0 {
			t.Fatalf("%+v", a)
		}
		seen[a.value("run")] = true
	}
	if len(seen) != n {
		t.Errorf("%d different runs", len(seen))
	}
	exclude := w.read("repo/.git/info/exclude")
	if c := strings.Count(exclude, ".worktrees/"); c != 1 {
		t.Errorf("%d exclude entries:\n%s", c, exclude)
	}
	// One id at once: one winner.
	for i := range answers {
		wait.Go(func() { answers[i] = w.call("init", "--sid", "same") })
	}
	wait.Wait()
	won := 0
	for _, a := range answers {
		switch a.code {
		case 0:
			won++
		case 2:
			if !strings.Contains(a.err, "sid already claimed") {
				t.Errorf("loser says %s", a.err)
			}
		default:
			t.Errorf("%+v", a)
		}
	}
	if won != 1 {
		t.Errorf("%d winners", won)
	}
}

// The same phase in two runs, and cleanup of one that leaves the other alone
// (E26).
func TestTwoRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("one", "p")
	two := w.run("two", "p")
	w.sh("one", "p", "echo x > x; exit 0")
	w.sh("two", "p", "echo y > y; sleep 60")
	w.wait("one", "p")
	w.until(5*time.Second, "the second lane's file", func() bool { return w.exists(two["p"] + "/y") })
	w.ok("cleanup", "--run", "one", "--drop-worktrees", "--force")
	if got := w.laneStatus("two", "p").Status; got != "running" {
		t.Errorf("the other run's lane is %s", got)
	}
	if !w.exists(two["p"] + "/y") {
		t.Error("the other run's worktree was touched")
	}
	w.fails(2, "lane is still active: p", "cleanup", "--run", "two")
	w.ok("cleanup", "--run", "two", "--drop-worktrees", "--force")
	if got := w.value("two", "p", "status"); got != "cancelled" {
		t.Errorf("cleanup --force left %s", got)
	}
	w.empty(5 * time.Second)
}

// Repositories of every kind.
func TestKindsOfRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git("", "clone", "-q", "--bare", w.repo, w.path("bare.git"))
	w.git("bare.git", "worktree", "add", "-q", w.path("ofbare"), "main")
	w.git("", "init", "-q", "--separate-git-dir", w.path("elsewhere"), w.path("separate"))
	w.write("separate/a.txt", "x\n")
	w.git("separate", "add", ".")
	w.git("separate", "commit", "-q", "-m", "x")
	w.git("repo", "-c", "protocol.file.allow=always", "submodule--helper", "add", "--quiet", w.path("bare.git"), "module")
	w.git("repo", "commit", "-q", "-m", "module")
	w.git("", "clone", "-q", "--depth=1", "file://"+w.path("bare.git"), w.path("shallow"))
	w.git("", "init", "-q", w.path("empty"))
	for dir, main := range map[string]string{"ofbare": "bare.git", "separate": "separate", "repo/module": "repo/module", "shallow": "shallow"} {
		id := strings.ReplaceAll(dir, "/", "-")
		a := w.callIn(w.path(dir), nil, "init", "--sid", id, "--no-fetch")
		if a.code != 0 || a.value("integration_worktree") != w.path(main+"/.worktrees/_int-"+id) {
			t.Errorf("%s: %+v", dir, a)
			continue
		}
		if got := w.git(dir, "status", "--porcelain"); got != "" {
			t.Errorf("%s shows %q", dir, got)
		}
		w.ok("add-lane", "--run", id, "--phase", "p")
		w.did(id, "p", "echo y >y")
		w.ok("apply", "--run", id, "--phase", "p")
		w.ok("cleanup", "--run", id, "--drop-worktrees", "--force")
	}
	if a := w.callIn(w.path("empty"), nil, "init", "--sid", "e"); a.code != 2 || !strings.Contains(a.err, "no commit") {
		t.Errorf("a repository without a commit: %+v", a)
	}
	if a := w.callIn(w.path("bare.git"), nil, "init", "--sid", "b"); a.code != 2 || !strings.Contains(a.err, "not inside a git worktree") {
		t.Errorf("a bare repository: %+v", a)
	}
}

// The two escape hatches: debug names what is recorded and who is alive, attach
// follows the output until the end.
func TestDebugAndAttach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p")
	w.fails(2, "never started", "attach", "--run", "r", "--phase", "p")
	if a := w.ok("debug", "--run", "r", "--phase", "p"); a.value("lane_dir") != w.lane("r", "p") || a.value("status") != "created" {
		t.Errorf("debug of a created lane: %s", a.out)
	}
	w.sh("r", "p", "echo before; echo remark >&2; while [ ! -e go ]; do sleep 0.02; done; echo after")
	w.until(5*time.Second, "the worker speaks", func() bool { return w.value("r", "p", "result.md") == "before" })
	a := w.ok("debug", "--run", "r", "--phase", "p")
	for _, want := range []string{"run_dir=", "socket=none\n", "runner=command\n", "process\tsupervisor\t", "process\tkeeper\t", "process\tworker\t", "\talive\tsh\n", "containment="} {
		if !strings.Contains(a.out, want) {
			t.Errorf("debug lacks %q:\n%s", want, a.out)
		}
	}
	done := make(chan answer, 1)
	go func() { done <- w.call("attach", "--run", "r", "--phase", "p") }()
	time.Sleep(300 * time.Millisecond)
	w.write(trees["p"]+"/go", "")
	a = <-done
	if a.code != 0 || !strings.Contains(a.out, "before\n") || !strings.Contains(a.out, "after\n") || !strings.Contains(a.out, "remark\n") || !strings.Contains(a.err, "succeeded") {
		t.Errorf("attach: %+v", a)
	}
	// The status is told a moment before supervisor and keeper leave.
	w.until(5*time.Second, "nobody is alive", func() bool {
		return !strings.Contains(w.ok("debug", "--run", "r", "--phase", "p").out, "\talive\t")
	})
	if a := w.ok("debug", "--run", "r", "--phase", "p"); !strings.Contains(a.out, "outcome={") || !strings.Contains(a.out, "process\tworker\t") {
		t.Errorf("debug of an ended lane: %s", a.out)
	}
}

// Logs: whole lines, whatever their size, and no rune cut.
func TestLogsTail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.did("r", "p", `printf 'one\ntwo\n' >&2; head -c 3000000 /dev/zero | tr '\0' x >&2; printf '\né☃\nlast without newline' >&2`)
	for n, want := range map[string]int{"0": 0, "1": len("last without newline"), "2": len("é☃\nlast without newline"), "3": 3000001 + len("é☃\nlast without newline"), "99": 3000009 + len("é☃\nlast without newline")} {
		if a := w.ok("logs", "--run", "r", "--phase", "p", "--tail", n); len(a.out) != want {
			t.Errorf("--tail %s: %d bytes, want %d", n, len(a.out), want)
		}
	}
}
