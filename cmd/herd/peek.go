package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/eventlog"
	"github.com/prun-suite/prun/pkg/session"
)

type peek struct {
	Tail     int  `long:"tail" value-name:"N" default:"15" description:"the last N lines; 0 all; -N all but the first N"`
	Thinking *int `long:"thinking" value-name:"N" optional:"true" optional-value:"50" description:"the last N thoughts instead (50 when no number follows)"`
	Stderr   bool `long:"stderr" description:"the worker's standard error instead"`
	Turn     int  `long:"turn" value-name:"N" min:"1" description:"the events of one turn"`
	JSON     bool `long:"json" description:"accepted, changes nothing"`
	Args     struct {
		Task string `positional-arg-name:"TASK" description:"the task's name" required:"true"`
	} `positional-args:"true"`
}

// Run prints raw events, thoughts or error output.
func (o *peek) Run(_ context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	t, err := p.task(o.Args.Task)
	if err != nil {
		return err
	}
	from, to := eventlog.Position{}, (*eventlog.Position)(nil)
	if o.Turn != 0 {
		var ok bool
		if from, to, ok = t.Span(o.Turn); !ok {
			return cli.Usage("task %s has no turn %d", t.Name, o.Turn)
		}
	}
	switch {
	case o.Thinking != nil:
		err = t.Thoughts(env.Foreign(), *o.Thinking, from, to)
	case o.Stderr:
		err = eventlog.Copy(env.Foreign(), t.Path(session.FileStderr), o.Tail)
	default:
		err = eventlog.CopyRange(env.Foreign(), t.Path(session.FileEvents), o.Tail, from, to)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
