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

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/proc"
)

// Bounds of worktree calls. Checking a very large tree out takes minutes on a
// slow disk; a question takes milliseconds.
const (
	worktreeLimit = 15 * time.Minute
	// Two dozen at once on a starved machine took half a minute. Nobody holds
	// the lock without working.
	lockLimit = 5 * time.Minute
)

// lockName is the file in a repository's common directory whose lock is held
// while worktrees are added or removed. git's own commands fail and leave
// branches behind when they run at once (seen: 20 of 24). The kernel frees the
// lock with its holder; the file itself stays and means nothing.
const lockName = "prun-worktrees"

// Errors of worktrees, beside those of the package.
var (
	// ErrBranchExists: the branch to be made is there already.
	ErrBranchExists = errors.New("branch exists")
	// ErrBusy: another process kept the repository's lock for too long.
	ErrBusy = errors.New("repository is busy")
	// ErrNoCommit: a name that should say a commit says none.
	ErrNoCommit = errors.New("no such commit")
)

// A Repo is a repository in which worktrees are made. It is only names: it
// holds nothing open and may be copied.
type Repo struct {
	// Dir is where git calls about the repository run: any directory of it.
	Dir string
	// Top is the top of the work tree that Dir lies in; "" in a bare one.
	Top string
	// Common is the absolute directory that all worktrees share.
	Common string
	// Env is the caller's environment; nil is this process's.
	Env []string
}

// Open finds the repository of dir. Its errors are those of [IsRepository].
func Open(ctx context.Context, dir string, env []string) (Repo, error) {
	r := Repo{Dir: dir, Env: env}
	call, err := newCaller(env, askLimit)
	if err != nil {
		return r, err
	}
	from, err := call.resolve(ctx, dir)
	if err != nil {
		return r, err
	}
	r.Dir = from.name()
	if abs, err := filepath.Abs(r.Dir); err == nil {
		r.Dir = abs
	}
	r.Top = from.top
	res, err := call.user(ctx, r.Dir, "rev-parse", "--git-common-dir")
	if err != nil {
		return r, explain(dir, err)
	}
	r.Common = oneLine(res.Stdout)
	if !filepath.IsAbs(r.Common) {
		r.Common = filepath.Join(r.Dir, r.Common)
	}
	if real, err := filepath.EvalSymlinks(r.Common); err == nil {
		r.Common = real
	}
	return r, nil
}

// OpenTop is Open for a directory that is known to be the top of a work tree,
// in one question. The error wraps [ErrNotRepository] when it is not, also when
// it lies inside another work tree.
func OpenTop(ctx context.Context, top string, env []string) (Repo, error) {
	r, _, err := openTop(ctx, top, env)
	return r, err
}

// OpenTopAt is OpenTop and the id of the commit at the tip of a branch; "" when
// there is no such branch.
func OpenTopAt(ctx context.Context, top, branch string, env []string) (r Repo, commit string, err error) {
	r, lines, err := openTop(ctx, top, env, "refs/heads/"+branch+"^{commit}")
	var failed *CommandError
	if errors.As(err, &failed) {
		// Perhaps only for want of the branch.
		r, err = OpenTop(ctx, top, env)
		return r, "", err
	}
	if err == nil && len(lines) == 3 && isID(lines[2]) {
		commit = lines[2]
	}
	return r, commit, err
}

// openTop asks for more in the same question; lines are the answers.
func openTop(ctx context.Context, top string, env []string, more ...string) (r Repo, lines []string, err error) {
	r = Repo{Dir: top, Top: top, Env: env}
	call, err := newCaller(env, askLimit)
	if err != nil {
		return r, nil, err
	}
	res, err := call.user(ctx, top, append([]string{"rev-parse", "--show-toplevel", "--git-common-dir"}, more...)...)
	if err != nil {
		return r, nil, explain(top, err)
	}
	// A name with a newline makes more lines of it.
	lines = strings.Split(oneLine(res.Stdout), "\n")
	if len(lines) != 2+len(more) {
		if r, err = Open(ctx, top, env); err != nil {
			return r, nil, err
		}
		lines = []string{r.Top, r.Common}
	}
	a, aerr := os.Stat(top)
	b, berr := os.Stat(lines[0])
	if aerr != nil || berr != nil || !os.SameFile(a, b) {
		return r, nil, fmt.Errorf("open repository %s: %w: it is not the top of a work tree", top, ErrNotRepository)
	}
	r.Common = lines[1]
	if !filepath.IsAbs(r.Common) {
		r.Common = filepath.Join(top, r.Common)
	}
	if real, err := filepath.EvalSymlinks(r.Common); err == nil {
		r.Common = real
	}
	return r, lines, nil
}

