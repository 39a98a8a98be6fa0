package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// PathState is what a unit's directory says about where its result is.
type PathState string

// The states of the result path.
const (
	// PathAbsent: there is no entry.
	PathAbsent PathState = "absent-entry"
	// PathUnreadable: there is one and it cannot be read.
	PathUnreadable PathState = "unreadable"
	// PathInvalid: it is blank, or relative and not inside the unit.
	PathInvalid PathState = "invalid-entry"
	// PathResolved: it names a path.
	PathResolved PathState = "resolved"
)

// ResultState is what stands at the result path, by size alone.
type ResultState string

// The states of the result.
const (
	// ResultUnknown: not looked at, or not to be told.
	ResultUnknown ResultState = "unknown"
	// ResultPresent: a regular file with something in it.
	ResultPresent ResultState = "present"
	// ResultEmpty: a regular file with nothing in it.
	ResultEmpty ResultState = "empty"
	// ResultMissing: nothing there.
	ResultMissing ResultState = "missing"
)

// LegalPairs says which results an Observation may have in each path state.
// The two are two facts; most of their products mean nothing.
var LegalPairs = map[PathState][]ResultState{
	PathAbsent:     {ResultUnknown},
	PathUnreadable: {ResultUnknown},
	PathInvalid:    {ResultUnknown},
	PathResolved:   {ResultPresent, ResultEmpty, ResultMissing, ResultUnknown},
}

// The stages at which an observation can fail.
const (
	StageResultEntry  = "result-entry"
	StageResultTarget = "result-target"
	StageResult       = "result"
	StageTail         = "tail"
	StageLegacyPID    = "legacy-pid"
)

// ObservationError is one thing that could not be seen. Error is a class name
// as Python has them, because that is what readers of the report match on.
type ObservationError struct {
	Stage string `json:"stage"`
	Error string `json:"error"`
}

// ObserveOptions says what to look at beside the result and the tail.
type ObserveOptions struct {
	// LegacyPID: read dispatch-pid too.
	LegacyPID bool
}

// Observation is one look at a unit's files, raw: what is there, not what it
// means. A failed look is in Errors and stops nothing.
type Observation struct {
	// Unit is the directory as it was given.
	Unit      string
	Errors    []ObservationError
	PathState PathState
	Result    ResultState
	// ResultTarget is the resolved path of the result, "" unless PathResolved.
	ResultTarget string
	// TailBytes is 0 without a tail, nil when it could not be seen.
	TailBytes *int64
	// LegacyPID is the text of dispatch-pid, nil unless asked for and there.
	LegacyPID *string
}

// Observe looks at the unit once. It opens nothing that could block, reads at
// most EntryMax bytes of any file and changes nothing.
func (u Unit) Observe(opts ObserveOptions) Observation {
	o := Observation{Unit: u.Dir, PathState: PathAbsent, Result: ResultUnknown}
	u.observeResult(&o)
	u.observeTail(&o)
	if opts.LegacyPID {
		u.observePID(&o)
	}
	return o
}

func (o *Observation) fail(stage string, err error) {
	o.Errors = append(o.Errors, ObservationError{Stage: stage, Error: ErrorName(err)})
}

func (u Unit) observeResult(o *Observation) {
	text, err := u.ReadEntry(FileResult)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		o.PathState = PathUnreadable
		o.fail(StageResultEntry, err)
		return
	}
	target, ok := u.resultTarget(text)
	if !ok {
		o.PathState = PathInvalid
		return
	}
	if strings.IndexByte(target, 0) >= 0 {
		o.PathState = PathUnreadable
		o.Errors = append(o.Errors, ObservationError{Stage: StageResult, Error: "ValueError"})
		return
	}
	o.PathState, o.ResultTarget = PathResolved, target
	info, err := os.Stat(target)
	switch {
	case err != nil && isMissing(err):
		o.Result = ResultMissing
	case err != nil:
		o.fail(StageResultTarget, err)
	case !info.Mode().IsRegular():
		o.fail(StageResultTarget, ErrNotRegular)
	case info.Size() > 0:
		o.Result = ResultPresent
	default:
		o.Result = ResultEmpty
	}
}

