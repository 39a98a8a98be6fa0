package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// Reasons why a unit is left as it is.
const (
	LeftSupervisorAlive  = "supervisor-alive"
	LeftUnknownIdentity  = "unknown-identity"
	LeftIdentityMismatch = "identity-mismatch"
	LeftForeignHost      = "foreign-host"
	LeftForeignNamespace = "foreign-namespace"
	LeftActive           = "active"
	LeftNotOurs          = "not-ours"
	LeftNoWorkerRecord   = "no-worker-record"
	LeftKillFailed       = "kill-failed"
	LeftLegacyState      = "legacy-state"
)

// The means by which a lost unit is known to have nothing alive, beside the
// containments of package proc.
const (
	// MeansBoot: the machine has been started anew since.
	MeansBoot = "boot"
	// MeansUnstarted: its worker was never started.
	MeansUnstarted = "unstarted"
)

// A Finding is what reaping one unit came to. Exactly one of Reaped,
// Terminated, Would and Left is set, or none for a unit with nothing to do.
type Finding struct {
	Unit state.Unit
	// Reaped names the means that proved the unit empty.
	Reaped string
	// Terminated: every process that could be verified is gone, and nothing
	// proves that none escaped. PID is the worker's recorded number.
	Terminated bool
	PID        int
	// Would: a dry run found a unit that it would reap.
	Would bool
	// Left is the reason why nothing was done.
	Left string
	// Detail is for people.
	Detail string
	// Killed counts the processes that were ended.
	Killed int
	// Outcome is what the unit was settled with.
	Outcome *state.Outcome
}

// ReapOptions says how far reaping may go.
type ReapOptions struct {
	DryRun bool
	// IncludeActive ends a live orphan also while its output grows.
	IncludeActive bool
	// Look is how long a live orphan's output is watched for growth.
	Look time.Duration
}

// reapBound is the time for ending one tree.
const reapBound = 10 * time.Second

// Reap ends what is left of a unit that nobody answers for, and settles it. A
// unit whose supervisor or keeper may be alive is not touched, and no process
// is signalled whose identity is not verified. A unit that has its outcome and
// was proven empty is left alone without a word.
func Reap(rec Record, u state.Unit, opts ReapOptions) Finding {
	f := Finding{Unit: u}
	left := func(reason, detail string) Finding {
		f.Left, f.Detail = reason, detail
		return f
	}
	if !owned(u.Dir) {
		return left(LeftNotOurs, "the state directory belongs to another user")
	}
	settled, err := u.ReadOutcome()
	if err != nil {
		return left(LeftUnknownIdentity, err.Error())
	}
	if settled != nil && settled.ProvenEmpty {
		if u.Unfinished() && !opts.DryRun {
			f.finish(rec, settled)
		}
		return f
	}
	id, err := u.ReadIdentity()
	switch {
	case err != nil:
		return left(LeftUnknownIdentity, err.Error())
	case id == nil && settled != nil:
		return f
	case id == nil:
		return left(LeftLegacyState, "made by an older version, which recorded no identity")
	case id.Machine != "" && pid.Machine() != "" && id.Machine != pid.Machine():
		return left(LeftForeignHost, "the unit ran on another machine")
	}
	if fi, err := os.Stat(u.Dir); err == nil {
		if dev, ino := fileID(fi); ino != 0 && id.DirIno != 0 && (dev != id.DirDev || ino != id.DirIno) {
			return left(LeftUnknownIdentity, "the directory is a copy of the one that was made")
		}
	}
	otherBoot := id.Supervisor.Boot != "" && pid.Boot() != "" && id.Supervisor.Boot != pid.Boot()
	if !otherBoot && id.Supervisor.NS != 0 && id.Supervisor.NS != pid.Namespace() {
		return left(LeftForeignNamespace, "the unit runs in another pid namespace")
	}
	lock, err := atomicfile.TryLock(u.Path(state.FileLock))
	if errors.Is(err, atomicfile.ErrLocked) {
		// A keeper that was stopped concludes as soon as it is woken.
		if keeperStopped(*id) && !opts.DryRun && wakeUp(id.Keeper) == nil {
			return left(LeftSupervisorAlive, "its keeper was stopped; it was continued and concludes")
		}
		return left(LeftSupervisorAlive, "somebody answers for the unit")
	}
	if err != nil {
		return left(LeftUnknownIdentity, err.Error())
	}
	defer lock.Unlock()
	if alive, err := id.Supervisor.Alive(); err != nil || alive {
		if err != nil {
			return left(LeftUnknownIdentity, err.Error())
		}
		return left(LeftSupervisorAlive, "the supervisor is alive, its lock is not visible here")
	}
	r := &reaping{Finding: f, rec: rec, id: *id, opts: opts, settled: settled, otherBoot: otherBoot}
	return r.run()
}

