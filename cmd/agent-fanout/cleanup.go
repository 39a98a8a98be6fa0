package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/copytree"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/lane"
)

const cleanupText = `Closes a run; its state stays on disk. It refuses while a lane is live, unless --force is given, which cancels live lanes.

--drop-worktrees removes the worktrees and branches of the run and needs --force. Before a worktree goes, its whole difference from its base (commits, staged and ` +
	`unstaged changes, new files) is saved as a patch in the state directory, the worker's commits beside it as a bundle, and repositories of their own inside it as copies; each ` +
	`path is printed. Ignored files are listed and not saved. A worktree that cannot be saved is not removed, and the exit status is 1.`

// ignoredShown bounds how many ignored entries of a worktree are listed.
const ignoredShown = 50

type cleanupOptions struct {
	runOptions
	Drop  bool `long:"drop-worktrees" description:"remove the worktrees and branches of the run"`
	Force bool `long:"force" description:"cancel live lanes; needed to drop worktrees"`
}

// Run is the verb.
func (o *cleanupOptions) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	run, err := o.open(env)
	if err != nil {
		return err
	}
	if o.Drop && !o.Force {
		return refuse("--drop-worktrees requires --force acknowledgment")
	}
	lock, err := run.LockRun()
	if errors.Is(err, lane.ErrBusy) {
		return refuse("run is busy: another command is changing %s", run.ID)
	}
	if err != nil {
		return refuse("%v", err)
	}
	defer lock.Unlock()
	done, err := run.Close()
	if err != nil {
		return refuse("%v", err)
	}
	defer done()
	lanes, err := run.Lanes()
	if err != nil {
		return refuse("%v", err)
	}
	// A start that was under way is waited for; later ones are refused.
	if err := quiesce(ctx, lanes); err != nil {
		return err
	}
	if err := o.settle(ctx, env, lanes); err != nil {
		return err
	}
	p := printer{w: env.Stdout}
	if o.Drop {
		if err := drop(ctx, env, &p, run, lanes); err != nil {
			return err
		}
	}
	if err := run.Set(lane.FileStatus, lane.RunCleaned); err != nil {
		return refuse("%v", err)
	}
	p.text("cleaned\n")
	return p.err
}

// quiesce waits until nobody is starting one of the lanes.
func quiesce(ctx context.Context, lanes []lane.Lane) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for _, l := range lanes {
		for {
			lock, err := l.Lock()
			if err == nil {
				_ = lock.Unlock()
				break
			}
			if !errors.Is(err, lane.ErrBusy) {
				return refuse("%v", err)
			}
			pause := time.NewTimer(20 * time.Millisecond)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return refuse("lane is still active: %s is being started", l.Phase)
			}
		}
	}
	return nil
}

// startPatience is far beyond what a start takes.
const startPatience = 30 * time.Second

