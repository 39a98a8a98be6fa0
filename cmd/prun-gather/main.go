// Command prun-gather waits until every one of a set of results has landed, and
// says of a ledger's units which of them must not be integrated.
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
	exitTimeout      = 2
	exitUnreconciled = 3
)

var tool = cli.Tool{
	Name:    "prun-gather",
	Summary: "wait until all results have landed",
	Description: `Waits for result files. It prints a line GATHER-START, then a line DONE with the absolute path for each file when it lands, and ends when all have landed, or with a line TIMEOUT at the limit, after a last look.

A file has landed when it is a regular file with something in it that has not changed for --window seconds: by its own times, or watched, whichever shows first. The second makes a file land whose times are in the future.

With --unit it waits for a unit by its state directory instead: until the unit has ended, or its result has landed. A unit that ended is not waited for any longer, with a result or without one; the DONE line names its state directory then.

With --ledger it waits for all units of a ledger in that way, and then prints, for each one that must not be integrated as it is,

	UNRECONCILED ID KIND PATH

where KIND is the first that applies: "missing", there is no result; "empty"; "fallback", it is salvaged output; "stale", it was there before the unit and was not touched; "malformed", line 1 is not "# ID result" or one of Conclusion, Files, Open items and Verification is absent; "failed", the result is whole and the unit failed.

When the first argument is --, every word after it is a file, whatever it looks like; so the old names of this program pass theirs.`,
	Synopsis: []string{"[options] FILE...", "[options] --unit STATE-DIR...", "[options] --ledger FILE"},
	Exits: cli.Exits{
		0:                "All have landed.",
		exitTimeout:      "The time is up, or wrong usage.",
		exitUnreconciled: "All have landed or ended, and some are unreconciled.",
	},
	SeeAlso: []string{"prun-dispatch(1)", "prun-monitor(1)", "prun-state(5)"},
	Examples: []cli.Example{
		{Text: "Wait for two results:", Command: "prun-gather a.md b.md"},
		{Text: "Reconcile a run:", Command: "prun-gather --ledger agent-io/ledger.jsonl"},
	},
}

type options struct {
	Timeout    cli.Seconds  `long:"timeout" value-name:"SECONDS" env:"AGENT_CONFIG_GATHER_TIMEOUT" default:"3600" description:"Give up after so long; there is a last look at the end"`
	Poll       cli.Fraction `long:"poll" value-name:"SECONDS" env:"PRUN_GATHER_POLL" default:"5" min:"0.01" description:"Look at least so often; changes are noticed at once where the system tells of them"`
	Window     cli.Fraction `long:"window" value-name:"SECONDS" env:"PRUN_GATHER_STABLE_WINDOW" default:"10" description:"Believe a file when it has not changed for so long"`
	Units      []string     `long:"unit" value-name:"STATE-DIR" description:"Wait for the unit of this state directory; may be repeated"`
	Ledger     string       `long:"ledger" value-name:"FILE" description:"Wait for the units of this ledger and reconcile it"`
	JSON       bool         `long:"json" description:"Print every line as a JSON object"`
	Positional struct {
		Files []string `positional-arg-name:"FILE" description:"A result file"`
	} `positional-args:"yes"`
}

func main() { cli.Main(tool, new(options)) }

// Run waits until all have landed or the time is up.
func (o *options) Run(ctx context.Context, env *cli.Env) error {
	if len(o.Positional.Files) == 0 && len(o.Units) == 0 && o.Ledger == "" {
		name := "prun-gather"
		if len(env.Args) > 0 && env.Args[0] == "--" {
			name = "gather.sh"
		}
		return cli.Quoted(exitTimeout, "usage: "+name+" <result-file> [<result-file> ...]")
	}
	g := &gathering{
		limits: limits{timeout: o.Timeout.Duration(), poll: o.Poll.Duration(), window: o.Window.Duration()},
		out:    printer{env: env, json: o.JSON},
	}
	for _, file := range o.Positional.Files {
		g.addFile(file)
	}
	for _, dir := range o.Units {
		if dir == "" {
			return cli.WithHint(cli.Usage("option --unit: an empty word is no state directory"), "has prun-dispatch printed its STATE-DIR line yet?")
		}
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			env.Warnf("%s does not exist; it is waited for all the same", line.Escape(dir))
		}
		g.addUnit(dir)
	}
	if o.Ledger != "" {
		if err := g.addLedger(o.Ledger); err != nil {
			return cli.Usage("%w", err)
		}
	}
	if err := g.out.start(len(g.targets), o.Timeout); err != nil {
		return err
	}
	status, err := g.wait(ctx, time.Now())
	if err != nil {
		return err
	}
	return cli.Status(status)
}
