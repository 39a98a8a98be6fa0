package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/git"
)

const (
	treesDir = ".worktrees"
	// mostAgain bounds the search for a free name when earlier tasks of the same name left theirs.
	mostAgain = 1000
)

var treeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// tree is a worktree that spawn has made.
type tree struct {
	repo   git.Repo
	path   string
	branch string
}

// remove takes it back, for a spawn that fails later.
func (t *tree) remove() error {
	if t == nil {
		return nil
	}
	return t.repo.Remove(context.Background(), git.RemoveSpec{Path: t.path, Branch: t.branch})
}

// openRepository is the first half of making a worktree: what can be refused without touching anything.
func openRepository(ctx context.Context, root string, env []string, ignoreDirty bool) (git.Repo, error) {
	repo, err := git.Open(ctx, root, env)
	if err != nil || repo.Top == "" {
		return repo, say(exitUsage, "--worktree requires a Git repository")
	}
	if ignoreDirty {
		return repo, nil
	}
	changes, err := repo.Inspect(ctx, root, "")
	if err != nil {
		return repo, noTree("%v", err)
	}
	if changes.Dirty() {
		return repo, say(exitDirty, "main checkout is dirty; commit/stash or pass --dirty-policy ignore")
	}
	return repo, nil
}

func noTree(format string, args ...any) error {
	return say(exitTree, "failed to create worktree: %s", fmt.Sprintf(format, args...))
}

// makeTree makes <top>/.worktrees/herd-<task> on branch delegate/herd-<task>. Where an earlier task of that name has
// left its worktree or branch, a number makes the name free again.
func makeTree(ctx context.Context, repo git.Repo, task string) (*tree, error) {
	name := "herd-" + task
	if !ignoresTrees(filepath.Join(repo.Top, ".gitignore")) {
		return nil, noTree("%s/.gitignore must contain .worktrees/ before creating delegate worktrees", repo.Top)
	}
	if !treeName.MatchString(name) {
		return nil, noTree("invalid worktree name: '%s'", name)
	}
	dir := filepath.Join(repo.Top, treesDir)
	if fi, err := os.Lstat(dir); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		return nil, noTree("refusing symlinked worktree root: %s", dir)
	}
	// The checkout that the caller stands in, which may be a worktree itself, says where the new one begins.
	base, err := repo.Commit(ctx, "HEAD")
	if err != nil {
		return nil, noTree("%v", err)
	}
	for n := 1; n < mostAgain; n++ {
		t := &tree{repo: repo, path: filepath.Join(dir, name), branch: "delegate/" + name}
		if n > 1 {
			t.path, t.branch = t.path+"-"+strconv.Itoa(n), t.branch+"-"+strconv.Itoa(n)
		}
		if _, err := os.Lstat(t.path); err == nil {
			left, err := leftTree(ctx, repo, t.path)
			if err != nil {
				return nil, noTree("%v", err)
			}
			if !left {
				return nil, noTree("worktree path already exists: %s", t.path)
			}
			continue
		}
		_, err := repo.Add(ctx, git.AddSpec{Path: t.path, Branch: t.branch, Base: base})
		switch {
		case errors.Is(err, git.ErrBranchExists), errors.Is(err, git.ErrOccupied):
			continue
		case err != nil:
			return nil, noTree("%v", err)
		}
		if err := t.include(ctx); err != nil {
			return nil, noTree("%v", errors.Join(err, t.remove()))
		}
		t.path = realPath(t.path)
		return t, nil
	}
	return nil, noTree("worktree path already exists: %s", filepath.Join(dir, name))
}

// leftTree reports whether git knows a worktree at path: one that an earlier task has left. It asks under the
// repository's lock, because git's list fails while another process adds to it.
func leftTree(ctx context.Context, repo git.Repo, path string) (bool, error) {
	lock, err := repo.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	known, err := repo.Worktrees(ctx)
	if err != nil {
		return false, err
	}
	for _, w := range known {
		if w.Path == path || realPath(w.Path) == realPath(path) {
			return true, nil
		}
	}
	return false, nil
}

// ignoresTrees looks for the rule as text: before the directory exists, git's answer depends on how a rule is
// written.
func ignoresTrees(name string) bool {
	f, err := atomicfile.OpenRegular(name)
	if err != nil {
		return false
	}
	defer f.Close()
	for in := bufio.NewReader(io.LimitReader(f, 4<<20)); ; {
		line, err := in.ReadString('\n')
		switch strings.TrimSpace(line) {
		case ".worktrees", ".worktrees/", "/.worktrees", "/.worktrees/":
			return true
		}
		if err != nil {
			return false
		}
	}
}

// include copies the ignored files that the repository's list names.
func (t *tree) include(ctx context.Context) error {
	names, err := t.repo.Included(ctx, t.repo.Top)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == treesDir || strings.HasPrefix(name, treesDir+"/") || !filepath.IsLocal(filepath.FromSlash(name)) {
			continue
		}
		from, to := filepath.Join(t.repo.Top, filepath.FromSlash(name)), filepath.Join(t.path, filepath.FromSlash(name))
		if err := copyFile(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// copyFile copies a file with its mode and time, a link as a link. What stands at the place already stays.
func copyFile(from, to string) error {
	fi, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err == nil {
			err = os.Symlink(target, to)
		}
		return err
	case !fi.Mode().IsRegular():
		return nil
	}
	in, err := atomicfile.OpenRegular(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(fi.Mode().Perm()), out.Close()); err != nil {
		return err
	}
	return os.Chtimes(to, fi.ModTime(), fi.ModTime())
}
