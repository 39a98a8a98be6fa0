package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/lane"
)

const initText = `Claims a run id, which is unique on this machine for good, brings the remote's branches up to date and makes ` +
	`the integration worktree on a new branch int-<run>. It may be called from any worktree of the repository. Prints run=, state_dir= and ` +
	`integration_worktree=.

Without a remote called origin the run starts from HEAD, and the checkout must be clean. When a step fails, the run is recorded as failed with ` +
	`the reason in its state directory.`

const (
	fetchLimit = 10 * time.Minute
	origin     = "origin"
	// worktreesDir is where worktrees are made, inside the checkout that they
	// belong to; git is told to look past it.
	worktreesDir = ".worktrees"
	// baseKey records in the repository's configuration what a branch is to be
	// merged into.
	baseKey = "agentFanoutBase"
)

type initOptions struct {
	Repo    string `long:"repo" value-name:"DIR" description:"any directory of the repository (default: the current one)"`
	BaseRef string `long:"base-ref" value-name:"REF" description:"what the run starts from (default: the remote's default branch, or HEAD)"`
	NoFetch bool   `long:"no-fetch" description:"leave the remote alone and start from what was fetched last"`
	SID     string `long:"sid" value-name:"ID" hidden:"yes" description:"the id of the run"`
}

// Run is the verb.
func (o *initOptions) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	where := o.Repo
	if where == "" {
		where = "."
	}
	repo, err := git.Open(ctx, where, env.Environ)
	switch {
	case errors.Is(err, git.ErrNotRepository):
		return refuse("not inside a git worktree: %s", where)
	case err != nil:
		return refuse("%v", err)
	case repo.Top == "":
		return refuse("not inside a git worktree: %s", where)
	}
	home, err := lane.HomeOf(env.Getenv)
	if err != nil {
		return refuse("%v", err)
	}
	id := o.SID
	if id == "" {
		if id, err = lane.NewID(); err != nil {
			return refuse("%v", err)
		}
	}
	if !lane.ValidName(id) {
		return refuse("invalid sid: %s", id)
	}
	run, lock, err := home.Claim(id, lane.RepoID(repo.Common))
	if errors.Is(err, lane.ErrClaimed) {
		return refuse("sid already claimed: %s", id)
	}
	if err != nil {
		return refuse("%v", err)
	}
	defer lock.Unlock()
	integration, err := o.make(ctx, env, repo, run)
	if err != nil {
		text := err.Error()
		if werr := errors.Join(run.Set(lane.FileError, text), run.Set(lane.FileStatus, lane.RunFailed)); werr != nil {
			env.Warnf("%v", werr)
		}
		return cli.WithHint(refuse("%s", text), "the run %s is recorded as failed in %s", id, run.Dir)
	}
	p := printer{w: env.Stdout}
	p.value("run", id)
	p.value("state_dir", run.Dir)
	p.value("integration_worktree", integration)
	return p.err
}

// make does what can fail once the run is claimed.
func (o *initOptions) make(ctx context.Context, env *cli.Env, repo git.Repo, run lane.Run) (string, error) {
	trees, err := repo.Worktrees(ctx)
	if err != nil {
		return "", err
	}
	main := trees[0].Path
	if !trees[0].Bare && sameFile(main, repo.Common) {
		// git names the directory of its own files where those do not lie in
		// the checkout: a submodule, a separate git directory.
		main = repo.Top
	}
	if err := errors.Join(run.Set(lane.FileMain, main), run.Set(lane.FileInvoking, repo.Top), run.Set(lane.FileSocket, "none")); err != nil {
		return "", err
	}
	if err := repo.Exclude(ctx, worktreesDir+"/"); err != nil {
		return "", err
	}
	base, err := o.base(ctx, env, repo)
	if err != nil {
		return "", err
	}
	branch := "int-" + run.ID
	integration := filepath.Join(main, worktreesDir, "_int-"+run.ID)
	// Recorded first: whoever cleans up after a kill finds the names.
	if err := errors.Join(run.Set(lane.FileBaseRef, base), run.Set(lane.FileIntBranch, branch), run.Set(lane.FileIntegration, integration)); err != nil {
		return "", err
	}
	commit, err := repo.Add(ctx, git.AddSpec{Path: integration, Branch: branch, Base: base, BaseKey: baseKey, BaseName: base})
	if errors.Is(err, git.ErrNoCommit) {
		return "", errors.New("base not found: " + base)
	}
	if err != nil {
		return "", err
	}
	bring(ctx, env, repo, main, integration)
	return integration, errors.Join(run.Set(lane.FileBaseCommit, commit), run.Set(lane.FileStatus, lane.RunActive))
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, yerr := os.Stat(b)
	return err == nil && yerr == nil && os.SameFile(x, y)
}

// base finds out what the run starts from.
func (o *initOptions) base(ctx context.Context, env *cli.Env, repo git.Repo) (string, error) {
	remotes, err := repo.Remotes(ctx)
	if err != nil {
		return "", err
	}
	remote := false
	for _, r := range remotes {
		remote = remote || r == origin
	}
	if remote && !o.NoFetch {
		if err := repo.Fetch(ctx, origin, fetchLimit); err != nil {
			return "", err
		}
	}
	switch {
	case o.BaseRef != "":
		if _, err := repo.Commit(ctx, o.BaseRef); err != nil {
			return "", errors.New("base not found: " + o.BaseRef)
		}
		return o.BaseRef, nil
	case remote:
		return repo.DefaultBranch(ctx, origin, fetchLimit)
	}
	changes, err := repo.Inspect(ctx, repo.Top, "")
	if err != nil {
		return "", err
	}
	if changes.Dirty() || changes.Unmerged {
		return "", errors.New("local-only repository has uncommitted changes: commit or stash them first, or name a --base-ref")
	}
	if changes.Head == "" {
		return "", errors.New("base not found: the repository has no commit")
	}
	if changes.Branch != "" {
		return changes.Branch, nil
	}
	return changes.Head, nil
}

// bring copies the files that .worktreeinclude names into a new worktree. A
// file that cannot be brought is said and is no failure.
func bring(ctx context.Context, env *cli.Env, repo git.Repo, from, to string) {
	if _, err := os.Lstat(filepath.Join(from, git.IncludeFile)); err != nil {
		return
	}
	names, err := repo.Included(ctx, from)
	if err != nil {
		env.Warnf("%s: %v", git.IncludeFile, err)
		return
	}
	for _, name := range names {
		if err := warm(from, to, name); err != nil {
			env.Warnf("%s: %v", git.IncludeFile, err)
		}
	}
}