// steady are settings that keep a user's configuration from changing what a
// worktree call does or says. Line endings and content filters are not among
// them: they decide what the files of this user look like.
var steady = []string{
	"-c", "advice.detachedHead=false",
	"-c", "branch.autoSetupMerge=false",
	"-c", "branch.autoSetupRebase=never",
	"-c", "checkout.guess=false",
	"-c", "color.ui=false",
	"-c", "commit.gpgSign=false",
	"-c", "tag.gpgSign=false",
	"-c", "core.quotePath=true",
	"-c", "core.safecrlf=false",
	"-c", "core.splitIndex=false",
	"-c", "core.longpaths=true",
	"-c", "worktree.guessRemote=false",
	"-c", "apply.whitespace=nowarn",
	"-c", "apply.ignoreWhitespace=no",
	"-c", "merge.conflictStyle=merge",
	"-c", "rerere.enabled=false",
	"-c", "diff.suppressBlankEmpty=false",
}

// git runs one git command in dir within limit. Unlike the calls for a clone it
// may use the network, which a partial clone needs to check files out.
func (r Repo) git(ctx context.Context, dir string, limit time.Duration, add []string, args ...string) (proc.RunResult, error) {
	env := r.Env
	if env == nil {
		env = os.Environ()
	}
	path, err := lookup(env)
	if err != nil {
		return proc.RunResult{}, err
	}
	clean := make([]string, 0, len(env)+4)
	for _, entry := range environ.Git(env) {
		if environ.Name(entry) != "GIT_QUARANTINE_PATH" {
			clean = append(clean, entry)
		}
	}
	call := &caller{path: path, env: append(clean, add...), deadline: time.Now().Add(limit), settings: steady}
	return call.user(ctx, dir, args...)
}

// ask runs a short question in the repository's directory.
func (r Repo) ask(ctx context.Context, args ...string) (string, error) {
	res, err := r.git(ctx, r.Dir, askLimit, nil, args...)
	return oneLine(res.Stdout), err
}

// Lock waits for the repository's worktree lock, five minutes at most; the error
// then wraps [ErrBusy]. [Repo.Add] and [Repo.Remove] take it themselves.
func (r Repo) Lock(ctx context.Context) (*atomicfile.Lock, error) {
	return r.lock(ctx, lockName, lockLimit)
}

func (r Repo) lock(ctx context.Context, name string, limit time.Duration) (*atomicfile.Lock, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lock, err := atomicfile.WaitLock(bounded, filepath.Join(r.Common, name))
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return nil, fmt.Errorf("lock repository %s: %w", r.Common, ErrBusy)
	}
	if err != nil {
		return nil, fmt.Errorf("lock repository %s: %w", r.Common, err)
	}
	return lock, nil
}

// A Worktree is one of a repository's work trees.
type Worktree struct {
	Path   string
	Head   string // commit; "" in a bare one
	Branch string // without refs/heads/; "" when detached
	Bare   bool
	Locked bool
}

// Worktrees lists them; the first one is the primary one.
func (r Repo) Worktrees(ctx context.Context) ([]Worktree, error) {
	res, err := r.git(ctx, r.Dir, askLimit, nil, "worktree", "list", "--porcelain", "-z")
	sep := "\x00"
	var failed *CommandError
	if errors.As(err, &failed) && failed.Status == 129 {
		// -z came with git 2.36; before that a name with a newline is misread.
		res, err = r.git(ctx, r.Dir, askLimit, nil, "worktree", "list", "--porcelain")
		sep = "\n"
	}
	if err != nil {
		return nil, err
	}
	list := parseWorktrees(string(res.Stdout), sep)
	if len(list) == 0 {
		return nil, fmt.Errorf("list worktrees of %s: git named none", r.Dir)
	}
	return list, nil
}

func parseWorktrees(text, sep string) []Worktree {
	var list []Worktree
	for line := range strings.SplitSeq(text, sep) {
		key, value, _ := strings.Cut(line, " ")
		if key == "worktree" {
			list = append(list, Worktree{Path: filepath.FromSlash(value)})
			continue
		}
		if len(list) == 0 {
			continue
		}
		w := &list[len(list)-1]
		switch key {
		case "HEAD":
			w.Head = value
		case "branch":
			w.Branch = strings.TrimPrefix(value, "refs/heads/")
		case "bare":
			w.Bare = true
		case "locked":
			w.Locked = true
		}
	}
	return list
}

