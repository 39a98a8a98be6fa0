package session

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/supervise"
)

// EndLeftovers ends what the task's turns below a number left alive, as far as it can be told to be theirs. A turn of
// which nothing is left is marked: the search through all processes takes a while and is not repeated.
func (t Task) EndLeftovers(below int) error {
	var all error
	for _, n := range t.turns() {
		turn := t.Turn(n)
		if n >= below || !turn.unswept() {
			continue
		}
		f := supervise.Reap(Record{}, turn.Unit(), supervise.ReapOptions{IncludeActive: true})
		var err error
		switch f.Left {
		case "", supervise.LeftSupervisorAlive, supervise.LeftForeignHost:
			// A cgroup that is gone proves it; else what carries the turn's mark is looked for.
			if f.Reaped == "" {
				err = endMarked(turn.Dir)
			}
		default:
			err = fmt.Errorf("end leftovers of turn %d: %s: %s", n, f.Left, f.Detail)
		}
		if err == nil {
			err = mark(turn.Path(FileSwept))
		}
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// unswept reports that a turn may have left something alive.
func (t Turn) unswept() bool {
	o, err := t.Unit().ReadOutcome()
	if err != nil || o == nil || o.ProvenEmpty || o.Leftovers == 0 {
		return false
	}
	_, err = os.Lstat(t.Path(FileSwept))
	return err != nil
}

// endMarked ends every process that carries a turn's mark, until a round finds none.
func endMarked(dir string) error {
	end := time.Now().Add(leftoverBound)
	for {
		found, err := proc.Orphans(dir)
		if err != nil {
			return fmt.Errorf("end leftovers: %w", err)
		}
		if len(found) == 0 {
			return nil
		}
		for _, one := range found {
			if err := one.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, pid.ErrGone) && !errors.Is(err, pid.ErrMismatch) {
				return fmt.Errorf("end leftovers: %w", err)
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("end leftovers: still alive: %v", found)
		}
		pause := time.NewTimer(5 * time.Millisecond)
		<-pause.C
	}
}

// kept counts what the turns below a number left alive.
func (t Task) kept(below int) int {
	n := 0
	for _, i := range t.turns() {
		if i >= below || !t.Turn(i).unswept() {
			continue
		}
		if found, err := proc.Orphans(t.Turn(i).Dir); err == nil {
			n += len(found)
		}
	}
	return n
}
