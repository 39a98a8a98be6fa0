package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func (w *world) integration(id string) string { return filepath.Join(w.repo, ".worktrees/_int-"+id) }

// did runs a script in a lane to its end.
func (w *world) did(id, phase, script string) {
	w.t.Helper()
	w.sh(id, phase, script)
	if got := w.wait(id, phase); got != "succeeded" {
		w.t.Fatalf("lane %s: %s\n%s", phase, got, w.describe())
	}
}

// hostile is a configuration that ruins careless git calls: every diff is
// something else, every hook fails, everything is signed by nobody.
const hostile = `[user]
	name = n
	email = n@example.com
[init]
	defaultBranch = main
	templateDir = %[1]s/template
[diff]
	external = %[1]s/liar
	noprefix = true
	mnemonicPrefix = true
	renames = copies
	context = 0
	interHunkContext = 9
	algorithm = patience
	orderFile = %[1]s/order
	ignoreSubmodules = all
	suppressBlankEmpty = true
	submodule = log
	wordRegex = .
	relative = true
[diff "lie"]
	textconv = %[1]s/liar
	command = %[1]s/liar
[color]
	ui = always
	diff = always
	status = always
	branch = always
[core]
	hooksPath = %[1]s/hooks
	pager = %[1]s/liar
	fsmonitor = %[1]s/liar
	quotePath = false
	editor = %[1]s/liar
	attributesFile = %[1]s/attributes
	safecrlf = true
	splitIndex = true
	untrackedCache = true
	abbrev = 4
[commit]
	gpgSign = true
	template = %[1]s/nosuch
	verbose = true
[tag]
	gpgSign = true
[gpg]
	program = %[1]s/liar
[branch]
	autoSetupMerge = always
	autoSetupRebase = always
[checkout]
	defaultRemote = nowhere
[status]
	showUntrackedFiles = no
	short = true
	branch = true
	relativePaths = true
	renames = copies
[apply]
	whitespace = error
	ignoreWhitespace = change
[merge]
	conflictStyle = diff3
	tool = nosuch
[rerere]
	enabled = true
	autoUpdate = true
[worktree]
	guessRemote = true
[advice]
	addEmbeddedRepo = true
[fetch]
	prune = false
[submodule]
	recurse = true
[gc]
	auto = 1
[alias]
	add = !false
	apply = !false
`

func (w *world) hostile() {
	w.t.Helper()
	bad := w.path("bad")
	w.write("bad/liar", "#!/bin/sh\necho lies; echo lies >>"+bad+"/ran\nexit 1\n")
	w.write("bad/attributes", "* diff=lie\n")
	w.write("bad/order", "*.zzz\n")
	for _, h := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change", "pre-applypatch"} {
		w.write("bad/hooks/"+h, "#!/bin/sh\necho hook >>"+bad+"/ran\nexit 1\n")
	}
	w.write("bad/template/hooks/post-checkout", "#!/bin/sh\nexit 1\n")
	err := filepath.WalkDir(bad, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(p, 0o755)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("home/.gitconfig", fmt.Sprintf(hostile, bad))
	w.env = append(w.env, "GIT_EXTERNAL_DIFF="+bad+"/liar", "GIT_DIR="+w.path("nowhere"), "GIT_INDEX_FILE="+w.path("noindex"), "GIT_WORK_TREE="+w.path("notree"),
		"GIT_PAGER="+bad+"/liar", "GIT_DIFF_OPTS=-u0", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=diff.noprefix", "GIT_CONFIG_VALUE_0=true",
		"GIT_CONFIG_PARAMETERS='diff.noprefix'='true'", "GIT_LITERAL_PATHSPECS=1", "GIT_OPTIONAL_LOCKS=1", "GIT_PREFIX=x/", "GIT_TRACE=1")
}