// Commit is the id of the commit that a name means. The error wraps
// [ErrNoCommit] when it means none; a whole id is taken at its word.
func (r Repo) Commit(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "-") || name == "" {
		return "", fmt.Errorf("resolve %q: %w", name, ErrNoCommit)
	}
	if isID(name) {
		// Whoever uses it finds out whether it is there.
		return name, nil
	}
	id, err := r.ask(ctx, "rev-parse", "--quiet", "--verify", name+"^{commit}")
	var failed *CommandError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("resolve %q: %w", name, ErrNoCommit)
	}
	return id, err
}

// isID reports a whole object id.
func isID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// AddSpec says which worktree to make.
type AddSpec struct {
	Path   string // absolute; must not exist or be an empty directory
	Branch string // new
	Base   string // the commit that it starts from
	// BaseKey, if not empty, is set to BaseName as branch.<Branch>.<BaseKey>
	// in the repository's configuration.
	BaseKey, BaseName string
}

// Add makes a worktree on a new branch, under the repository's lock, and
// returns the commit that it starts from. The new branch tracks nothing. No
// hook runs and git's own words go nowhere. After an error neither the branch
// nor the worktree exists, unless it was there before.
//
// Errors wrap [ErrBranchExists], [ErrOccupied], [ErrNoCommit], [ErrBusy],
// [ErrTimeout] or are a [*CommandError].
func (r Repo) Add(ctx context.Context, s AddSpec) (commit string, err error) {
	if commit, err = r.Commit(ctx, s.Base); err != nil {
		return "", err
	}
	lock, err := r.Lock(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	made, err := vacant(s.Path)
	if err != nil {
		return "", err
	}
	_, err = r.git(ctx, r.Dir, worktreeLimit, nil, "worktree", "add", "--quiet", "--no-track", "-b", s.Branch, "--", s.Path, commit)
	var failed *CommandError
	if errors.As(err, &failed) && strings.Contains(failed.Detail, "already exists") && strings.Contains(failed.Detail, "branch") {
		return "", fmt.Errorf("add worktree %s: %w: %s", s.Path, ErrBranchExists, s.Branch)
	}
	if err == nil && s.BaseKey != "" {
		err = r.Config(ctx, "branch."+s.Branch+"."+s.BaseKey, s.BaseName)
	}
	if err != nil {
		// The caller may be gone; the tidying is still owed.
		r.undo(context.WithoutCancel(ctx), s, commit, made)
		return "", fmt.Errorf("add worktree %s: %w", s.Path, err)
	}
	return commit, nil
}

// vacant reports whether path may be made, and whether nothing was there.
func vacant(path string) (made bool, err error) {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err == nil && len(entries) == 0:
		return false, nil
	case err == nil:
		return false, fmt.Errorf("make worktree %s: %w", path, ErrOccupied)
	}
	if _, lerr := os.Lstat(path); lerr == nil {
		return false, fmt.Errorf("make worktree %s: %w", path, ErrOccupied)
	}
	return false, fmt.Errorf("make worktree: %w", err)
}

// undo takes back what a failed add has left.
func (r Repo) undo(ctx context.Context, s AddSpec, commit string, made bool) {
	if admin := r.admin(s.Path); admin != "" {
		_, _ = r.git(ctx, r.Dir, worktreeLimit, nil, "worktree", "remove", "--force", "--force", "--", s.Path)
		_ = removeTree(admin)
	}
	if made {
		_ = removeTree(s.Path)
	} else if entries, err := os.ReadDir(s.Path); err == nil {
		for _, e := range entries {
			_ = removeTree(filepath.Join(s.Path, e.Name()))
		}
	}
	// Only where it still says what the failed add made it say.
	_, _ = r.git(ctx, r.Dir, askLimit, nil, "update-ref", "-d", "refs/heads/"+s.Branch, commit)
	_, _ = r.git(ctx, r.Dir, askLimit, nil, "config", "--local", "--remove-section", "branch."+s.Branch)
}

