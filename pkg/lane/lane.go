package lane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// Files of a lane.
const (
	FilePhase     = "phase"
	FileWorktree  = "worktree"
	FileBranch    = "branch"
	FileBase      = "base" // the commit that the lane started from
	FileRunner    = "runner"
	FileBrief     = "brief.md"
	FileResultMD  = "result.md"
	FileLog       = "run.log"
	FileEvents    = "events.jsonl"
	FileResult    = "result" // path of result.md; the two after it likewise
	FileRunLog    = "run-log"
	FileEventLog  = "event-log"
	FileWrapPID   = "wrapper.pid"
	FileWrapStart = "wrapper.start"
	FileChildPID  = "child.pid"
	FileChildPG   = "child.pgid"
	FileChildAt   = "child.start"
	FileCancel    = "cancel.request"
	FileExitCode  = "exit-code"
	FileUnit      = "unit"
	FileSetupLog  = "setup.log"
	FilePatch     = "saved.patch"
	FileBundle    = "saved.bundle"
	unitPrefix    = "unit-"
)

// Statuses of a lane.
const (
	Created      = "created"
	Dispatching  = "dispatching"
	Running      = "running"
	Interrupting = "interrupting"
	Cancelling   = "cancelling"
	Succeeded    = "succeeded"
	Failed       = "failed"
	Cancelled    = "cancelled"
	Interrupted  = "interrupted"
)

// Exit codes of a lane that did not end by itself.
const (
	exitReaped      = 124
	exitCancelled   = 125
	exitInterrupted = 130
)

// Ended reports whether a lane of this status has ended.
func Ended(status string) bool {
	switch status {
	case Succeeded, Failed, Cancelled, Interrupted:
		return true
	}
	return false
}

// Startable reports whether a lane of this status may be started.
func Startable(status string) bool {
	switch status {
	case Created, Failed, Cancelled, Interrupted:
		return true
	}
	return false
}

// A Lane is one lane of a run. It holds nothing open.
type Lane struct {
	Run   Run
	Phase string
	Dir   string
}

// Path is the path of one of the lane's files.
func (l Lane) Path(file string) string { return filepath.Join(l.Dir, file) }

// Get returns one of the lane's values, "" when there is none.
func (l Lane) Get(file string) string { return dir(l.Dir).get(file) }

// Set writes one of the lane's values durably.
func (l Lane) Set(file, value string) error { return dir(l.Dir).set(file, value) }

func (l Lane) note(file, value string) error { return dir(l.Dir).note(file, value) }

// Lock keeps others from starting, making or dropping the lane.
func (l Lane) Lock() (*atomicfile.Lock, error) { return l.Run.Lock(lockOf(l.Phase)) }

// lockOf keeps a phase called "run" apart from the run itself.
func lockOf(phase string) string { return "lane-" + phase }

