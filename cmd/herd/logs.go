package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/eventlog"
	"github.com/prun-suite/prun/pkg/session"
)

type logs struct {
	Follow bool `long:"follow" short:"f" description:"go on until the turn has ended"`
	Tail   int  `long:"tail" value-name:"N" default:"15" description:"begin with the last N lines of the turn; 0 with all"`
	Stderr bool `long:"stderr" description:"standard error afterwards, too"`
	JSON   bool `long:"json" description:"accepted, changes nothing: the lines are JSON"`
	Args   struct {
		Task string `positional-arg-name:"TASK" description:"the task's name" required:"true"`
	} `positional-args:"true"`
}

// followPause is how often a log is looked at while it grows.
const followPause = 100 * time.Millisecond

// Run prints the events of the current turn and follows them. The end of the turn is the end of the command.
func (o *logs) Run(ctx context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	s, err := p.look(o.Args.Task)
	if err != nil {
		return err
	}
	t, turn := s.Task, max(s.Turn(), 1)
	from, _, _ := t.Span(turn)
	name := t.Path(session.FileEvents)
	at, out := eventlog.End(name), env.Foreign()
	if at.Segment < from.Segment {
		at = from
	}
	if err := eventlog.CopyRange(out, name, o.Tail, from, &at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ticker := time.NewTicker(followPause)
	defer ticker.Stop()
	looked := time.Now()
	for o.Follow {
		s = t.Look()
		if time.Since(looked) > time.Second {
			s, looked = t.Reconcile(), time.Now()
		}
		over := s.Over() || s.Turn() > turn
		next := eventlog.End(name)
		if next != at {
			if err := eventlog.CopyRange(out, name, 0, at, &next); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			at = next
		}
		if over {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	if o.Stderr {
		if err := eventlog.Copy(out, t.Path(session.FileStderr), o.Tail); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if why := s.Why(); why != "" {
		env.Notef("%s", why)
	}
	return nil
}
