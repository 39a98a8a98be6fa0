// Package pid owns the question who a process is.
//
// A number alone is no answer: numbers are used again, a zombie answers
// kill(pid, 0), and the same number means another process in another pid
// namespace or after a reboot. An [ID] is the number plus what makes it
// unique, and every question about it has three answers: alive, gone, unknown.
// Unknown is never turned into gone, because a caller that believes a live
// process dead starts a second one or throws its work away.
//
// The package does not start processes, does not wait for them and knows
// nothing about trees (pkg/proc does). It keeps no state.
//
// Invariant: [ID.Signal] reaches the process that was recorded or nobody.
package pid

import (
	"fmt"
	"strconv"
	"syscall"
)

// ID identifies one process for as long as the machine runs.
type ID struct {
	// PID is the number in the pid namespace NS.
	PID int `json:"pid"`
	// Start is when the process began: clock ticks since boot on Linux, a
	// FILETIME on Windows, microseconds since 1970 on macOS. Two processes
	// can share (PID, Start) when the number comes round within one tick:
	// forced reuse did so in 163 of 200 tries.
	Start uint64 `json:"start"`
	// Boot is [Boot] at the time of recording.
	Boot string `json:"boot"`
	// NS is [Namespace] at the time of recording, 0 where there are none.
	NS uint64 `json:"ns"`
	// Inode is the inode number of a pidfd of the process, which the kernel
	// never gives out twice in one boot (Linux 6.9 and later, else 0).
	Inode uint64 `json:"pidfd_inode,omitempty"`
}

// Verdict is the answer to "does it live?" as a value.
type Verdict int

// The three answers. The zero value is the one that promises nothing.
const (
	Unknown Verdict = iota
	Alive
	Gone
)

// String returns the word for v.
func (v Verdict) String() string {
	switch v {
	case Alive:
		return "alive"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// Verdict is [ID.Alive] as a value, for records and tables.
func (id ID) Verdict() Verdict {
	alive, err := id.Alive()
	switch {
	case err != nil:
		return Unknown
	case alive:
		return Alive
	}
	return Gone
}

// IsZero reports whether nothing was recorded.
func (id ID) IsZero() bool { return id == ID{} }

// String returns "<pid>-<start>", short enough for a file name.
func (id ID) String() string { return fmt.Sprintf("%d-%d", id.PID, id.Start) }

// Of returns the identity of the process that has the number pid now. A
// zombie still has one. The error wraps [ErrGone] when no process has the
// number, and [ErrUnknown] when the system does not say.
func Of(pid int) (ID, error) {
	if pid <= 0 {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, ErrGone)
	}
	return of(pid)
}

// Self returns the identity of the calling process. Where the system says
// nothing about it, only the number is filled in, which [ID.Alive] answers
// with unknown.
func Self() ID { return self() }

// Boot names this boot of this machine: it changes with every reboot. It is
// empty where there is no such name (Windows, whose start times are absolute).
func Boot() string { return boot() }

// Machine names this machine, so that a record seen through a shared file
// system is not mistaken for one of ours.
func Machine() string { return machine() }

// Namespace is the inode of the pid namespace in which numbers are read and
// written here, 0 where there are none.
func Namespace() uint64 { return namespace() }

// Alive reports whether the recorded process lives: (true, nil) alive,
// (false, nil) gone. A zombie is gone, and so is everything from another boot.
// Any error means unknown and wraps [ErrUnknown]: another pid namespace,
// nothing recorded, or a system that would not tell.
func (id ID) Alive() (bool, error) {
	if id.PID <= 0 || id.Start == 0 {
		return false, fmt.Errorf("look for process %d: nothing to compare it with: %w", id.PID, ErrUnknown)
	}
	return id.alive()
}

// Signal sends sig to the recorded process and to nothing else: the handle is
// opened, the identity compared, and the signal sent through the handle, so a
// number that changed hands in between is harmless. The errors wrap
// [ErrForbidden], [ErrGone], [ErrMismatch] (the number belongs to another
// process now, which also means gone), [ErrUnknown], or the system's refusal
// (EPERM). After any error no signal was sent.
func (id ID) Signal(sig syscall.Signal) error {
	if Forbidden(id.PID) {
		return fmt.Errorf("signal process %d: %w", id.PID, ErrForbidden)
	}
	if id.Start == 0 {
		return fmt.Errorf("signal process %d: nothing to compare it with: %w", id.PID, ErrUnknown)
	}
	return id.signal(sig)
}

// Forbidden reports whether pid must never be signalled, alone or as a group:
// 1 and below (which mean everybody, or init), this process, its group, and
// every ancestor. A supervisor that trusted a record it had not checked has
// ended whole desktop sessions that way.
func Forbidden(pid int) bool {
	if pid <= 1 || ownNumber(pid) {
		return true
	}
	for _, a := range Ancestors() {
		if a == pid {
			return true
		}
	}
	return false
}

// Ancestors returns the parent of this process, its parent, and so on, nearest
// first, as far as the system shows them.
func Ancestors() []int { return ancestors() }

// Parse reads a process number as the state files hold it: decimal digits and
// nothing else, no sign, no space, no leading zero, above 1, and no larger
// than a process number can be.
func Parse(text string) (int, error) {
	for i, c := range []byte(text) {
		if c < '0' || c > '9' || i == 0 && c == '0' {
			return 0, fmt.Errorf("read process number %.20q: not a plain number above 1", text)
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 1 {
		return 0, fmt.Errorf("read process number %.20q: not a plain number above 1", text)
	}
	return int(n), nil
}

// Stopped reports whether the process with the number pid is stopped by a
// signal (SIGSTOP, SIGTSTP). It is always false on Windows.
func Stopped(pid int) (bool, error) { return stopped(pid) }
