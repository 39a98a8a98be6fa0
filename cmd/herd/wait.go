package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

type wait struct {
	Any     bool `long:"any" description:"until one of them is over"`
	Timeout *int `long:"timeout" value-name:"SECONDS" description:"how long at most (default: as long as it takes)"`
	JSON    bool `long:"json" description:"print JSON"`
	Args    struct {
		Tasks []string `positional-arg-name:"TASK" description:"names of tasks" required:"1"`
	} `positional-args:"true"`
}

// Run waits, prints a line for each task that is over, and ends with what happened to them.
func (o *wait) Run(ctx context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	var tasks []session.Task
	for _, typed := range o.Args.Tasks {
		s, err := p.look(typed)
		if err != nil {
			return err
		}
		tasks = append(tasks, s.Task)
	}
	if o.Timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(max(*o.Timeout, 0))*time.Second)
		defer cancel()
	}
	seen, err := session.Wait(ctx, tasks, o.Any)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return cli.Fail(1, "%w", err)
	}
	status, late := 0, false
	var values []any
	for i, s := range seen {
		if !s.Over() {
			late = true
			if o.Any {
				continue
			}
		}
		s.Fill()
		if o.JSON {
			values = append(values, s.Payload(time.Now()))
		} else if err := printLine(env, fmt.Sprintf("%s %s", tasks[i].Name, s.State)); err != nil {
			return err
		}
		if n := exitStatus(s); n != 3 {
			status = worse(status, n)
		}
		if o.Any && s.Over() {
			late = false
			break
		}
	}
	if o.JSON {
		if err := printLine(env, session.List(values)); err != nil {
			return err
		}
	}
	if late {
		status = 3
	}
	return cli.Status(status)
}

// worse: one that failed outweighs one that asks.
func worse(a, b int) int {
	switch {
	case a == 1 || b == 1:
		return 1
	case a == 4 || b == 4:
		return 4
	}
	return max(a, b)
}
