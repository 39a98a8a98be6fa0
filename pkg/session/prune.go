package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// PruneOptions says which tasks go.
type PruneOptions struct {
	Owner      string // only this owner's; "" means everybody's
	Idle       time.Duration
	Unresolved bool // failed, stalled and unanswered ones too
}

// Keep says why a task stays, "" when it may go. The snapshot is filled.
func (s Snapshot) Keep(o PruneOptions, now time.Time) string {
	switch {
	case s.Err != nil:
		// Neither the state nor the owner is known.
		if !o.Unresolved {
			return "unreadable (--include-unresolved to reclaim)"
		}
	case !Settled(s.State), s.HelperAlive, s.BackendAlive:
		return "live/" + s.State
	}
	if idle := s.Idle(now); idle < o.Idle {
		return fmt.Sprintf("idle<%dm", int(o.Idle/time.Minute))
	}
	switch s.State {
	case Failed, Stalled, AwaitingReply:
		if !o.Unresolved {
			return s.State + " (resumable; --include-unresolved to reclaim)"
		}
	}
	return ""
}

// Prune removes a task's directory, and ends what its turns left alive. It looks again under the task's lock: a send
// in the meantime keeps it. Worktrees and branches stay.
func (t Task) Prune(o PruneOptions, now time.Time) (kept string, err error) {
	lock, err := t.TryLock()
	switch {
	case errors.Is(err, ErrBusy):
		return "live/changing", nil
	case errors.Is(err, ErrNoTask):
		return "", nil
	case err != nil:
		return "", err
	}
	defer lock.Unlock()
	s := t.Look()
	s.Fill()
	if why := s.Keep(o, now); why != "" {
		return why, nil
	}
	if n := s.Turn(); n > 0 && t.Turn(n).Unit().Held() {
		return "live/" + s.State, nil
	}
	if err := t.EndLeftovers(1 << 30); err != nil {
		return "leftovers: " + err.Error(), nil
	}
	return "", t.Discard(lock)
}

// Discard removes the task's directory. The lock is the task's.
func (t Task) Discard(lock *atomicfile.Lock) error {
	nonce, err := state.NewNonce()
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		// A directory that holds an open file is not renamed there.
		_ = lock.Unlock()
	}
	// First out of sight in one step: a half-removed task must not be read.
	gone := filepath.Join(t.Root.Sessions(), hiddenGone+strconv.Itoa(os.Getpid())+"-"+nonce)
	if err := atomicfile.Rename(t.Dir, gone); err != nil {
		return fmt.Errorf("remove task: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove task: %w", err)
	}
	return nil
}
