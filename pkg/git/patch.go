package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Errors of patches.
var (
	// ErrUnmerged: the index holds conflicts of an earlier merge or apply.
	ErrUnmerged = errors.New("index has unmerged paths")
	// ErrOverlap: work that is not staged lies where the patch would write.
	ErrOverlap = errors.New("unstaged or untracked work in the patch's paths")
	// ErrIndexLocked: another git works on the index, or was killed doing so.
	ErrIndexLocked = errors.New("index is locked")
)

// A Patch says what was written, and what else the worktree holds.
type Patch struct {
	Paths []string // that differ from the base
	Bytes int64    // of the patch
	// Links are paths that are repositories of their own: submodules, and
	// repositories that somebody made inside the worktree. A patch holds no
	// more of them than the name of a commit.
	Links []string
	// Unread says which files could not be taken in, "" when all were.
	Unread string
	Head   string // commit that is checked out
	Branch string // "" when detached
	// Commits are those on HEAD that the base does not have. Their content is
	// in the patch.
	Commits int
}

// diffFlags make a patch that is the same under every configuration and can be
// applied whatever it holds.
var diffFlags = []string{
	"--cached", "--patch", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
	"--no-relative", "--submodule=short", "--ignore-submodules=none", "--unified=3", "--inter-hunk-context=0",
	"--src-prefix=a/", "--dst-prefix=b/", "--diff-algorithm=myers", "--indent-heuristic",
}

// WritePatch writes to file everything in which the worktree at dir differs
// from the commit base: commits, staged and unstaged changes, and new files
// that are not ignored. Neither the worktree nor its index nor the
// repository's objects are changed, and no lock file is waited for. The file is
// whole or not there.
func (r Repo) WritePatch(ctx context.Context, dir, base, file string) (Patch, error) {
	var p Patch
	file, err := filepath.Abs(file)
	if err != nil {
		return p, fmt.Errorf("write patch: %w", err)
	}
	base, err = r.Commit(ctx, base)
	if err != nil {
		return p, fmt.Errorf("write patch: %w", err)
	}
	s, err := r.stage(ctx, dir, false)
	if err != nil {
		return p, fmt.Errorf("write patch of %s: %w", dir, err)
	}
	defer s.close()
	p.Unread = s.unread
	if err := r.head(ctx, dir, base, &p); err != nil {
		return p, fmt.Errorf("write patch of %s: %w", dir, err)
	}
	raw, err := r.list(ctx, dir, s.env, nil, "diff-index", "--cached", "--raw", "-z", "--no-renames", "--abbrev=40", "--ignore-submodules=none", base, "--")
	if err != nil {
		return p, fmt.Errorf("write patch of %s: %w", dir, err)
	}
	// ":<mode> <mode> <id> <id> <status>" and the path are a record each.
	for i := 0; i+1 < len(raw); i += 2 {
		p.Paths = append(p.Paths, raw[i+1])
		if _, modes, _ := strings.Cut(raw[i], " "); strings.HasPrefix(modes, "160000") {
			p.Links = append(p.Links, raw[i+1])
		}
	}
	temp := atomicfile.TempName(file, fmt.Sprintf("patch-%d", os.Getpid()))
	defer os.Remove(temp)
	args := slices.Concat([]string{"diff-index"}, diffFlags, []string{"--output=" + temp, base, "--"})
	if _, err := r.git(ctx, dir, worktreeLimit, s.env, args...); err != nil {
		return p, fmt.Errorf("write patch of %s: %w", dir, err)
	}
	if err := r.prove(ctx, dir, base, temp, s); err != nil {
		return p, fmt.Errorf("write patch of %s: %w", dir, err)
	}
	if err := publishPatch(temp, file, &p); err != nil {
		return p, fmt.Errorf("write patch of %s: %w", dir, err)
	}
	return p, nil
}

