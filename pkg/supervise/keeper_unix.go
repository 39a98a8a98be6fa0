//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
)

// Keep is the main function of the keeper process: it starts the supervisor
// and then sleeps in one system call until the supervisor is dead. It has no
// timer, takes no signal that a person may send by name, and needs no memory:
// it must be the last to go. When the supervisor ended without concluding, the
// kernel has already made this process the parent of everything that was below
// it. The one argument, if there is one, is the state directory of a unit that
// this one was started in and is to outlive.
func Keep(rec Record, args []string) int {
	at(partyKeeper, "K1")
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	up, err := inherited(linkFD, "front door")
	if err != nil {
		return exitTrouble
	}
	front := newLink(up, up, notePatience)
	refuse := func(err error) int {
		_ = front.send(message{Kind: kindRefused, Refusal: &Refusal{Stage: StageStart, Text: err.Error()}})
		return exitTrouble
	}
	if err := proc.BecomeReaper(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return refuse(err)
	}
	if len(args) > 0 {
		// A failure leaves the unit inside: it then ends with the outer one.
		if lock, err := leave(args[0]); err == nil {
			defer lock.Unlock()
		}
	}
	mine, theirs, err := pair("supervisor")
	if err != nil {
		return refuse(err)
	}
	self, err := selfPath()
	if err != nil {
		return refuse(err)
	}
	child, err := proc.Detach(proc.DetachSpec{
		Path: self, Args: []string{"prun-supervisor", SupervisorCommand}, Env: os.Environ(), Dir: "/",
		Files: []*os.File{nil, nil, nil, up, theirs}, NewSession: true,
	})
	if err != nil {
		return refuse(err)
	}
	// Only now: an ignored or caught signal would have been the child's too.
	// Caught and dropped, because a kill by name must not take the guard first.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	up.Close()
	theirs.Close()
	at(partyKeeper, "K2")
	proc.PremakeThreads(premadeThreads)

	exit := child.Await()
	if exit == (proc.Exit{}) {
		// It concluded, and said what it could not end.
		child.Reap()
		return 0
	}
	return bury(rec, child, exit, mine)
}

// bury concludes what a dead supervisor left behind, if anything.
func bury(rec Record, child *proc.Child, exit proc.Exit, mine *os.File) int {
	// From here on it works, on output of any length.
	debug.SetGCPercent(50)
	names, locks, err := inherit(mine)
	if err != nil && names.Final == "" {
		// It died before it made anything, or could not say what.
		child.Reap()
		proc.Sweep(nil, proc.EndOptions{})
		return 0
	}
	// The first is the unit's own; the claim of its result path may follow.
	release := func() {
		for _, l := range locks[min(1, len(locks)):] {
			_ = l.Unlock()
		}
		if names.Claim != "" {
			state.DropClaim(names.Claim)
		}
	}
	defer func() {
		release()
		for _, l := range locks[:min(1, len(locks))] {
			_ = l.Unlock()
		}
	}()
	child.Reap()
	u := state.Unit{Dir: names.Final}
	if _, err := os.Lstat(u.Path(state.FileIdentity)); err == nil {
		_, err := settle(rec, u, partyKeeper, fate(exit), release, proc.EndOptions{Spare: detachedUnits(u)}, func(string) {})
		if err != nil {
			return exitTrouble
		}
		return 0
	}
	// Never announced: nobody knows of it, and nobody ever started a worker.
	var leaf *proc.Leaf
	if names.Leaf != "" {
		if dir, err := proc.LeafOf(os.Getpid()); err == nil {
			leaf, _ = proc.OpenLeaf(filepath.Join(dir, names.Leaf), 0)
		}
	}
	proc.Sweep(leaf, proc.EndOptions{})
	// Only the hidden one: what has the final name is complete, or somebody
	// has put it there, and it holds what a worker said.
	if filepath.IsAbs(names.Hidden) && names.Hidden != names.Final {
		removeState(names.Hidden)
	}
	if filepath.IsAbs(names.Result) {
		// Somebody removed the directory of a unit that was about to publish. What
		// was moved aside may be the worker's, and stays.
		if err := result.Sweep(names.Result, names.Owner, true); err != nil {
			return exitTrouble
		}
	}
	return 0
}
