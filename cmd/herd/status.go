package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
)

type status struct {
	JSON bool `long:"json" description:"print JSON"`
	Args struct {
		Task string `positional-arg-name:"TASK" description:"the task's name" required:"true"`
	} `positional-args:"true"`
}

// Run prints one line about a task.
func (o *status) Run(_ context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	s, err := p.look(o.Args.Task)
	if err != nil {
		return err
	}
	if o.JSON {
		return printLine(env, s.Payload(time.Now()).Line())
	}
	return printLine(env, fmt.Sprintf("%s %s pid_alive=%s %s", s.Task.Name, s.State, truth(s.HelperAlive), s.Meta.Text("repo")))
}

// truth is a truth value as the original wrote it.
func truth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