// plain is a git call of the test's own, without the hostile world around it.
func (w *world) plain(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.path(dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.path("nohome"), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=n@x", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=n@x"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// files is what a tree holds besides git's own and what the work ignores: of each
// directory, file and link its kind, whether it can be executed, and its content.
func (w *world) files(dir string) map[string]string {
	w.t.Helper()
	held := make(map[string]string)
	top := w.path(dir)
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == top {
			return err
		}
		switch d.Name() {
		case ".git", ".worktrees", "build", ".env":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		switch {
		case d.Type() == fs.ModeSymlink:
			var target string
			target, err = os.Readlink(p)
			content = []byte(target)
		case d.Type().IsRegular():
			content, err = os.ReadFile(p)
		}
		held[strings.TrimPrefix(p, top)] = fmt.Sprintf("%v %v %s", d.Type(), info.Mode()&0o100 != 0, content)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return held
}

// A8 and the hostile configuration: the patch is the lane's whole work, and the
// same bytes in any world.
func TestPatchIsTheWholeWork(t *testing.T) {
	t.Parallel()
	const work = `
printf 'one\nTWO\nthree\nfour\nfive\n' >a.txt
g() { git -c user.name=w -c user.email=w@x -c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false -c commit.template= -c commit.verbose=false "$@"; }
g add a.txt; g commit -qm work
printf '\000\001binary\377' >bin; mkdir -p "sub dir"; echo 'new é' >"sub dir/with \"quotes\" é.txt"
g add bin; rm b.txt; ln -s a.txt link; printf '#!/bin/sh\n' >run.sh; chmod +x run.sh; printf 'no newline' >tail.txt
mkdir -p build; echo ignored >build/out; echo secret >.env; : >empty`
	var patches []string
	for _, bad := range []bool{false, true} {
		w := newWorld(t)
		if bad {
			w.hostile()
		}
		w.run("r", "p")
		w.did("r", "p", "unset GIT_TRACE; "+work)
		a := w.ok("collect", "--run", "r", "--phase", "p", "--patch", w.path("p.patch"))
		if a.value("commits") != "1" || a.value("branch") != "wt-r-p" || a.value("patch_files") != "8" {
			t.Errorf("collect says\n%s%s", a.out, a.err)
		}
		patch := w.read("p.patch")
		if strings.Contains(patch, "ignored") || strings.Contains(patch, "secret") || strings.Contains(patch, "lies") || strings.Contains(patch, "\x1b[") {
			t.Errorf("the patch holds what it must not:\n%s", patch)
		}
		patches = append(patches, patch)
		// It makes the same tree of the same base.
		w.plain("", "clone", "-q", w.repo, w.path("check"))
		w.plain("check", "apply", "--index", w.path("p.patch"))
		if patched, lane := w.files("check"), w.files(w.integration("r")+"/.worktrees/r-p"); !maps.Equal(patched, lane) {
			t.Errorf("the patched tree differs:\n%q\n%q", patched, lane)
		}
		if a := w.ok("apply", "--run", "r", "--phase", "p", "--check"); a.value("status") != "applicable" {
			t.Errorf("apply --check says %+v", a)
		}
		if a := w.ok("apply", "--run", "r", "--phase", "p"); a.value("status") != "applied" {
			t.Errorf("apply says %+v", a)
		}
		if patched, integrated := w.files("check"), w.files(w.integration("r")); !maps.Equal(patched, integrated) {
			t.Errorf("the integrated tree differs:\n%q\n%q", patched, integrated)
		}
		w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
		if got := w.read(filepath.Join(w.lane("r", "p"), "saved.patch")); got != patch {
			t.Error("the patch that cleanup saved differs")
		}
		if bad && w.exists("bad/ran") {
			t.Errorf("a program of the user's configuration was run:\n%s", w.read("bad/ran"))
		}
		if w.exists("nowhere") || w.exists("noindex") || w.exists("notree") {
			t.Error("GIT_* of the environment was believed")
		}
	}
	if patches[0] != patches[1] {
		t.Errorf("the patch depends on the configuration:\n%s\n---\n%s", patches[0], patches[1])
	}
}

// autocrlf changes what files look like and nothing of the work.
func TestPatchUnderAutocrlf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git("repo", "config", "--global", "core.autocrlf", "true")
	w.run("r", "p", "q")
	w.did("r", "p", `printf 'one\r\nTWO\r\nthree\r\nfour\r\nfive\r\n' >a.txt; printf 'x\r\n' >new.txt`)
	w.did("r", "q", `printf 'one\r\ntwo\r\nthree\r\nfour\r\nFIVE\r\n' >a.txt`)
	a := w.ok("collect", "--run", "r", "--phase", "p", "--patch", w.path("p.patch"))
	if got := w.read("p.patch"); strings.Contains(got, "\r") || a.value("patch_files") != "2" || strings.Count(got, "\n-")+strings.Count(got, "\n+") != 7 {
		t.Errorf("patch\n%q", got)
	}
	w.ok("apply", "--run", "r", "--phase", "p")
	w.ok("apply", "--run", "r", "--phase", "q")
	if got := w.git(w.integration("r"), "show", ":a.txt"); got != "one\nTWO\nthree\nfour\nFIVE" {
		t.Errorf("index %q", got)
	}
	if got := w.git(w.integration("r"), "status", "--porcelain"); got != "M  a.txt\nA  new.txt" {
		t.Errorf("status %q", got)
	}
}

// E69: whatever a worker does with git, the patch is against the recorded base.
func TestMisbehavingWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ident = "git config user.name w; git config user.email w@x; "
	scripts := map[string]string{
		"committed": ident + "echo x >x; git add x; git commit -qm x",
		"switched":  ident + "echo x >x; git checkout -qb other; git add x; git commit -qm x",
		"detached":  ident + "git checkout -q --detach; echo x >x; git add x; git commit -qm x",
		"staged":    "echo x >x; git add x",
		"loose":     "echo x >x",
		"reset":     ident + "echo y >y; git add y; git commit -qm y; git reset -q --hard HEAD~1; echo x >x",
		"assumed":   "echo x >x; git add x; git update-index --assume-unchanged a.txt",
		"locked":    "echo x >x; touch \"$(git rev-parse --absolute-git-dir)/index.lock\"",
		"conflict":  ident + "git checkout -qb left; echo l >a.txt; git commit -qam l; git checkout -q -; echo r >a.txt; git commit -qam r; git merge -q left || true; git checkout -q --ours a.txt; printf 'one\ntwo\nthree\nfour\nfive\n' >a.txt; echo x >x",
	}
	phases := []string{}
	for p := range scripts {
		phases = append(phases, p)
	}
	trees := w.run("r", phases...)
	var want string
	for p, s := range scripts {
		w.sh("r", p, s)
		if got := w.wait("r", p); got != "succeeded" {
			t.Fatalf("%s: %s %s", p, got, w.value("r", p, "run.log"))
		}
		a := w.ok("collect", "--run", "r", "--phase", p, "--patch", w.path(p+".patch"))
		patch := w.read(p + ".patch")
		if want == "" {
			want = patch
		}
		if patch != want || !strings.Contains(patch, "+x\n") {
			t.Errorf("%s: patch\n%s\nwant\n%s", p, patch, want)
		}
		switch p {
		case "committed":
			if a.value("commits") != "1" || !strings.Contains(a.err, "1 commit(s)") {
				t.Errorf("%s: %+v", p, a)
			}
		case "switched":
			if a.value("branch") != "other" || !strings.Contains(a.err, "left the branch wt-r-switched") {
				t.Errorf("%s: %+v", p, a)
			}
		case "detached":
			if a.value("branch") != "" || !strings.Contains(a.err, "detached") {
				t.Errorf("%s: %+v", p, a)
			}
		}
	}
	// Nothing of the worktree was changed by looking at it.
	if got := w.git(trees["loose"], "status", "--porcelain"); got != "?? x" {
		t.Errorf("the lane shows %q", got)
	}
	if !w.exists(filepath.Join(w.repo, ".git/worktrees/r-locked/index.lock")) {
		t.Error("a lock file was removed")
	}
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
	for p := range scripts {
		if got := w.read(filepath.Join(w.lane("r", p), "saved.patch")); got != want {
			t.Errorf("%s: saved patch\n%s", p, got)
		}
	}
	// The commits themselves are kept where a branch of the run goes with them.
	for _, p := range []string{"committed", "detached", "switched"} {
		bundle := filepath.Join(w.lane("r", p), "saved.bundle")
		if got := w.git("repo", "bundle", "verify", "-q", bundle); got != "" && !strings.Contains(got, "okay") {
			t.Errorf("%s: %s", p, got)
		}
	}
}

// Three lanes one after another without a commit between, then one commit.
func TestThreeLanesThenOneCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "one", "two", "three")
	w.did("r", "one", `printf 'ONE\ntwo\nthree\nfour\nfive\n' >a.txt; echo 1 >new1; printf '\000\001' >bin1`)
	w.did("r", "two", `printf 'one\ntwo\nthree\nfour\nFIVE\n' >a.txt; echo 2 >new2`)
	w.did("r", "three", `git rm -q b.txt; mkdir d; git mv .gitignore d/ignore; echo 3 >d/new3`)
	for _, p := range []string{"one", "two", "three"} {
		if a := w.ok("apply", "--run", "r", "--phase", p, "--check"); a.value("status") != "applicable" {
			t.Errorf("%s: %+v", p, a)
		}
		if a := w.ok("apply", "--run", "r", "--phase", p); a.value("status") != "applied" {
			t.Errorf("%s: %+v", p, a)
		}
	}
	w.git(w.integration("r"), "commit", "-q", "-m", "integrated")
	if got := w.git(w.integration("r"), "status", "--porcelain"); got != "" && !strings.Contains(got, ".worktrees") {
		t.Errorf("left over: %q", got)
	}
	if got := w.git(w.integration("r"), "show", "HEAD:a.txt"); got != "ONE\ntwo\nthree\nfour\nFIVE" {
		t.Errorf("a.txt %q", got)
	}
	if got := w.git(w.integration("r"), "ls-tree", "-r", "--name-only", "HEAD"); got != "a.txt\nbin1\nd/ignore\nd/new3\nnew1\nnew2" {
		t.Errorf("tree\n%s", got)
	}
	// The same work again is no second change.
	if a := w.call("apply", "--run", "r", "--phase", "one"); a.code != 0 && a.code != 1 && a.code != 2 {
		t.Errorf("%+v", a)
	}
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
	// What was committed on the integration branch goes with it, and is kept.
	if got, _ := filepath.Glob(filepath.Join(w.root, "state/runs/*/r/integration.bundle")); len(got) != 1 {
		t.Error("the integration branch's commit is not kept")
	}
}

