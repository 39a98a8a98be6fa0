package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// defaultLimit bounds a clone whose caller named no limit. Copying a 10 GB
// object store takes a few minutes on a slow disk.
const defaultLimit = 15 * time.Minute

// CloneSpec says what to clone and where to.
type CloneSpec struct {
	Repo string // any directory of the repository; resolved to its top
	Dir  string // must not exist, or be an empty directory; its parent must exist
	// Links shares object files by hard links. It costs no time and no space,
	// but what a worker writes into such a file in place reaches Repo, and even
	// a plain commit in the clone may set the time of one.
	Links bool
	Env   []string      // the caller's environment; nil = this process's
	Limit time.Duration // over all git calls together; 0 = 15 minutes
}

// CloneReport is what a caller should tell the user about a clone.
type CloneReport struct {
	Source      string   // top of the work tree that was cloned, or the git directory of a bare one
	Branch      string   // checked out in the clone; "" when HEAD is detached
	Commit      string   // checked out in the clone; "" when there is none yet
	Uncommitted bool     // Source holds work that is not in the clone
	Changed     int      // tracked files of Source that differ from its last commit
	Untracked   int      // untracked, not ignored files or directories of Source
	AtLeast     bool     // there are more than Changed and Untracked say
	Notes       []string // one line each: what else differs from what a user may expect
}

// Warning is one line about uncommitted work, "" when there is none.
func (r CloneReport) Warning() string {
	if !r.Uncommitted {
		return ""
	}
	var parts []string
	if r.Changed > 0 {
		parts = append(parts, fmt.Sprintf("%d changed", r.Changed))
	}
	if r.Untracked > 0 {
		parts = append(parts, fmt.Sprintf("%d untracked", r.Untracked))
	}
	more := ""
	if r.AtLeast {
		more = "at least "
	}
	return fmt.Sprintf("uncommitted work in %s is not in the clone (%s%s)", r.Source, more, strings.Join(parts, ", "))
}

// Clone makes a throwaway clone of spec.Repo's committed state at spec.Dir and
// removes every way back: remotes, their tracking refs and push URLs. Nothing
// is copied from hook templates, no hook runs, submodules stay empty.
//
// It does not write to spec.Repo. On any error, including a cancelled ctx and
// the limit, spec.Dir is again what it was before (absent or empty), and every
// process git started has been ended.
//
// Errors wrap [ErrOccupied], [ErrNotRepository], [ErrForeignOwner],
// [ErrMissing], [ErrTimeout], the cause of ctx, or are a [*CommandError].
func Clone(ctx context.Context, spec CloneSpec) (CloneReport, error) {
	limit := spec.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return CloneReport{}, fmt.Errorf("resolve %s: %w", spec.Dir, err)
	}
	call, err := newCaller(spec.Env, limit)
	if err != nil {
		return CloneReport{}, err
	}
	from, err := call.resolve(ctx, spec.Repo)
	if err != nil {
		return CloneReport{}, err
	}
	report := CloneReport{Source: from.name()}

	undo, err := claim(dir)
	if err != nil {
		return CloneReport{}, err
	}
	if err := call.fill(ctx, from, dir, spec.Links, &report); err != nil {
		if undoErr := undo(); undoErr != nil {
			err = errors.Join(err, fmt.Errorf("remove partial clone: %w", undoErr))
		}
		return CloneReport{}, fmt.Errorf("clone %s: %w", from.name(), err)
	}
	// Last, and never fatal: the clone stands, this only decides what is said.
	call.uncommitted(ctx, from, &report)
	return report, nil
}

// claim makes dir, or accepts an empty one, and returns how to give it back.
func claim(dir string) (undo func() error, err error) {
	// 0777: the umask is the caller's, as for anything else a worker writes.
	err = os.Mkdir(dir, 0o777)
	if err == nil {
		return func() error { return os.RemoveAll(dir) }, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make clone directory: %w", err)
	}
	info, statErr := os.Lstat(dir)
	if statErr != nil {
		return nil, fmt.Errorf("make clone directory: %w", statErr)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("make clone directory %s: %w", dir, ErrOccupied)
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return nil, fmt.Errorf("make clone directory: %w", readErr)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("make clone directory %s: %w", dir, ErrOccupied)
	}
	return func() error {
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
		return err
	}, nil
}

