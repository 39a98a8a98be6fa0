package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/session"
)

// repo makes the bed's project a repository in which worktrees may be made.
func (b *bed) repo() {
	b.t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		b.t.Skip("condition not met: git")
	}
	b.file(".gitignore", ".worktrees/\n*.env\ncache/\n")
	b.file("README", "hello\n")
	b.git("init", "-q", "-b", "main")
	b.git("add", "-A")
	b.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "first")
}

func (b *bed) file(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) git(args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Part 17 and F28: the worktree, its rules, and the commit at the turn's end, which no hook of the user's can hold up.
func TestWorktree(t *testing.T) {
	b := newBed(t)
	b.repo()
	b.file(".worktreeinclude", "*.env\n")
	b.file("secret.env", "key=1\n")
	b.file("cache/x", "not listed\n")
	b.file(".git/hooks/pre-commit", "#!/bin/sh\nsleep 30\n")
	os.Chmod(filepath.Join(b.dir, ".git/hooks/pre-commit"), 0o755)
	b.git("config", "commit.gpgSign", "true")
	b.git("config", "gpg.program", "false")
	b.env = append(b.env, "GIT_DIR=/nowhere", "GIT_INDEX_FILE=/nowhere/i", "GIT_AUTHOR_NAME=somebody")

	b.fails(3, "herd: main checkout is dirty; commit/stash or pass --dirty-policy ignore\n", "spawn", "workspace", "x", "--worktree", "--name", "t")
	if b.exists("t") {
		t.Error("state was left")
	}
	b.spawn("t", "sh cat secret.env; ls; echo work >made.txt\ntext done", "--worktree", "--dirty-policy", "ignore")
	begun := time.Now()
	p := b.settled("t", 10*time.Second)
	if took := time.Since(begun); p["state"] != "done" || took > 8*time.Second {
		t.Errorf("after %v: %v", took, p)
	}
	tree := filepath.Join(b.dir, ".worktrees", "herd-t")
	meta := b.decode(b.read("t", session.FileMeta))
	if meta["exec_root"] != realPath(tree) || meta["branch"] != "delegate/herd-t" || meta["worktree"] != true || meta["repo"] != realPath(b.dir) {
		t.Errorf("%v", meta)
	}
	events := b.read("t", session.FileEvents)
	if !strings.Contains(events, "key=1") || strings.Contains(events, "cache\n") {
		t.Errorf("%s", events)
	}
	log := b.git("log", "-1", "--format=%an <%ae> %s", "delegate/herd-t")
	if !strings.HasPrefix(log, "delegate <delegate@local> herd(t): 20") {
		t.Errorf("commit %q; %v", log, p["worktree_commit"])
	}
	if c, _ := p["worktree_commit"].(map[string]any); c["commit"] != b.git("rev-parse", "delegate/herd-t") {
		t.Errorf("%v", p["worktree_commit"])
	}
	if b.git("show", "delegate/herd-t:made.txt") != "work" {
		t.Error("the work is not in it")
	}

	// F27: a killed turn keeps its message, its session and its work.
	b.ok("send", "t", steps("start\nsay so far\nsh echo more >more.txt\nout {\"written\":1}\nhang"))
	b.says("t", "written")
	b.ok("kill", "t")
	if out := b.ok("result", "t"); out != "so far\n" {
		t.Errorf("%q", out)
	}
	if b.git("show", "delegate/herd-t:more.txt") != "more" {
		t.Error("the killed turn's work is lost")
	}

	// F29: after prune the name is free, and nothing of the old worktree is touched.
	hour := time.Now().Add(-time.Hour)
	for _, f := range []string{session.FileEvents, session.FileReport} {
		os.Chtimes(b.path("t", f), hour, hour)
	}
	b.ok("prune", "--apply")
	if b.exists("t") {
		t.Fatal("not pruned")
	}
	b.spawn("t", "text again", "--worktree", "--dirty-policy", "ignore")
	b.settled("t", 10*time.Second)
	if meta := b.decode(b.read("t", session.FileMeta)); meta["branch"] != "delegate/herd-t-2" {
		t.Errorf("%v", meta["branch"])
	}
	if text, err := os.ReadFile(filepath.Join(tree, "made.txt")); err != nil || string(text) != "work\n" {
		t.Errorf("%q %v", text, err)
	}
}

// Refusals of the worktree, and that a spawn that fails leaves neither task nor tree.
func TestWorktreeRefusals(t *testing.T) {
	b := newBed(t)
	b.fails(2, "herd: --worktree requires a Git repository\n", "spawn", "workspace", "x", "--worktree", "--name", "t")
	b.repo()
	b.ok("spawn", "readonly", steps("text no tree"), "--worktree", "--name", "r")
	b.settled("r", 5*time.Second)
	if meta := b.decode(b.read("r", session.FileMeta)); meta["worktree"] != false || meta["branch"] != nil {
		t.Errorf("%v", meta)
	}
	spawn := func() []string {
		return []string{"spawn", "workspace", "x", "--worktree", "--dirty-policy", "ignore", "--name", "t"}
	}
	b.file(".gitignore", "# .worktrees/\n")
	b.fails(4, "herd: failed to create worktree: "+realPath(b.dir)+"/.gitignore must contain .worktrees/ before creating delegate worktrees\n", spawn()...)
	b.file(".gitignore", "  /.worktrees  \n")
	if err := os.Symlink(t.TempDir(), filepath.Join(b.dir, ".worktrees")); err != nil {
		t.Fatal(err)
	}
	b.fails(4, "refusing symlinked worktree root: ", spawn()...)
	os.Remove(filepath.Join(b.dir, ".worktrees"))
	b.file(".worktrees/herd-t/x", "not ours\n")
	b.fails(4, "worktree path already exists: ", spawn()...)
	os.RemoveAll(filepath.Join(b.dir, ".worktrees"))
	// The supervisor cannot be started: everything is taken back.
	b.env = append(b.env, "PRUN_CRASH_AT=S.S5")
	b.fails(1, "start turn", spawn()...)
	b.empty(3 * time.Second)
	if b.exists("t") || b.git("branch", "--list", "delegate/*") != "" {
		t.Errorf("left: task %v, branches %q", b.exists("t"), b.git("branch", "--list", "delegate/*"))
	}
	if entries, _ := os.ReadDir(filepath.Join(b.dir, ".worktrees")); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

// Many spawns at once in one repository all get their worktree.
func TestWorktreesAtOnce(t *testing.T) {
	b := newBed(t)
	b.repo()
	n := rounds(t, 8)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			out, err := b.command("spawn", "workspace", steps("text done"), "--worktree", "--name", fmt.Sprintf("w%d", i)).CombinedOutput()
			if err != nil {
				t.Errorf("%v %s", err, out)
			}
		})
	}
	all.Wait()
	for i := range n {
		b.settled(fmt.Sprintf("w%d", i), 20*time.Second)
	}
	if got := len(strings.Split(b.git("branch", "--list", "delegate/*"), "\n")); got != n {
		t.Errorf("%d branches", got)
	}
}
