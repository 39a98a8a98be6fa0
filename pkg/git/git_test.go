package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// world is a home of its own for one test, with a git that sees no
// configuration but the test's.
type world struct {
	t    *testing.T
	root string
	env  []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: this package is tested against a real one only")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: root, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(root, "home"), "TMPDIR=" + root,
		"GIT_CONFIG_SYSTEM=" + filepath.Join(root, "system"), "SystemRoot=" + os.Getenv("SystemRoot"),
	}}
	w.mkdir("home")
	w.write("system", "")
	w.write("home/.gitconfig", "[user]\n\tname = n\n\temail = n@example.com\n[init]\n\tdefaultBranch = main\n")
	return w
}

func (w *world) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(w.root, name)
}

func (w *world) mkdir(name string) string {
	w.t.Helper()
	if err := os.MkdirAll(w.path(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return w.path(name)
}

func (w *world) write(name, text string) {
	w.t.Helper()
	w.mkdir(filepath.Dir(w.path(name)))
	if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// script writes an executable sh script.
func (w *world) script(name, text string) string {
	w.t.Helper()
	// A fork while the file is open for writing would make it "busy" for whoever
	// executes it next.
	syscall.ForkLock.RLock()
	w.write(name, "#!/bin/sh\n"+text)
	syscall.ForkLock.RUnlock()
	if err := os.Chmod(w.path(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return w.path(name)
}

func (w *world) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// git runs git in dir and returns its stdout without the last newline.
func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = w.path(dir), w.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("git %q in %s: %v: %s", args, dir, err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

// repository makes one with two commits, a second branch, a tag and a remote.
func (w *world) repository(dir string) string {
	w.t.Helper()
	w.mkdir(dir)
	w.git(dir, "init", "-q")
	w.write(filepath.Join(w.path(dir), "a.txt"), "one\n")
	w.write(filepath.Join(w.path(dir), "sub/b.txt"), "two\n")
	w.git(dir, "add", ".")
	w.git(dir, "commit", "-q", "-m", "first")
	w.git(dir, "branch", "other")
	w.git(dir, "tag", "v1")
	w.write(filepath.Join(w.path(dir), "a.txt"), "three\n")
	w.git(dir, "commit", "-q", "-a", "-m", "second")
	w.git(dir, "remote", "add", "origin", "https://example.invalid/x.git")
	return w.path(dir)
}

func (w *world) clone(spec CloneSpec) (CloneReport, error) {
	w.t.Helper()
	if spec.Env == nil {
		spec.Env = w.env
	}
	if spec.Limit == 0 {
		spec.Limit = time.Minute
	}
	return Clone(w.t.Context(), spec)
}

// check asserts everything Clone promises about a directory it filled.
func (w *world) check(dir, commit string) {
	w.t.Helper()
	if got := w.git(dir, "rev-parse", "HEAD"); got != commit {
		w.t.Errorf("clone has %s checked out, want %s", got, commit)
	}
	if got := w.git(dir, "status", "--porcelain"); got != "" {
		w.t.Errorf("clone is not clean: %q", got)
	}
	if got := w.git(dir, "remote"); got != "" {
		w.t.Errorf("remotes left: %q", got)
	}
	if got := w.git(dir, "for-each-ref", "refs/remotes"); got != "" {
		w.t.Errorf("tracking refs left: %q", got)
	}
	config := w.read(filepath.Join(w.path(dir), ".git/config"))
	if strings.Contains(config, "url") || strings.Contains(config, "remote") {
		w.t.Errorf("configuration still names a remote:\n%s", config)
	}
	if !strings.Contains(config, "longpaths = true") {
		w.t.Errorf("core.longpaths is not set:\n%s", config)
	}
	if hooks, _ := os.ReadDir(filepath.Join(w.path(dir), ".git/hooks")); len(hooks) > 0 {
		w.t.Errorf("hooks were installed: %v", hooks)
	}
	if _, err := os.Lstat(filepath.Join(w.path(dir), ".git/objects/info/alternates")); err == nil {
		w.t.Error("clone borrows objects")
	}
	w.tidy(filepath.Dir(w.path(dir)))
}

// tidy asserts that no file of ours is left beside a clone.
func (w *world) tidy(dir string) {
	w.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".clone-config-") {
			w.t.Errorf("left behind: %s", entry.Name())
		}
	}
}

// hash is a digest of everything under dir that a write could change: names,
// modes, sizes, times of last modification, link targets, bytes.
func hash(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %v %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum.Write(data)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%q\n", target)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// Every form in which a user may name a repository.
func TestCloneOfEveryKindOfRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	second, first := w.git("src", "rev-parse", "HEAD"), w.git("src", "rev-parse", "other")
	w.git("src", "worktree", "add", "-q", w.path("linked"), "other")
	w.git("", "clone", "-q", "--bare", src, "bare.git")
	w.git("", "clone", "-q", "--depth=1", "file://"+src, "shallow")
	w.git("", "clone", "-q", "--shared", src, "borrowing")
	w.git("", "clone", "-q", src, "detached")
	w.git("detached", "checkout", "-q", "--detach", first)
	w.repository("super")
	// Not "git submodule", which is a shell script that needs sed.
	w.git("super", "-c", "protocol.file.allow=always", "submodule--helper", "add", "--quiet", src, "module")
	w.git("super", "commit", "-q", "-m", "module")
	w.git("", "init", "-q", "--separate-git-dir", w.path("elsewhere"), "separate")
	w.write("separate/a.txt", "x\n")
	w.git("separate", "add", "a.txt")
	w.git("separate", "commit", "-q", "-m", "separate")
	w.git("", "clone", "-q", src, "linkedstore")
	if err := os.Rename(w.path("linkedstore/.git/objects"), w.path("store")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.path("store"), w.path("linkedstore/.git/objects")); err != nil {
		t.Skipf("this system lets us make no symbolic link: %v", err)
	}

	for i, c := range []struct{ repo, source, branch, commit, note string }{
		{"src", "src", "main", second, ""},
		{"src/sub", "src", "main", second, ""},
		{"src/.git", "src", "main", second, ""},
		{"linked", "linked", "other", first, ""},
		{"linked/sub", "linked", "other", first, ""},
		{"bare.git", "bare.git", "main", second, ""},
		{"shallow", "shallow", "main", second, ""},
		{"borrowing", "borrowing", "main", second, ""},
		{"detached", "detached", "", first, ""},
		{"super", "super", "main", w.git("super", "rev-parse", "HEAD"), "submodules"},
		{"super/module", "super/module", "main", second, ""},
		{"separate", "separate", "main", w.git("separate", "rev-parse", "HEAD"), ""},
		{"linkedstore", "linkedstore", "main", second, "pack protocol"},
	} {
		t.Run(c.repo, func(t *testing.T) {
			w := &world{t: t, root: w.root, env: w.env}
			if err := IsRepository(t.Context(), w.path(c.repo), w.env); err != nil {
				t.Errorf("IsRepository: %v", err)
			}
			dir := w.path(fmt.Sprintf("clone%d", i))
			report, err := w.clone(CloneSpec{Repo: w.path(c.repo), Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if report.Source != w.path(c.source) || report.Branch != c.branch || report.Commit != c.commit || report.Uncommitted {
				t.Errorf("report %+v", report)
			}
			if notes := strings.Join(report.Notes, "\n"); (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			w.check(dir, c.commit)
			w.git(dir, "fsck", "--no-dangling", "--no-progress")
		})
	}
}

func TestCloneOfRepositoryWithoutCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git("", "init", "-q", "empty")
	w.write("empty/x", "x")
	report, err := w.clone(CloneSpec{Repo: w.path("empty"), Dir: w.path("clone")})
	if err != nil {
		t.Fatal(err)
	}
	if report.Commit != "" || report.Branch == "" || len(report.Notes) != 1 || !report.Uncommitted || report.Untracked != 1 {
		t.Errorf("report %+v", report)
	}
	if got := w.git("clone", "remote"); got != "" {
		t.Errorf("remotes left: %q", got)
	}
	// The worker can begin a history there.
	w.write("clone/y", "y")
	w.git("clone", "add", "y")
	w.git("clone", "commit", "-q", "-m", "first")
}

// The promise users care about most. The index is made stale on purpose: a
// status that refreshes it would rewrite it. A lock left by a crashed git must
// neither stop us nor be removed.
func TestSourceIsNeverTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	// Filters that keep what they see, as git-lfs does.
	for _, name := range []string{"store", "od.d=n\"ame"} {
		w.git("src", "config", "filter."+name+".clean", "tee -a .git/stored")
		w.git("src", "config", "filter."+name+".required", "true")
	}
	w.write("src/.gitattributes", "a.txt filter=store\n*.txt filter=od.d=n\"ame\n")
	w.git("src", "add", ".")
	w.git("src", "commit", "-q", "-m", "filters")
	w.write("src/new.txt", "untracked\n")
	w.write("src/a.txt", "changed\n")
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(w.path("src/sub/b.txt"), past, past); err != nil {
		t.Fatal(err)
	}
	w.write("src/.git/index.lock", "")
	before := hash(t, src)
	for _, links := range []bool{false, true} {
		dir := w.path(fmt.Sprintf("clone-%v", links))
		report, err := w.clone(CloneSpec{Repo: src, Dir: dir, Links: links})
		if err != nil {
			t.Fatal(err)
		}
		if !report.Uncommitted || report.Changed != 1 || report.Untracked != 1 {
			t.Errorf("report %+v", report)
		}
		if hash(t, src) != before {
			t.Fatalf("links=%v: making the clone changed the source repository", links)
		}
		if links {
			continue // a commit there may already set the time of a shared object file
		}
		// What a worker does in the clone must not reach back either.
		w.write(filepath.Join(dir, "a.txt"), "worker\n")
		w.git(dir, "commit", "-q", "-a", "-m", "worker")
		w.git(dir, "tag", "-d", "v1")
		w.git(dir, "gc", "-q", "--prune=now")
	}
	if after := hash(t, src); after != before {
		t.Error("the source repository changed")
	}
}

func TestObjectsAreSharedOnlyOnRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	same := func(dir string) (shared, all int) {
		err := filepath.WalkDir(filepath.Join(src, ".git/objects"), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			all++
			rel, _ := filepath.Rel(src, path)
			a, errA := os.Stat(path)
			b, errB := os.Stat(filepath.Join(dir, rel))
			if errA == nil && errB == nil && os.SameFile(a, b) {
				shared++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return shared, all
	}
	for _, links := range []bool{false, true} {
		dir := w.path(fmt.Sprintf("clone-%v", links))
		if _, err := w.clone(CloneSpec{Repo: src, Dir: dir, Links: links}); err != nil {
			t.Fatal(err)
		}
		shared, all := same(dir)
		if !links && shared != 0 || links && shared != all {
			t.Errorf("links=%v: %d of %d object files are shared", links, shared, all)
		}
	}
}

func TestUncommittedWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(w *world)
		want string // of Warning, after the path
	}{
		"clean":     {func(*world) {}, ""},
		"changed":   {func(w *world) { w.write("src/a.txt", "x") }, "1 changed"},
		"staged":    {func(w *world) { w.write("src/a.txt", "x"); w.git("src", "add", "a.txt") }, "1 changed"},
		"deleted":   {func(w *world) { os.Remove(w.path("src/a.txt")) }, "1 changed"},
		"renamed":   {func(w *world) { w.git("src", "mv", "a.txt", "c.txt") }, "2 changed"},
		"untracked": {func(w *world) { w.write("src/?? new\nfile", "x") }, "1 untracked"},
		"both":      {func(w *world) { w.write("src/n/1", "x"); w.write("src/n/2", "x"); w.write("src/a.txt", "x") }, "1 changed, 1 untracked"},
		"ignored":   {func(w *world) { w.write("src/x.o", "x"); w.write("src/.git/info/exclude", "*.o\n") }, ""},
		"ignored by the user's own list": {func(w *world) {
			w.write("src/x.swp", "x")
			w.write("home/ignore", "*.swp\n")
			w.git("src", "config", "--global", "core.excludesFile", w.path("home/ignore"))
		}, ""},
		"hidden by the user's settings": {func(w *world) {
			w.write("src/x", "x")
			w.git("src", "config", "--global", "status.showUntrackedFiles", "no")
			w.git("src", "config", "--global", "status.relativePaths", "true")
		}, "1 untracked"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "untracked") && runtime.GOOS == "windows" {
				t.Skip("windows: file names hold no question mark or newline")
			}
			t.Parallel()
			w := newWorld(t)
			src := w.repository("src")
			c.do(w)
			report, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone")})
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if c.want != "" {
				want = "uncommitted work in " + src + " is not in the clone (" + c.want + ")"
			}
			if got := report.Warning(); got != want || report.Uncommitted != (want != "") {
				t.Errorf("warning %q, want %q", got, want)
			}
			w.check("clone", w.git("src", "rev-parse", "HEAD"))
		})
	}
}

func TestAwkwardPaths(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("windows and darwin: these bytes are not allowed in file names")
	}
	w := newWorld(t)
	for _, name := range []string{
		`with space, quote'"and\back`, "new\nline", "-dash", "--upload-pack=$(id)`id`%s",
		"bad\xffutf8\xc3", "host:path", "☃ trailing\n", " ", "x.bundle",
	} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			w := &world{t: t, root: w.root, env: w.env}
			src := w.repository(filepath.Join("repos", name))
			w.mkdir("clones")
			dir := filepath.Join(w.root, "clones", name)
			report, err := w.clone(CloneSpec{Repo: src, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if report.Source != src {
				t.Errorf("source %q, want %q", report.Source, src)
			}
			w.check(dir, w.git(src, "rev-parse", "HEAD"))
		})
	}
	// As relative words, where a leading dash looks like an option.
	t.Chdir(w.path("repos"))
	if _, err := w.clone(CloneSpec{Repo: "-dash", Dir: "--template=x"}); err != nil {
		t.Fatal(err)
	}
	w.check("repos/--template=x", w.git("repos/-dash", "rev-parse", "HEAD"))
}

