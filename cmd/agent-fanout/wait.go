package main

import (
	"context"
	"errors"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/wake"
)

const waitText = `Waits until the named lanes have ended, or with --any until one of them has, and prints the status: the word alone for one lane, ` +
	`a line "<phase> <tab> <status>" for each of several. Exit status 0 when all that were waited for succeeded, 1 when one ended otherwise, ` +
	`3 when the time is up.

--all means every lane that was ever started.`

// waitPoll bounds how late the end of a lane is seen whose supervisor and keeper
// were both killed; every other end changes a file and wakes at once.
const waitPoll = time.Second

type waitOptions struct {
	runOptions
	Phases  []string    `long:"phase" value-name:"NAME" description:"a lane to wait for; repeatable"`
	All     bool        `long:"all" description:"every started lane of the run"`
	Any     bool        `long:"any" description:"until one of them has ended"`
	Timeout cli.Seconds `long:"timeout" value-name:"SECONDS" default:"60" description:"how long to wait at most"`
}

// Run is the verb.
func (o *waitOptions) Run(ctx context.Context, env *cli.Env) error {
	run, err := o.open(env)
	if err != nil {
		return err
	}
	lanes, err := o.lanes(env, run)
	if err != nil {
		return err
	}
	w := wake.New(waitPoll)
	defer w.Close()
	for _, l := range lanes {
		w.Add(l.Path(lane.FileStatus))
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout.Duration())
	defer cancel()
	views := make([]lane.View, len(lanes))
	for {
		ended, bad := 0, false
		for i, l := range lanes {
			if !lane.Ended(views[i].Status) {
				views[i] = l.Look()
			}
			if lane.Ended(views[i].Status) {
				ended++
				bad = bad || views[i].Status != lane.Succeeded
			}
		}
		if ended == len(lanes) || o.Any && ended > 0 {
			return o.answer(env, views, len(lanes) == 1, bad, false)
		}
		if err := w.Wait(ctx); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return o.answer(env, views, len(lanes) == 1, false, true)
		} else if err != nil {
			return cli.Fail(1, "wait for lanes: %w", err)
		}
	}
}

func (o *waitOptions) answer(env *cli.Env, views []lane.View, one, bad, late bool) error {
	p := printer{w: env.Stdout}
	for _, v := range views {
		if one && !o.All {
			p.text(v.Status + "\n")
		} else {
			p.row(v.Lane.Phase, v.Status)
		}
	}
	switch {
	case p.err != nil:
		return p.err
	case late:
		return cli.Status(3)
	case bad:
		return cli.Status(1)
	}
	return nil
}

// lanes are those to wait for.
func (o *waitOptions) lanes(env *cli.Env, run lane.Run) ([]lane.Lane, error) {
	switch {
	case o.All && len(o.Phases) > 0:
		return nil, refuse("--all and --phase exclude each other")
	case !o.All && len(o.Phases) == 0:
		return nil, refuse("name a lane with --phase, or --all")
	}
	var lanes []lane.Lane
	for _, phase := range o.Phases {
		l, err := find(run, phase)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, l)
	}
	if !o.All {
		return lanes, nil
	}
	all, err := run.Lanes()
	if err != nil {
		return nil, refuse("%v", err)
	}
	for _, l := range all {
		if l.Look().Status == lane.Created {
			env.Notef("lane %s was never started and is not waited for", l.Phase)
			continue
		}
		lanes = append(lanes, l)
	}
	if len(lanes) == 0 {
		return nil, refuse("no lane of the run was started")
	}
	return lanes, nil
}