// admin is the directory in which the repository keeps a linked worktree; ""
// when it knows none at path.
func (r Repo) admin(path string) string {
	want := []string{filepath.Join(path, ".git")}
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		want = append(want, filepath.Join(real, filepath.Base(path), ".git"))
	}
	dir := filepath.Join(r.Common, "worktrees")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		text, err := atomicfile.ReadRegular(filepath.Join(dir, e.Name(), "gitdir"), 64<<10)
		if err != nil {
			continue
		}
		for _, w := range want {
			if filepath.Clean(filepath.FromSlash(strings.TrimRight(string(text), "\r\n"))) == w {
				return filepath.Join(dir, e.Name())
			}
		}
	}
	return ""
}

// RemoveSpec says which worktree goes.
type RemoveSpec struct {
	Path string
	// Branch, if not empty, is deleted with it, whatever it holds.
	Branch string
}

// Remove removes a worktree and everything in it, also one that is locked,
// holds submodules, has lost its directory or is unknown to git, and then the
// branch. It takes the repository's lock. What was there is lost: asking
// [Repo.Inspect] first is the caller's duty. A worktree or branch that is
// already gone is no error.
func (r Repo) Remove(ctx context.Context, s RemoveSpec) error {
	lock, err := r.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if admin := r.admin(s.Path); admin != "" {
		// Twice is for a locked one. What git cannot do is done below.
		_, _ = r.git(ctx, r.Dir, worktreeLimit, nil, "worktree", "remove", "--force", "--force", "--", s.Path)
		if err := removeTree(admin); err != nil {
			return fmt.Errorf("remove worktree %s: %w", s.Path, err)
		}
	}
	if err := removeTree(s.Path); err != nil {
		return fmt.Errorf("remove worktree %s: %w", s.Path, err)
	}
	if s.Branch == "" {
		return nil
	}
	if _, err := r.ask(ctx, "show-ref", "--verify", "--quiet", "refs/heads/"+s.Branch); err != nil {
		return nil
	}
	if _, err := r.git(ctx, r.Dir, askLimit, nil, "branch", "--quiet", "-D", "--", s.Branch); err != nil {
		return fmt.Errorf("delete branch %s: %w", s.Branch, err)
	}
	return nil
}

// removeTree is os.RemoveAll for trees that hold directories without write
// permission, as module caches are. It follows no link.
func removeTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	// A directory that could not be entered is open only now.
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}

