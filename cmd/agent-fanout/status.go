package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/pid"
)

type statusOptions struct {
	runOptions
	JSON bool `long:"json" description:"one JSON object"`
}

type statusJSON struct {
	Run         string     `json:"run"`
	Status      string     `json:"status"`
	Main        string     `json:"main"`
	Integration string     `json:"integration_worktree"`
	StateDir    string     `json:"state_dir"`
	Lanes       []laneJSON `json:"lanes"`
	// After the keys of the original.
	Error string `json:"error,omitempty"`
}

type laneJSON struct {
	Phase    string `json:"phase"`
	Status   string `json:"status"`
	Worktree string `json:"worktree"`
	Result   string `json:"result"`
	RunLog   string `json:"run_log"`

	EventLog string   `json:"event_log,omitempty"`
	Runner   string   `json:"runner,omitempty"`
	ExitCode string   `json:"exit_code,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Alive    []pid.ID `json:"alive,omitempty"`
	// Gone: it is proven that nothing of an interrupted lane is alive.
	Gone *bool `json:"nothing_alive,omitempty"`
}

// Run is the verb.
func (o *statusOptions) Run(_ context.Context, env *cli.Env) error {
	run, err := o.open(env)
	if err != nil {
		return err
	}
	lanes, err := run.Lanes()
	if err != nil {
		return refuse("%v", err)
	}
	views := make([]lane.View, 0, len(lanes))
	for _, l := range lanes {
		v := l.Look()
		if v.Status == lane.Interrupted || o.JSON && lane.Ended(v.Status) {
			v = l.Examine()
		}
		views = append(views, v)
	}
	p := printer{w: env.Stdout}
	if o.JSON {
		return o.json(&p, run, views)
	}
	p.row("RUN", "PHASE", "STATUS", "WORKTREE")
	for _, v := range views {
		p.row(run.ID, v.Lane.Phase, v.Status, v.Worktree)
	}
	for _, v := range views {
		if v.Status == lane.Interrupted {
			env.Notef("%s", remains(v))
		}
	}
	return p.err
}

// remains says of an interrupted lane what lives on.
func remains(v lane.View) string {
	switch {
	case len(v.Alive) > 0:
		return fmt.Sprintf("lane %s is interrupted; still alive: %s", v.Lane.Phase, numbers(v.Alive))
	case v.Proven:
		return fmt.Sprintf("lane %s is interrupted; nothing of it is alive", v.Lane.Phase)
	}
	return fmt.Sprintf("lane %s is interrupted; nothing of it was found alive (a process that cleared its environment is not seen)", v.Lane.Phase)
}

func numbers(ids []pid.ID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == 20 {
			fmt.Fprintf(&b, "and %d more", len(ids)-i)
			break
		}
		fmt.Fprintf(&b, "%d", id.PID)
	}
	return b.String()
}

func (o *statusOptions) json(p *printer, run lane.Run, views []lane.View) error {
	out := statusJSON{
		Run: run.ID, Status: run.Status(), Main: run.Get(lane.FileMain),
		Integration: run.Get(lane.FileIntegration), StateDir: run.Dir, Lanes: []laneJSON{}, Error: run.Get(lane.FileError),
	}
	for _, v := range views {
		out.Lanes = append(out.Lanes, describe(v))
	}
	b, err := json.Marshal(out)
	if err != nil {
		return cli.Fail(1, "encode status: %w", err)
	}
	p.text(string(b) + "\n")
	return p.err
}

func describe(v lane.View) laneJSON {
	j := laneJSON{
		Phase: v.Lane.Phase, Status: v.Status, Worktree: v.Worktree, Result: v.Result, RunLog: v.RunLog, EventLog: v.EventLog,
		Runner: v.Lane.Get(lane.FileRunner), ExitCode: v.Lane.Get(lane.FileExitCode), Reason: v.Reason, Alive: v.Alive,
	}
	if v.Status == lane.Interrupted {
		gone := v.Proven && len(v.Alive) == 0
		j.Gone = &gone
	}
	return j
}
