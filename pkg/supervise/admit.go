package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/slots"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/userdir"
)

// slotsDir is the room of the user's directory where workers are counted.
const slotsDir = "slots"

// exitBlocked says that a unit was not started for want of quota or of a slot.
const exitBlocked = 75

// admit waits for the unit's turn. Every supervised worker is counted, with or
// without a limit of its own; while it waits the unit is queued, and no limit
// of its life runs. A nil slot is one that could not be counted.
func (s *supervisor) admit(ctx context.Context, nb *newborn, c *concluder) (*slots.Slot, *failure) {
	l := &s.launch
	limited := l.MaxWorkers > 0 || l.MinFree > 0
	accept := func(status string) {
		if !c.accepted {
			c.accepted = true
			c.ledger(status, time.Now())
			if l.Detached && l.Ledger != "" {
				s.say(message{Kind: kindAccepted})
			}
		}
	}
	defer func() { accept(state.LedgerDispatched) }()
	var last slots.Position
	slot, err := s.join(ctx, nb, func(p slots.Position) {
		last = p
		// First the ledger: who sees the file may count on the line.
		accept(state.LedgerQueued)
		if err := nb.unit.ReplaceEntry(state.FileQueued, strconv.Itoa(p.Ahead)); err != nil {
			s.note(err.Error())
		}
	})
	if rerr := os.Remove(nb.unit.Path(state.FileQueued)); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		s.note(rerr.Error())
	}
	switch {
	case err == nil:
		if lerr := s.guard.lend(slot.File()); lerr != nil {
			s.notes = append(s.notes, lerr.Error())
		}
		return slot, nil
	case errors.Is(err, slots.ErrTimeout):
		f := failed(exitBlocked, "not started within %d s (--queue-timeout): %s", int(l.QueueTimeout/time.Second), lack(l, last))
		f.cause = state.Blocked
		return nil, f
	case limited:
		return nil, failed(exitTrouble, "wait for a slot: %v", err)
	}
	// Nobody asked for a limit: a worker that cannot be counted still runs.
	s.notes = append(s.notes, "not counted among the workers: "+err.Error())
	return nil, nil
}

// lack says what a unit waited for in vain.
func lack(l *Launch, p slots.Position) string {
	switch {
	case p.Memory:
		return fmt.Sprintf("less memory is available than the %d bytes of PRUN_MIN_FREE_MEMORY", l.MinFree)
	case l.MaxWorkers > 0 && p.Running >= l.MaxWorkers:
		return fmt.Sprintf("no slot was free; %d workers may run at once", l.MaxWorkers)
	}
	return fmt.Sprintf("%d others wait in front", p.Ahead)
}

func (s *supervisor) join(ctx context.Context, nb *newborn, waiting func(slots.Position)) (*slots.Slot, error) {
	dir, err := userdir.Open(os.Getenv, slotsDir)
	if err != nil {
		return nil, err
	}
	pool, err := slots.Open(dir)
	if err != nil {
		return nil, err
	}
	l := &s.launch
	return pool.Join(ctx, slots.Request{
		Limit: l.MaxWorkers, MinFree: l.MinFree, Timeout: l.QueueTimeout,
		Unit: l.Unit, Dir: nb.unit.Dir, Parent: l.ParentUnit, Outlives: l.Detached && l.ParentUnit != "",
		Waiting: waiting,
	})
}