// Number is the number of the unit that the lane's status speaks of, 0 when it
// was never started by this suite.
func (l Lane) Number() int {
	n, err := strconv.Atoi(l.Get(FileUnit))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// Unit is the unit that the lane's status speaks of; its directory may not
// exist (yet).
func (l Lane) Unit() state.Unit { return l.unit(l.Number()) }

func (l Lane) unit(n int) state.Unit {
	return state.Unit{Dir: l.Path(unitPrefix + strconv.Itoa(n))}
}

// Draft is a lane that is being made.
type Draft struct {
	Lane
	final string
	lock  *atomicfile.Lock
}

// Draft begins a lane: a hidden directory, and a lock that keeps others from
// making the same one. The error wraps ErrExists or ErrBusy. What a killed
// maker has left is there again: Left is then true, and Get says how far it
// got.
func (r Run) Draft(phase string) (d *Draft, left bool, err error) {
	lock, err := r.Lock(lockOf(phase))
	if err != nil {
		return nil, false, err
	}
	d = &Draft{
		Lane:  Lane{Run: r, Phase: phase, Dir: filepath.Join(r.Dir, dirLanes, hiddenPrefix+phase)},
		final: filepath.Join(r.Dir, dirLanes, phase), lock: lock,
	}
	if _, err := os.Lstat(d.final); err == nil {
		_ = lock.Unlock()
		return nil, false, fmt.Errorf("%w: %s", ErrExists, phase)
	}
	if err := os.MkdirAll(filepath.Dir(d.final), 0o700); err != nil {
		_ = lock.Unlock()
		return nil, false, fmt.Errorf("make lane: %w", err)
	}
	err = atomicfile.Mkdir(d.Dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return d, true, nil
	}
	if err != nil {
		_ = lock.Unlock()
		return nil, false, fmt.Errorf("make lane: %w", err)
	}
	return d, false, nil
}

// Put writes one of the draft's values, not durably: the lane has no name yet.
func (d *Draft) Put(file, value string) error { return d.note(file, value) }

// Clear empties what a killed maker has left.
func (d *Draft) Clear() error {
	if err := os.RemoveAll(d.Dir); err != nil {
		return fmt.Errorf("clear lane: %w", err)
	}
	return atomicfile.Mkdir(d.Dir, 0o700)
}

// Publish gives the lane its name, with the status created.
func (d *Draft) Publish() (Lane, error) {
	defer d.lock.Unlock()
	l := d.Lane
	// Nothing here is synced: neither is the worktree that git has made.
	if err := d.note(FileStatus, Created); err != nil {
		return l, err
	}
	err := atomicfile.RenameNoReplace(d.Dir, d.final)
	if errors.Is(err, atomicfile.ErrUnsupported) {
		err = os.Rename(d.Dir, d.final)
	}
	if err != nil {
		return l, fmt.Errorf("make lane: %w", err)
	}
	l.Dir = d.final
	return l, nil
}

// Abandon takes the draft back.
func (d *Draft) Abandon() {
	_ = os.RemoveAll(d.Dir)
	_ = d.lock.Unlock()
}

// Prepare makes the lane ready for another start and returns the number of the
// unit to come: what the last worker left moves into its unit's directory, and
// the files that speak of it go. The caller holds the lane's lock.
func (l Lane) Prepare() (int, error) {
	last := l.Number()
	for {
		// A unit that was born although its front door had given up.
		if _, err := os.Lstat(l.unit(last + 1).Dir); err != nil {
			break
		}
		last++
	}
	next := last + 1
	for _, file := range []string{FileResultMD, FileLog, FileEvents} {
		err := l.rotate(file, last)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("keep the last worker's %s: %w", file, err)
		}
	}
	for _, file := range []string{
		FileWrapPID, FileWrapStart, FileChildPID, FileChildPG, FileChildAt, FileCancel, FileExitCode,
		FileResult, FileRunLog, FileEventLog,
	} {
		if err := os.Remove(l.Path(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("forget the last worker: %w", err)
		}
	}
	if err := l.Set(FileUnit, strconv.Itoa(next)); err != nil {
		return 0, err
	}
	return next, nil
}

// rotate moves one of the last worker's files where the next one leaves it
// alone.
func (l Lane) rotate(file string, last int) error {
	if _, err := os.Lstat(l.Path(file)); err != nil {
		return err
	}
	to := l.unit(last).Dir
	if fi, err := os.Lstat(to); err != nil || !fi.IsDir() {
		// Of the original, or of a unit that was never born.
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
	}
	ext := filepath.Ext(file)
	for n := 1; ; n++ {
		name := file
		if n > 1 {
			name = strings.TrimSuffix(file, ext) + "." + strconv.Itoa(n) + ext
		}
		err := atomicfile.RenameNoReplace(l.Path(file), filepath.Join(to, name))
		if errors.Is(err, atomicfile.ErrUnsupported) {
			err = os.Rename(l.Path(file), filepath.Join(to, name))
		}
		if err == nil || !errors.Is(err, fs.ErrExist) && !errors.Is(err, atomicfile.ErrExists) {
			return err
		}
	}
}

// Ready records who is to work on what. The caller holds the lane's lock.
func (l Lane) Ready(runner string, brief []byte) error {
	if err := atomicfile.Replace(l.Path(FileBrief), brief, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", FileBrief, err)
	}
	return l.note(FileRunner, runner)
}

// Begin records which files the worker will write and that the lane is being
// dispatched.
func (l Lane) Begin(b agent.Backend) error {
	err := errors.Join(l.note(FileResult, l.Path(FileResultMD)), l.note(FileRunLog, l.Path(FileLog)))
	if out, _ := Outputs(b); out == FileEvents {
		err = errors.Join(err, l.note(FileEventLog, l.Path(FileEvents)))
	}
	return errors.Join(err, l.Set(FileStatus, Dispatching))
}

// Drafts lists lanes whose making was cut short, held so that nobody takes
// them up again until unlock is called. ErrBusy is wrapped when a lane is being
// made at this moment.
func (r Run) Drafts() (drafts []Lane, unlock func(), err error) {
	var held []*atomicfile.Lock
	unlock = func() {
		for _, l := range held {
			_ = l.Unlock()
		}
	}
	entries, err := os.ReadDir(filepath.Join(r.Dir, dirLanes))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unlock, nil
	}
	if err != nil {
		return nil, unlock, fmt.Errorf("list lanes: %w", err)
	}
	for _, e := range entries {
		phase, hidden := strings.CutPrefix(e.Name(), hiddenPrefix)
		if !hidden || !ValidName(phase) {
			continue
		}
		lock, err := r.Lock(lockOf(phase))
		if err != nil {
			return nil, unlock, fmt.Errorf("lane %s is being made: %w", phase, err)
		}
		held = append(held, lock)
		drafts = append(drafts, Lane{Run: r, Phase: phase, Dir: filepath.Join(r.Dir, dirLanes, e.Name())})
	}
	return drafts, unlock, nil
}
