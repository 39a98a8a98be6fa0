package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/copytree"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/proc"
)

const addLaneText = `Makes a worktree for one phase on a new branch wt-<run>-<phase>, from the integration branch or from --base. ` +
	`Prints run=, phase=, worktree= and, for each --warm, warmed=<path> <clone|copy|link>. Files that .worktreeinclude names are copied from the main checkout.

--base takes a git ref or the name of another lane of the run; the new lane then starts from that lane's work as it stands, committed or not.

--warm copies an ignored file or directory (node_modules, .venv, target) from the integration worktree, or from the main checkout when it is only there: by ` +
	`sharing blocks where the file system can, else by copying, else, for want of room, by a symbolic link.

--setup runs in the new worktree with sh, its output in setup.log of the lane. When it fails, the lane is taken back.`

// setupLimit bounds --setup: installing dependencies takes minutes.
const setupLimit = time.Hour

type addLaneOptions struct {
	laneOptions
	Base  string   `long:"base" value-name:"LANE|REF" description:"what the lane starts from (default: the integration branch)"`
	Setup string   `long:"setup" value-name:"COMMAND" description:"shell command to run in the new worktree; it must succeed"`
	Warm  []string `long:"warm" value-name:"PATH" description:"ignored path, from the top of the repository, to copy into the lane; repeatable"`
}

// Run is the verb.
func (o *addLaneOptions) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	run, err := o.open(env)
	if err != nil {
		return err
	}
	if !lane.ValidName(o.Phase) {
		return refuse("invalid phase: %s", o.Phase)
	}
	if status := run.Status(); status != lane.RunActive {
		return refuse("run is not active: %s is %s", run.ID, status)
	}
	integration := run.Get(lane.FileIntegration)
	repo, tip, err := git.OpenTopAt(ctx, integration, run.Get(lane.FileIntBranch), env.Environ)
	if err != nil {
		return refuse("integration worktree: %v", err)
	}
	for _, path := range o.Warm {
		if err := warmable(ctx, repo, run, path); err != nil {
			return refuse("--warm %s: %v", path, err)
		}
	}
	draft, left, err := run.Draft(o.Phase)
	switch {
	case errors.Is(err, lane.ErrExists):
		return refuse("lane already exists: %s", o.Phase)
	case errors.Is(err, lane.ErrBusy):
		return refuse("lane already exists: %s is being made", o.Phase)
	case err != nil:
		return refuse("%v", err)
	}
	if run.Closing() {
		draft.Abandon()
		return refuse("run is being cleaned up: %s", run.ID)
	}
	spec := git.AddSpec{
		Path:   filepath.Join(integration, worktreesDir, run.ID+"-"+o.Phase),
		Branch: "wt-" + run.ID + "-" + o.Phase, Base: tip,
	}
	made, warmed, err := o.make(ctx, env, repo, run, draft, left, spec)
	if err != nil {
		if made {
			if rerr := repo.Remove(context.WithoutCancel(ctx), git.RemoveSpec{Path: spec.Path, Branch: spec.Branch}); rerr != nil {
				env.Warnf("%v", rerr)
			}
		}
		draft.Abandon()
		return err
	}
	l, err := draft.Publish()
	if err != nil {
		return refuse("%v", err)
	}
	p := printer{w: env.Stdout}
	p.value("run", run.ID)
	p.value("phase", l.Phase)
	p.value("worktree", spec.Path)
	for _, w := range warmed {
		p.value("warmed", w)
	}
	return p.err
}

func (o *addLaneOptions) make(ctx context.Context, env *cli.Env, repo git.Repo, run lane.Run, draft *lane.Draft, left bool, spec git.AddSpec) (made bool, warmed []string, err error) {
	if left {
		// Somebody was killed while making this lane; the names are ours alone.
		if base := draft.Get(lane.FileBase); base != "" {
			if err := takeBack(ctx, repo, spec, base); err != nil {
				return false, nil, refuse("%v", err)
			}
		}
		if err := draft.Clear(); err != nil {
			return false, nil, refuse("%v", err)
		}
	}
	baseName := run.Get(lane.FileIntBranch)
	if o.Base != "" {
		baseName = o.Base
		if spec.Base, err = o.base(ctx, env, repo, run); err != nil {
			return false, nil, err
		}
	}
	commit, err := repo.Commit(ctx, spec.Base)
	if err != nil {
		return false, nil, refuse("base not found: %s", baseName)
	}
	spec.Base = commit
	err = errors.Join(
		draft.Put(lane.FilePhase, o.Phase), draft.Put(lane.FileBaseRef, baseName), draft.Put(lane.FileBranch, spec.Branch),
		draft.Put(lane.FileWorktree, spec.Path), draft.Put(lane.FileBase, commit))
	if err != nil {
		return false, nil, refuse("%v", err)
	}
	if _, err := repo.Add(ctx, spec); err != nil {
		return false, nil, refuse("%v", err)
	}
	bring(ctx, env, repo, run.Get(lane.FileMain), spec.Path)
	for _, path := range o.Warm {
		means, err := copytree.Copy(filepath.Join(source(run, path), path), filepath.Join(spec.Path, path))
		if err != nil {
			return true, nil, refuse("--warm %s: %v", path, err)
		}
		warmed = append(warmed, path+" "+string(means))
	}
	if o.Setup != "" {
		if err := o.setup(ctx, env, draft, spec.Path); err != nil {
			return true, nil, err
		}
	}
	return true, warmed, nil
}