// finish does what a killed concluder of a settled unit left undone, unless
// somebody is still at it.
func (f *Finding) finish(rec Record, o *state.Outcome) {
	lock, err := atomicfile.TryLock(f.Unit.Path(state.FileLock))
	if err != nil {
		return
	}
	defer lock.Unlock()
	if err := finish(rec, f.Unit, partyReaper, o); err != nil {
		f.Detail = err.Error()
	}
}

type reaping struct {
	Finding
	rec       Record
	id        state.Identity
	opts      ReapOptions
	settled   *state.Outcome
	otherBoot bool
	worker    *state.WorkerRecord
	leaf      *proc.Leaf
	leafGone  bool
}

func (r *reaping) run() Finding {
	var err error
	if r.worker, err = r.Unit.ReadWorker(); err != nil {
		return r.leave(LeftUnknownIdentity, err.Error())
	}
	if r.worker != nil {
		r.PID = r.worker.Worker.PID
	}
	if r.otherBoot {
		return r.settle(proc.Proof{Containment: proc.Containment(r.id.Containment), Empty: true}, MeansBoot)
	}
	if reason, detail := r.open(); reason != "" {
		return r.leave(reason, detail)
	}
	if r.leaf != nil {
		defer r.leaf.Close()
	}
	if !r.opts.IncludeActive && r.anythingAlive() && r.active() {
		return r.leave(LeftActive, "still alive, and its output grows; --include-active ends it")
	}
	switch {
	case r.leaf != nil:
		return r.endLeaf()
	case r.leafGone:
		return r.settle(proc.Proof{Containment: proc.Cgroup, Empty: true}, string(proc.Cgroup))
	}
	if r.worker == nil && !r.captured() {
		// The captures are made before the worker is started.
		return r.settle(proc.Proof{Containment: proc.Containment(r.id.Containment), Empty: true}, MeansUnstarted)
	}
	return r.endOrphans()
}

func (r *reaping) leave(reason, detail string) Finding {
	r.Left, r.Detail = reason, detail
	return r.Finding
}

// open finds the leaf, and checks that the worker's number is still the
// worker's where nothing better than the number is known.
func (r *reaping) open() (reason, detail string) {
	if r.id.Leaf != "" && (r.worker == nil || r.worker.Containment == string(proc.Cgroup)) {
		leaf, err := proc.OpenLeaf(r.id.Leaf, r.id.LeafInode)
		switch {
		case err == nil:
			r.leaf = leaf
		case errors.Is(err, proc.ErrGone):
			// The kernel removes only an empty group, and no name is used twice.
			r.leafGone = true
		default:
			return LeftIdentityMismatch, err.Error()
		}
		return "", ""
	}
	if r.worker == nil {
		return "", ""
	}
	now, err := pid.Of(r.worker.Worker.PID)
	if err != nil {
		return "", ""
	}
	if now.Start != r.worker.Worker.Start || r.worker.Worker.Inode != 0 && now.Inode != 0 && now.Inode != r.worker.Worker.Inode {
		return LeftIdentityMismatch, fmt.Sprintf("process %d is not the unit's worker", now.PID)
	}
	return "", ""
}

