package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// A unit that detaches from inside another unit lives on when the outer one
// ends (decision 3.6). Its keeper leaves the outer cgroup and takes a lock in
// the outer state directory; whoever ends the outer tree spares the holder of
// such a lock and everything below it. The kernel frees the lock with its
// holder, so a forgotten entry spares nobody.

// leave makes this process, a keeper, one that the outer unit spares. The lock
// must be kept for life.
func leave(outer string) (*atomicfile.Lock, error) {
	u := state.Unit{Dir: outer}
	id, err := u.ReadIdentity()
	if err != nil || id == nil {
		return nil, errors.Join(fmt.Errorf("leave unit %s: no identity", outer), err)
	}
	if err := atomicfile.Mkdir(u.Path(state.DirDetached), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("leave unit: %w", err)
	}
	lock, err := atomicfile.TryLock(detachedEntry(u, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("leave unit: %w", err)
	}
	b, err := json.Marshal(pid.Self())
	if err == nil {
		err = errors.Join(lock.File().Truncate(0), writeAt(lock.File(), b))
	}
	if err == nil {
		err = leaveLeaf(id.Leaf)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("leave unit: %w", err), lock.Unlock())
	}
	return lock, nil
}

func writeAt(f *os.File, b []byte) error {
	_, err := f.WriteAt(b, 0)
	return err
}

// leaveLeaf moves this process beside the outer unit's leaf when it is in it.
func leaveLeaf(leaf string) error {
	if leaf == "" {
		return nil
	}
	here, err := proc.LeafOf(os.Getpid())
	if err != nil {
		return err
	}
	if here != leaf && !strings.HasPrefix(here, leaf+"/") {
		return nil
	}
	return proc.MoveSelf(filepath.Dir(leaf))
}

func detachedEntry(u state.Unit, p int) string {
	return filepath.Join(u.Path(state.DirDetached), strconv.Itoa(p))
}

// detachedUnits tells which processes of u's tree are keepers of units that
// detached from it.
func detachedUnits(u state.Unit) func(pid int) bool {
	return func(p int) bool {
		entry := detachedEntry(u, p)
		if held, err := atomicfile.Held(entry); err != nil || !held {
			return false
		}
		b, err := atomicfile.ReadRegular(entry, 4096)
		if err != nil {
			return false
		}
		var id pid.ID
		if json.Unmarshal(b, &id) != nil || id.PID != p {
			return false
		}
		alive, err := id.Alive()
		return err == nil && alive
	}
}
