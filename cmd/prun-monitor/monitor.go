package main

import (
	"context"
	"time"

	"github.com/prun-suite/prun/pkg/wake"
)

// event is what ends a monitor.
type event string

const (
	nothing    event = ""
	allDone    event = "all-done"
	anyDone    event = "any-done"
	fail       event = "fail"
	stall      event = "stall"
	timeUp     event = "timeout"
	usageError event = "usage-error"
)

func (e event) status() int {
	switch e {
	case allDone, anyDone:
		return 0
	case fail, stall:
		return exitAttention
	}
	return exitTimeout
}

// limits are what a monitor was told.
type limits struct {
	stall, timeout, poll, window time.Duration
	any                          bool
}

// monitor looks at a set of units until there is an event.
type monitor struct {
	units  []*unit
	limits limits
}

func newMonitor(dirs []string, l limits) *monitor {
	m := &monitor{limits: l}
	for _, dir := range dirs {
		m.units = append(m.units, newUnit(dir, l))
	}
	return m
}

// soonest is the least pause between two looks: due times are computed, and one
// that is a rounding error away must not become a busy loop.
const soonest = 10 * time.Millisecond

// wait looks until there is an event or ctx ends. origin is when the monitor
// began, on the monotonic clock.
func (m *monitor) wait(ctx context.Context, origin time.Time) (event, error) {
	w := wake.New(m.limits.poll)
	defer w.Close()
	for {
		// Watched before looked at, so that what changes in between wakes us.
		for _, u := range m.units {
			u.watch(w)
		}
		wall := time.Now()
		e, next := m.pass(wall.Sub(origin), wall)
		if e != nothing {
			return e, nil
		}
		w.SetInterval(max(next, soonest))
		if err := w.Wait(ctx); err != nil {
			return nothing, err
		}
	}
}

// pass looks at every unit once and returns the event, or how long the next pass
// may be away unless something changes. now is the time since the monitor began.
// The limit comes last of all: a result that landed in the last second counts.
func (m *monitor) pass(now time.Duration, wall time.Time) (event, time.Duration) {
	failed, stalled, done := 0, 0, 0
	next := m.limits.poll
	for _, u := range m.units {
		u.look(now, wall)
		switch u.state {
		case isFailed:
			failed++
		case isStalled:
			stalled++
		case isDone:
			done++
		}
		next = min(next, u.due)
	}
	left := m.limits.timeout - now
	switch {
	case failed > 0:
		return fail, 0
	case stalled > 0:
		return stall, 0
	case m.limits.any && done > 0:
		return anyDone, 0
	case done == len(m.units):
		return allDone, 0
	case left <= 0:
		return timeUp, 0
	}
	return nothing, min(next, left)
}
