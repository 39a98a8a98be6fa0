package git

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func (w *world) open(dir string) Repo {
	w.t.Helper()
	r, err := Open(w.t.Context(), w.path(dir), w.env)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestOpenTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	r, err := OpenTop(t.Context(), src, w.env)
	if err != nil || r.Top != src || r.Common != filepath.Join(src, ".git") {
		t.Fatalf("%+v, %v", r, err)
	}
	if open := w.open("src/sub"); open.Common != r.Common || open.Top != src {
		t.Errorf("Open finds %+v", open)
	}
	w.mkdir("plain")
	for _, dir := range []string{filepath.Join(src, "sub"), w.path("plain"), w.path("nosuch")} {
		if _, err := OpenTop(t.Context(), dir, w.env); err == nil {
			t.Errorf("%s is taken for the top of a work tree", dir)
		}
	}
}

func TestAddIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := w.repository("src")
	r := w.open("src")
	branches, trees := w.git("src", "branch", "--list"), w.git("src", "worktree", "list")
	same := func(what string) {
		t.Helper()
		if got := w.git("src", "branch", "--list"); got != branches {
			t.Errorf("%s: branches\n%s\nwere\n%s", what, got, branches)
		}
		if got := w.git("src", "worktree", "list"); got != trees {
			t.Errorf("%s: worktrees\n%s", what, got)
		}
	}
	add := func(path, branch, base string) error {
		_, err := r.Add(t.Context(), AddSpec{Path: w.path(path), Branch: branch, Base: base})
		return err
	}
	if err := add("w", "new", "nosuch"); !errors.Is(err, ErrNoCommit) {
		t.Errorf("no such base: %v", err)
	}
	same("no such base")
	if err := add("w", "other", "main"); !errors.Is(err, ErrBranchExists) {
		t.Errorf("a branch that exists: %v", err)
	}
	same("a branch that exists")
	w.write("full/x", "x")
	if err := add("full", "new", "main"); !errors.Is(err, ErrOccupied) {
		t.Errorf("an occupied place: %v", err)
	}
	same("an occupied place")
	if err := add("w", "bad..name", "main"); err == nil {
		t.Error("a bad branch name")
	}
	same("a bad branch name")
	if runtime.GOOS != "windows" {
		// A filter that fails in the middle of the check-out.
		w.git("src", "config", "filter.broken.smudge", "false")
		w.git("src", "config", "filter.broken.required", "true")
		w.write("src/.git/info/attributes", "a.txt filter=broken\n")
		if err := add("w", "new", "main"); err == nil {
			t.Error("a failed check-out is no failure")
		}
		same("a failed check-out")
		if _, err := os.Lstat(w.path("w")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory is left: %v", err)
		}
		os.Remove(filepath.Join(src, ".git/info/attributes"))
	}
	commit, err := r.Add(t.Context(), AddSpec{Path: w.path("w"), Branch: "new", Base: "other", BaseKey: "note", BaseName: "x"})
	if err != nil || commit != w.git("src", "rev-parse", "other") || w.git("src", "config", "branch.new.note") != "x" {
		t.Fatalf("%s, %v", commit, err)
	}
	if err := r.Remove(t.Context(), RemoveSpec{Path: w.path("w"), Branch: "new"}); err != nil {
		t.Fatal(err)
	}
	same("removed")
	if err := r.Remove(t.Context(), RemoveSpec{Path: w.path("w"), Branch: "new"}); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
}

func TestInspectAndSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repository("src")
	// The user has told git no name.
	w.write("home/.gitconfig", "[user]\n\tuseConfigOnly = true\n")
	r := w.open("src")
	base := w.git("src", "rev-parse", "HEAD")
	if c, err := r.Inspect(t.Context(), w.path("src"), base); err != nil || c.Dirty() || c.Commits != 0 || c.Branch != "main" || c.Head != base {
		t.Fatalf("%+v, %v", c, err)
	}
	if id, err := r.Save(t.Context(), w.path("src"), "nothing", time.Minute); id != "" || err != nil {
		t.Errorf("saved nothing as %q, %v", id, err)
	}
	w.write("src/.gitignore", "ignored/\n")
	w.write("src/new", "x\n")
	w.write("src/ignored/y", "x\n")
	w.write("src/a.txt", "changed\n")
	c, err := r.Inspect(t.Context(), w.path("src"), base)
	if err != nil || !c.Dirty() || c.Tracked != 1 || c.Files != 2 || !slices.Equal(c.Ignored, []string{"ignored/"}) {
		t.Errorf("%+v, %v", c, err)
	}
	id, err := r.Save(t.Context(), w.path("src"), "all of it", time.Minute)
	if err != nil || id != w.git("src", "rev-parse", "HEAD") {
		t.Fatalf("%q, %v", id, err)
	}
	if c, err = r.Inspect(t.Context(), w.path("src"), base); err != nil || c.Dirty() || c.Commits != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := r.Save(t.Context(), w.path("src"), "x", time.Nanosecond); err == nil {
		t.Error("no time at all was enough")
	}
}

