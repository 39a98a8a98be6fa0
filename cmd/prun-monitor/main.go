// Command prun-monitor waits until something about a set of units needs a
// decision: all of them are done, one has failed, one is silent, or the time is
// up. It observes and touches nothing.
package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
)

const (
	exitAttention = 3
	exitTimeout   = 2
)

var tool = cli.Tool{
	Name:    "prun-monitor",
	Summary: "wait until a unit needs attention",
	Description: `Watches the state directories that prun-dispatch printed as STATE-DIR lines and ends at the first event that a coordinator has to act on. It prints a line MONITOR-START, then one line MONITOR-EVENT with the event, then one line UNIT with name and status for each directory, in the order given.

The events, the first that applies:

	fail      a unit has failed
	stall     a unit has said nothing for --stall-after seconds
	any-done  a unit is done, under --any
	all-done  every unit is done
	timeout   --timeout seconds have passed

A unit is "done" when a result that is not a FALLBACK stands at its result path and either the unit has ended or the result has not changed for --window seconds. It is "finishing" until then, "growing" while it works, "queued(N)" while it waits for a slot behind N others, "stalled(Ns)" when its output has not grown for N seconds, "failed(fallback)" when its output was salvaged into a FALLBACK, and "failed(dispatch-dead)" when nobody is left to write its result.

"done" says that there is a result. When the unit behind it is known to have failed, for instance because it was ended after writing, a warning on standard error says so, and so does the key "backend_failed" under --json.

Nothing is remembered between runs: an idle clock starts with the monitor, and a unit that was called stalled and lands later is done for the next monitor. Bytes are growth; the times of a file are not.

When the first argument is --, every word after it is a directory, whatever it looks like; so the old names of this program pass theirs.`,
	Exits: cli.Exits{
		0:             "All units are done; under --any, one is.",
		exitTimeout:   "The time is up, or wrong usage.",
		exitAttention: "A unit has failed or is silent.",
	},
	Files: []cli.File{
		{Path: "STATE-DIR/outcome.json", Text: "how the unit ended; its appearance wakes the monitor at once"},
		{Path: "STATE-DIR/tail", Text: "what the worker said; its size is what grows"},
		{Path: "STATE-DIR/result-file", Text: "the path of the result"},
	},
	Examples: []cli.Example{
		{Text: "Wait for two units:", Command: "prun-monitor /tmp/prun-task-4b96eb4d-a-17-00aa11bb22cc33dd /tmp/prun-task-4b96eb4d-b-18-11aa11bb22cc33dd"},
	},
	SeeAlso: []string{"prun-dispatch(1)", "prun-gather(1)", "prun-report(1)", "prun-state(5)"},
}

// options are those of a monitor that was not started by an old name.
type options struct {
	StallAfter cli.Seconds  `long:"stall-after" value-name:"SECONDS" env:"PRUN_STALL_THRESHOLD" default:"600" description:"Call a unit stalled when its output has not grown for so long; 0 never does"`
	Timeout    cli.Seconds  `long:"timeout" value-name:"SECONDS" env:"PRUN_MONITOR_TIMEOUT" default:"3600" description:"Give up after so long; there is a last look at the end"`
	Poll       cli.Fraction `long:"poll" value-name:"SECONDS" env:"PRUN_MONITOR_POLL" default:"15" min:"0.01" description:"Look at the output at least so often; ends and results are noticed at once where the system tells of changes"`
	Window     cli.Fraction `long:"window" value-name:"SECONDS" env:"PRUN_MONITOR_STABLE_WINDOW" default:"10" description:"Believe a result of a unit that still runs when it has not changed for so long"`
	Any        bool         `long:"any" description:"End when the first unit is done"`
	JSON       bool         `long:"json" description:"Print every line as a JSON object"`
	Positional struct {
		Dirs []string `positional-arg-name:"STATE-DIR" description:"A state directory"`
	} `positional-args:"yes"`
}

func main() { cli.Main(tool, new(options)) }

// Run watches until there is an event.
func (o *options) Run(ctx context.Context, env *cli.Env) error {
	out := printer{env: env, json: o.JSON}
	old := len(env.Args) > 0 && env.Args[0] == "--"
	if len(o.Positional.Dirs) == 0 {
		if err := out.event(usageError, nil); err != nil {
			return err
		}
		name := "prun-monitor"
		if old {
			name = "monitor.sh"
		}
		return cli.Quoted(exitTimeout, "monitor: need at least one <state-dir>\nUsage: "+name+" <state-dir> [<state-dir> ...]")
	}
	// The old names take any word for a directory that is still to come. An empty
	// one comes of a STATE-DIR line that was read before it was there.
	for i, dir := range o.Positional.Dirs {
		if old {
			break
		}
		if dir == "" {
			return cli.WithHint(cli.Usage("argument %d is empty, not a state directory", i+1), "has prun-dispatch printed its STATE-DIR line yet?")
		}
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			env.Warnf("%s does not exist; it is waited for all the same", line.Escape(dir))
		}
	}
	m := newMonitor(o.Positional.Dirs, limits{
		stall: o.StallAfter.Duration(), timeout: o.Timeout.Duration(),
		poll: o.Poll.Duration(), window: o.Window.Duration(), any: o.Any,
	})
	if err := out.start(len(m.units), o.StallAfter, o.Timeout); err != nil {
		return err
	}
	event, err := m.wait(ctx, time.Now())
	if err != nil {
		return err
	}
	if err := out.event(event, m.units); err != nil {
		return err
	}
	return cli.Status(event.status())
}
