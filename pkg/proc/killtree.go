package proc

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// KillTree ends the process id, which is no child of ours, and what can be seen
// below it, within about bound (0 for [DefaultBound]). Every process is
// verified before it is signalled: it is younger than its parent, and its
// parent is a verified member that still lives. On Unix all are stopped first,
// so that none can start another unseen; what is in the session of a leader
// counts as below it.
//
// Nothing is proven by it, and Empty is never true: what has lost its parent
// before the look cannot be seen. Leftovers counts what was found below id,
// Remaining what is still alive, and Note says why. When id itself is not there
// any more nothing is signalled, and nothing was found.
func KillTree(id pid.ID, bound time.Duration) Proof {
	if bound <= 0 {
		bound = DefaultBound
	}
	k := &treeKill{
		root: id, members: map[int]pid.ID{}, deadline: time.Now().Add(bound),
		proof: Proof{Containment: GroupOnly},
	}
	if alive, err := id.Alive(); !alive {
		k.proof.Note = "the process was gone already"
		if err != nil {
			k.proof.Note = err.Error()
		}
		return k.proof
	}
	k.run()
	return k.proof
}

// kin is what the system's process list says about one process.
type kin struct {
	pid, parent int
	// session is the number of the session, or the next best tie; 0 is none.
	session int
}

type treeKill struct {
	root     pid.ID
	members  map[int]pid.ID // verified; never forgotten, so that no number is trusted twice
	deadline time.Time
	proof    Proof
}

func (k *treeKill) run() {
	// What may not be signalled (an ancestor, this process) must not be left
	// stopped half way either.
	if pid.Forbidden(k.root.PID) {
		k.proof.Remaining, k.proof.Note = []int{k.root.PID}, pid.ErrForbidden.Error()
		return
	}
	k.members[k.root.PID] = k.root
	k.hold(k.root)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		// Twice in vain: a process in the middle of exec is not seen by one look,
		// and what binds an orphan to the tree goes with the root.
		for vain := 0; vain < 2 && time.Now().Before(k.deadline); {
			if k.grow() {
				vain = 0
				continue
			}
			vain++
			time.Sleep(time.Millisecond)
		}
		k.proof.Leftovers = len(k.members) - 1
		k.proof.Remaining, k.proof.Note = nil, "nobody can prove that nothing is left of a process that is not ours"
		for p, id := range k.members {
			if alive, err := id.Alive(); !alive && err == nil {
				continue
			}
			err := id.Signal(syscall.SIGKILL)
			if errors.Is(err, pid.ErrGone) || errors.Is(err, pid.ErrMismatch) {
				continue
			}
			k.proof.Remaining = append(k.proof.Remaining, p)
			if err != nil {
				k.proof.Note = fmt.Sprintf("end process %d: %v", p, err)
			}
		}
		if len(k.proof.Remaining) == 0 || time.Now().After(k.deadline) {
			return
		}
		time.Sleep(pause)
	}
}

// grow adds the children that the members have now, and reports whether there
// were any. A child counts when two looks, with its identity taken in between,
// agree on its parent: then the identity is that of the parent's child.
func (k *treeKill) grow() bool {
	before, err := census()
	if err != nil {
		return false
	}
	found := map[int]pid.ID{}
	for more := true; more; {
		more = false
		for _, one := range before {
			if k.known(one.pid, found) || pid.Forbidden(one.pid) {
				continue
			}
			parent, below := k.parent(one, found)
			if !below {
				continue
			}
			id, err := pid.Of(one.pid)
			if err != nil || id.Start < parent.Start {
				continue
			}
			found[one.pid] = id
			more = true
		}
	}
	if len(found) == 0 {
		return false
	}
	after, err := census()
	if err != nil {
		return false
	}
	grew := false
	for _, one := range after {
		id, ok := found[one.pid]
		if !ok {
			continue
		}
		if _, below := k.parent(one, found); below {
			k.members[one.pid] = id
			k.hold(id)
			grew = true
		}
	}
	return grew
}

func (k *treeKill) known(p int, found map[int]pid.ID) bool {
	_, member := k.members[p]
	_, candidate := found[p]
	return member || candidate
}

// parent is the member, or the candidate, that binds one to the tree.
func (k *treeKill) parent(one kin, found map[int]pid.ID) (pid.ID, bool) {
	id, ok := k.members[one.parent]
	if !ok {
		id, ok = found[one.parent]
	}
	if !ok && one.session == k.root.PID && one.pid != k.root.PID && leads(k.root.PID) {
		id, ok = k.root, true
	}
	if !ok {
		return id, false
	}
	// The number may have changed hands since.
	alive, err := id.Alive()
	return id, alive && err == nil
}
