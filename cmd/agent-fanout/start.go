package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

const startText = `Starts a runner on a brief in a lane and returns as soon as a supervisor has taken over; the worker goes on whatever becomes of the ` +
	`caller. The brief, of any size, is the worker's standard input and appears in no process listing. Prints run=, phase= and status=dispatching.

A lane can be started when it is created, failed, interrupted or cancelled. What the last worker said moves into its unit's directory.

The words after -- are the command of --runner command.`

// Limits of decision 7.2.
const (
	codexDeadStart = 600 * time.Second
	codexQuiet     = 600 * time.Second
	otherQuiet     = 3600 * time.Second
	// cancelGrace is how long a worker gets after the first signal.
	cancelGrace = 10 * time.Second
	// briefLimit keeps a wrong file from filling the memory.
	briefLimit = 256 << 20
)

type startOptions struct {
	laneOptions
	Brief     string `long:"brief" value-name:"FILE" required:"yes" description:"what the worker is to do; - reads standard input"`
	Runner    string `long:"runner" value-name:"NAME" default:"codex" description:"who works"`
	Model     string `long:"model" value-name:"NAME" description:"model to run, verbatim"`
	Effort    string `long:"reasoning-effort" value-name:"LEVEL" description:"reasoning effort (codex)"`
	Thinking  string `long:"thinking" value-name:"LEVEL" description:"thinking level (omp, pi)"`
	Access    string `long:"access" value-name:"LEVEL" choice:"read-only" choice:"workspace-write" choice:"danger-full-access" description:"what the worker may do, where the runner can tell"`
	NoNetwork bool   `long:"no-network" description:"codex: no network inside the sandbox"`

	BackendArgs []string `long:"backend-arg" value-name:"ARG" description:"a word handed to the runner's program unchanged; repeatable"`

	DeadStart *cli.Seconds `long:"dead-start" value-name:"SECONDS" env:"AGENT_FANOUT_DEAD_START" description:"end the worker when nothing has happened for so long from the start; 0 never (default: codex 600, others 0)"`
	Quiet     *cli.Seconds `long:"quiet" value-name:"SECONDS" env:"AGENT_FANOUT_QUIET" description:"end the worker when nothing has happened for so long; 0 never (default: codex 600, others 3600)"`
	Timeout   *cli.Seconds `long:"timeout" value-name:"SECONDS" env:"AGENT_FANOUT_TIMEOUT" description:"end the worker after so long; 0 never (default: 0)"`

	MaxWorkers   int          `long:"max-workers" value-name:"N" env:"PRUN_MAX_WORKERS" min:"0" max:"1000000" description:"wait until fewer than N workers of this user run on this machine; 0 does not wait"`
	QueueTimeout *cli.Seconds `long:"queue-timeout" value-name:"SECONDS" description:"give up waiting after so long, which fails the lane; 0, the default, never"`
	Nice         int          `long:"nice" value-name:"N" env:"PRUN_NICE" min:"0" max:"19" description:"added to the worker's niceness"`
}

// Run is the verb.
func (o *startOptions) Run(_ context.Context, env *cli.Env) error {
	run, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	brief, err := o.read(env)
	if err != nil {
		return err
	}
	lock, err := l.Lock()
	if errors.Is(err, lane.ErrBusy) {
		return refuse("lane cannot start from state: %s", lane.Dispatching)
	}
	if err != nil {
		return refuse("%v", err)
	}
	defer lock.Unlock()
	if status := run.Status(); status != lane.RunActive {
		return refuse("run is not active: %s is %s", run.ID, status)
	}
	if run.Closing() {
		return refuse("run is being cleaned up: %s", run.ID)
	}
	v := l.Examine()
	if !lane.Startable(v.Status) {
		return refuse("lane cannot start from state: %s", v.Status)
	}
	if len(v.Alive) > 0 {
		return cli.WithHint(refuse("lane has processes of its last worker: %s", numbers(v.Alive)),
			"agent-fanout cancel --run %s --phase %s ends them", run.ID, l.Phase)
	}
	launch, err := o.launch(env, run, l)
	if err != nil {
		return err
	}
	if fi, err := os.Stat(launch.Scratch); err != nil || !fi.IsDir() {
		return refuse("worktree is gone: %s", launch.Scratch)
	}
	if _, err := os.Lstat(filepath.Join(launch.Scratch, ".git")); err != nil {
		return refuse("%s is no git worktree any more", launch.Scratch)
	}
	return o.dispatch(env, run, l, launch, brief)
}

// read reads the brief before anything is changed.
func (o *startOptions) read(env *cli.Env) ([]byte, error) {
	var brief []byte
	var err error
	if o.Brief == "-" {
		brief, err = io.ReadAll(io.LimitReader(env.Stdin, briefLimit+1))
		if err == nil && len(brief) > briefLimit {
			err = atomicfile.ErrTooLarge
		}
	} else {
		brief, err = atomicfile.ReadRegular(o.Brief, briefLimit)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, refuse("brief not found: %s", o.Brief)
	case err != nil:
		return nil, refuse("brief: %v", err)
	case len(bytes.TrimSpace(brief)) == 0:
		return nil, refuse("brief is empty: %s", o.Brief)
	}
	return brief, nil
}