// fill turns the empty directory dir into the clone.
func (c *caller) fill(ctx context.Context, from source, dir string, links bool, report *CloneReport) error {
	file, err := os.CreateTemp(filepath.Dir(dir), ".clone-config-")
	if err != nil {
		return fmt.Errorf("write clone configuration: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(neutralConfig)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write clone configuration: %w", err)
	}
	c.neutral = file.Name()

	if err := c.copy(ctx, from, dir, links, report); err != nil {
		return err
	}
	if err := c.head(ctx, dir, report); err != nil {
		return err
	}
	if report.Commit != "" {
		if err := c.checkout(ctx, dir, report); err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(dir, ".gitmodules")); err == nil {
			report.Notes = append(report.Notes, "submodules are not in the clone: their directories are empty")
		}
	}
	return c.cutOff(ctx, dir, report)
}

// neutralConfig stands in for the user's and the system's configuration while
// the clone is made. safe.directory: the ownership question has been answered
// under the user's own configuration (resolve) before this file is used, and
// git asks it once more about the bare ".git" path, which users do not list.
const neutralConfig = `[safe]
	directory = *
[protocol "file"]
	allow = always
[gc]
	auto = 0
[maintenance]
	auto = false
[init]
	templateDir =
`

// copy runs git clone without a check-out.
func (c *caller) copy(ctx context.Context, from source, dir string, links bool, report *CloneReport) error {
	// --dissociate: objects the source itself borrows from a third
	// repository are copied in, so that the clone depends on nothing.
	base := []string{"clone", "--quiet", "--no-checkout", "--template=", "--origin=origin",
		"--no-recurse-submodules", "--dissociate", "-c", "core.longpaths=true"}
	local := append(base[:len(base):len(base)], "--local")
	if !links {
		local = append(local, "--no-hardlinks")
	}
	_, err := c.ours(ctx, filepath.Dir(dir), append(local, "--", from.gitDir, dir)...)
	var failed *CommandError
	if errors.As(err, &failed) && (strings.Contains(failed.Detail, "symlink") || strings.Contains(failed.Detail, "start iterator")) {
		// Since 2.38 git refuses to copy an object store that is or holds a
		// symbolic link (as "repo" and git-new-workdir make). Through the
		// pack protocol the outcome is the same, only slower.
		if entries, _ := os.ReadDir(dir); len(entries) == 0 {
			_, err = c.ours(ctx, filepath.Dir(dir), append(base[:len(base):len(base)], "--no-local", "--", from.gitDir, dir)...)
			if err == nil {
				report.Notes = append(report.Notes, "the object store holds symbolic links: cloned through the pack protocol")
			}
		}
	}
	return err
}