func TestExcludeAndIncluded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repository("src")
	r := w.open("src")
	w.write("src/.git/info/exclude", "# no newline at the end")
	for range 2 {
		if err := r.Exclude(t.Context(), ".worktrees/"); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.read("src/.git/info/exclude"); got != "# no newline at the end\n.worktrees/\n" {
		t.Errorf("exclude %q", got)
	}
	if ignored, err := r.Ignored(t.Context(), w.path("src"), ".worktrees/x"); err != nil || !ignored {
		t.Errorf("%v %v", ignored, err)
	}
	if ignored, err := r.Ignored(t.Context(), w.path("src"), "a.txt"); err != nil || ignored {
		t.Errorf("%v %v", ignored, err)
	}
	if names, err := r.Included(t.Context(), w.path("src")); err != nil || names != nil {
		t.Errorf("%v %v", names, err)
	}
	w.write("src/.gitignore", ".env\nbuild/\n")
	w.write("src/"+IncludeFile, ".env*\nbuild/keep\nuntracked\na.txt\n")
	for _, f := range []string{".env", ".env.local", "build/keep", "build/drop", "untracked", "sub/.env"} {
		w.write("src/"+f, "x")
	}
	names, err := r.Included(t.Context(), w.path("src"))
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{".env", "build/keep", "sub/.env"}) {
		t.Errorf("%v %v", names, err)
	}
}

// A change that git's clock cannot see: the same size, within the second in
// which the index was written.
func TestPatchOfAQuickChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repository("src")
	r := w.open("src")
	base := w.git("src", "rev-parse", "HEAD")
	for n := range 5 {
		w.git("src", "checkout", "-q", "-f", "HEAD", "--", ".")
		w.write("src/a.txt", "THREE\n")
		p, err := r.WritePatch(t.Context(), w.path("src"), base, w.path("p"))
		if err != nil || len(p.Paths) != 1 || !strings.Contains(w.read("p"), "+THREE") {
			t.Fatalf("round %d: %+v, %v", n, p, err)
		}
	}
	if got := w.git("src", "status", "--porcelain"); got != " M a.txt" {
		t.Errorf("the index was touched: %q", got)
	}
}

func TestSnapshotAndBundle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repository("src")
	r := w.open("src")
	head := w.git("src", "rev-parse", "HEAD")
	if id, err := r.Snapshot(t.Context(), w.path("src"), "m"); err != nil || id != head {
		t.Errorf("a clean tree: %s, %v", id, err)
	}
	if n, err := r.Bundle(t.Context(), w.path("none"), head, "refs/heads/main"); n != 0 || err != nil {
		t.Errorf("%d commits, %v", n, err)
	}
	w.write("src/new", "x\n")
	id, err := r.Snapshot(t.Context(), w.path("src"), "m")
	if err != nil || w.git("src", "show", id+":new") != "x" || w.git("src", "rev-parse", id+"^") != head {
		t.Fatalf("%s, %v", id, err)
	}
	if got := w.git("src", "status", "--porcelain"); got != "?? new" {
		t.Errorf("the tree was touched: %q", got)
	}
	if n, err := r.Bundle(t.Context(), w.path("b"), head, "refs/heads/main", id); n != 1 || err != nil {
		t.Fatalf("%d commits, %v", n, err)
	}
	w.git("src", "bundle", "verify", w.path("b"))
	if got := w.git("src", "for-each-ref", "refs/prun"); got != "" {
		t.Errorf("names left: %s", got)
	}
}