// takeBack removes the worktree and branch of a lane that was never finished;
// a branch that has commits of somebody is left and refused.
func takeBack(ctx context.Context, repo git.Repo, spec git.AddSpec, base string) error {
	if tip, err := repo.Commit(ctx, "refs/heads/"+spec.Branch); err == nil && tip != base {
		return fmt.Errorf("branch %s holds commits of a lane that was never finished", spec.Branch)
	}
	return repo.Remove(ctx, git.RemoveSpec{Path: spec.Path, Branch: spec.Branch})
}

// base is the commit that --base means: a lane's work as it stands, or a ref.
func (o *addLaneOptions) base(ctx context.Context, env *cli.Env, repo git.Repo, run lane.Run) (string, error) {
	other, err := run.Lane(o.Base)
	if err != nil {
		return o.Base, nil
	}
	if v := other.Look(); !lane.Ended(v.Status) && v.Status != lane.Created {
		return "", refuse("lane is still active: %s", o.Base)
	}
	if _, err := worktree(ctx, env, other.Get(lane.FileWorktree)); err != nil {
		return "", refuse("--base %s: %v", o.Base, err)
	}
	commit, err := repo.Snapshot(ctx, other.Get(lane.FileWorktree), "work of lane "+o.Base+" of run "+run.ID)
	if err != nil {
		return "", refuse("--base %s: %v", o.Base, err)
	}
	return commit, nil
}

// warmable reports why a path may not be copied into a lane.
func warmable(ctx context.Context, repo git.Repo, run lane.Run, path string) error {
	clean := filepath.Clean(path)
	switch {
	case !filepath.IsLocal(path) || clean == ".":
		return errors.New("must be a path below the top of the repository")
	case clean == ".git" || strings.HasPrefix(clean, ".git"+string(filepath.Separator)):
		return errors.New("git's own files are not to be copied")
	case clean == worktreesDir || strings.HasPrefix(clean, worktreesDir+string(filepath.Separator)):
		return errors.New("worktrees are not to be copied")
	}
	from := source(run, path)
	if from == "" {
		return fmt.Errorf("is neither in the integration worktree nor in %s", run.Get(lane.FileMain))
	}
	ignored, err := repo.Ignored(ctx, from, clean)
	if err != nil {
		return err
	}
	if !ignored {
		return errors.New("is not ignored by git: a new worktree has what git tracks")
	}
	return nil
}

// source is the checkout that has path, "" when none has.
func source(run lane.Run, path string) string {
	for _, top := range []string{run.Get(lane.FileIntegration), run.Get(lane.FileMain)} {
		if _, err := os.Lstat(filepath.Join(top, path)); top != "" && err == nil {
			return top
		}
	}
	return ""
}

// warm brings one path from one checkout to another that does not have it.
func warm(from, to, path string) error {
	_, err := copytree.Copy(filepath.Join(from, path), filepath.Join(to, path))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// setup runs --setup. Its log stays when the lane is taken back.
func (o *addLaneOptions) setup(ctx context.Context, env *cli.Env, draft *lane.Draft, worktree string) error {
	log := draft.Path(lane.FileSetupLog)
	kept := filepath.Join(draft.Run.Dir, "setup-"+o.Phase+".log")
	sh, err := exec.LookPath("sh")
	if err != nil {
		return refuse("--setup: %v", err)
	}
	workerEnv, _ := environ.Worker(env.Environ, environ.WorkerOptions{Withhold: env.Getenv(environ.Withhold)})
	res, err := proc.Run(ctx, proc.RunSpec{
		Path: sh, Args: []string{"sh", "-c", `exec >>"$1" 2>&1; eval "$2"`, "setup", log, o.Setup},
		Env: workerEnv, Dir: worktree, Limit: setupLimit, MaxOutput: 4096,
	})
	if err == nil && !res.TimedOut && res.Exit.Status() == 0 {
		return nil
	}
	why := fmt.Sprintf("exit status %d", res.Exit.Status())
	switch {
	case err != nil:
		why = err.Error()
	case res.TimedOut:
		why = "not done within " + setupLimit.String()
	}
	_ = os.Rename(log, kept)
	return cli.WithHint(refuse("setup of lane %s failed: %s", o.Phase, why), "its output is in %s", kept)
}
