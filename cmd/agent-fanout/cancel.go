package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
	"github.com/prun-suite/prun/pkg/wake"
)

const cancelText = `Asks the worker to end, gives it --grace seconds, then ends it and everything it started, also what left its process group or session, and ` +
	`prints the lane's final status. A lane that has ended already is left alone, but for what is still alive of an interrupted one: that is ended too.`

// endMargin is what ending a tree may take beyond the grace.
const endMargin = 15 * time.Second

type cancelOptions struct {
	laneOptions
	Grace cli.Seconds `long:"grace" value-name:"SECONDS" default:"10" description:"time between the first signal and the last"`
}

// Run is the verb.
func (o *cancelOptions) Run(ctx context.Context, env *cli.Env) error {
	_, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	status, err := cancel(ctx, env, l, o.Grace.Duration())
	if err != nil {
		return err
	}
	p := printer{w: env.Stdout}
	p.text(status + "\n")
	return p.err
}

// cancel ends a lane and returns the status that it has then.
func cancel(ctx context.Context, env *cli.Env, l lane.Lane, grace time.Duration) (string, error) {
	v := l.Examine()
	switch {
	case v.Status == lane.Interrupted:
		return v.Status, sweep(env, l, v)
	case lane.Ended(v.Status):
		return v.Status, nil
	case v.Status == lane.Created:
		lock, err := l.Lock()
		if errors.Is(err, lane.ErrBusy) {
			break // it is being started at this moment
		}
		if err != nil {
			return "", refuse("%v", err)
		}
		defer lock.Unlock()
		if l.Look().Status == lane.Created {
			if err := l.Set(lane.FileStatus, lane.Cancelled); err != nil {
				return "", refuse("%v", err)
			}
		}
		return l.Look().Status, nil
	}
	if l.Number() == 0 {
		return "", refuse("lane was started by another version: its wrapper %s is to be stopped by hand", l.Get(lane.FileWrapPID))
	}
	return stopLane(ctx, env, l, grace)
}

// stopLane asks the supervisor, insists after the grace, and as the last means
// kills it: its keeper ends the tree then.
func stopLane(ctx context.Context, env *cli.Env, l lane.Lane, grace time.Duration) (string, error) {
	if err := l.RequestCancel(grace); err != nil {
		return "", refuse("%v", err)
	}
	w := wake.New(200 * time.Millisecond)
	defer w.Close()
	w.Add(l.Path(lane.FileStatus))
	began, asked, killed := time.Now(), false, false
	for {
		v := l.Look()
		if lane.Ended(v.Status) {
			if v = l.Examine(); v.Status == lane.Interrupted {
				return v.Status, sweep(env, l, v)
			}
			return v.Status, nil
		}
		waited := time.Since(began)
		switch {
		case !asked:
			asked = ask(l.Unit(), syscall.SIGTERM) == nil
		case !killed && waited > grace+endMargin:
			killed = true
			env.Warnf("the supervisor of lane %s does not answer and is killed", l.Phase)
			_ = ask(l.Unit(), syscall.SIGKILL)
		case waited > grace+3*endMargin:
			return "", cli.Fail(1, "lane %s could not be ended: it is %s", l.Phase, v.Status)
		}
		if err := w.Wait(ctx); err != nil {
			return "", cli.Fail(1, "cancel lane: %w", err)
		}
	}
}

// ask signals the supervisor that the unit's record names, and no other
// process. One that was stopped is continued.
func ask(u state.Unit, sig syscall.Signal) error {
	id, err := u.ReadIdentity()
	if err != nil {
		return err
	}
	if id == nil {
		return errors.New("no supervisor yet")
	}
	if err := id.Supervisor.Signal(sig); err != nil {
		if errors.Is(err, pid.ErrGone) || errors.Is(err, pid.ErrMismatch) {
			return nil // its keeper concludes
		}
		return err
	}
	return resume(id.Supervisor)
}

// sweep ends what is left of an interrupted lane.
func sweep(env *cli.Env, l lane.Lane, v lane.View) error {
	if v.Proven && len(v.Alive) == 0 || l.Number() == 0 {
		if len(v.Alive) > 0 {
			return refuse("lane was started by another version: %s is to be ended by hand", numbers(v.Alive))
		}
		return nil
	}
	if v.Outcome != nil {
		return sweepSettled(env, l, v)
	}
	f := supervise.Reap(lane.NewRecord(), l.Unit(), supervise.ReapOptions{IncludeActive: true, SettleUnnamed: true})
	switch {
	case f.Left == "" || f.Left == supervise.LeftSupervisorAlive:
		return nil
	}
	return cli.Fail(1, "lane %s: %s: %s", l.Phase, f.Left, f.Detail)
}

// sweepSettled ends processes that outlived the outcome of their unit.
func sweepSettled(env *cli.Env, l lane.Lane, v lane.View) error {
	for range 50 {
		if len(v.Alive) == 0 {
			return nil
		}
		for _, one := range v.Alive {
			if err := one.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, pid.ErrGone) && !errors.Is(err, pid.ErrMismatch) {
				return cli.Fail(1, "lane %s: end process %d: %w", l.Phase, one.PID, err)
			}
		}
		pause := time.NewTimer(20 * time.Millisecond)
		<-pause.C
		v = l.Examine()
	}
	return cli.Fail(1, "lane %s: still alive: %s", l.Phase, numbers(v.Alive))
}