func (r *reaping) anythingAlive() bool {
	if r.leaf != nil {
		populated, err := r.leaf.Populated()
		return err != nil || populated
	}
	if r.worker != nil {
		if alive, err := r.worker.Worker.Alive(); err != nil || alive {
			return true
		}
	}
	orphans, err := proc.Orphans(r.Unit.Dir)
	return err == nil && len(orphans) > 0
}

// active reports output within the unit's stall threshold, or during a look.
// An orphan that works is worth more than an empty process table.
func (r *reaping) active() bool {
	size := func() (int64, time.Time) {
		var total int64
		var newest time.Time
		for _, name := range r.captures() {
			if fi, err := os.Lstat(name); err == nil && fi.Mode().IsRegular() {
				total += fi.Size()
				if fi.ModTime().After(newest) {
					newest = fi.ModTime()
				}
			}
		}
		return total, newest
	}
	before, newest := size()
	age := time.Since(newest)
	if stall := time.Duration(r.id.StallAfter * float64(time.Second)); stall > 0 && age >= 0 && age < stall {
		return true
	}
	deadline := time.NewTimer(r.opts.Look)
	defer deadline.Stop()
	step := time.NewTicker(100 * time.Millisecond)
	defer step.Stop()
	for {
		select {
		case <-deadline.C:
			return false
		case <-step.C:
			if now, _ := size(); now != before {
				return true
			}
		}
	}
}

// captures are the files that the worker writes.
func (r *reaping) captures() []string {
	if c, ok := r.rec.(Capturer); ok {
		if l, err := ReadLaunch(r.Unit); err == nil {
			return c.Captures(r.Unit, &l)
		}
	}
	return []string{r.Unit.Path(state.FileTail), r.Unit.Path(state.FileStderr)}
}

