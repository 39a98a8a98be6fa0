package main

import (
	"bytes"
	"encoding/json"
	"time"

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
	Line           string  `json:"line"`
	Units          int     `json:"units"`
	StallThreshold float64 `json:"stall_threshold_s"`
	Timeout        float64 `json:"timeout_s"`
}

type eventObject struct {
	Line  string `json:"line"`
	Event event  `json:"event"`
}

type unitObject struct {
	Line     string  `json:"line"`
	Unit     string  `json:"unit"`
	Status   string  `json:"status"`
	StateDir string  `json:"state_dir"`
	Result   string  `json:"result"`
	IdleS    float64 `json:"idle_s"`
	// BackendFailed is whether the unit ended otherwise than well, null while
	// that is not known.
	BackendFailed *bool          `json:"backend_failed"`
	Outcome       *state.Outcome `json:"outcome"`
}

func (p printer) start(units int, stall, timeout cli.Seconds) error {
	if p.json {
		return p.object(startObject{line.WordMonitorStart, units, stall.Duration().Seconds(), timeout.Duration().Seconds()})
	}
	return p.line(line.MonitorStart(units, stall.Raw(), timeout.Raw()))
}

// event prints the event and every unit, and tells people what a "done" hides.
func (p printer) event(e event, units []*unit) error {
	var err error
	if p.json {
		err = p.object(eventObject{line.WordMonitorEvent, e})
	} else {
		err = p.line(line.MonitorEvent(string(e)))
	}
	for _, u := range units {
		if err != nil {
			return err
		}
		if p.json {
			err = p.object(u.object())
		} else {
			err = p.line(line.UnitStatus(u.Name(), u.status))
		}
	}
	for _, u := range units {
		if why := u.failure(); why != "" && u.state == isDone {
			p.env.Warnf("%s has a result, but its backend failed: %s", u.Name(), why)
		}
	}
	return err
}

func (u *unit) object() unitObject {
	o := unitObject{
		Line: line.WordUnit, Unit: u.Name(), Status: u.status, StateDir: u.Dir, Result: u.result,
		IdleS: u.growth.Idle().Round(time.Millisecond).Seconds(), Outcome: u.outcome,
	}
	if u.outcome != nil {
		o.BackendFailed = new(u.failure() != "")
	}
	return o
}

func (p printer) line(l line.Line) error { return line.NewWriter(p.env.Stdout).Print(l) }

func (p printer) object(v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := p.env.Stdout.Write(text.Bytes())
	return err
}