// launch decides everything about the unit.
func (o *startOptions) launch(env *cli.Env, run lane.Run, l lane.Lane) (supervise.Launch, error) {
	var none supervise.Launch
	backend, ok := agent.Lookup(o.Runner)
	if !ok || !agent.Serves(backend, agent.DoorFanout) {
		return none, refuse("unsupported runner: %s", o.Runner)
	}
	switch {
	case o.Runner == "command" && len(env.Rest) == 0:
		return none, refuse("runner command needs -- and a command")
	case o.Runner != "command" && len(env.Rest) > 0:
		return none, refuse("only runner command takes words after --")
	}
	bin, err := agent.Find(backend, env.Getenv, func(n string) bool { _, set := env.LookupEnv(n); return set }, runtime.GOOS)
	if err != nil {
		return none, refuse("%v", err)
	}
	mode, err := proc.ParseMode(env.Getenv("PRUN_CONTAINMENT"))
	if err != nil {
		return none, refuse("PRUN_CONTAINMENT: %v", err)
	}
	worktree := l.Get(lane.FileWorktree)
	turn := agent.Turn{
		Unit: l.Phase, Door: agent.DoorFanout, Bin: bin, Dir: worktree, Model: o.Model, ModelNamed: o.Model != "",
		Effort: o.Effort, Access: o.Access, NoNetwork: o.NoNetwork, BackendArgs: o.BackendArgs, Argv: env.Rest,
		ResultFile: l.Path(lane.FileResultMD), LastMessageFile: l.Path(lane.FileResultMD),
	}
	if turn.Effort == "" {
		turn.Effort = o.Thinking
	}
	cmd, err := backend.Command(turn)
	if err != nil {
		return none, refuse("%v", err)
	}
	if o.Runner != "command" {
		if _, err := exec.LookPath(cmd.Path); err != nil {
			return none, refuse("%s is not installed or not on PATH", o.Runner)
		}
	}
	quiet, dead := otherQuiet, time.Duration(0)
	if o.Runner == "codex" {
		quiet, dead = codexQuiet, codexDeadStart
	}
	stops := agent.Stops(backend, agent.DoorFanout)
	if len(stops) > 0 {
		stops = []agent.StopStep{{Signal: stops[0].Signal, Wait: cancelGrace}}
	}
	form := result.FormNamed
	if o.Runner == "codex" || o.Runner == "command" {
		// With a shell's statuses for a program that cannot be started.
		form = result.FormCodex
	}
	launch := supervise.Launch{
		Unit: l.Phase, Backend: backend.Name(), Tool: "agent-fanout", Form: form,
		Base: filepath.Join(run.Dir, "locks"), Cwd: worktree, Scratch: worktree,
		Result: l.Path(lane.FileResultMD), Turn: turn, Bin: bin,
		Stall: or(o.Quiet, quiet), DeadStart: or(o.DeadStart, dead), Hard: or(o.Timeout, 0), Stops: stops,
		MaxWorkers: o.MaxWorkers, QueueTimeout: or(o.QueueTimeout, 0), Nice: o.Nice,
		Containment: mode, Withhold: env.Getenv(environ.Withhold), SalvageAlways: true,
	}
	if parent := env.Getenv(environ.StateDir); parent != "" {
		if live, _ := (state.Unit{Dir: parent}).Liveness(); live == state.Running {
			launch.ParentUnit = parent
		}
	}
	return launch, nil
}

func or(given *cli.Seconds, def time.Duration) time.Duration {
	if given == nil {
		return def
	}
	return given.Duration()
}

// dispatch makes the lane ready, hands the unit over and leaves. The caller
// holds the lane's lock.
func (o *startOptions) dispatch(env *cli.Env, run lane.Run, l lane.Lane, launch supervise.Launch, brief []byte) error {
	if err := l.Ready(o.Runner, brief); err != nil {
		return refuse("%v", err)
	}
	number, err := l.Prepare()
	if err != nil {
		return refuse("%v", err)
	}
	launch.Extra = lane.ExtraOf(lane.Extra{Run: run.Dir, Lane: l.Dir, Phase: l.Phase, Number: number})
	backend, _ := agent.Lookup(launch.Backend)
	if err := l.Begin(backend); err != nil {
		return refuse("%v", err)
	}
	report, err := supervise.Front(launch, brief, supervise.Door{
		Announce: func(string) error {
			p := printer{w: env.Stdout}
			p.text(fmt.Sprintf("run=%s\nphase=%s\nstatus=%s\n", run.ID, l.Phase, lane.Dispatching))
			return p.err
		},
		Note:   func(text string) { env.Notef("%s", text) },
		Detach: true,
		Record: lane.NewRecord(),
	})
	var refusal *supervise.Refusal
	switch {
	case errors.As(err, &refusal):
		if serr := l.Set(lane.FileStatus, lane.Failed); serr != nil {
			env.Warnf("%v", serr)
		}
		return refuse("could not start: %s", refusal.Text)
	case err != nil:
		return refuse("could not start: %v", err)
	case report.Unprinted != nil:
		return cli.Fail(74, "print the lane's status: %w", report.Unprinted)
	}
	return nil
}
