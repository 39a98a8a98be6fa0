package supervise

import (
	"errors"
	"fmt"
	"os"

	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// Why a supervisor did not conclude.
const (
	killed  = "the supervisor was killed before the worker's end was seen"
	failing = "the supervisor could not record the end"
)

// fate is why a supervisor with this exit did not conclude.
func fate(x proc.Exit) string {
	if x.Signal == 0 && x.Code == exitTrouble {
		return failing
	}
	return killed
}

// settle concludes a unit whose supervisor is dead, in a process that has
// inherited its tree (the keeper, or the front door as the last above it). why
// says what became of the supervisor, release gives up what else this process
// inherited (nil: nothing). The caller holds the unit's lock. A unit that has its outcome is only swept.
func settle(rec Record, u state.Unit, party, why string, release func(), end proc.EndOptions, note func(string)) (state.Outcome, error) {
	id, err := u.ReadIdentity()
	if err != nil || id == nil {
		proof := proc.Sweep(nil, end)
		return state.Outcome{}, errors.Join(err, fmt.Errorf("settle %s: no identity; tree ended: %v", u.Dir, proof.Empty))
	}
	var leaf *proc.Leaf
	if id.Leaf != "" {
		// A leaf that is gone was empty: the kernel removes no other.
		if leaf, err = proc.OpenLeaf(id.Leaf, id.LeafInode); err == nil {
			defer leaf.Close()
		}
	}
	if o, err := u.ReadOutcome(); err == nil && o != nil {
		proc.Sweep(leaf, end)
		c, err := adopt(rec, u, party, note)
		if err != nil {
			return *o, err
		}
		c.release = release
		return *o, c.finish(o)
	}
	c, err := adopt(rec, u, party, note)
	if err != nil {
		proc.Sweep(leaf, end)
		return state.Outcome{}, err
	}
	c.release = release
	e := ending{started: id.Created, cause: state.Lost, reason: why}
	worker, err := u.ReadWorker()
	if err != nil {
		e.notes = append(e.notes, err.Error())
	}
	if worker != nil {
		e.started = worker.Started
	}
	// How the worker ended must be asked before the first kill of ours.
	var doubt string
	e.exit, doubt = lastExit(u, worker)
	if doubt != "" {
		e.notes = append(e.notes, doubt)
	}
	if e.exit != nil {
		e.cause, e.reason = state.Exited, ""
		if err := u.WriteWorkerExit(e.exit.Code, e.exit.Signal); err != nil {
			e.notes = append(e.notes, err.Error())
		}
	}
	e.notes = append(e.notes, "concluded by the "+partyName(party)+" after the supervisor's death")
	e.proof = proc.Sweep(leaf, end)
	at(party, "C2")
	return c.conclude(e)
}

// lastExit is how the worker ended by itself, if anybody saw it: the record,
// or the zombie that this process has inherited. A zombie does not say who sent a
// signal by which we end workers ourselves, or which follows from the death of
// whoever read a worker's output: a supervisor or keeper that was killed while it
// ended the tree may have. That is no end of the worker's own, and said in doubt.
func lastExit(u state.Unit, worker *state.WorkerRecord) (exit *proc.Exit, doubt string) {
	if x, err := u.ReadWorkerExit(); err == nil && x != nil {
		return &proc.Exit{Code: x.Code, Signal: x.Signal}, ""
	}
	if worker == nil {
		return nil, ""
	}
	x, dead := proc.ZombieChild(worker.Worker.PID)
	switch {
	case !dead:
		return nil, ""
	case perhapsOurs(x.Signal):
		return nil, "the worker died of " + signalName(x.Signal) + ", whoever sent it"
	}
	return &x, ""
}

func partyName(party string) string {
	switch party {
	case partyKeeper:
		return "keeper"
	case partyFront:
		return "front door"
	case partyReaper:
		return "reaper"
	}
	return "supervisor"
}

// finish does what comes after the outcome, for a concluder that died there. The
// caller holds the unit's lock.
func finish(rec Record, u state.Unit, party string, o *state.Outcome) error {
	c, err := adopt(rec, u, party, func(string) {})
	if err != nil {
		return err
	}
	return c.finish(o)
}

func (c *concluder) finish(o *state.Outcome) error {
	err := c.record.Settled(c.unit, &c.launch, o)
	c.tidy()
	return err
}

// tidy removes what nobody needs once the outcome is there: files that were
// being replaced when their writer was killed, the claim of the result path, and,
// last, the mark that something is left to do.
func (c *concluder) tidy() {
	if c.release != nil {
		c.release()
	}
	if c.home() != nil {
		return
	}
	if c.party != partySupervisor {
		// Whoever wrote here is dead, or is this process: its lock is held.
		c.unit.SweepRecords()
		// It was killed while it waited for a slot.
		_ = os.Remove(c.unit.Path(state.FileQueued))
	}
	if (c.party == partyFront || c.party == partyReaper) && c.launch.Result != "" {
		state.DropClaim(state.ClaimName(c.launch.Base, c.launch.Result))
	}
	c.unit.SweepOutcome()
}
