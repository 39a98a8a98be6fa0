package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

type prune struct {
	Apply      bool `long:"apply" description:"remove; without it only say what would be"`
	IdleMin    int  `long:"idle-min" value-name:"MINUTES" default:"30" description:"keep what has said something within so many minutes"`
	AnyOwner   bool `long:"any-owner" description:"tasks that were started elsewhere, too"`
	Unresolved bool `long:"include-unresolved" description:"failed, stalled, unanswered and unreadable tasks, too"`
	JSON       bool `long:"json" description:"print JSON"`
}

// Run says which tasks go and which stay, and removes them when told to.
func (o *prune) Run(_ context.Context, env *cli.Env) error {
	p, tasks, err := start(env)
	if err != nil {
		return err
	}
	now, ttl := time.Now(), logTTL(env)
	opts := session.PruneOptions{Owner: p.owner, Idle: time.Duration(o.IdleMin) * time.Minute, Unresolved: o.Unresolved}
	if o.AnyOwner {
		opts.Owner = ""
	}
	mine := func(s session.Snapshot) bool { return o.AnyOwner || s.Err == nil && s.Meta.Text("owner") == p.owner }
	type kept struct{ task, why string }
	var stay []kept
	var reclaim []session.Task
	fill := func(s *session.Snapshot) {
		if mine(*s) {
			s.Fill()
		}
	}
	for _, s := range session.LookAll(tasks, fill) {
		s.Tidy(ttl, now)
		if !mine(s) {
			continue
		}
		if why := s.Keep(opts, now); why != "" {
			stay = append(stay, kept{s.Task.Name, why})
		} else {
			reclaim = append(reclaim, s.Task)
		}
	}
	removed := reclaim
	var failure error
	if o.Apply {
		removed = nil
		for _, t := range reclaim {
			why, err := t.Prune(opts, now)
			switch {
			case err != nil:
				failure = cli.Fail(1, "%w", err)
				stay = append(stay, kept{t.Name, err.Error()})
			case why != "":
				stay = append(stay, kept{t.Name, why})
			default:
				removed = append(removed, t)
			}
		}
		p.root.ClearHidden()
	}
	if o.JSON {
		names, rows := []any{}, []any{}
		for _, t := range removed {
			names = append(names, t.Name)
		}
		for _, k := range stay {
			rows = append(rows, []any{k.task, k.why})
		}
		answer := session.Pairs{{Key: "reclaim", Value: names}, {Key: "kept", Value: rows}, {Key: "applied", Value: o.Apply}}
		if err := printLine(env, answer.Line()); err != nil {
			return err
		}
		return failure
	}
	for _, k := range stay {
		if err := printLine(env, fmt.Sprintf("keep    %-26s %s", k.task, k.why)); err != nil {
			return err
		}
	}
	word := "would "
	if o.Apply {
		word = "remove"
	}
	for _, t := range removed {
		if err := printLine(env, word+" "+t.Name); err != nil {
			return err
		}
	}
	return failure
}
