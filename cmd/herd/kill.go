package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

type kill struct {
	JSON bool `long:"json" description:"print JSON"`
	Args struct {
		Task string `positional-arg-name:"TASK" description:"the task's name" required:"true"`
	} `positional-args:"true"`
}

// Run ends a task's turn and everything that it left. A task that has ended keeps its state.
func (o *kill) Run(_ context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	s, err := p.look(o.Args.Task)
	if err != nil {
		return err
	}
	if !session.Terminal(s.State) || !s.Over() {
		if s, err = o.end(s.Task); err != nil {
			return err
		}
	} else if s.Meta.Has("leftovers") {
		// What it left running was the user's to keep until now.
		if err := o.endKept(s.Task); err != nil {
			return err
		}
		s = s.Task.Look()
	}
	s.Fill()
	if s.State != session.Killed || s.Reason != session.ReasonKilled {
		env.Notef("%s had ended; its state stays", s.Task.Name)
	}
	if o.JSON {
		return printLine(env, s.Payload(time.Now()).Line())
	}
	return printLine(env, fmt.Sprintf("%s %s", o.Args.Task, s.State))
}

func (o *kill) end(t session.Task) (session.Snapshot, error) {
	lock, err := t.Lock(lockPatience)
	switch {
	case errors.Is(err, session.ErrNoTask):
		return session.Snapshot{}, say(exitNoTask, "no such task on this device: %s", o.Args.Task)
	case err != nil:
		return session.Snapshot{}, cli.Fail(1, "%w", err)
	}
	defer lock.Unlock()
	s := t.Look()
	if s.Err == nil && session.Settled(s.State) {
		if err := t.Quiet(); err != nil {
			return s, cli.Fail(1, "%w", err)
		}
		s = t.Settle()
	} else if s, err = t.Stop(session.RequestKill, grace(s.Meta.Text("backend"))); err != nil {
		return s, cli.Fail(1, "%w", err)
	}
	if s.State == session.AwaitingReply {
		if s, err = t.MarkKilled(); err != nil {
			return s, cli.Fail(1, "%w", err)
		}
	}
	return s, nil
}

func (o *kill) endKept(t session.Task) error {
	lock, err := t.Lock(lockPatience)
	if err != nil {
		return cli.Fail(1, "%w", err)
	}
	defer lock.Unlock()
	if err := t.EndKept(); err != nil {
		return cli.Fail(1, "%w", err)
	}
	return nil
}