// settle makes sure that no lane is live.
func (o *cleanupOptions) settle(ctx context.Context, env *cli.Env, lanes []lane.Lane) error {
	var live []lane.Lane
	for _, l := range lanes {
		v := l.Examine()
		switch {
		case v.Status == lane.Created, lane.Ended(v.Status) && len(v.Alive) == 0:
		default:
			live = append(live, l)
		}
	}
	if len(live) > 0 && !o.Force {
		return refuse("lane is still active: %s", live[0].Phase)
	}
	failures := make([]error, len(live))
	var wait sync.WaitGroup
	for i, l := range live {
		wait.Go(func() { _, failures[i] = cancel(ctx, env, l, 10*time.Second) })
	}
	wait.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// doomed is a worktree that is to go.
type doomed struct {
	name, path, branch, base string
	// dir takes what is saved; the names in it begin with prefix.
	dir, prefix string
}

func (d doomed) saved(suffix string) string { return filepath.Join(d.dir, d.prefix+suffix) }

// drop saves and removes the worktrees of the run, lanes first: they lie
// inside the integration worktree.
func drop(ctx context.Context, env *cli.Env, p *printer, run lane.Run, lanes []lane.Lane) error {
	main := run.Get(lane.FileMain)
	if _, err := os.Stat(main); errors.Is(err, os.ErrNotExist) {
		env.Notef("the repository is gone: %s", main)
		return nil
	}
	repo, err := git.Open(ctx, main, env.Environ)
	if err != nil && main != "" {
		return refuse("%v", err)
	}
	drafts, unlock, err := run.Drafts()
	defer unlock()
	if err != nil {
		return refuse("%v", err)
	}
	var list []doomed
	for _, l := range append(lanes, drafts...) {
		list = append(list, doomed{
			name: l.Phase, path: l.Get(lane.FileWorktree), branch: l.Get(lane.FileBranch), base: l.Get(lane.FileBase), dir: l.Dir, prefix: "saved",
		})
	}
	list = append(list, doomed{
		name: "integration", path: run.Get(lane.FileIntegration), branch: run.Get(lane.FileIntBranch), base: run.Get(lane.FileBaseCommit),
		dir: run.Dir, prefix: "integration",
	})
	kept := 0
	for i, d := range list {
		if d.path == "" {
			continue // its making was cut short before it had a name
		}
		if i == len(list)-1 && kept > 0 {
			env.Warnf("the integration worktree stays because it holds a lane that stays")
			break
		}
		if d.base == "" {
			d.base = guessBase(ctx, repo, run, d)
		}
		if err := d.drop(ctx, env, p, repo); err != nil {
			kept++
			env.Warnf("%s is kept: %v", d.path, err)
		}
		if ctx.Err() != nil {
			return cli.Fail(1, "cleanup was stopped: %w", ctx.Err())
		}
	}
	if kept > 0 {
		return cli.Fail(1, "%d worktree(s) could not be saved or removed", kept)
	}
	if main != "" {
		// Only when nothing else is in it.
		_ = os.Remove(filepath.Join(main, worktreesDir))
	}
	return p.err
}

// guessBase is for runs of the original, which recorded no commits.
func guessBase(ctx context.Context, repo git.Repo, run lane.Run, d doomed) string {
	other := "refs/heads/" + run.Get(lane.FileIntBranch)
	if d.branch == run.Get(lane.FileIntBranch) {
		other = run.Get(lane.FileBaseRef)
	}
	base, err := repo.MergeBase(ctx, other, "refs/heads/"+d.branch)
	if err != nil {
		return ""
	}
	return base
}

// drop saves one worktree and removes it.
func (d doomed) drop(ctx context.Context, env *cli.Env, p *printer, repo git.Repo) error {
	p.value("phase", d.name)
	tree, err := worktree(ctx, env, d.path)
	switch {
	case err == nil:
		err = d.save(ctx, env, p, tree)
	case errors.Is(err, os.ErrNotExist):
		env.Notef("%s is gone already", d.path)
		err = nil
	case errors.Is(err, errNoWorktree):
		// Somebody took its .git away; what lies there is still somebody's.
		err = d.copy(p, d.path, "files")
	}
	if err != nil {
		return err
	}
	if err := d.bundle(ctx, p, repo, tree); err != nil {
		return err
	}
	if err := repo.Remove(ctx, git.RemoveSpec{Path: d.path, Branch: d.branch}); err != nil {
		return err
	}
	p.value("dropped", d.path)
	return p.err
}

// save writes the patch, and copies what a patch cannot hold.
func (d doomed) save(ctx context.Context, env *cli.Env, p *printer, tree git.Repo) error {
	p.value("bytes", strconv.FormatInt(bytesBelow(d.path), 10))
	if d.base == "" {
		return errors.New("the commit that it started from is not known")
	}
	changes, err := tree.Inspect(ctx, d.path, "")
	if err != nil {
		return err
	}
	patch, err := tree.WritePatch(ctx, d.path, d.base, d.saved(".patch"))
	if err != nil {
		return err
	}
	p.value("patch", d.saved(".patch"))
	p.value("patch_files", strconv.Itoa(len(patch.Paths)))
	p.value("patch_bytes", strconv.FormatInt(patch.Bytes, 10))
	p.value("commits", strconv.Itoa(patch.Commits))
	if patch.Unread != "" {
		// Copied as it is, with all that the patch could not take in.
		env.Notef("%s: %s", d.path, patch.Unread)
		if err := d.copy(p, d.path, "files"); err != nil {
			return err
		}
	} else {
		for _, path := range append(patch.Links, changes.Submodules...) {
			if entries, err := os.ReadDir(filepath.Join(d.path, path)); err != nil || len(entries) == 0 {
				continue
			}
			if err := d.copy(p, filepath.Join(d.path, path), filepath.Join("repositories", path)); err != nil {
				return err
			}
		}
	}
	for i, path := range changes.Ignored {
		if i == ignoredShown {
			p.value("ignored_more", strconv.Itoa(len(changes.Ignored)-i))
			break
		}
		p.value("ignored", path)
	}
	return p.err
}

// copy keeps files as they are, beside the patch.
func (d doomed) copy(p *printer, from, name string) error {
	to := d.saved("." + name)
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); err != nil {
			break
		}
		to = d.saved(fmt.Sprintf(".%d.%s", n, name))
	}
	means, err := copytree.Copy(from, to)
	if err != nil {
		return err
	}
	if means == copytree.Link {
		_ = os.Remove(to)
		return fmt.Errorf("no room to save %s", from)
	}
	p.value("saved", to)
	return p.err
}

// bundle keeps commits that go with the branch, and those of a HEAD that is
// elsewhere.
func (d doomed) bundle(ctx context.Context, p *printer, repo, tree git.Repo) error {
	if d.base == "" {
		return nil
	}
	var tips []string
	if tip, err := repo.Commit(ctx, "refs/heads/"+d.branch); err == nil && tip != d.base {
		tips = append(tips, "refs/heads/"+d.branch)
	}
	if tree.Dir != "" {
		if head, err := tree.Commit(ctx, "HEAD"); err == nil && head != d.base {
			tips = append(tips, head)
		}
	}
	if len(tips) == 0 {
		return nil
	}
	n, err := repo.Bundle(ctx, d.saved(".bundle"), d.base, tips...)
	if err != nil {
		return err
	}
	if n > 0 {
		p.value("bundle", d.saved(".bundle"))
	}
	return p.err
}

// errNoWorktree: there is a directory, and it is no worktree.
var errNoWorktree = errors.New("is no git worktree any more")

// worktree opens the repository whose work tree has its top at path. A lane
// lies inside another worktree, and git would answer for that one if the lane's
// own .git is gone: that is an error.
func worktree(ctx context.Context, env *cli.Env, path string) (git.Repo, error) {
	if _, err := os.Stat(path); err != nil {
		return git.Repo{}, fmt.Errorf("worktree is gone: %w", err)
	}
	repo, err := git.OpenTop(ctx, path, env.Environ)
	if errors.Is(err, git.ErrNotRepository) {
		return git.Repo{}, fmt.Errorf("%s %w", path, errNoWorktree)
	}
	return repo, err
}