// resultTarget resolves the text of the result entry: an absolute path is
// itself, a relative one must stay strictly inside the unit, by its words.
func (u Unit) resultTarget(text string) (string, bool) {
	if text == "" {
		return "", false
	}
	if filepath.IsAbs(text) {
		return text, true
	}
	if clean := filepath.Clean(text); clean == "." || !filepath.IsLocal(clean) {
		return "", false
	}
	return filepath.Join(u.Dir, text), true
}

func (u Unit) observeTail(o *Observation) {
	n, err := u.TailSize()
	if err != nil {
		o.fail(StageTail, err)
		return
	}
	o.TailBytes = &n
}

// TailSize returns the size of the tail in bytes, 0 when there is none. The
// error wraps ErrNotRegular for anything that is not a file.
func (u Unit) TailSize() (int64, error) {
	info, err := os.Stat(u.Path(FileTail))
	switch {
	case err != nil && isMissing(err):
		return 0, nil
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, ErrNotRegular
	}
	return info.Size(), nil
}

func (u Unit) observePID(o *Observation) {
	text, err := u.ReadEntry(FileDispatchPID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		o.fail(StageLegacyPID, err)
	default:
		o.LegacyPID = &text
	}
}

// isMissing reports ENOENT alone: ENOTDIR, which fs.ErrNotExist does not cover
// on unix and ERROR_PATH_NOT_FOUND, which it does on Windows, where it is the
// same as a missing file for a caller.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// errorNames maps error numbers to the classes that Python has for them. What
// is not here is an OSError.
var errorNames = []struct {
	errno syscall.Errno
	name  string
}{
	{syscall.ENOENT, "FileNotFoundError"},
	{syscall.EACCES, "PermissionError"},
	{syscall.EPERM, "PermissionError"},
	{syscall.ENOTDIR, "NotADirectoryError"},
	{syscall.EISDIR, "IsADirectoryError"},
	{syscall.EINTR, "InterruptedError"},
	{syscall.EAGAIN, "BlockingIOError"},
	{syscall.EINPROGRESS, "BlockingIOError"},
	{syscall.EALREADY, "BlockingIOError"},
	{syscall.ETIMEDOUT, "TimeoutError"},
	{syscall.EEXIST, "FileExistsError"},
	{syscall.EPIPE, "BrokenPipeError"},
	{syscall.ECHILD, "ChildProcessError"},
	{syscall.ESRCH, "ProcessLookupError"},
	{syscall.ECONNABORTED, "ConnectionAbortedError"},
	{syscall.ECONNREFUSED, "ConnectionRefusedError"},
	{syscall.ECONNRESET, "ConnectionResetError"},
}

// ErrorName returns the name that the report gives an error: NotARegularFile
// and EntryTooLarge for ours, ValueError for a path with a NUL, otherwise the
// class that Python raises for the error number, OSError for those without one.
func ErrorName(err error) string {
	switch {
	case errors.Is(err, ErrNotRegular):
		return "NotARegularFile"
	case errors.Is(err, ErrTooLarge):
		return "EntryTooLarge"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if errno == syscall.EINVAL && hasNUL(err) {
			return "ValueError"
		}
		for _, e := range errorNames {
			if e.errno == errno {
				return e.name
			}
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "FileNotFoundError"
	case errors.Is(err, fs.ErrPermission):
		return "PermissionError"
	case errors.Is(err, fs.ErrExist):
		return "FileExistsError"
	}
	return "OSError"
}

// hasNUL reports whether a path in err holds a NUL: Go refuses such a path with
// EINVAL before the kernel sees it.
func hasNUL(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) && slices.Contains([]byte(pe.Path), 0)
}