// E71: the caller may itself run inside a hook, an alias or a rebase.
func TestInheritedGitVariables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src, other := w.repository("src"), w.repository("other")
	w.write("other/a.txt", "other\n")
	w.git("other", "commit", "-q", "-a", "-m", "other")
	w.script("template/hooks/post-checkout", "touch '"+w.path("ran")+"'\n")
	before := hash(t, other)
	env := append(w.env[:len(w.env):len(w.env)],
		"GIT_DIR="+filepath.Join(other, ".git"), "GIT_WORK_TREE="+other, "GIT_COMMON_DIR="+filepath.Join(other, ".git"),
		"GIT_INDEX_FILE="+filepath.Join(other, ".git/index"), "GIT_OBJECT_DIRECTORY="+filepath.Join(other, ".git/objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=/nowhere", "GIT_PREFIX=sub/", "GIT_NAMESPACE=hidden", "GIT_QUARANTINE_PATH=/nowhere",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.worktree", "GIT_CONFIG_VALUE_0="+other,
		"GIT_CONFIG_KEY_1=core.bare", "GIT_CONFIG_VALUE_1=true", "GIT_CONFIG_PARAMETERS='core.bare'='true'",
		"GIT_ALLOW_PROTOCOL=https", "GIT_TEMPLATE_DIR="+w.path("template"), "GIT_SHALLOW_FILE=/nowhere",
		"LC_ALL=de_DE.UTF-8", "LANGUAGE=de", "GIT_TERMINAL_PROMPT=1",
	)
	report, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone"), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if report.Source != src || report.Uncommitted {
		t.Errorf("report %+v", report)
	}
	w.check("clone", w.git("src", "rev-parse", "HEAD"))
	if hash(t, other) != before {
		t.Error("the repository GIT_DIR named changed")
	}
	if err := IsRepository(t.Context(), w.mkdir("plain"), env); !errors.Is(err, ErrNotRepository) {
		t.Errorf("IsRepository of a plain directory with GIT_DIR set: %v", err)
	}
	if _, err := os.Lstat(w.path("ran")); err == nil {
		t.Error("a hook of the template ran")
	}
}