// Decision 7.3: whole or not at all, and nothing of anybody's is lost.
func TestApplyRefusesAndConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "base", "clash", "fresh", "nothing")
	integration := w.integration("r")
	w.did("r", "base", `printf 'BASE\n' >a.txt; echo n >new`)
	w.did("r", "clash", `printf 'CLASH\n' >a.txt; echo fine >fine; echo m >new`)
	w.did("r", "fresh", `echo f >fresh`)
	w.did("r", "nothing", `exit 0`)
	if a := w.ok("apply", "--run", "r", "--phase", "nothing"); a.value("status") != "empty" {
		t.Errorf("an empty lane: %+v", a)
	}
	w.ok("apply", "--run", "r", "--phase", "base")
	before := snapshot(t, w, integration)
	for _, flags := range [][]string{{"--check"}, nil} {
		a := w.call(append([]string{"apply", "--run", "r", "--phase", "clash"}, flags...)...)
		if a.code != 1 || a.value("status") != "conflict" || !strings.Contains(a.out, "conflict=a.txt\n") || !strings.Contains(a.out, "conflict=new\n") || strings.Contains(a.out, "conflict=fine") {
			t.Errorf("conflict: %+v", a)
		}
		if got := snapshot(t, w, integration); got != before {
			t.Errorf("a conflict changed the integration worktree:\n%s\n---\n%s", before, got)
		}
	}
	// Untracked and unstaged work in the way is refused; elsewhere it is not.
	w.write(integration+"/fresh", "mine\n")
	w.fails(2, "fresh", "apply", "--run", "r", "--phase", "fresh")
	w.fails(2, "fresh", "apply", "--run", "r", "--phase", "fresh", "--check")
	if got := w.read(integration + "/fresh"); got != "mine\n" {
		t.Errorf("the file in the way is %q", got)
	}
	os.Remove(integration + "/fresh")
	w.write(integration+"/elsewhere", "mine\n")
	w.write(integration+"/b.txt", "mine\n")
	if a := w.ok("apply", "--run", "r", "--phase", "fresh"); a.value("status") != "applied" {
		t.Errorf("%+v", a)
	}
	if got := w.read(integration + "/b.txt"); got != "mine\n" {
		t.Errorf("b.txt %q", got)
	}
	// Asked for, git's markers are left.
	a := w.call("apply", "--run", "r", "--phase", "clash", "--leave-conflicts")
	if a.code != 1 || a.value("status") != "applied-with-conflicts" || !strings.Contains(w.read(integration+"/a.txt"), "<<<<<<<") || w.read(integration+"/fine") != "fine\n" {
		t.Errorf("--leave-conflicts: %+v", a)
	}
	w.fails(2, "unmerged", "apply", "--run", "r", "--phase", "fresh")
	// A lane that runs is not applied.
	w.ok("add-lane", "--run", "r", "--phase", "live")
	w.sh("r", "live", "sleep 60")
	w.fails(2, "lane is still active: live", "apply", "--run", "r", "--phase", "live")
}

