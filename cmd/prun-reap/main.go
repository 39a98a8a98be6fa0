// Command prun-reap ends what is left of units that nobody answers for any
// more, and settles them. It touches no process that it cannot verify, and
// says what it could not prove.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

type options struct {
	DryRun        bool     `long:"dry-run" description:"say what would be done, and do nothing"`
	StateDirs     []string `long:"state-dir" value-name:"DIR" description:"this unit only; repeatable"`
	Roots         []string `long:"root" value-name:"DIR" description:"look at every unit in this directory; repeatable (default: where prun-dispatch keeps them)"`
	IncludeActive bool     `long:"include-active" description:"end a live orphan even while its output grows"`
	JSON          bool     `long:"json" description:"one JSON object a line instead"`
}

const (
	// look is how long a live orphan's output must have stood still (decision 5.5).
	look = 2 * time.Second
	// patience is for a keeper, a front door or another prun-reap that is
	// concluding a unit: ending a tree takes ten seconds at most.
	patience = 15 * time.Second
	// atOnce is how many units are worked on at the same time. Most of the work
	// is waiting, for the kernel or for output, so that a slow unit holds up
	// nobody else's.
	atOnce = 64
)

func main() { cli.Main(tool(), &options{}) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "prun-reap",
		Summary: "end and settle units that nobody answers for",
		Description: `When the supervisor and the keeper of a unit were both killed, its worker may live on and the unit has no outcome. ` +
			`This program finds such units, ends what is left of them, salvages their output and gives them the outcome lost. ` +
			`A unit whose worker was seen to end by itself before they died is settled from that record, as exited or failed.

Only a unit whose supervisor is provably gone is touched. A process is ended only when it is in the unit's own cgroup, when its identity ` +
			`(number, start time, boot, namespace) is the recorded one, when it carries the unit's mark (PRUN_STATE_DIR) in its environment, ` +
			`is in the living worker's session or writes to the unit's output, or when it is below one of these; never by its name. ` +
			`A unit that detached from inside another one is not part of it.

Herd's turns and agent-fanout's lanes are units too, but not in these directories: their own tools settle them.`,
		Sections: []cli.Section{{Title: "OUTPUT", Text: sectionOutput}, {Title: "REASONS", Text: sectionReasons}},
		Exits: cli.Exits{
			0: "nothing is left to do",
			1: "a process could not be ended, a directory or a file of a unit could not be read, or an outcome or a salvage could not be written",
			2: "wrong usage",
			3: "some units were left unsettled",
		},
		Environment: []cli.EnvVar{
			{Name: "PRUN_STATE_BASE", Default: "TMPDIR", Text: "where to look, unless --root or --state-dir says"},
			{Name: "TMPDIR", Default: "/tmp", Text: "where to look when none of them says; TEMP and TMP come after it"},
		},
		Files: []cli.File{{Path: "$TMPDIR/prun-task-*", Text: "state directories; see prun-state(5)"}},
		Examples: []cli.Example{
			{Text: "What would be done:", Command: "prun-reap --dry-run"},
			{Text: "After a crash, end also what still works, and say what became of each unit:", Command: "prun-reap --include-active --json | jq -r 'select(.unit) | [.unit, .event, .reason] | @tsv'"},
		},
		SeeAlso: []string{"prun-report(1)", "prun-snapshot(1)", "prun-state(5)", "prun(7)"},
	}
}

const sectionOutput = `The first line is REAP-START with base (where it looks; several directories are joined as in PATH) and candidates: ` +
	`the units without an outcome, or with one that could not prove their end. A line a unit follows, in the order of their paths, and then REAP-DONE with the numbers of these lines. ` +
	`A unit that turns out to have nothing left, or that somebody else settles at the same moment, gets none.

	REAPED <unit> <means>      the kernel proves that nothing of it is alive
	TERMINATED <unit> pid=<n>  all that could be verified is gone; nothing proves that none escaped; n was the worker
	WOULD-REAP <unit>          with --dry-run, which changes nothing, not even a lock
	LEFT <unit> <reason>       not touched; a note on standard error says more

The means is cgroup (its control group is empty), boot (the machine was started anew since) or unstarted (its worker never ran). ` +
	`What TERMINATED cannot see is a process that cleared its environment, closed its output, left its session and lost its parent.

With --json each line is an object whose event is start, reaped, terminated, would-reap, left or done. A unit's has unit, state_dir, means, pid, reason, detail and killed ` +
	`(how many processes were ended); what does not apply is empty or 0.`

const sectionReasons = `Why a unit was left:

	supervisor-alive   somebody answers for it, or is concluding it
	active             it lives, and wrote within its stall threshold or in the last two seconds; or prun-reap runs inside it
	identity-mismatch  the worker's number, or the cgroup's name, belongs to another by now
	unknown-identity   supervisor or worker cannot be told, the directory is a copy, or a file in it cannot be read
	foreign-host       it ran on another machine
	foreign-namespace  it ran in another pid namespace; run prun-reap there
	not-ours           the directory is another user's, can be written by others, or is a link
	no-worker-record   its supervisor died while the worker was started, and no process is found; --include-active settles it
	legacy-state       made by an older version, which recorded no identity; see prun-report(1)
	kill-failed        something is alive after ten seconds, or could not be signalled

After identity-mismatch nothing was signalled; when the other process is gone, the unit can be reaped. ` +
	`The word worker-exited is reserved and never printed: a unit whose worker has ended is settled.`

