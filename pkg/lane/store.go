package lane

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Files of a run; each holds one value and a newline.
const (
	FileSID               = "sid"
	FileRepoID            = "repo-id"
	FileMain              = "main"
	FileInvoking          = "invoking-worktree"
	FileSocket            = "tmux-socket"
	FileIntegration       = "integration-worktree"
	FileIntBranch         = "integration-branch"
	FileBaseRef           = "base-ref"
	FileBaseCommit        = "base-commit"
	FileStatus            = "status"
	FileError             = "error"
	fileClosing           = "closing"
	fileRunDir            = "run-dir"
	dirClaims             = "claims"
	dirRuns               = "runs"
	dirLanes              = "lanes"
	dirLocks              = "locks"
	runLock               = "run"
	hiddenPrefix          = ".new-"
	maxValue        int64 = 64 << 10
)

// Statuses of a run.
const (
	RunInitializing = "initializing"
	RunActive       = "active"
	RunCleaned      = "cleaned"
	RunFailed       = "failed"
)

// Errors that callers tell apart.
var (
	ErrClaimed  = errors.New("sid already claimed")
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("lane already exists")
	// ErrBusy: another process is changing the run or starting the lane.
	ErrBusy = errors.New("busy")
)

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidName reports whether s may be the id of a run or the name of a phase. It
// becomes part of paths and of branch names, so what git refuses in a branch is
// refused here.
func ValidName(s string) bool {
	return name.MatchString(s) && !strings.Contains(s, "..") && !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, ".lock")
}

// NewID makes the id of a run: the local time and eight random hex digits.
func NewID() (string, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make run id: %w", err)
	}
	return time.Now().Format("20060102150405") + "-" + hex.EncodeToString(b[:]), nil
}

// RepoID names a repository: the first twelve hex digits of the SHA-256 of its
// absolute common directory.
func RepoID(common string) string {
	sum := sha256.Sum256([]byte(common))
	return hex.EncodeToString(sum[:])[:12]
}

// A Home is the state directory of agent-fanout.
type Home struct{ Dir string }

// HomeOf finds it: AGENT_FANOUT_STATE_HOME, else agent-fanout below
// XDG_STATE_HOME, else below ~/.local/state. Nothing is made.
func HomeOf(getenv func(string) string) (Home, error) {
	if dir := getenv("AGENT_FANOUT_STATE_HOME"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Home{}, fmt.Errorf("resolve AGENT_FANOUT_STATE_HOME: %w", err)
		}
		return Home{abs}, nil
	}
	// A relative one counts as unset: that is the rule of its specification.
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return Home{filepath.Join(dir, "agent-fanout")}, nil
	}
	for _, v := range []string{"HOME", "USERPROFILE"} {
		if dir := getenv(v); filepath.IsAbs(dir) {
			return Home{filepath.Join(dir, ".local", "state", "agent-fanout")}, nil
		}
	}
	return Home{}, errors.New("no state directory: set HOME or AGENT_FANOUT_STATE_HOME")
}

// A dir is a directory of values, one a file.
type dir string

func (d dir) path(file string) string { return filepath.Join(string(d), file) }

// get returns a value, "" when there is none.
func (d dir) get(file string) string {
	b, err := atomicfile.ReadRegular(d.path(file), maxValue)
	if err != nil {
		return ""
	}
	// Only the newline that ends it: a path may end with blanks of its own.
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
}