// prove applies a patch to its base, in an index of our own, and compares the
// tree with the one that it was made from. git does not notice a full disk
// when it writes a patch (seen with 2.39: status 0 and half the file).
func (r Repo) prove(ctx context.Context, dir, base, patch string, s *staged) error {
	fail := func(err error) error { return fmt.Errorf("check the patch: %w", err) }
	want, err := r.git(ctx, dir, worktreeLimit, s.env, "write-tree", "--missing-ok")
	if err != nil {
		return fail(err)
	}
	env := append(s.env[:len(s.env):len(s.env)], "GIT_INDEX_FILE="+filepath.Join(s.dir, "proof"))
	if _, err := r.git(ctx, dir, worktreeLimit, env, "read-tree", base); err != nil {
		return fail(err)
	}
	if fi, err := os.Stat(patch); err != nil {
		return fail(err)
	} else if fi.Size() > 0 {
		if _, err := r.git(ctx, dir, worktreeLimit, env, "apply", "--cached", "--binary", "--whitespace=nowarn", "--", patch); err != nil {
			return fail(fmt.Errorf("it is not whole; is the disk full? %w", err))
		}
	}
	got, err := r.git(ctx, dir, worktreeLimit, env, "write-tree", "--missing-ok")
	if err != nil {
		return fail(err)
	}
	if !bytes.Equal(got.Stdout, want.Stdout) {
		return fail(errors.New("it does not give the work back; is the disk full?"))
	}
	return nil
}

func publishPatch(temp, file string, p *Patch) error {
	f, err := os.Open(temp)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	p.Bytes = fi.Size()
	if err := f.Sync(); err != nil {
		return err
	}
	if err := atomicfile.Rename(temp, file); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(file))
}

