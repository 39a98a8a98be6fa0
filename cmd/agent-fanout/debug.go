package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

type debugOptions struct{ laneOptions }

// shown is the most that is shown of a file that should hold one value.
const shown = 4096

// Run is the verb.
func (o *debugOptions) Run(_ context.Context, env *cli.Env) error {
	run, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	v := l.Examine()
	p := printer{w: env.Stdout}
	p.value("run_dir", run.Dir)
	p.value("socket", run.Get(lane.FileSocket))
	p.value("lane_dir", l.Dir)
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return refuse("%v", err)
	}
	for _, e := range entries {
		if slices.Contains([]string{lane.FileBrief, lane.FileResultMD, lane.FileLog, lane.FileEvents, lane.FileSetupLog}, e.Name()) || e.IsDir() {
			continue
		}
		if text, err := atomicfile.ReadRegular(l.Path(e.Name()), shown); err == nil {
			p.value(e.Name(), strings.TrimSuffix(string(text), "\n"))
		}
	}
	if l.Number() > 0 {
		unit(&p, l.Unit())
	}
	for _, one := range v.Alive {
		p.row("process", "left", strconv.Itoa(one.PID), "alive", command(one.PID))
	}
	return p.err
}

// unit shows the processes of the lane's unit by identity.
func unit(p *printer, u state.Unit) {
	p.value("unit_dir", u.Dir)
	live, reason := u.Liveness()
	p.value("unit", live.String()+" ("+reason+")")
	id, err := u.ReadIdentity()
	if err != nil || id == nil {
		return
	}
	p.value("containment", id.Containment)
	if id.Leaf != "" {
		p.value("cgroup", id.Leaf)
	}
	row := func(role string, one pid.ID) {
		if one.PID == 0 {
			return
		}
		verdict, what := "gone", ""
		switch alive, err := one.Alive(); {
		case errors.Is(err, pid.ErrUnknown):
			verdict = "unknown"
		case err == nil && alive:
			verdict, what = "alive", command(one.PID)
		}
		p.row("process", role, strconv.Itoa(one.PID), verdict, what)
	}
	row("keeper", id.Keeper)
	row("supervisor", id.Supervisor)
	if w, err := u.ReadWorker(); err == nil && w != nil {
		row("worker", w.Worker)
	}
	if o, err := u.ReadOutcome(); err == nil && o != nil {
		if b, err := json.Marshal(o); err == nil {
			p.value("outcome", string(b))
		}
	}
}

// command is a process's name: its arguments may hold what is not for a log.
func command(n int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(n) + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
