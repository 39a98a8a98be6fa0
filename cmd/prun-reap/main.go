// Command prun-reap ends what is left of units that nobody answers for any
// more, and settles them. It touches no process that it cannot verify, and
// says what it could not prove.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
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

// look is how long a live orphan's output is watched (decision 5.5).
const look = 2 * time.Second

// atOnce is how many units are worked on at the same time. Most of the work
// is waiting for the kernel.
const atOnce = 16

func main() { cli.Main(tool(), &options{}) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "prun-reap",
		Summary: "end and settle units that nobody answers for",
		Description: `When the supervisor and the keeper of a unit were both killed, its worker may live on and the unit has no outcome. ` +
			`This program finds such units, ends what is left of them, salvages their output and gives them the outcome lost.

Only a unit whose supervisor is provably gone is touched. A process is ended only when its identity (number, start time, boot, ` +
			`namespace) is the recorded one, or when it is in the unit's own cgroup, or carries the unit's mark in its environment; never by its name. ` +
			`A directory of an older version, which recorded no identity, is reported and left alone.

REAPED says that the kernel proves the unit empty, and by which means: its cgroup, a restart of the machine since (boot), or that its ` +
			`worker was never started (unstarted). TERMINATED says that every process that could be verified is gone, and that nothing can prove ` +
			`that none escaped. LEFT gives the reason why a unit was not touched.

A worker that is alive and still produces output is left (active) unless --include-active is given.`,
		Exits: cli.Exits{
			0: "nothing is left to do",
			1: "a process could not be ended, or a directory could not be read",
			2: "wrong usage",
			3: "some units were left unsettled",
		},
		Files:    []cli.File{{Path: "$TMPDIR/prun-task-*", Text: "state directories; see prun-state(5)"}},
		Examples: []cli.Example{{Text: "What would be done:", Command: "prun-reap --dry-run"}},
		SeeAlso:  []string{"prun-report(1)", "prun-snapshot(1)", "prun-state(5)", "prun(7)"},
	}
}

// Run looks at every unit and prints a line for each that is not settled.
func (o *options) Run(_ context.Context, env *cli.Env) error {
	units, base, troubles, err := o.candidates(env)
	if err != nil {
		return err
	}
	for _, t := range troubles {
		env.Warnf("%v", t)
	}
	p := &printer{out: line.NewWriter(env.Stdout), json: o.JSON}
	if err := p.start(base, len(units)); err != nil {
		return err
	}
	findings := make([]chan supervise.Finding, len(units))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, u := range units {
		findings[i] = make(chan supervise.Finding, 1)
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			findings[i] <- supervise.Reap(supervise.Dispatch{}, u, supervise.ReapOptions{
				DryRun: o.DryRun, IncludeActive: o.IncludeActive, Look: look,
			})
		})
	}
	for i := range units {
		f := <-findings[i]
		if f.Detail != "" {
			env.Notef("%s: %s", u8(f.Unit.Name()), f.Detail)
		}
		if err := p.finding(f); err != nil {
			return err
		}
	}
	all.Wait()
	if err := p.done(); err != nil {
		return err
	}
	switch {
	case p.failed > 0 || len(troubles) > 0:
		return cli.Status(1)
	case p.left > 0:
		return cli.Status(3)
	}
	return nil
}

func u8(name string) string { return line.Escape(name) }

// candidates are the units that have no outcome, or one that could not prove
// that the unit's tree is gone.
func (o *options) candidates(env *cli.Env) (units []state.Unit, base string, troubles []error, err error) {
	roots := o.Roots
	if len(roots) == 0 && len(o.StateDirs) == 0 {
		roots = []string{state.Base(env.Getenv)}
	}
	seen := map[string]bool{}
	add := func(dir string, always bool) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		u := state.Unit{Dir: dir}
		if out, err := u.ReadOutcome(); !always && err == nil && out != nil && out.ProvenEmpty && !u.Unfinished() {
			return
		}
		units = append(units, u)
	}
	for _, dir := range o.StateDirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, "", nil, cli.Usage("--state-dir: %v", err)
		}
		if fi, err := os.Stat(abs); err != nil || !fi.IsDir() {
			return nil, "", nil, cli.Usage("--state-dir is not a directory: %s", line.Escape(dir))
		}
		add(abs, true)
	}
	for _, root := range roots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, "", nil, cli.Usage("--root: %v", err)
		}
		entries, err := os.ReadDir(abs)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && len(o.Roots) > 0 {
				return nil, "", nil, cli.Usage("--root is not a directory: %s", line.Escape(root))
			}
			troubles = append(troubles, fmt.Errorf("list %s: %w", line.Escape(abs), err))
			continue
		}
		for _, e := range entries {
			if _, unit := state.UnitOf(e.Name()); unit && e.IsDir() {
				add(filepath.Join(abs, e.Name()), false)
			}
			if strings.HasPrefix(e.Name(), state.HiddenPrefix) && e.IsDir() && !o.DryRun {
				supervise.ClearUnborn(filepath.Join(abs, e.Name()))
			}
			if e.Type().IsRegular() && !o.DryRun {
				state.DropClaim(filepath.Join(abs, e.Name()))
			}
		}
	}
	base = strings.Join(roots, string(filepath.ListSeparator))
	if base == "" {
		base = filepath.Dir(units[0].Dir)
	}
	if runtime.GOOS != "windows" || filepath.IsAbs(base) {
		if abs, err := filepath.Abs(base); err == nil && len(roots) <= 1 {
			base = abs
		}
	}
	return units, base, troubles, nil
}

// printer writes the lines, or the same as JSON, and counts.
type printer struct {
	out                              *line.Writer
	json                             bool
	reaped, terminated, left, failed int
}

func (p *printer) start(base string, n int) error {
	if p.json {
		return p.object(map[string]any{"event": "start", "base": base, "candidates": n})
	}
	return p.out.Print(line.ReapStart(base, n))
}

func (p *printer) finding(f supervise.Finding) error {
	name := f.Unit.Name()
	var l line.Line
	event := ""
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
		if f.Left == supervise.LeftKillFailed {
			p.failed++
		}
		l, event = line.Left(name, f.Left), "left"
	default:
		return nil
	}
	if p.json {
		return p.object(map[string]any{
			"event": event, "unit": name, "state_dir": f.Unit.Dir, "means": f.Reaped, "pid": f.PID,
			"reason": f.Left, "detail": f.Detail, "killed": f.Killed,
		})
	}
	return p.out.Print(l)
}

func (p *printer) done() error {
	if p.json {
		return p.object(map[string]any{"event": "done", "reaped": p.reaped, "terminated": p.terminated, "left": p.left})
	}
	return p.out.Print(line.ReapDone(p.reaped, p.terminated, p.left))
}

func (p *printer) object(m map[string]any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return p.out.Text(string(b))
}