// Run looks at every unit and prints a line for each that is not settled.
func (o *options) Run(_ context.Context, env *cli.Env) error {
	found, err := o.find(env)
	if err != nil {
		return err
	}
	trouble := len(found.Errors) > 0
	for _, e := range found.Errors {
		env.Warnf("%v", e.Err)
	}
	p := &printer{out: line.NewWriter(env.Stdout), json: o.JSON}
	if err := p.start(strings.Join(found.Roots, string(filepath.ListSeparator)), len(found.Units)); err != nil {
		return err
	}
	for i, finding := range o.reap(found.Units) {
		f := <-finding
		if f.Detail != "" {
			env.Notef("%s: %s", line.Escape(found.Units[i].Name()), f.Detail)
		}
		trouble = trouble || f.Err != nil || f.Left == supervise.LeftKillFailed
		if err := p.finding(f); err != nil {
			return err
		}
	}
	if err := p.done(); err != nil {
		return err
	}
	switch {
	case trouble:
		return cli.Status(1)
	case p.left > 0:
		return cli.Status(3)
	}
	return nil
}

func (o *options) limits() supervise.ReapOptions {
	return supervise.ReapOptions{
		DryRun: o.DryRun, IncludeActive: o.IncludeActive, SettleUnnamed: o.IncludeActive,
		SpareKept: true, Look: look, Patience: patience,
	}
}

// reap works on the units, and delivers in their order.
func (o *options) reap(units []state.Unit) []chan supervise.Finding {
	findings := make([]chan supervise.Finding, len(units))
	for i := range findings {
		findings[i] = make(chan supervise.Finding, 1)
	}
	opts := o.limits()
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range units {
			next <- i
		}
	}()
	for range min(atOnce, len(units)) {
		go func() {
			for i := range next {
				findings[i] <- supervise.Reap(supervise.Dispatch{}, units[i], opts)
			}
		}()
	}
	return findings
}

// find returns the units that have no outcome, or one that could not prove that
// their tree is gone. A directory that was named is looked at in any case.
func (o *options) find(env *cli.Env) (state.Discovery, error) {
	var named []state.Unit
	var parents []string
	for _, dir := range o.StateDirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return state.Discovery{}, cli.Usage("option --state-dir: %v", err)
		}
		if fi, err := os.Stat(abs); err != nil || !fi.IsDir() {
			return state.Discovery{}, cli.Usage("option --state-dir: not a directory: %s", line.Escape(dir))
		}
		if !strings.HasPrefix(filepath.Base(abs), state.Prefix) {
			// Another tool's unit must not be concluded as one of prun-dispatch.
			return state.Discovery{}, cli.Usage("option --state-dir: not the state directory of a unit (%s*): %s", state.Prefix, line.Escape(dir))
		}
		named, parents = append(named, state.Unit{Dir: abs}), append(parents, filepath.Dir(abs))
	}
	roots := o.Roots
	if len(roots) == 0 && len(named) == 0 {
		roots = []string{state.Base(env.Getenv)}
	}
	for _, root := range o.Roots {
		if _, err := os.Stat(root); os.IsNotExist(err) {
			return state.Discovery{}, cli.Usage("option --root: no such directory: %s", line.Escape(root))
		}
	}
	found := state.Discover(roots, nil)
	if !o.DryRun {
		for _, root := range found.Roots {
			// A failure is among the errors of the search.
			_ = supervise.ClearBase(root)
		}
	}
	found.Units = slices.DeleteFunc(found.Units, func(u state.Unit) bool { return !supervise.Candidate(u, o.limits()) })
	found.Units = append(found.Units, named...)
	slices.SortFunc(found.Units, func(a, b state.Unit) int { return strings.Compare(a.Dir, b.Dir) })
	found.Units = slices.Compact(found.Units)
	found.Roots = unique(append(found.Roots, parents...))
	return found, nil
}

func unique(list []string) []string {
	var kept []string
	for _, s := range list {
		if !slices.Contains(kept, s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// printer writes the lines, or the same as JSON, and counts.
type printer struct {
	out                      *line.Writer
	json                     bool
	reaped, terminated, left int
}

// answer is the JSON object of one unit.
type answer struct {
	Event    string `json:"event"`
	Unit     string `json:"unit"`
	StateDir string `json:"state_dir"`
	Means    string `json:"means"`
	PID      int    `json:"pid"`
	Reason   string `json:"reason"`
	Detail   string `json:"detail"`
	Killed   int    `json:"killed"`
}

func (p *printer) start(base string, n int) error {
	if !p.json {
		return p.out.Print(line.ReapStart(base, n))
	}
	return p.object(struct {
		Event      string `json:"event"`
		Base       string `json:"base"`
		Candidates int    `json:"candidates"`
	}{"start", line.Escape(base), n})
}

func (p *printer) finding(f supervise.Finding) error {
	name, event := f.Unit.Name(), ""
	var l line.Line
	switch {
	case f.Reaped != "":
		p.reaped++
		l, event = line.Reaped(name, f.Reaped), "reaped"
	case f.Terminated:
		p.terminated++
		l, event = line.Terminated(name, f.PID), "terminated"
	case f.Would:
		l, event = line.WouldReap(name), "would-reap"
	case f.Left != "":
		p.left++
		l, event = line.Left(name, f.Left), "left"
	default:
		return nil
	}
	if !p.json {
		return p.out.Print(l)
	}
	return p.object(answer{
		Event: event, Unit: line.Escape(name), StateDir: line.Escape(f.Unit.Dir), Means: f.Reaped, PID: f.PID,
		Reason: f.Left, Detail: f.Detail, Killed: f.Killed,
	})
}

func (p *printer) done() error {
	if !p.json {
		return p.out.Print(line.ReapDone(p.reaped, p.terminated, p.left))
	}
	return p.object(struct {
		Event      string `json:"event"`
		Reaped     int    `json:"reaped"`
		Terminated int    `json:"terminated"`
		Left       int    `json:"left"`
	}{"done", p.reaped, p.terminated, p.left})
}

func (p *printer) object(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return p.out.Text(string(b))
}