// E67: a lock that a killed git left is reported with its age and stays.
func TestApplyReportsALockedIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.did("r", "p", `echo x >x`)
	lock := filepath.Join(w.repo, ".git/worktrees/_int-r/index.lock")
	w.write(lock, "")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	a := w.fails(2, "index is locked", "apply", "--run", "r", "--phase", "p")
	if !strings.Contains(a.err, "2h0m") || !w.exists(lock) {
		t.Errorf("%+v", a)
	}
	if a := w.ok("apply", "--run", "r", "--phase", "p", "--check"); a.value("status") != "applicable" {
		t.Errorf("--check writes nothing and needs no lock: %+v", a)
	}
	w.ok("status", "--run", "r")
	w.ok("collect", "--run", "r", "--phase", "p", "--patch", w.path("x.patch"))
}

// A file whose time alone changed is no work of anybody's.
func TestApplyAfterATouch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p", "q")
	w.did("r", "p", `printf 'ONE\ntwo\nthree\nfour\nfive\n' >a.txt`)
	w.did("r", "q", `printf 'one\ntwo\nthree\nfour\nFIVE\n' >a.txt`)
	a := filepath.Join(w.integration("r"), "a.txt")
	for _, p := range []string{"p", "q"} {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(a, old, old); err != nil {
			t.Fatal(err)
		}
		if got := w.ok("apply", "--run", "r", "--phase", p); got.value("status") != "applied" {
			t.Errorf("%+v", got)
		}
	}
	if got := w.read(a); got != "ONE\ntwo\nthree\nfour\nFIVE\n" {
		t.Errorf("a.txt %q", got)
	}
}

// An apply that fails in the middle takes back what it has written.
func TestApplyOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("condition not met: root, to mount a small file system")
	}
	w := newWorld(t)
	small := w.path("small")
	w.mkdir("small")
	if err := syscall.Mount("none", small, "tmpfs", 0, "size=3m"); err != nil {
		t.Skip("condition not met: may mount: " + err.Error())
	}
	defer syscall.Unmount(small, syscall.MNT_DETACH)
	w.git("", "clone", "-q", "--no-hardlinks", w.repo, filepath.Join(small, "repo"))
	w.repo = filepath.Join(small, "repo")
	w.git(w.repo, "remote", "remove", "origin")
	trees := w.run("r", "p")
	w.did("r", "p", `printf 'ONE\ntwo\nthree\nfour\nfive\n' >a.txt; mkdir d; head -c 700000 /dev/urandom >d/big; git rm -q b.txt`)
	free := func() int64 {
		var s syscall.Statfs_t
		if err := syscall.Statfs(small, &s); err != nil {
			t.Fatal(err)
		}
		return int64(s.Bavail) * s.Bsize
	}
	if left := free() - 300_000; left > 0 {
		w.write(small+"/filler", strings.Repeat("x", int(left)))
	}
	before := w.git(w.integration("r"), "ls-files", "--stage")
	a := w.call("apply", "--run", "r", "--phase", "p")
	if a.code != 2 {
		t.Errorf("%+v", a)
	}
	os.Remove(small + "/filler")
	if got := w.git(w.integration("r"), "status", "--porcelain"); got != "" {
		t.Errorf("left half-way: %q\n%s", got, a.err)
	}
	if got := w.git(w.integration("r"), "ls-files", "--stage"); got != before || w.exists(w.integration("r")+"/d") {
		t.Errorf("index or directories changed:\n%s", got)
	}
	os.Remove(trees["p"] + "/nothing")
	if a := w.ok("apply", "--run", "r", "--phase", "p"); a.value("status") != "applied" {
		t.Errorf("with room: %+v", a)
	}
}