// head says what is checked out at dir.
func (r Repo) head(ctx context.Context, dir, base string, p *Patch) error {
	res, err := r.git(ctx, dir, askLimit, nil, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	var failed *CommandError
	if errors.As(err, &failed) {
		// An unborn branch: the worker began anew.
		return nil
	}
	if err != nil {
		return err
	}
	p.Head = oneLine(res.Stdout)
	res, err = r.git(ctx, dir, askLimit, nil, "symbolic-ref", "--quiet", "HEAD")
	if err == nil {
		p.Branch = strings.TrimPrefix(oneLine(res.Stdout), "refs/heads/")
	} else if !errors.As(err, &failed) {
		return err
	}
	if p.Head != base {
		p.Commits, err = r.Count(ctx, base, p.Head)
	}
	return err
}

// staged is a worktree's content in an index of our own.
type staged struct {
	dir    string // of the scratch files
	env    []string
	unread string
}

func (s *staged) close() { _ = removeTree(s.dir) }

// scratch prepares an index of our own for the worktree at dir, a copy of its
// index, and unless keep is set a place of our own for new objects.
func (r Repo) scratch(ctx context.Context, dir string, keep bool) (*staged, error) {
	res, err := r.git(ctx, dir, askLimit, nil, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "prun-index-")
	if err != nil {
		// No usable temporary directory; the repository's own will do.
		if temp, err = os.MkdirTemp(r.Common, "prun-index-"); err != nil {
			return nil, err
		}
	}
	s := &staged{dir: temp}
	index := filepath.Join(temp, "index")
	// git replaces the file by renaming, so this copy is whole.
	if err := copyFile(filepath.Join(oneLine(res.Stdout), "index"), index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.close()
		return nil, err
	}
	s.env = []string{"GIT_INDEX_FILE=" + index}
	if !keep {
		objects := filepath.Join(temp, "objects")
		if err := os.Mkdir(objects, 0o700); err != nil {
			s.close()
			return nil, err
		}
		s.env = append(s.env, "GIT_OBJECT_DIRECTORY="+objects,
			"GIT_ALTERNATE_OBJECT_DIRECTORIES="+quotePath(filepath.Join(r.Common, "objects")))
	}
	return s, nil
}

// stage takes everything of the worktree at dir into an index of our own.
func (r Repo) stage(ctx context.Context, dir string, keep bool) (*staged, error) {
	s, err := r.scratch(ctx, dir, keep)
	if err != nil {
		return nil, err
	}
	add := []string{"-c", "advice.addEmbeddedRepo=false", "add", "--all"}
	_, err = r.git(ctx, dir, worktreeLimit, s.env, append(add, "--", ":/")...)
	var failed *CommandError
	if errors.As(err, &failed) {
		// One file that cannot be read, or a repository without a commit,
		// need not keep the rest out.
		s.unread = failed.Detail
		if _, err = r.git(ctx, dir, worktreeLimit, s.env, append(add, "--ignore-errors", "--", ":/")...); errors.As(err, &failed) {
			err = nil
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// quotePath writes a path as git wants it in a list of paths.
func quotePath(path string) string {
	if !strings.ContainsAny(path, `:;"\`) {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

func copyFile(from, to string) error {
	f, err := atomicfile.OpenRegular(from)
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	if err = errors.Join(err, t.Close()); err != nil {
		return err
	}
	// git tells by the index's own time which files may have changed in the
	// very moment that it was written, and looks into those.
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	return os.Chtimes(to, fi.ModTime(), fi.ModTime())
}

// Snapshot is a commit of everything in the worktree at dir that git does not
// ignore: HEAD itself when there is nothing beyond it, else a new commit above
// it that no branch has yet. The worktree and its index stay as they are.
func (r Repo) Snapshot(ctx context.Context, dir, message string) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("snapshot %s: %w", dir, err) }
	s, err := r.stage(ctx, dir, true)
	if err != nil {
		return fail(err)
	}
	defer s.close()
	if s.unread != "" {
		return fail(errors.New(s.unread))
	}
	res, err := r.git(ctx, dir, worktreeLimit, s.env, "write-tree")
	if err != nil {
		return fail(err)
	}
	tree := oneLine(res.Stdout)
	res, err = r.git(ctx, dir, askLimit, nil, "rev-parse", "HEAD", "HEAD^{tree}")
	if err != nil {
		return fail(err)
	}
	head, had, _ := strings.Cut(oneLine(res.Stdout), "\n")
	if had == tree {
		return head, nil
	}
	args := []string{"commit-tree", tree, "-p", head, "-m", message}
	var failed *CommandError
	if res, err = r.git(ctx, dir, askLimit, nil, args...); errors.As(err, &failed) && anonymous(failed.Detail) {
		res, err = r.git(ctx, dir, askLimit, nobody, args...)
	}
	if err != nil {
		return fail(err)
	}
	return oneLine(res.Stdout), nil
}

// nobody is the author of a commit of ours where the user has told git no name.
var nobody = []string{
	"GIT_AUTHOR_NAME=prun", "GIT_AUTHOR_EMAIL=prun@localhost", "GIT_COMMITTER_NAME=prun", "GIT_COMMITTER_EMAIL=prun@localhost",
}

// Bundle writes to file the commits that any of the tips has and base does
// not, and reports how many there are; no file is made for none.
func (r Repo) Bundle(ctx context.Context, file, base string, tips ...string) (int, error) {
	args := []string{"rev-list", "--count"}
	args = append(append(args, tips...), "^"+base, "--")
	text, err := r.ask(ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("bundle: %w", err)
	}
	n := 0
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n == 0 {
		return 0, err
	}
	// A bundle holds refs, not bare ids; what is detached gets a name for it.
	var refs []string
	for i, tip := range tips {
		if strings.HasPrefix(tip, "refs/") {
			refs = append(refs, tip)
			continue
		}
		ref := fmt.Sprintf("refs/prun/bundle-%d-%d", os.Getpid(), i)
		if _, err := r.ask(ctx, "update-ref", ref, tip); err != nil {
			return n, fmt.Errorf("bundle: %w", err)
		}
		defer r.ask(context.WithoutCancel(ctx), "update-ref", "-d", ref)
		refs = append(refs, ref)
	}
	temp := atomicfile.TempName(file, fmt.Sprintf("bundle-%d", os.Getpid()))
	defer os.Remove(temp)
	args = append([]string{"bundle", "create", "--quiet", temp}, refs...)
	if _, err := r.git(ctx, r.Dir, worktreeLimit, nil, append(args, "^"+base)...); err != nil {
		return n, fmt.Errorf("bundle: %w", err)
	}
	var p Patch
	if err := publishPatch(temp, file, &p); err != nil {
		return n, fmt.Errorf("bundle: %w", err)
	}
	return n, nil
}

// ApplySpec says which patch is applied where.
type ApplySpec struct {
	Dir  string // worktree
	File string // the patch
	// Check changes nothing. Conflicts are found all the same.
	Check bool
	// LeaveConflicts applies what can be applied and leaves git's markers and
	// unmerged entries for the rest; otherwise a conflict means that nothing
	// is changed.
	LeaveConflicts bool
}

// Applied is what became of a patch.
type Applied struct {
	Paths     []string
	Conflicts []string
	Changed   bool
}

// Apply merges a patch into a worktree and its index, three ways where the
// files have changed since. What others have staged before is the normal case.
//
// It refuses, with nothing changed, when the index has conflicts
// (ErrUnmerged), or when unstaged changes or untracked files lie in the paths
// of the patch (ErrOverlap); the error names them. A patch that cannot be
// merged at all is a [*CommandError].
func (r Repo) Apply(ctx context.Context, s ApplySpec) (Applied, error) {
	var a Applied
	fail := func(err error) (Applied, error) {
		return a, fmt.Errorf("apply %s: %w", s.File, r.lockAge(ctx, s.Dir, err))
	}
	file, err := filepath.Abs(s.File)
	if err != nil {
		return fail(err)
	}
	if fi, err := os.Stat(file); err != nil {
		return fail(err)
	} else if fi.Size() == 0 {
		return a, nil
	}
	records, err := r.list(ctx, s.Dir, nil, nil, "apply", "--numstat", "-z", "--", file)
	if err != nil {
		return fail(err)
	}
	for _, rec := range records {
		fields := strings.SplitN(rec, "\t", 3)
		a.Paths = append(a.Paths, fields[len(fields)-1])
	}
	if err := r.mergeable(ctx, s.Dir, a.Paths); err != nil {
		return fail(err)
	}
	merge := []string{"apply", "--3way", "--binary", "--whitespace=nowarn"}
	trial, err := r.scratch(ctx, s.Dir, false)
	if err != nil {
		return fail(err)
	}
	defer trial.close()
	_, err = r.git(ctx, s.Dir, worktreeLimit, trial.env, append(merge, "--cached", "--", file)...)
	var failed *CommandError
	if err != nil && !errors.As(err, &failed) {
		return fail(err)
	}
	if err != nil {
		unmerged, lerr := r.unmerged(ctx, s.Dir, trial.env)
		if lerr != nil {
			return fail(lerr)
		}
		if len(unmerged) == 0 {
			return fail(err)
		}
		a.Conflicts = unmerged
	}
	if s.Check || len(a.Conflicts) > 0 && !s.LeaveConflicts {
		return a, nil
	}
	// A file whose time alone has changed would not match its index otherwise.
	// The status is no answer: it speaks of files that are not ours, too.
	_, _ = r.git(ctx, s.Dir, worktreeLimit, nil, "update-index", "-q", "--refresh")
	_, err = r.git(ctx, s.Dir, worktreeLimit, nil, append(merge, "--index", "--", file)...)
	if err != nil && (len(a.Conflicts) == 0 || !errors.As(err, &failed)) {
		// The index is written last, so it says what the files were.
		if rerr := r.restore(context.WithoutCancel(ctx), s.Dir, a.Paths); rerr != nil {
			err = errors.Join(err, fmt.Errorf("take back: %w", rerr))
		}
		return fail(err)
	}
	if err != nil {
		if a.Conflicts, err = r.unmerged(ctx, s.Dir, nil); err == nil && len(a.Conflicts) == 0 {
			return fail(failed)
		}
	}
	a.Changed = true
	return a, err
}

// restore gives the files of paths, in which no work of anybody's lies, the
// content that the index has, and removes those that it does not have.
func (r Repo) restore(ctx context.Context, dir string, paths []string) error {
	known, err := r.list(ctx, dir, nil, nil, "ls-files", "--cached", "-z", "--full-name", "--", ":/")
	if err != nil {
		return err
	}
	have := make(map[string]bool, len(known))
	for _, k := range known {
		have[k] = true
	}
	var back strings.Builder
	for _, p := range paths {
		if have[p] {
			back.WriteString(p + "\x00")
			continue
		}
		name := filepath.Join(dir, filepath.FromSlash(p))
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		// Directories that were made for it; one that holds anything stays.
		for d := filepath.Dir(name); d != dir && strings.HasPrefix(d, dir); d = filepath.Dir(d) {
			if os.Remove(d) != nil {
				break
			}
		}
	}
	if back.Len() == 0 {
		return err
	}
	_, lerr := r.list(ctx, dir, nil, strings.NewReader(back.String()), "checkout-index", "--force", "--quiet", "-z", "--stdin")
	return errors.Join(err, lerr)
}

// unmerged lists the paths with conflicts.
func (r Repo) unmerged(ctx context.Context, dir string, env []string) ([]string, error) {
	records, err := r.list(ctx, dir, env, nil, "ls-files", "--unmerged", "-z", "--full-name", "--", ":/")
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, rec := range records {
		// "<mode> <id> <stage>\t<path>", up to three a path.
		if _, path, ok := strings.Cut(rec, "\t"); ok && !slices.Contains(paths[max(0, len(paths)-1):], path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// mergeable says what would be lost or mixed.
func (r Repo) mergeable(ctx context.Context, dir string, paths []string) error {
	records, err := r.list(ctx, dir, nil, nil, "status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all",
		"--ignored=no", "--ignore-submodules=dirty", "--no-show-stash")
	if err != nil {
		return err
	}
	ours := make(map[string]bool, len(paths))
	for _, p := range paths {
		ours[p] = true
	}
	var over, unmerged []string
	for _, rec := range records {
		kind, rest, _ := strings.Cut(rec, " ")
		switch kind {
		case "1":
			// XY sub mH mI mW hH hI path
			f := strings.SplitN(rest, " ", 8)
			if len(f) == 8 && len(f[0]) == 2 && f[0][1] != '.' && ours[f[7]] {
				over = append(over, f[7])
			}
		case "u":
			// XY sub m1 m2 m3 mW h1 h2 h3 path
			if f := strings.SplitN(rest, " ", 10); len(f) == 10 {
				unmerged = append(unmerged, f[9])
			}
		case "?":
			if ours[rest] {
				over = append(over, rest)
			}
		}
	}
	switch {
	case len(unmerged) > 0:
		return fmt.Errorf("%w: %s", ErrUnmerged, some(unmerged))
	case len(over) > 0:
		return fmt.Errorf("%w: %s", ErrOverlap, some(over))
	}
	return nil
}

// some names the first few of many.
func some(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// lockAge adds to an error about a lock file how old that file is. It is never
// removed: another git may be at work.
func (r Repo) lockAge(ctx context.Context, dir string, err error) error {
	var failed *CommandError
	if !errors.As(err, &failed) || !strings.Contains(failed.Detail, "index.lock") {
		return err
	}
	res, gerr := r.git(ctx, dir, askLimit, nil, "rev-parse", "--absolute-git-dir")
	if gerr != nil {
		return err
	}
	name := filepath.Join(oneLine(res.Stdout), "index.lock")
	fi, serr := os.Lstat(name)
	if serr != nil {
		return err
	}
	return fmt.Errorf("%w: %s is %v old; remove it when no git is at work there", ErrIndexLocked, name, time.Since(fi.ModTime()).Round(time.Second))
}

// Checked says what is checked out at dir and how many commits it has beyond
// base.
func (r Repo) Checked(ctx context.Context, dir, base string) (Patch, error) {
	var p Patch
	err := r.head(ctx, dir, base, &p)
	return p, err
}

// MergeBase is the newest commit that two others have in common.
func (r Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	id, err := r.ask(ctx, "merge-base", a, b)
	var failed *CommandError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("merge base of %s and %s: %w", a, b, ErrNoCommit)
	}
	return id, err
}
