package state

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
)

// Liveness is what a reader may conclude about a unit.
type Liveness int

// The verdicts. The zero value is Unknown: what was not looked at is not known.
const (
	// Unknown: nothing may be believed. The directory is a copy, of another
	// machine, or unreadable; nothing is signalled on this ground.
	Unknown Liveness = iota
	// Settled: there is an outcome.
	Settled
	// Running: the supervisor is alive.
	Running
	// Ending: the supervisor is dead and somebody is concluding for it.
	Ending
	// LivenessLost: nobody answers for the unit and there is no outcome. (Lost
	// is the cause that whoever concludes then records.)
	LivenessLost
	// LegacyAlive: older directory, and the recorded number is a live process,
	// possibly another one.
	LegacyAlive
	// LegacyDead: older directory, and there is no such process.
	LegacyDead
	// LegacyUnknown: older directory that names no process.
	LegacyUnknown
)

// String returns the verdict as prun-report prints it.
func (l Liveness) String() string {
	switch l {
	case Settled:
		return "settled"
	case Running:
		return "running"
	case Ending:
		return "ending"
	case LivenessLost:
		return "lost"
	case LegacyAlive:
		return "legacy-alive"
	case LegacyDead:
		return "legacy-dead"
	case LegacyUnknown:
		return "legacy-unknown"
	}
	return "unknown"
}

// Liveness concludes who, if anybody, answers for the unit, and says on what
// ground. It has no side effect: the lock is asked for, never taken, and no
// process is signalled.
func (u Unit) Liveness() (Liveness, string) {
	if verdict, reason, ok := u.settled(); ok {
		return verdict, reason
	}
	id, err := u.ReadIdentity()
	if err != nil {
		return Unknown, err.Error()
	}
	verdict, reason := Unknown, ""
	if id == nil {
		verdict, reason = u.legacy()
	} else {
		verdict, reason = u.judge(id)
	}
	if verdict == Running {
		return verdict, reason
	}
	// Whoever answered may have published and left between the first look and
	// the last one; then everything above was found missing for a good reason.
	if verdict, reason, ok := u.settled(); ok {
		return verdict, reason
	}
	return verdict, reason
}

// Held reports whether somebody holds the unit's lock. It is the cheap half of
// Liveness, for callers that ask often: while it is true, the unit is not lost.
// A lock that cannot be asked for counts as free.
func (u Unit) Held() bool {
	held, err := atomicfile.Held(u.Path(FileLock))
	return err == nil && held
}

// settled looks for an outcome.
func (u Unit) settled() (Liveness, string, bool) {
	o, err := u.ReadOutcome()
	switch {
	case err != nil:
		return Unknown, err.Error(), true
	case o != nil:
		return Settled, "outcome " + string(o.Cause), true
	}
	return Unknown, "", false
}

// judge applies the table of the unit's protocol to a directory that has an
// identity and no outcome.
func (u Unit) judge(id *Identity) (Liveness, string) {
	if err := u.Original(id); err != nil {
		return Unknown, err.Error()
	}
	held, err := atomicfile.Held(u.Path(FileLock))
	lock := "lock free"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		lock = "no lock file"
	case err != nil:
		lock = "lock not readable"
	}
	if !held {
		if id.Machine != "" && pid.Machine() != "" && id.Machine != pid.Machine() {
			return Unknown, lock + ", other machine"
		}
		if boot := id.Supervisor.Boot; boot != "" && pid.Boot() != "" && boot != pid.Boot() {
			return LivenessLost, "ended by a reboot"
		}
	}
	super, superWhy := alive(id.Supervisor)
	keeper, keeperWhy := alive(id.Keeper)
	if held {
		switch {
		case super == pid.Alive:
			return Running, "lock held, supervisor alive"
		case super == pid.Unknown:
			return Running, "lock held, supervisor not visible here: " + superWhy
		case keeper == pid.Gone:
			return Ending, "lock held, supervisor and keeper dead"
		}
		return Ending, "lock held, supervisor dead, keeper concludes"
	}
	switch {
	case super == pid.Alive:
		return Running, lock + ", supervisor alive"
	case super == pid.Unknown:
		return Unknown, lock + ", supervisor unknown: " + superWhy
	case keeper == pid.Alive:
		return Ending, lock + ", supervisor dead, keeper alive"
	case keeper == pid.Unknown:
		return Unknown, lock + ", supervisor dead, keeper unknown: " + keeperWhy
	}
	return LivenessLost, lock + ", supervisor and keeper dead"
}

// Original checks that the directory is the one that id was recorded in. A copy,
// or a view through another file system, says nothing about any process: the
// error wraps ErrCopy then. Where nothing was recorded, nothing is known
// against it.
func (u Unit) Original(id *Identity) error {
	if id.DirDev == 0 && id.DirIno == 0 {
		return nil
	}
	dev, ino, err := dirID(u.Dir)
	if err != nil {
		return err
	}
	// Many file systems (btrfs, overlay, tmpfs, NFS) get another device number
	// at each mount.
	restarted := id.Supervisor.Boot != "" && pid.Boot() != "" && id.Supervisor.Boot != pid.Boot()
	if ino != id.DirIno || dev != id.DirDev && !restarted {
		return fmt.Errorf("state directory %s: %w", u.Dir, ErrCopy)
	}
	return nil
}

// alive asks about a recorded process. A record without a number names none,
// and none is gone.
func alive(id pid.ID) (pid.Verdict, string) {
	if id.PID == 0 {
		return pid.Gone, "none recorded"
	}
	ok, err := id.Alive()
	switch {
	case err != nil:
		return pid.Unknown, err.Error()
	case ok:
		return pid.Alive, ""
	}
	return pid.Gone, ""
}

// legacy applies the old rule to a directory without an identity: a number
// alone, which may be anybody's by now.
func (u Unit) legacy() (Liveness, string) {
	text, err := u.ReadEntry(FileDispatchPID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return LegacyUnknown, "no " + FileDispatchPID
	case err != nil:
		return LegacyUnknown, err.Error()
	case text == "":
		return LegacyUnknown, "empty " + FileDispatchPID
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		// No process can have it, so the one that wrote it has gone with
		// whatever spoilt the file.
		return LegacyDead, fmt.Sprintf("%s is no process number: %.40q", FileDispatchPID, text)
	}
	id, err := pid.Of(n)
	if errors.Is(err, pid.ErrGone) {
		return LegacyDead, "no process " + text
	}
	if err != nil {
		// There is something of that number that we may not look at.
		return LegacyAlive, err.Error()
	}
	// The identity was taken just now, so only a zombie or a process that went
	// in between can be gone.
	if v, _ := alive(id); v == pid.Gone {
		return LegacyDead, "process " + text + " is dead"
	}
	return LegacyAlive, "process " + text + " exists"
}
