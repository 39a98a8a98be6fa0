package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// Errors that callers tell apart.
var (
	// ErrNoTask: there is no directory of that name.
	ErrNoTask = errors.New("no such task")
	// ErrNoMeta: the task's meta.json is missing or no JSON object.
	ErrNoMeta = errors.New("task metadata missing")
	// ErrExists: another task has the name.
	ErrExists = errors.New("task already exists")
	// ErrBusy: another command holds the task's lock for too long.
	ErrBusy = errors.New("another command is changing the task")
	// ErrStale: the task has gone on to another turn.
	ErrStale = errors.New("the task has gone on to another turn")
)

// The states of a task.
const (
	Working       = "working"
	AwaitingReply = "awaiting_reply"
	Done          = "done"
	Failed        = "failed"
	Stalled       = "stalled"
	Killed        = "killed"
	// Unreadable is no state of a task: it is what is said of a directory whose metadata cannot be read.
	Unreadable = "unreadable"
)

// Values of stall_reason.
const (
	ReasonDeadline  = "deadline"
	ReasonNoOutput  = "no-output"
	ReasonVanished  = "process-exited-without-marker"
	ReasonKilled    = "user-kill"
	ReasonHalfAlive = "supervisor-exited-backend-still-running"
	ReasonFailed    = "turn-failed" // the backend exited 0 and its stream says that the turn failed
	ReasonLaunch    = "launch-failed"
	ReasonStopped   = "interrupted"
)

// Terminal reports whether a state is one that a task stays in until it is sent something.
func Terminal(s string) bool { return s == Done || s == Failed || s == Stalled || s == Killed }

// Settled reports whether a turn is over in this state.
func Settled(s string) bool { return Terminal(s) || s == AwaitingReply }

const (
	dirPerm  = 0o700
	filePerm = 0o600
	// maxRecord bounds the read of a record; meta.json holds the prompt.
	maxRecord = 64 << 20
)

// A Task is one directory below [Root.Sessions].
type Task struct {
	Root Root
	Name string
	Dir  string
}

// Path is a file of the task.
func (t Task) Path(name string) string { return filepath.Join(t.Dir, name) }

// Turn is the directory of a turn.
func (t Task) Turn(n int) Turn {
	return Turn{Task: t, Number: n, Dir: filepath.Join(t.Dir, DirTurns, strconv.Itoa(n))}
}

// Turn is one turn of a task: a unit of the supervisor with the turn's prompt, report and outcome beside its own
// files.
type Turn struct {
	Task   Task
	Number int
	Dir    string
}

// Path is a file of the turn.
func (t Turn) Path(name string) string { return filepath.Join(t.Dir, name) }

// Unit is the turn as its supervisor sees it.
func (t Turn) Unit() state.Unit { return state.Unit{Dir: t.Dir} }

// Exists reports whether the task has a directory.
func (t Task) Exists() bool {
	fi, err := os.Lstat(t.Dir)
	return err == nil && fi.IsDir()
}

// Meta reads meta.json. The error wraps ErrNoMeta.
func (t Task) Meta() (Object, error) {
	o, _, err := t.meta()
	return o, err
}

func (t Task) meta() (Object, time.Time, error) {
	b, at, err := readTimed(t.Path(FileMeta), maxRecord)
	var o Object
	if err == nil {
		o, err = ParseObject(b)
	}
	if err != nil {
		return o, at, fmt.Errorf("%w: %w", ErrNoMeta, err)
	}
	return o, at, nil
}

func readObject(name string) (Object, error) {
	b, err := readFile(name, maxRecord)
	if err != nil {
		return Object{}, err
	}
	return ParseObject(b)
}

// readFile reads a regular file without blocking on anything else that has its name.
func readFile(name string, limit int64) ([]byte, error) {
	b, _, err := readTimed(name, limit)
	return b, err
}

func readSmall(name string) ([]byte, error) { return readFile(name, 1<<20) }

// TurnNumber is the number of the task's current turn; 0 for one that the original made.
func TurnNumber(meta Object) int {
	n, ok := meta.Int("turn")
	if !ok || n < 0 || n > 1<<30 {
		return 0
	}
	return int(n)
}

// lockPatience bounds the wait for a lock that is held for the time of a file write.
const lockPatience = 10 * time.Second

// Lock takes the lock of verbs that change the task, waiting at most patience for another to finish. The error wraps
// ErrNoTask when the task is gone, ErrBusy when the time was not enough.
func (t Task) Lock(patience time.Duration) (*atomicfile.Lock, error) {
	if !t.Exists() {
		return nil, ErrNoTask
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, err := atomicfile.WaitLock(ctx, t.Path(FileLock))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoTask
	case errors.Is(err, atomicfile.ErrLocked):
		return nil, ErrBusy
	case err != nil:
		return nil, fmt.Errorf("lock task: %w", err)
	}
	if !t.holds(lock) {
		// The directory was removed, and perhaps made anew, while this one waited.
		_ = lock.Unlock()
		return nil, ErrNoTask
	}
	return lock, nil
}

// TryLock is Lock that never waits.
func (t Task) TryLock() (*atomicfile.Lock, error) {
	lock, err := atomicfile.TryLock(t.Path(FileLock))
	switch {
	case errors.Is(err, atomicfile.ErrLocked):
		return nil, ErrBusy
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoTask
	case err != nil:
		return nil, fmt.Errorf("lock task: %w", err)
	}
	if !t.holds(lock) {
		_ = lock.Unlock()
		return nil, ErrNoTask
	}
	return lock, nil
}

// holds reports whether the lock is on the file that stands in the task's directory now.
func (t Task) holds(lock *atomicfile.Lock) bool {
	mine, err := lock.File().Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(t.Path(FileLock))
	return err == nil && os.SameFile(mine, there)
}

// Changing reports whether a verb holds the task's lock; it takes nothing.
func (t Task) Changing() bool {
	held, err := atomicfile.Held(t.Path(FileLock))
	return err == nil && held
}

// UpdateMeta changes meta.json as one step among all who do. With a turn number other than 0 the change is refused
// with ErrStale when the task has gone on to another turn, so that a late writer cannot spoil a newer one. change
// returns false to leave the file alone.
func (t Task) UpdateMeta(turn int, durable bool, change func(*Object) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	guard, err := atomicfile.WaitLock(ctx, t.Path(FileGuard))
	if err != nil {
		return fmt.Errorf("lock metadata: %w", err)
	}
	defer guard.Unlock()
	meta, err := t.Meta()
	if err != nil {
		return err
	}
	if turn != 0 && TurnNumber(meta) != turn {
		return ErrStale
	}
	if !change(&meta) {
		return nil
	}
	if durable {
		return replace(t.Path(FileMeta), meta.File())
	}
	return swap(t.Path(FileMeta), meta.File())
}

// replace writes a file whole and durably.
func replace(name string, data []byte) error { return atomicfile.Replace(name, data, filePerm) }

// swap writes a file whole for every reader; a power cut may undo it. A sync costs more than a settled turn has time
// for, and everything written this way can be found out again from what is synced.
func swap(name string, data []byte) error {
	temp := atomicfile.TempName(name, strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(counter.Add(1), 10))
	if err := atomicfile.Write(temp, data, filePerm); err != nil {
		return err
	}
	if err := atomicfile.Rename(temp, name); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// mark makes an empty file.
func mark(name string) error {
	err := atomicfile.Write(name, nil, filePerm)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func remove(names ...string) error {
	var all error
	for _, name := range names {
		if err := atomicfile.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// Epoch is a time as the records hold it: seconds since 1970, with a fraction.
func Epoch(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }

func fromEpoch(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }
