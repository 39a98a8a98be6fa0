package session

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// defaultStall stands for a stall_after_s of zero, as it always has.
const defaultStall = time.Hour

// Reconcile brings a task's record up to date when nobody answers for its turn any more, and returns what is known
// then. A turn whose supervisor, keeper or verb is alive is never touched: only they judge it. What cannot be verified
// is left and said.
func (t Task) Reconcile() Snapshot { return t.reconcile(false) }

// Settle is Reconcile for the holder of the task's lock.
func (t Task) Settle() Snapshot { return t.reconcile(true) }

// reconcile is Reconcile; locked says that the caller holds the task's lock.
func (t Task) reconcile(locked bool) Snapshot {
	s := t.Look()
	if s.Err != nil || s.Done && (Settled(s.State) || s.Turn() == 0) {
		return s
	}
	if s.Turn() == 0 {
		return t.reconcileLegacy(s, locked)
	}
	if !locked && t.Changing() {
		return s
	}
	turn := t.Turn(s.Turn())
	unborn := false
	switch live, why := turn.Unit().Liveness(); live {
	case state.Running, state.Ending:
		return s
	case state.Unknown:
		if _, err := os.Lstat(turn.Dir); err == nil {
			s.Detail = "unknown: " + why
			return s
		}
		unborn = true
	case state.Settled:
		if turn.Unit().Held() {
			// Whoever concluded it is writing the record now.
			return s
		}
	case state.LegacyAlive, state.LegacyDead, state.LegacyUnknown:
		unborn = true
	}
	if !locked {
		lock, err := t.TryLock()
		if err != nil {
			return s
		}
		defer lock.Unlock()
	}
	if again := t.Look(); again.Err != nil || again.Turn() != s.Turn() || again.Done && Settled(again.State) {
		return again
	}
	return t.conclude(turn, s, unborn)
}

// conclude settles a turn that nobody answers for; the task's lock is held.
func (t Task) conclude(turn Turn, s Snapshot, unborn bool) Snapshot {
	if unborn {
		if beingBorn(turn) {
			return s
		}
		v := Pairs{{"state", Failed}, {"stall_reason", ReasonVanished}, {"detail", "never-started"}}
		return t.after(settle(turn, v.Object()))
	}
	o, err := turn.Unit().ReadOutcome()
	if err != nil {
		s.Detail = "unknown: " + err.Error()
		return s
	}
	if o == nil {
		f := supervise.Reap(Record{}, turn.Unit(), supervise.ReapOptions{IncludeActive: true, SettleUnnamed: true})
		if f.Left != "" {
			s.Detail = "leftovers: " + f.Left
			if f.Detail != "" {
				s.Detail += ": " + f.Detail
			}
			return s
		}
		return t.after(nil)
	}
	l, err := supervise.ReadLaunch(turn.Unit())
	if err != nil {
		s.Detail = "unknown: " + err.Error()
		return s
	}
	turn.Unit().SweepOutcome()
	return t.after(Record{}.Settled(turn.Unit(), &l, o))
}

func (t Task) after(err error) Snapshot {
	s := t.Look()
	if err != nil {
		s.Detail = err.Error()
	}
	return s
}

// beingBorn reports that a supervisor is still making the turn's directory.
func beingBorn(turn Turn) bool {
	entries, err := os.ReadDir(filepath.Dir(turn.Dir))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), hiddenNew) {
			continue
		}
		dir := filepath.Join(filepath.Dir(turn.Dir), e.Name())
		if held, err := atomicfile.Held(filepath.Join(dir, state.FileLock)); err == nil && held {
			return true
		}
		supervise.ClearUnborn(dir)
	}
	return false
}

// reconcileLegacy applies the original's rules to a directory that it made, as far as they do not end a process by a
// bare number.
func (t Task) reconcileLegacy(s Snapshot, locked bool) Snapshot {
	if s.State != Working || !locked && t.Changing() {
		return s
	}
	s.Fill()
	if s.HelperAlive {
		// The original's helper keeps its own limits.
		return s
	}
	if s.BackendAlive {
		s.Reason = ReasonHalfAlive
		return s
	}
	if s.Helper == 0 && s.changedWithin(newborn) {
		return s
	}
	if !locked {
		lock, err := t.TryLock()
		if err != nil {
			return s
		}
		defer lock.Unlock()
	}
	now := time.Now()
	v := verdict{Failed, ReasonVanished, ""}
	stall := defaultStall
	if n, ok := s.Meta.Number("stall_after_s"); ok && n != 0 {
		stall = time.Duration(n * float64(time.Second))
	}
	age, known := s.Age(now)
	if at, ok := s.Meta.Number("deadline_utc"); ok && Epoch(now) > at {
		v = verdict{Failed, ReasonDeadline, ""}
	} else if known && age > stall {
		v = verdict{Stalled, ReasonNoOutput, ""}
	}
	// Only holders of the task's lock change the record of a task that the original made, so its guard, a further
	// file, is not needed.
	m, err := t.Meta()
	if err == nil && TurnNumber(m) == 0 && (!m.Has("state") || m.Text("state") == Working) {
		m.Set("state", v.state)
		m.Set("stall_reason", v.reason)
		err = swap(t.Path(FileMeta), m.File())
	}
	if err != nil {
		s.Detail = err.Error()
		return s
	}
	s = t.Look()
	s.Fill()
	if err := s.WriteStatus(now); err == nil {
		err = mark(t.Path(FileDone))
		s.Done = err == nil
	}
	return s
}

// newborn is the time in which the original had a task's record and not yet its process's.
const newborn = 5 * time.Second

func (s Snapshot) changedWithin(d time.Duration) bool {
	age, ok := s.Age(time.Now())
	return ok && age < d
}