func (r *reaping) captured() bool {
	for _, name := range r.captures() {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

func (r *reaping) endLeaf() Finding {
	members, _ := r.leaf.Members()
	if r.opts.DryRun {
		r.Would, r.Killed = true, len(members)
		return r.Finding
	}
	if err := errors.Join(r.leaf.Kill(reapBound), r.leaf.Remove()); err != nil {
		return r.leave(LeftKillFailed, err.Error())
	}
	r.Killed = len(members)
	return r.settle(proc.Proof{Containment: proc.Cgroup, Empty: true, Leftovers: len(members)}, string(proc.Cgroup))
}

// endOrphans ends what carries the unit's mark, or is its recorded worker,
// until a round finds none. Something that cleared its environment cannot be
// seen, so this proves nothing.
func (r *reaping) endOrphans() Finding {
	end := time.Now().Add(reapBound)
	spared := detachedUnits(r.Unit)
	seen := map[pid.ID]bool{}
	for {
		found, err := r.orphans(spared)
		if err != nil && r.worker == nil {
			return r.leave(LeftNoWorkerRecord, err.Error())
		}
		if len(found) == 0 {
			break
		}
		if r.opts.DryRun {
			r.Would, r.Killed = true, len(found)
			return r.Finding
		}
		for _, one := range found {
			seen[one] = true
			if err := one.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, pid.ErrGone) && !errors.Is(err, pid.ErrMismatch) {
				return r.leave(LeftKillFailed, err.Error())
			}
		}
		if time.Now().After(end) {
			return r.leave(LeftKillFailed, fmt.Sprintf("still alive after %v: %v", reapBound, found))
		}
		// A killed process is gone when its parent has taken it, which is not
		// ours to do.
		pause := time.NewTimer(5 * time.Millisecond)
		<-pause.C
	}
	r.Killed = len(seen)
	if r.worker == nil && r.Killed == 0 {
		return r.leave(LeftNoWorkerRecord, "the worker was being started when its supervisor died, and nothing names it")
	}
	if r.opts.DryRun {
		r.Would = true
		return r.Finding
	}
	proof := proc.Proof{
		Containment: proc.Containment(r.id.Containment), Leftovers: r.Killed,
		Note: "unproven: ended without a cgroup and without a parent; a process that cleared its environment is not seen",
	}
	if r.worker != nil {
		proof.Containment = proc.Containment(r.worker.Containment)
	}
	return r.settle(proof, "")
}

// orphans are the living processes that are verifiably of this unit.
func (r *reaping) orphans(spared func(int) bool) ([]pid.ID, error) {
	marked, err := proc.Orphans(r.Unit.Dir)
	var found []pid.ID
	for _, one := range marked {
		if !spared(one.PID) {
			found = append(found, one)
		}
	}
	if r.worker != nil {
		if alive, aerr := r.worker.Worker.Alive(); aerr == nil && alive {
			found = append(found, r.worker.Worker)
		}
	}
	return found, err
}

// settle gives the unit its outcome. means is empty where nothing is proven.
func (r *reaping) settle(proof proc.Proof, means string) Finding {
	if r.opts.DryRun {
		r.Would = true
		return r.Finding
	}
	if r.settled != nil && r.Unit.Unfinished() {
		if err := finish(r.rec, r.Unit, partyReaper, r.settled); err != nil {
			r.Detail = err.Error()
		}
	}
	if r.settled == nil {
		o, err := conclude(r.rec, r.Unit, r.id, r.worker, proof, r.otherBoot)
		if err != nil && o == nil {
			return r.leave(LeftUnknownIdentity, err.Error())
		}
		r.Outcome = o
		if err != nil {
			r.Detail = err.Error()
		}
	}
	r.Reaped, r.Terminated = means, means == ""
	return r.Finding
}

func conclude(rec Record, u state.Unit, id state.Identity, worker *state.WorkerRecord, proof proc.Proof, otherBoot bool) (*state.Outcome, error) {
	c, err := adopt(rec, u, partyReaper, func(string) {})
	if err != nil {
		return nil, err
	}
	e := ending{started: id.Created, cause: state.Lost, reason: "its supervisor and keeper were killed", proof: proof}
	if otherBoot {
		e.reason = "ended by a restart of the machine"
	}
	if worker != nil {
		e.started = worker.Started
	}
	if x, err := u.ReadWorkerExit(); err == nil && x != nil {
		e.cause, e.reason, e.exit = state.Exited, "", &proc.Exit{Code: x.Code, Signal: x.Signal}
	}
	e.notes = append(e.notes, "concluded by prun-reap")
	o, err := c.conclude(e)
	if errors.Is(err, errUnrecorded) {
		return nil, err
	}
	return &o, err
}

func keeperStopped(id state.Identity) bool {
	if alive, err := id.Keeper.Alive(); err != nil || !alive {
		return false
	}
	stopped, err := pid.Stopped(id.Keeper.PID)
	return err == nil && stopped
}

// ClearUnborn removes a state directory that never got its name because
// everybody who was making it was killed, and the empty cgroup that may have
// been made for it. It is left when somebody still holds its lock, when it is
// another user's, or when it is too young to be given up.
func ClearUnborn(dir string) bool {
	u := state.Unit{Dir: dir}
	fi, err := os.Lstat(dir)
	if err != nil || !owned(dir) || time.Since(fi.ModTime()) < unbornAge {
		return false
	}
	if held, err := atomicfile.Held(u.Path(state.FileLock)); err != nil && !errors.Is(err, fs.ErrNotExist) || held {
		return false
	}
	if id, err := u.ReadIdentity(); err == nil && id != nil && id.Leaf != "" {
		if leaf, err := proc.OpenLeaf(id.Leaf, id.LeafInode); err == nil {
			_ = leaf.Remove()
			leaf.Close()
		}
	}
	removeState(dir)
	return true
}

// unbornAge is far beyond the milliseconds that a birth takes.
const unbornAge = time.Minute
