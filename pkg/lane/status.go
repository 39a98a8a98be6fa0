package lane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// A View is one look at a lane.
type View struct {
	Lane   Lane
	Status string
	// Result, RunLog and EventLog are paths; "" where the lane has no such file.
	Worktree, Result, RunLog, EventLog string
	// Outcome is how the last unit ended, nil when it has not or when it was
	// the original's.
	Outcome *state.Outcome
	// Reason is one line about a lane that did not succeed.
	Reason string
	// Alive are the processes of an interrupted lane that live on, each known
	// by its identity. Empty and Proven: nothing does, and that is proven.
	Alive  []pid.ID
	Proven bool
}

// Look finds out what is true of the lane now and writes it down where the
// status file says otherwise. It signals nothing, but settles a unit that
// nobody answers for once nothing of it is alive, or its time is up.
func (l Lane) Look() View {
	v := View{
		Lane: l, Status: l.Get(FileStatus), Worktree: l.Get(FileWorktree),
		Result: l.Get(FileResult), RunLog: l.Get(FileRunLog), EventLog: l.Get(FileEventLog),
	}
	if v.Status == "" {
		// Unreadable or never written: nothing can be said to run.
		v.Status = Created
	}
	if Ended(v.Status) || v.Status == Created {
		return v
	}
	n := l.Number()
	if n == 0 {
		return l.original(v)
	}
	l.judge(&v, l.unit(n))
	return v
}

// Examine is Look, and for a lane that has ended also how: its outcome and, if
// it was interrupted, what is still alive.
func (l Lane) Examine() View {
	v := l.Look()
	if !Ended(v.Status) {
		return v
	}
	n := l.Number()
	if n == 0 {
		return v
	}
	u := l.unit(n)
	if v.Outcome == nil {
		v.Outcome, _ = u.ReadOutcome()
	}
	if o := v.Outcome; o != nil {
		v.Reason, v.Proven = o.Reason, o.ProvenEmpty
	}
	switch {
	case v.Status != Interrupted || v.Proven:
	case v.Outcome != nil:
		v.Alive, v.Proven = remains(u)
	default:
		if _, err := os.Lstat(u.Dir); err != nil {
			v.Proven = errors.Is(err, fs.ErrNotExist) // nothing was ever started
		} else if live, _ := u.Liveness(); live == state.LivenessLost {
			l.lost(&v, u)
		} else if live == state.Settled {
			l.judge(&v, u)
		}
	}
	return v
}

// judge asks the unit.
func (l Lane) judge(v *View, u state.Unit) {
	if _, err := os.Lstat(u.Dir); errors.Is(err, fs.ErrNotExist) {
		l.unborn(v, u)
		return
	}
	live, reason := u.Liveness()
	switch live {
	case state.Settled:
		o, err := u.ReadOutcome()
		if err == nil && o != nil {
			if u.Unfinished() && !u.Held() {
				// Whoever published it was killed before it had tidied up.
				supervise.Reap(NewRecord(), u, supervise.ReapOptions{SpareKept: true})
			}
			l.conclude(v, o)
		}
	case state.Running, state.Ending:
		v.Status = l.stage(v.Status, u)
	case state.LivenessLost:
		l.lost(v, u)
	default:
		// A copy, another machine, another pid namespace: nothing may be
		// believed, so the record stands.
		v.Reason = reason
	}
}

// stage is the status of a lane whose unit lives.
func (l Lane) stage(recorded string, u state.Unit) string {
	if _, err := os.Lstat(l.Path(FileCancel)); err == nil {
		return Cancelling
	}
	if recorded == Running {
		return Running
	}
	if _, err := os.Lstat(u.Path(state.FileWorker)); err == nil {
		return Running
	}
	return Dispatching
}

// unborn is a lane whose unit has no directory: it is being started, or its
// starter was killed.
func (l Lane) unborn(v *View, u state.Unit) {
	held, err := atomicfile.Held(filepath.Join(l.Run.Dir, dirLocks, lockOf(l.Phase)))
	if err == nil && held {
		v.Status = Dispatching
		return
	}
	if _, err := os.Lstat(u.Dir); err == nil {
		l.judge(v, u)
		return
	}
	if status := l.Get(FileStatus); Ended(status) {
		v.Status = status
		return
	}
	v.Status, v.Reason, v.Proven = Interrupted, "its start was cut short before anything ran", true
	l.record(v)
}

// conclude takes over what a unit's outcome says.
func (l Lane) conclude(v *View, o *state.Outcome) {
	v.Outcome, v.Status, v.Reason = o, StatusOf(o), o.Reason
	_ = l.finish(o)
}

// lost is a lane whose supervisor and keeper are dead. When nothing is alive,
// or what is has outlived its limits, the unit is settled.
func (l Lane) lost(v *View, u state.Unit) {
	v.Alive, v.Proven = remains(u)
	if len(v.Alive) == 0 || overdue(u) {
		f := supervise.Reap(NewRecord(), u, supervise.ReapOptions{IncludeActive: true, SettleUnnamed: true})
		if f.Outcome != nil {
			l.conclude(v, f.Outcome)
			v.Alive, v.Proven = nil, f.Outcome.ProvenEmpty || f.Reaped != ""
			if !v.Proven {
				v.Alive, v.Proven = remains(u)
			}
			return
		}
		if o, err := u.ReadOutcome(); err == nil && o != nil {
			l.conclude(v, o)
			return
		}
	}
	v.Status, v.Reason = Interrupted, "its supervisor and keeper are gone"
	l.record(v)
}