// set writes a value whole: readers see the old one or the new one.
func (d dir) set(file, value string) error {
	if err := atomicfile.Replace(d.path(file), []byte(value+"\n"), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// note writes a value whole that need not survive a power cut: who works at
// this moment, and where what is said goes.
func (d dir) note(file, value string) error {
	temp := atomicfile.TempName(d.path(file), strconv.Itoa(os.Getpid())+"-1")
	err := atomicfile.Write(temp, []byte(value+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		_ = os.Remove(temp)
		err = atomicfile.Write(temp, []byte(value+"\n"), 0o600)
	}
	if err == nil {
		err = atomicfile.Rename(temp, d.path(file))
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// put writes a value into a directory that nobody reads yet.
func (d dir) put(file, value string) error {
	if err := atomicfile.Write(d.path(file), []byte(value+"\n"), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// A Run is one run. It holds nothing open.
type Run struct {
	ID  string
	Dir string
}

// Get returns one of the run's values, "" when there is none.
func (r Run) Get(file string) string { return dir(r.Dir).get(file) }

// Set writes one of the run's values.
func (r Run) Set(file, value string) error { return dir(r.Dir).set(file, value) }

// Claim makes a run of this id, whose status is initializing. The id is unique
// on this machine: the claim stays for good, also when what follows fails. The
// lock that is returned is to be held until the run is active or failed. The
// error wraps ErrClaimed when the id was used before.
func (h Home) Claim(id, repoID string) (Run, *atomicfile.Lock, error) {
	r := Run{ID: id, Dir: filepath.Join(h.Dir, dirRuns, repoID, id)}
	for _, d := range []string{dirClaims, filepath.Join(dirRuns, repoID)} {
		if err := os.MkdirAll(filepath.Join(h.Dir, d), 0o700); err != nil {
			return r, nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	claim := dir(filepath.Join(h.Dir, dirClaims, id))
	if err := atomicfile.Mkdir(string(claim), 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return r, nil, fmt.Errorf("%w: %s", ErrClaimed, id)
		}
		return r, nil, fmt.Errorf("claim run: %w", err)
	}
	if err := errors.Join(claim.put(FileRepoID, repoID), claim.put(fileRunDir, r.Dir)); err != nil {
		return r, nil, fmt.Errorf("claim run: %w", err)
	}
	for _, d := range []string{"", dirLocks, dirLanes} {
		if err := atomicfile.Mkdir(filepath.Join(r.Dir, d), 0o700); err != nil {
			return r, nil, fmt.Errorf("make run: %w", err)
		}
	}
	lock, err := r.Lock(runLock)
	if err != nil {
		return r, nil, err
	}
	run := dir(r.Dir)
	if err := errors.Join(run.put(FileSID, id), run.put(FileRepoID, repoID), run.put(FileStatus, RunInitializing)); err != nil {
		_ = lock.Unlock()
		return r, nil, fmt.Errorf("make run: %w", err)
	}
	return r, lock, nil
}

// Find returns the run of this id; the error wraps ErrNotFound.
func (h Home) Find(id string) (Run, error) {
	if !ValidName(id) {
		return Run{}, fmt.Errorf("run %w: %s", ErrNotFound, id)
	}
	if at := dir(filepath.Join(h.Dir, dirClaims, id)).get(fileRunDir); at != "" {
		if fi, err := os.Stat(at); err == nil && fi.IsDir() {
			return Run{ID: id, Dir: at}, nil
		}
	}
	// The state directory may have been moved as a whole.
	found, _ := filepath.Glob(filepath.Join(h.Dir, dirRuns, "*", id))
	if len(found) == 1 {
		return Run{ID: id, Dir: found[0]}, nil
	}
	return Run{}, fmt.Errorf("run %w: %s", ErrNotFound, id)
}

// Runs lists every run, the oldest id first.
func (h Home) Runs() ([]Run, error) {
	repos, err := os.ReadDir(filepath.Join(h.Dir, dirRuns))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var runs []Run
	for _, repo := range repos {
		entries, err := os.ReadDir(filepath.Join(h.Dir, dirRuns, repo.Name()))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && ValidName(e.Name()) {
				runs = append(runs, Run{ID: e.Name(), Dir: filepath.Join(h.Dir, dirRuns, repo.Name(), e.Name())})
			}
		}
	}
	slices.SortFunc(runs, func(a, b Run) int { return strings.Compare(a.ID, b.ID) })
	return runs, nil
}

// Status is the run's status. A run whose maker died half way is failed.
func (r Run) Status() string {
	status := r.Get(FileStatus)
	if status != RunInitializing && status != "" {
		return status
	}
	if held, err := atomicfile.Held(filepath.Join(r.Dir, dirLocks, runLock)); err == nil && held {
		return RunInitializing
	}
	// Its last act may have come between the two looks.
	if status = r.Get(FileStatus); status == RunInitializing || status == "" {
		return RunFailed
	}
	return status
}

// LockRun keeps others from changing the run: applying, cleaning up.
func (r Run) LockRun() (*atomicfile.Lock, error) { return r.Lock(runLock) }

// Close announces, by a file beside the run's lock, which the caller holds,
// that the run is being cleaned up: no lane is made or started from now on. done
// takes it back. A file that a killed cleaner has left means nothing.
func (r Run) Close() (done func(), err error) {
	if err := dir(r.Dir).note(fileClosing, "cleanup"); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(dir(r.Dir).path(fileClosing)) }, nil
}

// Closing reports whether the run is being cleaned up. To be asked with the
// lane's lock held: whoever cleans up takes it after the announcement.
func (r Run) Closing() bool {
	if _, err := os.Lstat(dir(r.Dir).path(fileClosing)); err != nil {
		return false
	}
	held, err := atomicfile.Held(filepath.Join(r.Dir, dirLocks, runLock))
	return err == nil && held
}

// Lock takes one of the run's locks without waiting; the error wraps ErrBusy
// when somebody has it. The kernel frees it with its holder.
func (r Run) Lock(file string) (*atomicfile.Lock, error) {
	at := filepath.Join(r.Dir, dirLocks)
	// A run of the original has no such directory.
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, fmt.Errorf("lock run: %w", err)
	}
	lock, err := atomicfile.TryLock(filepath.Join(at, file))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return lock, err
}

// Lanes lists the run's lanes by name.
func (r Run) Lanes() ([]Lane, error) {
	entries, err := os.ReadDir(filepath.Join(r.Dir, dirLanes))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	var lanes []Lane
	for _, e := range entries {
		if e.IsDir() && ValidName(e.Name()) {
			lanes = append(lanes, Lane{Run: r, Phase: e.Name(), Dir: filepath.Join(r.Dir, dirLanes, e.Name())})
		}
	}
	return lanes, nil
}

// Lane returns a lane of the run; the error wraps ErrNotFound.
func (r Run) Lane(phase string) (Lane, error) {
	l := Lane{Run: r, Phase: phase, Dir: filepath.Join(r.Dir, dirLanes, phase)}
	if !ValidName(phase) {
		return l, fmt.Errorf("lane %w: %s", ErrNotFound, phase)
	}
	if fi, err := os.Stat(l.Dir); err != nil || !fi.IsDir() {
		return l, fmt.Errorf("lane %w: %s", ErrNotFound, phase)
	}
	return l, nil
}