// Config sets a value in the repository's own configuration. Another git that
// holds its lock file at that moment is waited for.
func (r Repo) Config(ctx context.Context, key, value string) error {
	for try := 0; ; try++ {
		_, err := r.git(ctx, r.Dir, askLimit, nil, "config", "--local", key, value)
		if err == nil || try == 20 || !strings.Contains(err.Error(), "could not lock") {
			return err
		}
		pause := time.NewTimer(25 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// Exclude makes sure that pattern stands in the repository's info/exclude,
// which hides it from every worktree and is committed nowhere. It takes the
// repository's lock when something is to be written.
func (r Repo) Exclude(ctx context.Context, pattern string) error {
	name := filepath.Join(r.Common, "info", "exclude")
	has := func() ([]byte, bool, error) {
		text, err := atomicfile.ReadRegular(name, 1<<20)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, fmt.Errorf("exclude %s: %w", pattern, err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.TrimRight(line, " \t\r\n") == pattern {
				return text, true, nil
			}
		}
		return text, false, nil
	}
	if _, found, err := has(); found || err != nil {
		return err
	}
	lock, err := r.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	text, found, err := has()
	if found || err != nil {
		return err
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		pattern = "\n" + pattern
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return fmt.Errorf("exclude %s: %w", pattern, err)
	}
	// Appended, not replaced: the file may be a link to a user's own.
	if err := atomicfile.Append(name, []byte(pattern+"\n"), 0o666); err != nil {
		return fmt.Errorf("exclude %s: %w", pattern, err)
	}
	return nil
}

// Ignored reports whether git ignores path (absolute, or relative to dir)
// in the work tree of dir, by whatever rule.
func (r Repo) Ignored(ctx context.Context, dir, path string) (bool, error) {
	_, err := r.git(ctx, dir, askLimit, nil, "check-ignore", "--quiet", "--no-index", "--", path)
	var failed *CommandError
	if errors.As(err, &failed) && failed.Status == 1 {
		return false, nil
	}
	return err == nil, err
}

// IncludeFile names the list, in the form of a .gitignore, of ignored files
// that a new worktree should get copies of.
const IncludeFile = ".worktreeinclude"

// listing bounds lists of file names.
const listing = 32 << 20

// Included lists the files of the work tree at top, as paths relative to it,
// that its .worktreeinclude names and git ignores. Tracked files are in a new
// worktree anyway. No such file means none.
func (r Repo) Included(ctx context.Context, top string) ([]string, error) {
	rules := filepath.Join(top, IncludeFile)
	if fi, err := os.Stat(rules); err != nil || !fi.Mode().IsRegular() {
		return nil, nil
	}
	named, err := r.list(ctx, top, nil, nil, "ls-files", "--others", "--ignored", "-z", "--exclude-from="+rules)
	if err != nil || len(named) == 0 {
		return nil, err
	}
	return r.ignoredAmong(ctx, top, named)
}

func (r Repo) ignoredAmong(ctx context.Context, top string, names []string) ([]string, error) {
	input := strings.NewReader(strings.Join(names, "\x00") + "\x00")
	ignored, err := r.list(ctx, top, nil, input, "check-ignore", "-z", "--stdin")
	var failed *CommandError
	if errors.As(err, &failed) && failed.Status == 1 {
		return nil, nil
	}
	return ignored, err
}

// list runs a command that answers with names that end with NUL.
func (r Repo) list(ctx context.Context, dir string, add []string, input *strings.Reader, args ...string) ([]string, error) {
	env := r.Env
	if env == nil {
		env = os.Environ()
	}
	path, err := lookup(env)
	if err != nil {
		return nil, err
	}
	spec := proc.RunSpec{
		Path: path, Args: slices.Concat([]string{"git"}, always, steady, args),
		Env: append(environ.Git(env), add...), Dir: dir, Limit: worktreeLimit, MaxOutput: listing,
	}
	if input != nil {
		spec.Stdin = input
	}
	res, err := proc.Run(ctx, spec)
	switch {
	case err != nil:
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	case res.TimedOut:
		return nil, fmt.Errorf("git %s: %w", args[0], ErrTimeout)
	case res.Truncated:
		return nil, fmt.Errorf("git %s: more than %d bytes of file names", args[0], listing)
	case res.Exit.Status() != 0:
		return nil, &CommandError{Verb: args[0], Status: res.Exit.Status(), Detail: detail(res.Stderr)}
	}
	var names []string
	for name := range strings.SplitSeq(string(res.Stdout), "\x00") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// Changes is what a worktree holds beyond a commit.
type Changes struct {
	Head    string // commit that is checked out
	Branch  string // "" when detached
	Commits int    // on HEAD, not in the base
	Tracked int    // tracked files with changes that are not committed
	Files   int    // untracked, not ignored files
	Ignored []string
	// Submodules are those with changes or commits of their own.
	Submodules []string
	Unmerged   bool
	// Partial: there is more than the numbers say.
	Partial bool
}

// Dirty reports work that no commit holds; ignored files are not counted.
func (c Changes) Dirty() bool { return c.Tracked > 0 || c.Files > 0 }

// Inspect says what the worktree at dir holds beyond base (a commit; "" counts
// no commits). Directories that are ignored as a whole are one entry of
// Ignored. It waits for no lock file and writes nothing.
func (r Repo) Inspect(ctx context.Context, dir, base string) (Changes, error) {
	var c Changes
	res, err := r.git(ctx, dir, worktreeLimit, nil, "status", "--porcelain=v2", "--branch", "-z", "--no-renames",
		"--untracked-files=all", "--ignored=matching", "--ignore-submodules=none", "--no-ahead-behind", "--no-show-stash")
	if err != nil {
		return c, err
	}
	c = parseStatus(string(res.Stdout))
	c.Partial = res.Truncated
	if base != "" && c.Head != "" && c.Head != base {
		if c.Commits, err = r.Count(ctx, base, c.Head); err != nil {
			return c, err
		}
	}
	return c, nil
}

// parseStatus reads `git status --porcelain=v2 --branch -z`.
func parseStatus(text string) Changes {
	var c Changes
	for record := range strings.SplitSeq(text, "\x00") {
		kind, rest, _ := strings.Cut(record, " ")
		switch kind {
		case "#":
			key, value, _ := strings.Cut(rest, " ")
			switch {
			case key == "branch.oid" && value != "(initial)":
				c.Head = value
			case key == "branch.head" && value != "(detached)":
				c.Branch = value
			}
		case "1", "2":
			c.Tracked++
			// XY sub mH mI mW hH hI path; sub is S<c><m><u> for a submodule.
			if f := strings.SplitN(rest, " ", 8); len(f) == 8 && strings.HasPrefix(f[1], "S") && f[1] != "S..." {
				c.Submodules = append(c.Submodules, f[7])
			}
		case "u":
			c.Tracked++
			c.Unmerged = true
		case "?":
			c.Files++
		case "!":
			c.Ignored = append(c.Ignored, rest)
		}
	}
	return c
}

// Count is how many commits are in "to" and not in "from".
func (r Repo) Count(ctx context.Context, from, to string) (int, error) {
	text, err := r.ask(ctx, "rev-list", "--count", from+".."+to, "--")
	if err != nil {
		return 0, err
	}
	n := 0
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil {
		return 0, fmt.Errorf("git rev-list answered %q", text)
	}
	return n, nil
}

// Save commits everything in the worktree at dir that git does not ignore, on
// whatever it has checked out, within limit, and returns the new commit; ""
// when there was nothing to commit. No hook runs and nothing is signed. Where
// the user has told git no name, the commit is prun's.
func (r Repo) Save(ctx context.Context, dir, message string, limit time.Duration) (string, error) {
	deadline := time.Now().Add(limit)
	run := func(args ...string) (proc.RunResult, error) {
		left := time.Until(deadline)
		if left <= 0 {
			return proc.RunResult{}, fmt.Errorf("git %s: %w", args[0], ErrTimeout)
		}
		return r.git(ctx, dir, left, nil, args...)
	}
	if _, err := run("add", "--all", "--", ":/"); err != nil {
		return "", fmt.Errorf("save %s: %w", dir, err)
	}
	var failed *CommandError
	_, err := run("diff", "--cached", "--quiet", "--no-ext-diff")
	if err == nil {
		return "", nil
	}
	if !errors.As(err, &failed) || failed.Status != 1 {
		return "", fmt.Errorf("save %s: %w", dir, err)
	}
	commit := []string{"commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--message=" + message}
	if _, err = run(commit...); errors.As(err, &failed) && anonymous(failed.Detail) {
		_, err = r.git(ctx, dir, max(time.Until(deadline), time.Millisecond), nobody, commit...)
	}
	if err != nil {
		return "", fmt.Errorf("save %s: %w", dir, err)
	}
	res, err := run("rev-parse", "HEAD")
	if err != nil {
		return "", fmt.Errorf("save %s: %w", dir, err)
	}
	return oneLine(res.Stdout), nil
}

// anonymous reports whether git would not commit for want of a name.
func anonymous(detail string) bool {
	for _, words := range []string{"ident", "no email was given", "no name was given", "tell me who you are"} {
		if strings.Contains(detail, words) {
			return true
		}
	}
	return false
}

// Fetch brings the remote's branches up to date, within limit. Several at once
// on one repository wait for each other.
func (r Repo) Fetch(ctx context.Context, remote string, limit time.Duration) error {
	lock, err := r.lock(ctx, lockName+"-fetch", limit)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	_, err = r.git(ctx, r.Dir, limit, nil, "fetch", "--quiet", "--prune", "--no-auto-gc", "--no-recurse-submodules", "--", remote)
	return err
}

// Remotes lists the names of the remotes.
func (r Repo) Remotes(ctx context.Context) ([]string, error) {
	text, err := r.ask(ctx, "remote")
	if err != nil {
		return nil, err
	}
	return strings.Fields(text), nil
}

// DefaultBranch is the branch that a remote calls its own, as "origin/main".
// It is read from what the last clone or fetch recorded; without such a record
// the remote is asked, within limit.
func (r Repo) DefaultBranch(ctx context.Context, remote string, limit time.Duration) (string, error) {
	text, err := r.ask(ctx, "symbolic-ref", "--quiet", "refs/remotes/"+remote+"/HEAD")
	if name, ok := strings.CutPrefix(text, "refs/remotes/"); err == nil && ok {
		if _, err := r.Commit(ctx, name); err == nil {
			return name, nil
		}
	}
	res, err := r.git(ctx, r.Dir, limit, nil, "ls-remote", "--symref", "--", remote, "HEAD")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(res.Stdout)) {
		// "ref: refs/heads/main<TAB>HEAD"
		if rest, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
			name, _, _ := strings.Cut(rest, "\t")
			// A mirror keeps the remote's branches as its own.
			for _, ref := range []string{remote + "/" + name, name} {
				if _, err := r.Commit(ctx, ref); err == nil {
					return ref, nil
				}
			}
		}
	}
	return "", fmt.Errorf("default branch of %s: %w", remote, ErrNoCommit)
}