// The user's and the system's configuration, at its most hostile.
func TestUserConfigurationCannotDerail(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"home/.gitconfig", "system"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			src := w.repository("src")
			w.git("", "clone", "-q", "--bare", src, "bare.git")
			w.git("", "clone", "-q", "--depth=1", "file://"+src, "shallow")
			mark := "echo \"$0\" >> '" + w.path("ran") + "'\n"
			for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change"} {
				w.script("template/hooks/"+hook, mark)
				w.script("hooks/"+hook, mark)
			}
			monitor := w.script("monitor", mark)
			w.write(file, w.read(file)+fmt.Sprintf(`
[init]
	templateDir = %[1]q
[core]
	hooksPath = %[2]q
	fsmonitor = %[3]q
	bare = true
[alias]
	clone = !false
	rev-parse = !false
	status = !false
[url "https://example.invalid/"]
	insteadOf = %[4]q
	pushInsteadOf = /
[protocol]
	allow = never
[protocol "file"]
	allow = never
[clone]
	defaultRemoteName = upstream
	rejectShallow = true
[safe]
	bareRepository = explicit
[gc]
	auto = 1
[fetch]
	recurseSubmodules = true
[submodule]
	recurse = true
[transfer]
	hideRefs = refs/heads
[uploadpack]
	packObjectsHook = false
[color]
	ui = always
[checkout]
	defaultRemote = upstream
`, w.path("template"), w.path("hooks"), monitor, w.root+"/"))
			quiet := &world{t: t, root: w.root, env: append(w.env[:len(w.env):len(w.env)],
				"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)}
			commit := quiet.git("src", "rev-parse", "HEAD")
			for _, repo := range []string{"src", "bare.git", "shallow"} {
				dir := "clone-" + repo
				if _, err := w.clone(CloneSpec{Repo: w.path(repo), Dir: w.path(dir)}); err != nil {
					t.Fatalf("%s: %v", repo, err)
				}
				quiet.check(dir, commit)
			}
			if data, err := os.ReadFile(w.path("ran")); err == nil {
				t.Errorf("a program of the user's configuration ran:\n%s", data)
			}
		})
	}
}

