package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/line"
)

// refuse is an answer in the original's form: its callers know these texts.
func refuse(format string, args ...any) error {
	return cli.Quoted(2, "agent-fanout: "+line.Escape(fmt.Sprintf(format, args...)))
}

// printer writes key=value lines and tab tables, a line a write. A control byte
// in a value is escaped: a line is a line.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) text(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
}

func (p *printer) value(key, value string) { p.text(key + "=" + line.Escape(value) + "\n") }

func (p *printer) row(cells ...string) {
	for i, c := range cells {
		cells[i] = line.Escape(c)
	}
	p.text(strings.Join(cells, "\t") + "\n")
}

// runOptions name the run that a command is about.
type runOptions struct {
	RunID string `long:"run" value-name:"ID" required:"yes" description:"the run, as init printed it"`
}

func (o runOptions) open(env *cli.Env) (lane.Run, error) {
	home, err := lane.HomeOf(env.Getenv)
	if err != nil {
		return lane.Run{}, refuse("%v", err)
	}
	run, err := home.Find(o.RunID)
	if errors.Is(err, lane.ErrNotFound) {
		return run, refuse("run not found: %s", o.RunID)
	}
	if err != nil {
		return run, refuse("%v", err)
	}
	return run, nil
}

// laneOptions name one lane.
type laneOptions struct {
	runOptions
	Phase string `long:"phase" value-name:"NAME" required:"yes" description:"the lane"`
}

func (o laneOptions) openLane(env *cli.Env) (lane.Run, lane.Lane, error) {
	run, err := o.open(env)
	if err != nil {
		return run, lane.Lane{}, err
	}
	l, err := find(run, o.Phase)
	return run, l, err
}

func find(run lane.Run, phase string) (lane.Lane, error) {
	l, err := run.Lane(phase)
	if errors.Is(err, lane.ErrNotFound) {
		return l, refuse("lane not found: %s", phase)
	}
	if err != nil {
		return l, refuse("%v", err)
	}
	return l, nil
}

// interruptible ends ctx at the first request to stop, so that what was begun
// is taken back.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, stopSignals...)
}