// head reads what the clone has checked out.
func (c *caller) head(ctx context.Context, dir string, report *CloneReport) error {
	var failed *CommandError
	result, err := c.ours(ctx, dir, "symbolic-ref", "--quiet", "--short", "HEAD")
	if err == nil {
		report.Branch = oneLine(result.Stdout)
	} else if !errors.As(err, &failed) {
		return err
	}
	result, err = c.ours(ctx, dir, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	switch {
	case err == nil:
		report.Commit = oneLine(result.Stdout)
	case errors.As(err, &failed):
		report.Notes = append(report.Notes, report.Source+" has no commit on its current branch: the clone is empty")
	default:
		return err
	}
	return nil
}

// checkout writes the files. It runs under the user's configuration, whose
// line endings and filters (git-lfs) decide what the files look like, with the
// remote still in place, because filters may read from it.
func (c *caller) checkout(ctx context.Context, dir string, report *CloneReport) error {
	_, err := c.user(ctx, dir, "checkout", "--quiet", "--force", "--no-recurse-submodules")
	var failed *CommandError
	if err == nil || !errors.As(err, &failed) {
		return err
	}
	// A filter that cannot do its work (git-lfs offline, a program that is not
	// installed) makes the whole check-out fail. The code is still useful.
	if _, plain := c.ours(ctx, dir, "checkout", "--quiet", "--force", "--no-recurse-submodules"); plain != nil {
		return plain
	}
	report.Notes = append(report.Notes, "files were checked out without your git filters, which failed: "+failed.Detail)
	return nil
}

// cutOff removes every remote and proves it.
func (c *caller) cutOff(ctx context.Context, dir string, report *CloneReport) error {
	result, err := c.ours(ctx, dir, "remote")
	if err != nil {
		return err
	}
	for name := range strings.Lines(string(result.Stdout)) {
		if _, err := c.ours(ctx, dir, "remote", "remove", strings.TrimSuffix(name, "\n")); err != nil {
			return err
		}
	}
	result, err = c.ours(ctx, dir, "for-each-ref", "--count=1", "--format=%(refname)", "refs/remotes/")
	if err != nil {
		return err
	}
	if len(result.Stdout) > 0 {
		return fmt.Errorf("tracking ref %s is still there", oneLine(result.Stdout))
	}
	result, err = c.ours(ctx, dir, "config", "--local", "--null", "--name-only", "--list")
	if err != nil {
		return err
	}
	for _, key := range bytes.Split(result.Stdout, []byte{0}) {
		if bytes.HasPrefix(key, []byte("remote.")) || bytes.HasPrefix(key, []byte("url.")) ||
			bytes.HasPrefix(key, []byte("branch.")) && bytes.HasSuffix(key, []byte("remote")) {
			return fmt.Errorf("setting %s is still there", key)
		}
	}
	// A remote may also be defined in the user's own configuration. It is
	// not ours to remove, and it is visible in every repository.
	if result, err = c.user(ctx, dir, "remote"); err == nil && len(result.Stdout) > 0 {
		names := strings.Join(strings.Fields(string(result.Stdout)), ", ")
		report.Notes = append(report.Notes, "your own git configuration defines a remote that the clone sees too: "+names)
	}
	return nil
}

// uncommitted looks for work that the clone cannot hold. It asks under the
// user's configuration, which knows the ignored files, but without content
// filters: git-lfs stores an object in the repository whenever it is asked what
// a touched file would look like. The price is that such a file counts as
// changed until the user's own git has looked at it.
func (c *caller) uncommitted(ctx context.Context, from source, report *CloneReport) {
	if from.top == "" {
		return
	}
	filters, err := c.filters(ctx, from.top)
	if err != nil {
		report.Notes = append(report.Notes, "could not look for uncommitted work in "+report.Source+": "+err.Error())
		return
	}
	result, err := c.unfiltered(ctx, from.top, filters, "status", "--porcelain", "-z", "--no-renames",
		"--untracked-files=normal", "--ignore-submodules=none")
	if err != nil {
		report.Notes = append(report.Notes, "could not look for uncommitted work in "+report.Source+": "+err.Error())
		return
	}
	// Records are "XY path" and end with a NUL; without renames each is one path.
	out := result.Stdout
	for {
		record, rest, found := bytes.Cut(out, []byte{0})
		if !found {
			break
		}
		if bytes.HasPrefix(record, []byte("?? ")) {
			report.Untracked++
		} else {
			report.Changed++
		}
		out = rest
	}
	report.AtLeast = result.Truncated
	report.Uncommitted = report.Changed+report.Untracked > 0
}

// filters are the names of the content filters that act on files of dir.
func (c *caller) filters(ctx context.Context, dir string) ([]string, error) {
	result, err := c.user(ctx, dir, "config", "--null", "--name-only", "--get-regexp", `^filter\..*\.(clean|process)$`)
	var failed *CommandError
	if errors.As(err, &failed) && failed.Status == 1 {
		return nil, nil // that is how git says that there is none
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for key := range strings.SplitSeq(strings.TrimSuffix(string(result.Stdout), "\x00"), "\x00") {
		name := strings.TrimPrefix(key, "filter.")
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".clean"), ".process")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