// Line endings and filters are the user's choice of what files look like; a
// filter that fails must not cost the unit.
func TestFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	w.write("src/.gitattributes", "*.txt filter=shout\n")
	w.git("src", "add", ".gitattributes")
	w.git("src", "commit", "-q", "-m", "attributes")
	set := func(smudge string) {
		w.git("src", "config", "--global", "filter.shout.smudge", smudge)
		w.git("src", "config", "--global", "filter.shout.clean", "tr A-Z a-z")
		w.git("src", "config", "--global", "filter.shout.required", "true")
	}
	set("tr a-z A-Z")
	report, err := w.clone(CloneSpec{Repo: src, Dir: w.path("loud")})
	if err != nil || len(report.Notes) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if got := w.read("loud/a.txt"); got != "THREE\n" {
		t.Errorf("a.txt is %q: the user's filter did not run", got)
	}
	set("echo 'no such server' >&2; false")
	report, err = w.clone(CloneSpec{Repo: src, Dir: w.path("plain")})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.read("plain/a.txt"); got != "three\n" {
		t.Errorf("a.txt is %q", got)
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "filter") {
		t.Errorf("notes %q", report.Notes)
	}
}

func TestRemoteOfTheUsersOwnConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	w.git("src", "config", "--global", "remote.backup.url", "https://example.invalid/y")
	report, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone")})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "backup") {
		t.Errorf("notes %q", report.Notes)
	}
}

func TestForeignOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot give a repository to another user")
	}
	w := newWorld(t)
	src := w.repository("src")
	err := filepath.WalkDir(src, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 65534, 65534))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.clone(CloneSpec{Repo: filepath.Join(src, "sub"), Dir: w.path("clone")})
	if !errors.Is(err, ErrForeignOwner) || !strings.Contains(err.Error(), "safe.directory '"+src+"'") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(w.path("clone")); err == nil {
		t.Error("a clone directory was made")
	}
	// The user's word counts, given in the only place git accepts it.
	w.git("", "config", "--global", "--add", "safe.directory", src)
	if _, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone")}); err != nil {
		t.Fatal(err)
	}
	w.check("clone", w.git("src", "rev-parse", "HEAD"))
}

func TestNotARepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	w.write("broken/.git", "gitdir: /nowhere\n")
	w.write("headless/.git/HEAD", "nonsense\n")
	for _, dir := range []string{w.mkdir("plain"), w.path("missing"), filepath.Join(src, "a.txt"), w.path("broken"), w.path("headless")} {
		if err := IsRepository(t.Context(), dir, w.env); !errors.Is(err, ErrNotRepository) {
			t.Errorf("%s: %v", dir, err)
		}
		if _, err := w.clone(CloneSpec{Repo: dir, Dir: w.path("clone")}); !errors.Is(err, ErrNotRepository) {
			t.Errorf("clone of %s: %v", dir, err)
		}
	}
	if _, err := os.Lstat(w.path("clone")); err == nil {
		t.Error("a clone directory was made")
	}
}

