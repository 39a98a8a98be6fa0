package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

type fetch struct {
	Wait       bool `long:"wait" description:"wait until the turn has ended"`
	Timeout    int  `long:"timeout" value-name:"SECONDS" default:"3600" description:"how long to wait at most"`
	Turn       int  `long:"turn" value-name:"N" min:"1" description:"the message of an earlier turn"`
	ExitStatus bool `long:"exit-status" description:"end with 0 done, 1 failed, stalled or killed, 4 awaiting a reply, 3 not settled"`
	JSON       bool `long:"json" description:"print JSON"`
	Args       struct {
		Task string `positional-arg-name:"TASK" description:"the task's name" required:"true"`
	} `positional-args:"true"`
}

// Run prints the last message of a task's current turn, or of the one asked for.
func (o *fetch) Run(ctx context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	s, err := p.look(o.Args.Task)
	if err != nil {
		return err
	}
	if o.Wait {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(max(o.Timeout, 0))*time.Second)
		defer cancel()
		seen, err := session.Wait(ctx, []session.Task{s.Task}, false)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return cli.Fail(1, "%w", err)
		}
		if s = seen[0]; s.Err != nil {
			return broken(o.Args.Task, s.Err)
		}
		s.Fill()
	}
	turn := o.Turn
	if turn == 0 {
		turn = s.Turn()
	}
	report, err := s.Report(turn)
	if errors.Is(err, session.ErrNoTurn) {
		return cli.Usage("task %s has no turn %d", s.Task.Name, o.Turn)
	}
	if err != nil {
		return cli.Fail(1, "read report: %w", err)
	}
	switch {
	case o.JSON:
		answer := session.Pairs{{Key: "status", Value: s.Payload(time.Now())}, {Key: "report", Value: report}}
		if o.Turn != 0 {
			answer = append(answer, session.Pair{Key: "turn", Value: s.Task.Turn(turn).Record()})
		}
		if s.State == session.Failed || s.State == session.Stalled {
			answer = append(answer, session.Pair{Key: "stderr", Value: s.Stderr(20)})
		}
		err = printLine(env, answer.Line())
	case report == "":
		err = printLine(env, "(no report yet; state="+s.State+")")
	default:
		_, err = io.WriteString(env.Foreign(), report+"\n")
	}
	if err != nil {
		return err
	}
	if why := s.Why(); why != "" && o.Turn == 0 && !o.JSON {
		env.Notef("%s", why)
		for l := range strings.SplitSeq(s.Stderr(5), "\n") {
			if l != "" && (s.State == session.Failed || s.State == session.Stalled) {
				env.Notef("stderr: %s", l)
			}
		}
	}
	if o.ExitStatus {
		return cli.Status(exitStatus(s))
	}
	return nil
}

// exitStatus is what a settled task means to a script.
func exitStatus(s session.Snapshot) int {
	switch {
	case !s.Over():
		return 3
	case s.State == session.Done:
		return 0
	case s.State == session.AwaitingReply:
		return 4
	}
	return 1
}
