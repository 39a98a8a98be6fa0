package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// askLimit bounds the questions about a repository. Each takes a few
// milliseconds on a local disk; a dead network mount must not hang a caller
// that has not even printed its first line.
const askLimit = 30 * time.Second

// IsRepository says whether dir is, or lies inside, a git repository that this
// user may read: a work tree or a directory below one, a linked worktree, a
// submodule, a bare repository, a repository without commits. env nil means
// this process's environment.
//
// nil means yes. Otherwise the error wraps [ErrNotRepository],
// [ErrForeignOwner] (its text names the setting that allows it), [ErrMissing]
// or [ErrTimeout], or is what git itself reported. Nothing is written.
func IsRepository(ctx context.Context, dir string, env []string) error {
	call, err := newCaller(env, askLimit)
	if err != nil {
		return err
	}
	_, err = call.resolve(ctx, dir)
	return err
}

// source is a repository as git sees it from one directory.
type source struct {
	gitDir string // absolute; of a linked worktree its own, not the common one
	top    string // top of the work tree; "" when there is none here
}

// name is how the repository is called in messages.
func (s source) name() string {
	if s.top != "" {
		return s.top
	}
	return s.gitDir
}

// resolve asks git which repository dir belongs to.
func (c *caller) resolve(ctx context.Context, dir string) (source, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return source{}, fmt.Errorf("resolve %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return source{}, fmt.Errorf("open repository %s: %w: %w", dir, ErrNotRepository, err)
	}
	if !info.IsDir() {
		return source{}, fmt.Errorf("open repository %s: %w: not a directory", dir, ErrNotRepository)
	}
	// The two booleans come first: they hold no newline, so what follows
	// them is the path, whatever it holds.
	result, err := c.user(ctx, abs, "rev-parse", "--is-bare-repository", "--is-inside-work-tree", "--absolute-git-dir")
	if err != nil {
		return source{}, explain(dir, err)
	}
	bare, rest, _ := bytes.Cut(result.Stdout, []byte("\n"))
	inside, rest, found := bytes.Cut(rest, []byte("\n"))
	if !found {
		return source{}, fmt.Errorf("open repository %s: git rev-parse answered %q", dir, result.Stdout)
	}
	s := source{gitDir: oneLine(rest)}
	within := string(bytes.TrimSpace(inside)) == "true"
	if !within && string(bytes.TrimSpace(bare)) == "false" && filepath.Base(s.gitDir) == ".git" {
		// The caller named the ".git" directory itself. Its work tree is
		// usually beside it; when it is not, there is just nothing to report.
		abs, within = filepath.Dir(s.gitDir), true
	}
	if within {
		result, err = c.user(ctx, abs, "rev-parse", "--show-toplevel")
		if err != nil {
			return source{}, explain(dir, err)
		}
		s.top = oneLine(result.Stdout)
	}
	return s, nil
}

// explain turns the two failures git can only tell in words into typed errors.
// LC_ALL=C makes the words reliable; an unknown wording stays git's own error.
func explain(dir string, err error) error {
	var failed *CommandError
	if !errors.As(err, &failed) {
		return fmt.Errorf("open repository %s: %w", dir, err)
	}
	switch text := failed.Detail; {
	case strings.Contains(text, "dubious ownership"), strings.Contains(text, "unsafe repository"):
		quoted := strings.ReplaceAll(foreign(text, dir), "'", `'\''`)
		return fmt.Errorf("open repository %s: %w; if you trust it: git config --global --add safe.directory '%s'", dir, ErrForeignOwner, quoted)
	case strings.Contains(text, "not a git repository"):
		return fmt.Errorf("open repository %s: %w", dir, ErrNotRepository)
	}
	return fmt.Errorf("open repository %s: %w", dir, err)
}

// foreign is the directory git names as not trusted: the top, which is what
// the setting has to list, rather than the subdirectory the caller gave.
func foreign(detail, dir string) string {
	_, rest, found := strings.Cut(detail, "repository at '")
	if end := strings.LastIndexByte(rest, '\''); found && end > 0 {
		return rest[:end]
	}
	return dir
}