func TestPlaceOfTheClone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	w.write("full/x", "x")
	w.write("file", "x")
	w.mkdir("empty")
	for _, dir := range []string{"full", "file"} {
		before := hash(t, w.path(dir))
		if _, err := w.clone(CloneSpec{Repo: src, Dir: w.path(dir)}); !errors.Is(err, ErrOccupied) {
			t.Errorf("%s: %v", dir, err)
		}
		if hash(t, w.path(dir)) != before {
			t.Errorf("%s changed", dir)
		}
	}
	if _, err := w.clone(CloneSpec{Repo: src, Dir: w.path("no/such/parent")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing parent: %v", err)
	}
	if _, err := w.clone(CloneSpec{Repo: src, Dir: w.path("empty")}); err != nil {
		t.Fatal(err)
	}
	w.check("empty", w.git("src", "rev-parse", "HEAD"))
}

func TestFailedCloneLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	blob := w.git("src", "rev-parse", "HEAD:a.txt")
	if err := os.Remove(filepath.Join(src, ".git/objects", blob[:2], blob[2:])); err != nil {
		t.Fatal(err)
	}
	w.mkdir("empty")
	for _, dir := range []string{"fresh", "empty"} {
		_, err := w.clone(CloneSpec{Repo: src, Dir: w.path(dir)})
		var failed *CommandError
		if !errors.As(err, &failed) || failed.Detail == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := os.Lstat(w.path("fresh")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("partial clone is still there: %v", err)
	}
	if entries, err := os.ReadDir(w.path("empty")); err != nil || len(entries) != 0 {
		t.Errorf("the caller's directory holds %v, %v", entries, err)
	}
	w.tidy(w.root)
}

func TestGitIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	// A program called git in the repository itself must not be found
	// through a relative entry of PATH.
	w.script("src/git", "touch '"+w.path("ran")+"'\n")
	if runtime.GOOS == "windows" {
		t.Skip("windows: the search is exec.LookPath's, on the PATH of this process")
	}
	for _, path := range []string{"", w.mkdir("bin"), ".", ":", "sub:."} {
		env := []string{"PATH=" + path}
		if err := IsRepository(t.Context(), src, env); !errors.Is(err, ErrMissing) {
			t.Errorf("PATH=%q: %v", path, err)
		}
		if _, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone"), Env: env}); !errors.Is(err, ErrMissing) {
			t.Errorf("PATH=%q: %v", path, err)
		}
	}
	if _, err := os.Lstat(w.path("ran")); err == nil {
		t.Error("a git of the repository was run")
	}
}

func TestDetailIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                 "",
		"\n \n":                            "",
		"one\ntwo\n":                       "two",
		"hint: x\nfatal: y\nhint: z\n":     "y",
		"error: a\nCloning...\nfatal: b\n": "a; b",
		strings.Repeat("x", 5000):          strings.Repeat("x", 600) + "...",
	} {
		if got := detail([]byte(in)); got != want {
			t.Errorf("%.20q: %q, want %q", in, got, want)
		}
	}
}

// hang makes a PATH whose git is real but for one command, which starts a
// process in a session of its own, leaves part of its work, and hangs.
func (w *world) hang(command, partial string) []string {
	w.t.Helper()
	if runtime.GOOS == "windows" {
		w.t.Skip("windows: the stand-in for git is a shell script")
	}
	real, err := exec.LookPath("git")
	if err != nil {
		w.t.Fatal(err)
	}
	w.script("slow/git", fmt.Sprintf(`
for word; do
	if [ "$word" = %[1]s ]; then
		%[2]s
		setsid sh -c 'echo $$ > %[3]s; exec sleep 300' &
		exec sleep 300
	fi
done
exec %[4]s "$@"
`, command, partial, "'"+w.path("escaped")+"'", real))
	env := []string{"PATH=" + w.path("slow") + ":" + os.Getenv("PATH")}
	return append(env, w.env[1:]...)
}

// ended asserts that the process hang put into a session of its own is gone.
func (w *world) ended() {
	w.t.Helper()
	if runtime.GOOS != "linux" {
		return // elsewhere only the group is certain to be ended: see package proc
	}
	number, err := strconv.Atoi(strings.TrimSpace(w.read("escaped")))
	if err != nil {
		w.t.Fatal(err)
	}
	process, err := os.FindProcess(number)
	if err == nil {
		err = process.Signal(syscall.Signal(0))
	}
	if err == nil {
		w.t.Errorf("process %d is still alive", number)
	}
	if err := os.Remove(w.path("escaped")); err != nil {
		w.t.Fatal(err)
	}
}

func TestLimitEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	for _, command := range []string{"clone", "checkout", "remote"} {
		partial := "true"
		if command == "clone" {
			partial = "for dir; do :; done; mkdir -p \"$dir/.git/objects\"; echo x > \"$dir/.git/objects/part\""
		}
		start := time.Now()
		_, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone"), Env: w.hang(command, partial), Limit: time.Second})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("%s: %v", command, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", command, took)
		}
		w.ended()
		if _, err := os.Lstat(w.path("clone")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: partial clone is still there", command)
		}
		w.tidy(w.root)
	}
}

func TestSlowStatusIsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	report, err := w.clone(CloneSpec{Repo: src, Dir: w.path("clone"), Env: w.hang("status", "true"), Limit: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if report.Uncommitted || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "could not look") {
		t.Errorf("report %+v", report)
	}
	w.check("clone", w.git("src", "rev-parse", "HEAD"))
}

func TestCancelledCloneLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	env := w.hang("clone", "true")
	cause := errors.New("stopped by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for ctx.Err() == nil {
			if info, err := os.Stat(w.path("escaped")); err == nil && info.Size() > 0 {
				cancel(cause)
				return
			}
			runtime.Gosched()
		}
	}()
	start := time.Now()
	_, err := Clone(ctx, CloneSpec{Repo: src, Dir: w.path("clone"), Env: env, Limit: time.Minute})
	if !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	w.ended()
	if _, err := os.Lstat(w.path("clone")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("partial clone is still there")
	}
	w.tidy(w.root)
}