// The repository itself is gone: its run can still be closed.
func TestCleanupWithoutTheRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	os.RemoveAll(w.repo)
	if a := w.callIn(w.root, nil, "cleanup", "--run", "r", "--drop-worktrees", "--force"); a.code != 0 || !strings.Contains(a.err, "repository is gone") {
		t.Errorf("%+v", a)
	}
	if a := w.callIn(w.root, nil, "list"); !strings.Contains(a.out, "r\tcleaned\t") {
		t.Errorf("%+v", a)
	}
}

// snapshot is a worktree's content, index and modes in one text.
func snapshot(t *testing.T, w *world, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".worktrees" {
			return fs.SkipDir
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d %d\n", p, fi.Mode(), fi.Size(), fi.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + w.git(dir, "ls-files", "--stage")
}

// A6, E65: 24 at once give 24 lanes and no stray branch.
func TestManyLanesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.run("r")
	const n = 24
	answers := make([]answer, n)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() { answers[i] = w.call("add-lane", "--run", "r", "--phase", "p"+strconv.Itoa(i)) })
	}
	wait.Wait()
	for _, a := range answers {
		if a.code != 0 {
			t.Errorf("%+v", a)
		}
	}
	if got := strings.Count(w.git("repo", "branch", "--list", "wt-r-*"), "\n") + 1; got != n {
		t.Errorf("%d branches", got)
	}
	if got := strings.Count(w.git("repo", "worktree", "list"), "\n") + 1; got != n+2 {
		t.Errorf("%d worktrees", got)
	}
	if got := len(w.status("r").Lanes); got != n {
		t.Errorf("%d lanes", got)
	}
	// One phase at once: one winner, and the losers leave nothing.
	for i := range 6 {
		wait.Go(func() { answers[i] = w.call("add-lane", "--run", "r", "--phase", "same") })
	}
	wait.Wait()
	won := 0
	for _, a := range answers[:6] {
		if a.code == 0 {
			won++
		} else if a.code != 2 || !strings.Contains(a.err, "lane already exists") {
			t.Errorf("%+v", a)
		}
	}
	if won != 1 {
		t.Errorf("%d winners", won)
	}
}

// E90: the lock of a killed process is no lock.
func TestLockOfAKilledProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r")
	w.write(filepath.Join(w.repo, ".git/prun-worktrees"), "")
	began := time.Now()
	w.ok("add-lane", "--run", "r", "--phase", "p")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a lock file that nobody holds cost %v", took)
	}
	// A lane whose maker was killed can be made.
	for n := range rounds(t, 3) {
		cmd := exec.Command(binary, "add-lane", "--run", "r", "--phase", "k", "--setup", "sleep 60")
		cmd.Dir, cmd.Env = w.repo, w.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		tree := w.integration("r") + "/.worktrees/r-k"
		if n > 0 {
			w.until(10*time.Second, "the worktree", func() bool { return w.exists(tree + "/a.txt") })
		} else {
			time.Sleep(20 * time.Millisecond)
		}
		cmd.Process.Kill()
		cmd.Wait()
		w.clear()
		w.ok("add-lane", "--run", "r", "--phase", "k")
		if got := w.git(tree, "branch", "--show-current"); got != "wt-r-k" {
			t.Errorf("branch %q", got)
		}
		// For the next round.
		w.ok("cleanup", "--run", "r")
		w.write(filepath.Join(filepath.Dir(filepath.Dir(w.lane("r", "k"))), "status"), "active\n")
		os.RemoveAll(w.lane("r", "k"))
		w.git("repo", "worktree", "remove", "--force", tree)
		w.git("repo", "branch", "-q", "-D", "wt-r-k")
	}
	// Killed and never made again: cleanup knows of it.
	cmd := exec.Command(binary, "add-lane", "--run", "r", "--phase", "z", "--setup", "touch started; sleep 60")
	cmd.Dir, cmd.Env = w.repo, w.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.until(10*time.Second, "its setup", func() bool { return w.exists(w.integration("r") + "/.worktrees/r-z/started") })
	cmd.Process.Kill()
	cmd.Wait()
	w.clear()
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
	if got := w.git("repo", "branch", "--list", "*-r*"); got != "" {
		t.Errorf("branches left: %s", got)
	}
}

// E66: what is in the way is refused by name, and nothing is created.
func TestAddLaneRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r")
	w.git("repo", "branch", "wt-r-taken")
	before := w.git("repo", "branch", "--list")
	w.fails(2, "branch exists", "add-lane", "--run", "r", "--phase", "taken")
	w.git("repo", "branch", "wt-r-dir/x")
	w.fails(2, "wt-r-dir", "add-lane", "--run", "r", "--phase", "dir")
	w.git("repo", "branch", "-D", "-q", "wt-r-dir/x")
	w.write(w.integration("r")+"/.worktrees/r-full/file", "x")
	w.fails(2, "not empty", "add-lane", "--run", "r", "--phase", "full")
	if got := w.read(w.integration("r") + "/.worktrees/r-full/file"); got != "x" {
		t.Error("a file in the way was touched")
	}
	w.git("repo", "worktree", "add", "-q", "-b", "elsewhere", w.integration("r")+"/.worktrees/r-lost")
	os.RemoveAll(w.integration("r") + "/.worktrees/r-lost")
	w.fails(2, "lost", "add-lane", "--run", "r", "--phase", "lost")
	w.git("repo", "worktree", "prune")
	w.git("repo", "branch", "-D", "-q", "elsewhere")
	w.fails(2, "base not found: nosuch", "add-lane", "--run", "r", "--phase", "b", "--base", "nosuch")
	w.fails(2, "base not found", "add-lane", "--run", "r", "--phase", "b", "--base=-x")
	if got := w.git("repo", "branch", "--list"); got != before {
		t.Errorf("branches\n%s\nwere\n%s", got, before)
	}
	if s := w.status("r"); len(s.Lanes) != 0 {
		t.Errorf("lanes %+v", s.Lanes)
	}
	// And all of them can be made once the way is free.
	os.RemoveAll(w.integration("r") + "/.worktrees/r-full")
	for _, p := range []string{"dir", "full", "lost"} {
		w.ok("add-lane", "--run", "r", "--phase", p)
	}
}

func TestSetupWarmAndBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("repo/node_modules/dep/index.js", "dep\n")
	w.write("repo/node_modules/.worktrees/x", "no\n")
	w.write("repo/.env", "SECRET=1\n")
	w.write("repo/build/big", "no\n")
	w.write("repo/.worktreeinclude", ".env\nnot-ignored\n")
	w.write("repo/not-ignored", "x\n")
	w.git("repo", "add", ".worktreeinclude", "not-ignored")
	w.git("repo", "commit", "-q", "-m", "include")
	w.run("r")
	a := w.ok("add-lane", "--run", "r", "--phase", "one", "--warm", "node_modules", "--setup", "echo said; echo made >made; cat .env >>made")
	tree := a.value("worktree")
	onlyValues(t, a.out, "run", "phase", "worktree", "warmed")
	if got := a.value("warmed"); got != "node_modules clone" && got != "node_modules copy" {
		t.Errorf("warmed %q", got)
	}
	if w.read(tree+"/node_modules/dep/index.js") != "dep\n" || w.exists(tree+"/node_modules/.worktrees") || w.exists(tree+"/build") {
		t.Error("the warm copy is wrong")
	}
	if got := w.read(tree + "/made"); got != "made\nSECRET=1\n" {
		t.Errorf("setup ran before the files were there: %q", got)
	}
	if got := w.value("r", "one", "setup.log"); got != "said" {
		t.Errorf("setup.log %q", got)
	}
	a = w.fails(2, "setup of lane two failed: exit status 3", "add-lane", "--run", "r", "--phase", "two", "--setup", "echo why; setsid sleep 60 & exit 3")
	if _, log, ok := strings.Cut(a.err, "its output is in "); !ok || w.read(strings.TrimSpace(log)) != "why\n" {
		t.Errorf("%+v", a)
	}
	w.empty(5 * time.Second)
	if got := w.git("repo", "branch", "--list", "wt-r-two"); got != "" {
		t.Errorf("a failed setup left %s", got)
	}
	w.ok("add-lane", "--run", "r", "--phase", "two")
	for path, why := range map[string]string{"a.txt": "not ignored", "../x": "below the top", "/etc": "below the top", ".worktrees": "worktrees", ".git": "git's own", "nosuch": "neither"} {
		w.fails(2, why, "add-lane", "--run", "r", "--phase", "three", "--warm", path)
	}
	// --base LANE starts from that lane's work as it stands.
	w.did("r", "two", `echo committed >c; git add c; git -c user.name=w -c user.email=w@x commit -qm c; echo loose >l; echo staged >s; git add s; rm a.txt`)
	before := w.git(w.ok("collect", "--run", "r", "--phase", "two").value("worktree"), "status", "--porcelain")
	third := w.ok("add-lane", "--run", "r", "--phase", "three", "--base", "two").value("worktree")
	if w.read(third+"/c") != "committed\n" || w.read(third+"/l") != "loose\n" || w.read(third+"/s") != "staged\n" || w.exists(third+"/a.txt") {
		t.Error("the lane does not start from the other one's work")
	}
	if got := w.git(third, "status", "--porcelain"); got != "" {
		t.Errorf("the new lane is not clean: %q", got)
	}
	if got := w.git(w.ok("collect", "--run", "r", "--phase", "two").value("worktree"), "status", "--porcelain"); got != before {
		t.Errorf("the other lane was changed: %q, was %q", got, before)
	}
	// Its patch is its own work alone.
	w.did("r", "three", `echo 3 >3`)
	if a := w.ok("collect", "--run", "r", "--phase", "three", "--patch", w.path("3.patch")); a.value("patch_files") != "1" {
		t.Errorf("%+v", a)
	}
	w.ok("apply", "--run", "r", "--phase", "two")
	w.ok("apply", "--run", "r", "--phase", "three")
	w.git("repo", "tag", "v0", "main")
	if a := w.ok("add-lane", "--run", "r", "--phase", "four", "--base", "v0"); !w.exists(a.value("worktree") + "/a.txt") {
		t.Error("--base REF")
	}
}

