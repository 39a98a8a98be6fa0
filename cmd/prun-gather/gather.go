package main

import (
	"context"
	"time"

	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/wake"
)

// limits are what a gathering was told.
type limits struct{ timeout, poll, window time.Duration }

// gathering waits for a set of targets.
type gathering struct {
	targets []*target
	limits  limits
	out     printer

	// ledger is the path of the ledger, "" for none, and read the mark of what was
	// last read of it.
	ledger string
	read   *state.FileMark
}

func (g *gathering) addFile(file string) {
	g.targets = append(g.targets, newFile(file, g.limits.window))
}

func (g *gathering) addUnit(dir string) {
	g.targets = append(g.targets, newUnit(dir, g.limits.window))
}

// addLedger adds a target for every unit of a ledger. What is dispatched later
// belongs to another gathering.
func (g *gathering) addLedger(file string) error {
	g.ledger = file
	// The mark before the lines: a line that comes in between is read again.
	g.read, _ = state.MarkFile(file)
	entries, warnings, err := state.ReadLedger(file)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		g.out.env.Warnf("%s: %s", file, w)
	}
	for _, e := range entries {
		g.targets = append(g.targets, newEntry(e, g.limits.window))
	}
	return nil
}

// refresh reads the ledger again when it has changed. It may say of a unit that
// it ended when the state directory cannot say so any more.
func (g *gathering) refresh() {
	if g.ledger == "" || g.read.Unchanged(g.ledger) {
		return
	}
	mark, err := state.MarkFile(g.ledger)
	if err != nil {
		return
	}
	entries, _, err := state.ReadLedger(g.ledger)
	if err != nil {
		// What was read before still stands; the next look may be luckier.
		return
	}
	g.read = mark
	latest := make(map[string]state.Entry, len(entries))
	for _, e := range entries {
		latest[e.StateDir] = e
	}
	for _, t := range g.targets {
		if t.entry == nil {
			continue
		}
		if e, ok := latest[t.entry.StateDir]; ok {
			t.entry = &e
		}
	}
}

// soonest is the least pause between two looks: due times are computed, and one
// that is a rounding error away must not become a busy loop.
const soonest = 10 * time.Millisecond

// wait looks until all targets are through or the time is up, and returns the
// exit status. origin is when it began, on the monotonic clock.
func (g *gathering) wait(ctx context.Context, origin time.Time) (int, error) {
	w := wake.New(g.limits.poll)
	defer w.Close()
	if g.ledger != "" {
		w.Add(g.ledger)
	}
	for {
		// Watched before looked at, so that what changes in between wakes us.
		for _, t := range g.targets {
			t.watch(w)
		}
		wall := time.Now()
		now := wall.Sub(origin)
		remaining, next, err := g.pass(now, wall)
		if err != nil {
			return 0, err
		}
		left := g.limits.timeout - now
		if remaining == 0 || left <= 0 {
			return g.finish(remaining)
		}
		w.SetInterval(max(min(next, left), soonest))
		if err := w.Wait(ctx); err != nil {
			return 0, err
		}
	}
}

// pass looks at everything that is still waited for, prints what has landed, and
// returns how many remain and how long the next pass may be away. The limit is
// the caller's to judge afterwards: what landed in the last second counts.
func (g *gathering) pass(now time.Duration, wall time.Time) (remaining int, next time.Duration, err error) {
	g.refresh()
	next = g.limits.poll
	for _, t := range g.targets {
		if t.through {
			continue
		}
		due := t.look(now, wall)
		if !t.through {
			remaining++
			next = min(next, due)
			continue
		}
		if t.entry != nil && !t.landed {
			// Reconciling will say what it lacks.
			continue
		}
		if err := g.out.done(t); err != nil {
			return 0, 0, err
		}
	}
	return remaining, next, nil
}

// finish prints what is wrong with the ledger's units and what remains.
func (g *gathering) finish(remaining int) (int, error) {
	status := 0
	for _, t := range g.targets {
		if t.entry == nil {
			continue
		}
		kind, detail := t.reconcile()
		if kind == reconciled {
			continue
		}
		status = exitUnreconciled
		if err := g.out.unreconciled(t, kind, detail); err != nil {
			return 0, err
		}
	}
	if remaining > 0 {
		return exitTimeout, g.out.timeout(remaining)
	}
	return status, nil
}