// overdue reports whether a unit that nobody watches has passed its hard limit.
func overdue(u state.Unit) bool {
	id, err := u.ReadIdentity()
	if err != nil || id == nil || id.HardAfter <= 0 {
		return false
	}
	return time.Since(id.Created) > time.Duration(id.HardAfter*float64(time.Second))
}

// record writes a status that was found out, unless somebody has written the
// lane's end meanwhile.
func (l Lane) record(v *View) {
	if now := l.Get(FileStatus); Ended(now) {
		v.Status = now
		return
	}
	_ = l.Set(FileStatus, v.Status)
}

// remains lists what of a unit is alive, and whether that list is complete.
func remains(u state.Unit) (alive []pid.ID, complete bool) {
	id, err := u.ReadIdentity()
	if err != nil || id == nil {
		return nil, false
	}
	if b := pid.Boot(); b != "" && id.Supervisor.Boot != "" && id.Supervisor.Boot != b {
		// The machine was started anew since.
		return nil, true
	}
	worker, _ := u.ReadWorker()
	if id.Leaf != "" && (worker == nil || worker.Containment == string(proc.Cgroup)) {
		leaf, err := proc.OpenLeaf(id.Leaf, id.LeafInode)
		switch {
		case errors.Is(err, proc.ErrGone):
			return nil, true
		case err == nil:
			defer leaf.Close()
			members, err := leaf.Members()
			for _, m := range members {
				if one, err := pid.Of(m); err == nil {
					alive = append(alive, one)
				}
			}
			return alive, err == nil
		}
	}
	seen := map[int]bool{}
	if worker != nil {
		if ok, err := worker.Worker.Alive(); err == nil && ok {
			alive = append(alive, worker.Worker)
			seen[worker.Worker.PID] = true
		}
	}
	// What cleared its environment is not seen, so this list proves nothing.
	orphans, err := proc.Orphans(u.Dir)
	for _, one := range orphans {
		if !seen[one.PID] {
			alive = append(alive, one)
		}
	}
	_ = err
	return alive, false
}

// StatusOf is what a unit's outcome means for its lane.
func StatusOf(o *state.Outcome) string {
	switch o.Cause {
	case state.Exited:
		return Succeeded
	case state.Killed:
		return Cancelled
	case state.Interrupted, state.Lost:
		return Interrupted
	}
	return Failed
}

// ExitCodeOf is the exit code that a lane's outcome has, and whether it has
// one: nobody saw how the worker of a lost unit ended.
func ExitCodeOf(o *state.Outcome) (int, bool) {
	switch o.Cause {
	case state.Exited:
		return 0, true
	case state.Killed:
		return exitCancelled, true
	case state.Interrupted:
		return exitInterrupted, true
	case state.IdleStall, state.HardTimeout, state.DeadStart:
		return exitReaped, true
	case state.Lost:
		return 0, false
	case state.Failed:
		if o.Signal > 0 {
			return 128 + o.Signal, true
		}
		if o.ExitCode != nil && *o.ExitCode != 0 {
			return *o.ExitCode, true
		}
		// It said 0 and was judged otherwise.
		return 1, true
	}
	return state.ExitStatus(*o), true
}

// finish writes the lane's end: the exit code, then the status, last of all.
func (l Lane) finish(o *state.Outcome) error {
	var err error
	if code, ok := ExitCodeOf(o); ok && l.Get(FileExitCode) != strconv.Itoa(code) {
		err = l.Set(FileExitCode, strconv.Itoa(code))
	}
	if status := StatusOf(o); l.Get(FileStatus) != status {
		err = errors.Join(err, l.Set(FileStatus, status))
	}
	if err != nil {
		return fmt.Errorf("end lane %s: %w", l.Phase, err)
	}
	return nil
}

// original judges a lane that a run of the original left in a status that is
// no end: it lives as long as its recorded wrapper does.
func (l Lane) original(v View) View {
	held, err := atomicfile.Held(filepath.Join(l.Run.Dir, dirLocks, lockOf(l.Phase)))
	if err == nil && held {
		return v
	}
	n, err := pid.Parse(l.Get(FileWrapPID))
	if err == nil {
		id, err := pid.Of(n)
		if err == nil && startedAt(id, l.Get(FileWrapStart)) {
			return v
		}
		if err != nil && !errors.Is(err, pid.ErrGone) {
			// It cannot be looked at; the record stands.
			v.Reason = err.Error()
			return v
		}
	}
	v.Status, v.Reason = Interrupted, "its wrapper is gone"
	if n, err := pid.Parse(l.Get(FileChildPID)); err == nil {
		if id, err := pid.Of(n); err == nil && startedAt(id, l.Get(FileChildAt)) {
			v.Alive = append(v.Alive, id)
		}
	}
	l.record(&v)
	return v
}
