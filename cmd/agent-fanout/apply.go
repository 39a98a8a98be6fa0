package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/line"
)

const applyText = `Merges a lane's work, as collect --patch writes it, into the integration worktree and stages it, three ways where earlier lanes changed the ` +
	`same files. Nothing is committed. It happens whole or not at all: when there are conflicts, each is printed as conflict=<path>, nothing is changed and the exit ` +
	`status is 1. With --leave-conflicts git's markers are left for you instead. --check changes nothing and answers the same.

It refuses when the integration worktree has unmerged paths, or unstaged changes or untracked files where the patch would write. Work of other lanes that is ` +
	`staged is the normal case.`

type applyOptions struct {
	laneOptions
	Check          bool `long:"check" description:"only say what would happen"`
	LeaveConflicts bool `long:"leave-conflicts" description:"apply what can be applied and leave conflict markers for the rest"`
}

// Run is the verb.
func (o *applyOptions) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	run, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	v := l.Look()
	if !lane.Ended(v.Status) && v.Status != lane.Created {
		return refuse("lane is still active: %s", l.Phase)
	}
	lock, err := run.LockRun()
	if errors.Is(err, lane.ErrBusy) {
		return refuse("run is busy: another command is changing %s", run.ID)
	}
	if err != nil {
		return refuse("%v", err)
	}
	defer lock.Unlock()
	repo, err := worktree(ctx, env, v.Worktree)
	if err != nil {
		return refuse("%v", err)
	}
	base, err := baseOf(ctx, repo, run, l)
	if err != nil {
		return refuse("%v", err)
	}
	dir, err := os.MkdirTemp(run.Dir, ".apply-")
	if err != nil {
		return refuse("%v", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "patch")
	patch, err := repo.WritePatch(ctx, v.Worktree, base, file)
	if err != nil {
		return refuse("%v", err)
	}
	if patch.Unread != "" {
		return refuse("lane %s cannot be read whole: %s", l.Phase, patch.Unread)
	}
	for _, link := range patch.Links {
		env.Warnf("%s is a repository of its own: only its commit is applied", link)
	}
	if _, err := worktree(ctx, env, run.Get(lane.FileIntegration)); err != nil {
		return refuse("integration worktree: %v", err)
	}
	a, err := repo.Apply(ctx, git.ApplySpec{Dir: run.Get(lane.FileIntegration), File: file, Check: o.Check, LeaveConflicts: o.LeaveConflicts})
	if err != nil {
		return refuse("%v", err)
	}
	return o.answer(env, run, l, patch, a)
}

func (o *applyOptions) answer(env *cli.Env, run lane.Run, l lane.Lane, patch git.Patch, a git.Applied) error {
	status := "applied"
	switch {
	case len(patch.Paths) == 0:
		status = "empty"
	case len(a.Conflicts) > 0 && !a.Changed:
		status = "conflict"
	case len(a.Conflicts) > 0:
		status = "applied-with-conflicts"
	case o.Check:
		status = "applicable"
	}
	p := printer{w: env.Stdout}
	p.value("run", run.ID)
	p.value("phase", l.Phase)
	p.value("status", status)
	p.value("files", strconv.Itoa(len(patch.Paths)))
	for _, c := range a.Conflicts {
		p.text("conflict=" + line.Escape(c) + "\n")
	}
	if p.err != nil {
		return p.err
	}
	if len(a.Conflicts) > 0 {
		return cli.Status(1)
	}
	return nil
}
