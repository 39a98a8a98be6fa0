package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/wake"
	"github.com/prun-suite/prun/pkg/watch"
)

// target is one thing that is waited for: a file, a unit, or a unit of a ledger.
type target struct {
	path   string // of the result, "" while a unit does not say
	unit   *state.Unit
	entry  *state.Entry
	settle *watch.Settle

	identity *state.Identity
	outcome  *state.Outcome
	watching bool

	// through: not waited for any longer. landed: there is a result.
	through, landed bool
}

func newFile(file string, window time.Duration) *target {
	return &target{path: file, settle: watch.NewSettle(window)}
}

func newUnit(dir string, window time.Duration) *target {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &target{unit: &state.Unit{Dir: dir}, settle: watch.NewSettle(window)}
}

func newEntry(e state.Entry, window time.Duration) *target {
	t := newUnit(e.StateDir, window)
	t.entry, t.path = &e, e.ResultFile
	return t
}

// watch asks w to wake when the target may have landed.
func (t *target) watch(w *wake.Watcher) {
	t.resolve()
	if t.watching || t.through {
		return
	}
	if t.unit != nil {
		w.Add(t.unit.Path(state.FileOutcome))
	}
	switch {
	case t.path != "":
		w.Add(t.path)
		t.watching = true
	case t.unit != nil:
		w.Add(t.unit.Path(state.FileResult))
	}
}

// resolve reads where a unit's result will be.
func (t *target) resolve() {
	if t.unit == nil || t.identity != nil {
		return
	}
	if id, err := t.unit.ReadIdentity(); err == nil && id != nil {
		t.identity = id
		if t.path == "" {
			t.path = id.Result
		}
	}
	if t.path == "" {
		t.path, _ = t.unit.FirstLine(state.FileResult)
	}
}

// look sets whether the target is through, and returns how long it must stay as
// it is to land.
func (t *target) look(now time.Duration, wall time.Time) time.Duration {
	const never = 1<<63 - 1
	t.resolve()
	// The outcome before the result: whoever publishes does it the other way
	// round, so a settled unit's result is there to be seen.
	settled := t.settled()
	due := time.Duration(never)
	switch info := t.inspect(); {
	case info.Kind != result.Worker && info.Kind != result.Fallback:
		t.settle.Forget()
	case !settled && t.stale():
		// A unit's result is not what was there before it.
	default:
		due = t.settle.Due(now, wall, watch.Mark{Size: info.Size, MTime: info.ModTime, CTime: info.ChangeTime, Ino: info.Ino})
		t.landed = due <= 0 || settled
	}
	t.through = t.landed || settled
	return due
}

// settled reports whether the unit, if it is one, has ended.
func (t *target) settled() bool {
	if t.unit == nil {
		return false
	}
	if t.outcome == nil {
		t.outcome, _ = t.unit.ReadOutcome()
	}
	return t.outcome != nil || t.entry != nil && t.entry.Ended()
}

func (t *target) inspect() result.Info {
	if t.path == "" {
		return result.Info{Kind: result.Absent}
	}
	// What cannot be looked at is absent, and may be there at the next look; a
	// file that can be seen and not read is a result all the same.
	info, _ := result.Inspect(t.path)
	return info
}

// stale reports whether a unit's result is what stood there before the unit.
func (t *target) stale() bool {
	switch {
	case t.unit == nil:
		return false
	case t.identity != nil:
		return t.identity.ResultBefore != nil && t.identity.ResultBefore.Unchanged(t.path)
	}
	// An older version recorded whole seconds, 0 for none.
	text, err := t.unit.ReadEntry(state.FilePreMtime)
	if err != nil || text == "0" {
		return false
	}
	before, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return false
	}
	mark, err := state.MarkFile(t.path)
	return err == nil && mark != nil && mark.MTime.Unix() == before
}

// shown is the path of a DONE line: absolute, links in its directory resolved,
// its last element as it is. A unit without a result shows its directory.
func (t *target) shown() string {
	path := t.path
	if t.unit != nil && !t.landed {
		path = t.unit.Dir
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(dir, filepath.Base(abs))
	}
	return abs
}

// kind says why a unit must not be integrated.
type kind string

const (
	reconciled kind = ""
	missing    kind = "missing"
	empty      kind = "empty"
	fallback   kind = "fallback"
	stale      kind = "stale"
	malformed  kind = "malformed"
	failed     kind = "failed"
)

// reconcile says what is wrong with a ledger's unit, in a word and in a sentence.
func (t *target) reconcile() (kind, string) {
	t.settled()
	switch t.inspect().Kind {
	case result.Absent:
		return missing, "there is no result"
	case result.Empty:
		return empty, "the result is empty"
	case result.Fallback:
		return fallback, "the worker wrote no result"
	case result.Foreign:
		return malformed, "not a regular file"
	}
	if t.stale() {
		return stale, "the result is what was there before the unit"
	}
	what, err := result.Malformed(t.path, t.entry.ID)
	switch {
	case err != nil:
		return malformed, err.Error()
	case what != "":
		return malformed, what
	}
	if why := t.failure(); why != "" {
		return failed, why
	}
	return reconciled, ""
}

// failure says how a unit failed, "" when it did not or nothing is known.
func (t *target) failure() string {
	switch {
	case t.outcome != nil && !(t.outcome.Cause.OK() && state.ExitStatus(*t.outcome) == 0):
		text := fmt.Sprintf("%s, exit status %d", t.outcome.Cause, state.ExitStatus(*t.outcome))
		if t.outcome.Reason != "" {
			text += ": " + t.outcome.Reason
		}
		return text
	case t.outcome == nil && t.entry != nil && t.entry.Status == state.LedgerFailed:
		return "the ledger says so: " + string(t.entry.Cause)
	}
	return ""
}