// With a remote the run starts from its default branch, as it is there now.
func TestInitFromARemote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git("", "clone", "-q", "--bare", w.repo, w.path("origin.git"))
	w.git("", "clone", "-q", w.path("origin.git"), w.path("clone"))
	w.write("repo/later", "x\n")
	w.git("repo", "add", "later")
	w.git("repo", "commit", "-q", "-m", "later")
	w.git("repo", "push", "-q", w.path("origin.git"), "main", "main:release")
	w.write("clone/dirty", "a dirty checkout is no matter with a remote\n")
	a := w.callIn(w.path("clone"), nil, "init", "--sid", "r")
	if a.code != 0 || !w.exists(a.value("integration_worktree")+"/later") {
		t.Fatalf("%+v", a)
	}
	onlyValues(t, a.out, "run", "state_dir", "integration_worktree")
	if got := w.git("clone", "config", "branch.int-r.agentFanoutBase"); got != "origin/main" {
		t.Errorf("recorded base %q", got)
	}
	// The branch tracks nothing.
	if out, err := exec.Command("git", "-C", w.path("clone"), "config", "branch.int-r.merge").Output(); err == nil {
		t.Errorf("the branch tracks %s", out)
	}
	if a := w.callIn(w.path("clone"), nil, "init", "--sid", "r2", "--base-ref", "origin/release"); a.code != 0 {
		t.Errorf("%+v", a)
	}
	os.Rename(w.path("origin.git"), w.path("moved.git"))
	if a := w.callIn(w.path("clone"), nil, "init", "--sid", "r3"); a.code != 2 || a.out != "" {
		t.Errorf("a remote that is gone: %+v", a)
	}
	if a := w.callIn(w.path("clone"), nil, "init", "--sid", "r4", "--no-fetch"); a.code != 0 {
		t.Errorf("--no-fetch: %+v", a)
	}
}

// A7, E68: nothing of a worker's work is lost by cleanup, whatever the state of
// its worktree.
func TestCleanupLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mkdir("sub")
	w.git("sub", "init", "-q")
	w.write("sub/s.txt", "s\n")
	w.git("sub", "add", ".")
	w.git("sub", "commit", "-q", "-m", "s")
	// Not "git submodule", which is a shell script that needs sed.
	w.git("repo", "-c", "protocol.file.allow=always", "submodule--helper", "add", "--quiet", w.path("sub"), "module")
	w.git("repo", "commit", "-q", "-m", "module")
	trees := w.run("r", "dirty", "locked", "gone", "nested", "readonly", "submodule", "ungit", "unborn", "moved")
	w.did("r", "dirty", `printf '\000' >bin; echo new >new; echo ch >>a.txt; mkdir build; echo i >build/i; echo s >.env; seq 5000 >wide`)
	w.git("repo", "worktree", "lock", trees["locked"])
	w.did("r", "locked", `echo l >l`)
	w.did("r", "gone", `echo g >g; git add g; git -c user.name=w -c user.email=w@x commit -qm g`)
	os.RemoveAll(trees["gone"])
	w.did("r", "nested", `git init -q inner; echo in >inner/file; git -C inner add file; git -C inner -c user.name=w -c user.email=w@x commit -qm in; echo loose >inner/loose; echo n >n`)
	w.did("r", "readonly", `mkdir -p mod/deep; echo r >mod/deep/r; chmod -R a-w mod`)
	w.did("r", "submodule", `git -c protocol.file.allow=always submodule--helper update --quiet --init; echo changed >>module/s.txt; echo m >m`)
	w.did("r", "ungit", `echo u >u; rm .git`)
	w.did("r", "unborn", `git init -q nothing; echo x >nothing/x; echo y >y`)
	w.did("r", "moved", `git checkout -q --detach; echo d >d; git add d; git -c user.name=w -c user.email=w@x commit -qm d`)
	a := w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
	for p, tree := range trees {
		if w.exists(tree) {
			t.Errorf("%s is still there", p)
		}
	}
	if got := w.git("repo", "worktree", "list"); strings.Contains(got, "_int-r") {
		t.Errorf("worktrees left: %s", got)
	}
	if got := w.git("repo", "branch", "--list", "*-r*"); got != "" {
		t.Errorf("branches left: %s", got)
	}
	// Every word of work is in something whose path was printed.
	saved := func(phase, suffix string) string { return filepath.Join(w.lane("r", phase), "saved"+suffix) }
	for _, c := range []struct{ phase, file, holds string }{
		{"dirty", ".patch", "+new\n"}, {"dirty", ".patch", "GIT binary patch"}, {"dirty", ".patch", "+5000\n"},
		{"locked", ".patch", "+l\n"}, {"nested", ".patch", "+n\n"}, {"nested", ".repositories/inner/file", "in\n"}, {"nested", ".repositories/inner/loose", "loose\n"},
		{"readonly", ".patch", "+r\n"}, {"submodule", ".patch", "+m\n"}, {"submodule", ".repositories/module/s.txt", "changed\n"},
		{"ungit", ".files/u", "u\n"}, {"unborn", ".files/nothing/x", "x\n"}, {"moved", ".patch", "+d\n"},
	} {
		name := saved(c.phase, c.file)
		if !w.exists(name) || !strings.Contains(w.read(name), c.holds) {
			t.Errorf("%s: %s does not hold %q\n%s", c.phase, name, c.holds, a.out+a.err)
		}
	}
	for _, p := range []string{"gone", "moved"} {
		if !strings.Contains(a.out, "bundle="+saved(p, ".bundle")+"\n") || !w.exists(saved(p, ".bundle")) {
			t.Errorf("%s: no bundle\n%s", p, a.out)
		}
	}
	if !strings.Contains(a.out, "patch="+saved("dirty", ".patch")+"\n") || !strings.Contains(a.out, "ignored=build/\n") || !strings.Contains(a.out, "ignored=.env\n") {
		t.Errorf("cleanup says\n%s", a.out)
	}
	for line := range strings.Lines(a.out) {
		if line != "cleaned\n" && !strings.Contains(line, "=") {
			t.Errorf("git's words on standard output: %q", line)
		}
	}
	// The patch is the work: applied to the base it gives the files again.
	w.git("", "clone", "-q", w.repo, w.path("again"))
	w.git("again", "apply", "--index", saved("dirty", ".patch"))
	if w.read("again/bin") != "\x00" || w.read("again/new") != "new\n" {
		t.Error("the saved patch does not give the work back")
	}
}

