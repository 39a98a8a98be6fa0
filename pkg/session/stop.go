package session

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/wake"
)

const (
	// stopMargin is what a supervisor gets to end a tree and write the record beyond what the worker is given.
	stopMargin = 20 * time.Second
	// keeperTime is what the keeper gets when the supervisor had to be killed.
	keeperTime = 30 * time.Second
	// bornPatience bounds the wait for a turn that is being made.
	bornPatience = 10 * time.Second
)

// Stop ends the current turn and everything of it, and returns when the record says so. The task's lock is held.
// kind is one of the Request constants; grace is how long the worker may take to end when asked.
func (t Task) Stop(kind string, grace time.Duration) (Snapshot, error) {
	s := t.reconcile(true)
	if s.Err != nil {
		return s, s.Err
	}
	if s.Done && Settled(s.State) {
		return s, nil
	}
	if s.Turn() == 0 {
		return t.stopLegacy(s)
	}
	turn := t.Turn(s.Turn())
	if !t.await(bornPatience, func() bool { return turn.Unit().Held() || !beingBorn(turn) }) {
		return s, errors.New("stop turn: its supervisor is still being started")
	}
	if turn.Unit().Held() {
		if err := swap(turn.Path(FileRequest), []byte(kind+"\n")); err != nil {
			return s, fmt.Errorf("stop turn: %w", err)
		}
		id, err := turn.Unit().ReadIdentity()
		if err != nil || id == nil {
			return s, errors.Join(errors.New("stop turn: nobody is recorded"), err)
		}
		if err := id.Supervisor.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, pid.ErrGone) && !errors.Is(err, pid.ErrMismatch) {
			return s, fmt.Errorf("stop turn: %w", err)
		}
		// A stopped one hears it only then.
		wakeProcess(id.Supervisor)
		over := func() bool { return t.marked() && !turn.Unit().Held() }
		if !t.await(grace+stopMargin, over) {
			_ = id.Supervisor.Signal(syscall.SIGKILL)
			wakeProcess(id.Keeper)
			t.await(keeperTime, func() bool { return !turn.Unit().Held() })
		}
	}
	s = t.reconcile(true)
	if !s.Done {
		return s, fmt.Errorf("stop turn: not settled: %s", first(s.Detail, "its supervisor does not answer"))
	}
	return s, nil
}

// await waits until ok holds, woken by changes of the task's directory.
func (t Task) await(limit time.Duration, ok func() bool) bool {
	if ok() {
		return true
	}
	w := wake.New(20 * time.Millisecond)
	defer w.Close()
	w.Add(t.Path(FileDone))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !ok() {
		if w.Wait(ctx) != nil {
			return ok()
		}
	}
	return true
}

// stopLegacy ends the processes that the original started, if they can be told to be those.
func (t Task) stopLegacy(s Snapshot) (Snapshot, error) {
	s.Fill()
	for _, one := range []struct {
		pid    int
		alive  bool
		record string
	}{{s.Backend, s.BackendAlive, FileChild}, {s.Helper, s.HelperAlive, FileHelper}} {
		if !one.alive {
			continue
		}
		record, _ := readObject(t.Path(one.record))
		id, err := pid.Of(one.pid)
		if err != nil {
			continue
		}
		if !record.Has("started_utc") || !legacyAlive(one.pid, record) {
			return s, fmt.Errorf("stop turn: process %d cannot be told to be this task's", one.pid)
		}
		if err := id.Signal(syscall.SIGINT); err != nil && !errors.Is(err, pid.ErrGone) {
			return s, fmt.Errorf("stop turn: %w", err)
		}
		gone := func() bool { alive, err := id.Alive(); return err == nil && !alive }
		if !t.await(5*time.Second, gone) {
			_ = id.Signal(syscall.SIGKILL)
			t.await(5*time.Second, gone)
		}
	}
	return t.reconcile(true), nil
}

// MarkKilled records that a task was ended by its user. The lock is held and nothing of it runs.
func (t Task) MarkKilled() (Snapshot, error) {
	if err := t.EndKept(); err != nil {
		return t.Look(), err
	}
	err := t.UpdateMeta(0, false, func(m *Object) bool {
		if Terminal(m.Text("state")) {
			return false
		}
		m.Set("state", Killed)
		m.Set("stall_reason", ReasonKilled)
		return true
	})
	s := t.Look()
	s.Fill()
	return s, errors.Join(err, s.WriteStatus(time.Now()), mark(t.Path(FileDone)))
}

// Over reports whether a waiter need not wait any longer: the turn is settled and nothing of ours is still writing.
func (s Snapshot) Over() bool {
	return s.Err != nil || Settled(s.State) && (s.Done || s.Turn() == 0)
}

// Wait returns when enough of the tasks are over: all of them, or any one. The snapshots are in the order of tasks.
// When ctx ends first the error is its.
func Wait(ctx context.Context, tasks []Task, any bool) ([]Snapshot, error) {
	w := wake.New(time.Second)
	defer w.Close()
	for _, t := range tasks {
		w.Add(t.Path(FileDone))
	}
	list := make([]Snapshot, len(tasks))
	for {
		over := 0
		for i, t := range tasks {
			if !list[i].Over() || list[i].Task.Dir == "" {
				list[i] = t.Reconcile()
			}
			if list[i].Over() {
				over++
			}
		}
		if over == len(tasks) || any && over > 0 {
			return list, nil
		}
		if err := w.Wait(ctx); err != nil {
			return list, err
		}
	}
}

// Quiet waits until nobody of the last turn is writing any more. The record is settled a moment before its supervisor
// is gone.
func (t Task) Quiet() error {
	meta, err := t.Meta()
	if err != nil {
		return err
	}
	n := TurnNumber(meta)
	if n > 0 && !t.await(keeperTime, func() bool { return !t.Turn(n).Unit().Held() }) {
		return errors.New("the last turn's supervisor does not end")
	}
	return nil
}
