package main

import (
	"bytes"
	"encoding/json"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/state"
)

// printer says the same in lines or in JSON.
type printer struct {
	env  *cli.Env
	json bool
}

type startObject struct {
	Line    string  `json:"line"`
	Count   int     `json:"count"`
	Timeout float64 `json:"timeout_s"`
}

type doneObject struct {
	Line     string `json:"line"`
	Path     string `json:"path"`
	StateDir string `json:"state_dir"`
	// Landed is false for a unit that ended without a result; Path is then its
	// directory.
	Landed        bool           `json:"landed"`
	BackendFailed *bool          `json:"backend_failed"`
	Outcome       *state.Outcome `json:"outcome"`
}

type unreconciledObject struct {
	Line   string `json:"line"`
	ID     string `json:"id"`
	Kind   kind   `json:"kind"`
	Path   string `json:"path"`
	Detail string `json:"detail"`
}

type timeoutObject struct {
	Line      string `json:"line"`
	Remaining int    `json:"remaining"`
}

func (p printer) start(count int, timeout cli.Seconds) error {
	return p.print(line.GatherStart(count, timeout.Raw()), startObject{line.WordGatherStart, count, timeout.Duration().Seconds()})
}

// done says that t is through, and tells people what a result hides.
func (p printer) done(t *target) error {
	path := t.shown()
	o := doneObject{Line: line.WordDone, Path: path, Landed: t.landed, Outcome: t.outcome}
	if t.unit != nil {
		o.StateDir = t.unit.Dir
	}
	why := t.failure()
	if t.outcome != nil {
		o.BackendFailed = new(why != "")
	}
	if err := p.print(line.Done(path), o); err != nil {
		return err
	}
	switch {
	case t.unit == nil:
	case !t.landed && why != "":
		p.env.Warnf("%s ended without a result: %s", t.unit.Name(), why)
	case !t.landed:
		p.env.Warnf("%s ended without a result", t.unit.Name())
	case why != "":
		p.env.Warnf("%s has a result, but its backend failed: %s", t.unit.Name(), why)
	}
	return nil
}

func (p printer) unreconciled(t *target, k kind, detail string) error {
	return p.print(line.Unreconciled(t.entry.ID, string(k), t.path),
		unreconciledObject{line.WordUnreconciled, t.entry.ID, k, t.path, detail})
}

func (p printer) timeout(remaining int) error {
	return p.print(line.Timeout(remaining), timeoutObject{line.WordTimeout, remaining})
}

func (p printer) print(l line.Line, object any) error {
	if !p.json {
		return line.NewWriter(p.env.Stdout).Print(l)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(object); err != nil {
		return err
	}
	_, err := p.env.Stdout.Write(text.Bytes())
	return err
}
