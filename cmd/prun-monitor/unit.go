package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/wake"
	"github.com/prun-suite/prun/pkg/watch"
)

// condition is what a unit's status means for the monitor.
type condition int

const (
	isWorking condition = iota
	isDone
	isFailed
	isStalled
)

// unit is a state directory under watch.
type unit struct {
	state.Unit
	growth *watch.Growth
	settle *watch.Settle
	poll   time.Duration

	// What is read once it is there and does not change then.
	identity *state.Identity
	result   string
	outcome  *state.Outcome
	watched  bool // the result path too

	// What the last look found: the status as printed, its meaning, and how soon
	// it may become another without any file changing.
	status string
	state  condition
	due    time.Duration
}

func newUnit(dir string, l limits) *unit {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &unit{
		Unit:   state.Unit{Dir: dir},
		growth: watch.NewGrowth(l.stall, l.poll),
		settle: watch.NewSettle(l.window),
		poll:   l.poll,
	}
}

// watch asks w to wake when the unit ends or its result changes.
func (u *unit) watch(w *wake.Watcher) {
	u.resolve()
	if u.watched {
		return
	}
	w.Add(u.Path(state.FileOutcome))
	if u.result == "" {
		w.Add(u.Path(state.FileResult))
		return
	}
	w.Add(u.result)
	u.watched = true
}

// resolve reads where the result will be: from the identity, which has it
// absolute, else from the entry, in which the old fronts left a relative path as
// it was given; it is then relative to us, as it always was.
func (u *unit) resolve() {
	if u.result != "" {
		return
	}
	if id, err := u.ReadIdentity(); err == nil && id != nil {
		u.identity, u.result = id, id.Result
	}
	if u.result == "" {
		// Absent, unreadable or blank: none yet.
		u.result, _ = u.FirstLine(state.FileResult)
	}
}

// look sets what the unit is now.
func (u *unit) look(now time.Duration, wall time.Time) {
	u.resolve()
	u.due = u.poll
	// The outcome before the result: whoever publishes does it the other way
	// round, so a settled unit's result is there to be seen.
	if u.outcome == nil {
		u.outcome, _ = u.ReadOutcome()
	}
	switch info := u.inspect(); info.Kind {
	case result.Worker, result.Fallback:
		mark := watch.Mark{Size: info.Size, MTime: info.ModTime, CTime: info.ChangeTime, Ino: info.Ino}
		if left := u.settle.Due(now, wall, mark); left > 0 && u.outcome == nil {
			u.set(isWorking, "finishing")
			u.due = left
		} else if info.Kind == result.Fallback {
			u.set(isFailed, "failed(fallback)")
		} else {
			u.set(isDone, "done")
		}
		return
	}
	u.settle.Forget()
	if u.outcome != nil {
		u.set(isFailed, "failed(dispatch-dead)")
		return
	}
	u.lookAtTail(now)
}

func (u *unit) inspect() result.Info {
	if u.result == "" {
		return result.Info{Kind: result.Absent}
	}
	// What cannot be looked at is absent, and may be there at the next look; a
	// file that can be seen and not read is a result all the same.
	info, _ := result.Inspect(u.result)
	return info
}

// lookAtTail judges a unit that has neither outcome nor result.
func (u *unit) lookAtTail(now time.Duration) {
	// A tail that cannot be seen does not grow.
	size, _ := u.TailSize()
	if ahead, waiting := u.Queued(); waiting && (u.identity == nil || u.Held()) {
		// Waiting for a slot counts for no limit.
		u.growth.Restart(now, size)
		u.set(isWorking, fmt.Sprintf("queued(%d)", ahead))
		return
	}
	verdict := u.growth.Observe(now, size)
	idle := u.growth.Idle()
	u.set(isWorking, "growing")
	if left := u.growth.Threshold() - idle; left > 0 {
		u.due = min(u.due, left)
	}
	switch {
	case verdict == watch.Grew:
	case u.identity != nil && idle >= u.poll && u.lost():
		u.set(isFailed, "failed(dispatch-dead)")
	case verdict == watch.Stalled && u.dead():
		u.set(isFailed, "failed(dispatch-dead)")
	case verdict == watch.Stalled:
		u.set(isStalled, fmt.Sprintf("stalled(%ds)", int64(idle/time.Second)))
	}
	if idle < u.poll {
		// The look that can find it lost.
		u.due = min(u.due, u.poll-idle)
	}
}

// lost reports whether nobody answers for the unit any more. A tail that grew
// within the last poll is somebody's, whatever the record says.
func (u *unit) lost() bool {
	if u.Held() {
		return false
	}
	verdict, _ := u.Liveness()
	return verdict == state.LivenessLost
}

// dead reports whether a silent unit of an older version has lost its
// dispatcher. Its bare number is not asked before the threshold: it may be
// anybody's, and a working unit is not to be called dead on that ground.
func (u *unit) dead() bool {
	verdict, _ := u.Liveness()
	return verdict == state.LegacyDead || verdict == state.LivenessLost
}

func (u *unit) set(c condition, status string) { u.state, u.status = c, status }

// failure says what went wrong behind a unit that is done, "" when nothing did or
// nothing is known.
func (u *unit) failure() string {
	if u.outcome == nil || u.outcome.Cause.OK() && state.ExitStatus(*u.outcome) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s, exit status %d", u.outcome.Cause, state.ExitStatus(*u.outcome))
	if u.outcome.Reason != "" {
		text += ": " + u.outcome.Reason
	}
	return text
}