// A worktree that cannot be saved is not dropped.
func TestCleanupKeepsWhatItCannotSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p", "q")
	w.did("r", "p", `echo x >x`)
	// A directory where the patch is to go.
	w.mkdir(filepath.Join(w.lane("r", "p"), "saved.patch/in the way"))
	a := w.call("cleanup", "--run", "r", "--drop-worktrees", "--force")
	if a.code != 1 || strings.Contains(a.out, "cleaned") || !strings.Contains(a.err, "is kept") {
		t.Errorf("%+v", a)
	}
	if w.read(trees["p"]+"/x") != "x\n" || !w.exists(w.integration("r")) || w.exists(trees["q"]) {
		t.Error("the wrong worktrees went")
	}
	if s := w.status("r"); s.Status != "active" {
		t.Errorf("status %s", s.Status)
	}
	os.RemoveAll(filepath.Join(w.lane("r", "p"), "saved.patch"))
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
	if got := w.read(filepath.Join(w.lane("r", "p"), "saved.patch")); !strings.Contains(got, "+x\n") {
		t.Errorf("saved %q", got)
	}
}

// E86: on a full disk cleanup drops nothing.
func TestCleanupOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("condition not met: root, to mount a small file system")
	}
	w := newWorld(t)
	small := w.path("small")
	w.mkdir("small")
	if err := syscall.Mount("none", small, "tmpfs", 0, "size=400k"); err != nil {
		t.Skip("condition not met: may mount: " + err.Error())
	}
	defer syscall.Unmount(small, syscall.MNT_DETACH)
	w.env = append(w.env, "AGENT_FANOUT_STATE_HOME="+small+"/state")
	trees := map[string]string{}
	w.ok("init", "--sid", "r")
	trees["p"] = w.ok("add-lane", "--run", "r", "--phase", "p").value("worktree")
	w.write(trees["p"]+"/big", strings.Repeat("0123456789abcdef\n", 60000))
	a := w.call("cleanup", "--run", "r", "--drop-worktrees", "--force")
	if a.code == 0 || !w.exists(trees["p"]+"/big") {
		t.Errorf("%+v", a)
	}
	if !strings.Contains(a.err, "disk") && !strings.Contains(a.err, "space") {
		t.Errorf("the reason is not named: %s", a.err)
	}
}

// A command that is told to stop takes back what it has begun.
func TestInterruptedAddLane(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r")
	cmd := exec.Command(binary, "add-lane", "--run", "r", "--phase", "p", "--setup", "touch started; sleep 60")
	cmd.Dir, cmd.Env = w.repo, w.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.until(10*time.Second, "its setup", func() bool { return w.exists(w.integration("r") + "/.worktrees/r-p/started") })
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err == nil {
		t.Error("it succeeded")
	}
	w.empty(5 * time.Second)
	if w.exists(w.integration("r")+"/.worktrees/r-p") || w.git("repo", "branch", "--list", "wt-r-p") != "" || len(w.status("r").Lanes) != 0 {
		t.Error("something is left")
	}
	w.ok("add-lane", "--run", "r", "--phase", "p")
}

// E81: names of every kind in the paths.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	odd := filepath.Join(w.root, "a b'\"$(id)☃", "-x")
	w.mkdir(odd)
	if err := os.Rename(w.repo, filepath.Join(odd, "re:po")); err != nil {
		t.Fatal(err)
	}
	w.repo = filepath.Join(odd, "re:po")
	w.env = append(w.env, "AGENT_FANOUT_STATE_HOME="+filepath.Join(odd, "st\nate"))
	a := w.ok("init", "--sid", "r")
	onlyValues(t, a.out, "run", "state_dir", "integration_worktree")
	w.ok("add-lane", "--run", "r", "--phase", "p")
	w.sh("r", "p", "cat; echo x >x")
	if got := w.wait("r", "p"); got != "succeeded" {
		t.Errorf("status %s", got)
	}
	w.ok("collect", "--run", "r", "--phase", "p", "--patch", "-odd.patch")
	if !w.exists(w.repo + "/-odd.patch") {
		t.Error("the patch is elsewhere")
	}
	w.ok("apply", "--run", "r", "--phase", "p")
	a = w.ok("collect", "--run", "r", "--phase", "p", "--json")
	var j map[string]any
	if err := json.Unmarshal([]byte(a.out), &j); err != nil || j["commits"] != 0.0 {
		t.Errorf("%v\n%s", err, a.out)
	}
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
}

// E76: the space that runs take can be seen.
func TestSizes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p")
	w.write(trees["p"]+"/build/big", strings.Repeat("x", 100000))
	a := w.ok("list", "--sizes")
	fields := strings.Split(strings.Split(a.out, "\n")[1], "\t")
	if len(fields) != 6 || fields[4] != "1" {
		t.Fatalf("%q", a.out)
	}
	if n, _ := strconv.Atoi(fields[5]); n < 100000 {
		t.Errorf("%d bytes", n)
	}
}
