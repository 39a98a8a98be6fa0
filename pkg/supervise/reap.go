package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// Reasons why a unit is left as it is. A worker that has ended by itself is no
// reason: its unit is settled from the record of that end.
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

// A Finding is what reaping one unit came to. At most one of Reaped,
// Terminated, Would and Left is set; none is for a unit with nothing to do.
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
	// Killed counts the processes that were ended, or would be.
	Killed int
	// Outcome is what the unit was settled with.
	Outcome *state.Outcome
	// Err is a file of the unit that could not be read or written. With Reaped
	// or Terminated the processes are gone all the same.
	Err error
}

// ReapOptions says how far reaping may go.
type ReapOptions struct {
	// DryRun changes nothing at all: no file, no process, no lock.
	DryRun bool
	// IncludeActive ends a live orphan also while its output grows.
	IncludeActive bool
	// SpareKept leaves alone what a settled unit was told to leave alive.
	SpareKept bool
	// SettleUnnamed settles a unit without a record of its worker also when
	// nothing is found that bears its traces: lost, and unproven. Otherwise it is
	// left, because such a worker could only be one that shows no trace at all.
	SettleUnnamed bool
	// Look is how long a live orphan's output must have stood still.
	Look time.Duration
	// Patience is how long to wait for somebody who is concluding the unit
	// after its supervisor's death.
	Patience time.Duration
}

const (
	// reapBound is the time for ending one tree.
	reapBound = 10 * time.Second
	// unnamedPause is far beyond the microseconds from a worker's fork to its exec.
	unnamedPause = 100 * time.Millisecond
)

// Reap ends what is left of a unit that nobody answers for, and settles it. A
// unit whose supervisor or keeper may be alive is not touched, and no process
// is signalled whose identity is not verified. A unit that has its outcome and
// has nothing alive is left alone without a word.
func Reap(rec Record, u state.Unit, opts ReapOptions) Finding {
	r := &reaping{Finding: Finding{Unit: u}, rec: rec, opts: opts}
	if !r.ours() || !r.unsettled(false) || !r.here() {
		return r.Finding
	}
	if opts.DryRun {
		if u.Held() {
			return r.leave(LeftSupervisorAlive, "somebody answers for the unit")
		}
	} else {
		lock, err := r.lock()
		if err != nil {
			return r.Finding
		}
		defer lock.Unlock()
		// Whoever had it may have concluded meanwhile.
		if !r.unsettled(true) {
			return r.Finding
		}
	}
	if !r.deserted() {
		return r.Finding
	}
	return r.run()
}

// Candidate reports whether Reap has to look at a unit at all. It changes nothing.
func Candidate(u state.Unit, opts ReapOptions) bool {
	opts.DryRun = true
	r := &reaping{Finding: Finding{Unit: u}, opts: opts}
	return r.ours() && (r.unsettled(false) || u.Unfinished()) || r.Left != ""
}

type reaping struct {
	Finding
	rec       Record
	id        state.Identity
	opts      ReapOptions
	settled   *state.Outcome
	otherBoot bool
	worker    *state.WorkerRecord
	conclude  *concluder // nil for a settled unit
	leaf      *proc.Leaf
	leafGone  bool
}

func (r *reaping) leave(reason, detail string) Finding {
	r.Left, r.Detail = reason, detail
	return r.Finding
}

// unreadable leaves a unit for what cannot be read.
func (r *reaping) unreadable(err error) bool {
	r.Left, r.Detail, r.Err = LeftUnknownIdentity, err.Error(), err
	return false
}

// ours reports a directory of this user's that nobody else may write to:
// nothing in any other is believed, or even read.
func (r *reaping) ours() bool {
	fi, err := os.Lstat(r.Unit.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false // removed since it was listed
	case err != nil:
		return r.unreadable(err)
	case !fi.IsDir():
		r.leave(LeftNotOurs, "not a directory itself; links are not followed")
	case !owned(r.Unit.Dir):
		r.leave(LeftNotOurs, "the state directory belongs to another user")
	case !private(fi):
		r.leave(LeftNotOurs, "others can write to the state directory")
	default:
		return true
	}
	return false
}

// unsettled reads the outcome. A settled unit goes on only when something of it
// may be alive. locked: the caller holds the unit's lock.
func (r *reaping) unsettled(locked bool) bool {
	var err error
	if r.settled, err = r.Unit.ReadOutcome(); err != nil {
		return r.unreadable(err)
	}
	if r.settled == nil {
		return true
	}
	if r.Unit.Unfinished() && !r.opts.DryRun {
		r.finish(locked)
	}
	if r.settled.ProvenEmpty {
		return false
	}
	if r.opts.SpareKept {
		if l, err := ReadLaunch(r.Unit); err == nil && (l.KeepLeftovers || l.KeepEnded) {
			return false
		}
	}
	return true
}

// finish does what a killed concluder of a settled unit left undone, unless
// somebody is still at it.
func (r *reaping) finish(locked bool) {
	if !locked {
		lock, err := atomicfile.TryLock(r.Unit.Path(state.FileLock))
		if err != nil {
			return
		}
		defer lock.Unlock()
	}
	if err := finish(r.rec, r.Unit, partyReaper, r.settled); err != nil {
		r.Detail, r.Err = err.Error(), err
	}
}

// here reads the identity, and reports that the unit is one of this machine.
func (r *reaping) here() bool {
	id, err := r.Unit.ReadIdentity()
	switch {
	case err != nil:
		return r.unreadable(err)
	case id == nil && r.settled != nil:
		return false
	case id == nil:
		r.leave(LeftLegacyState, "made by an older version, which recorded no identity")
		return false
	}
	r.id = *id
	machine := pid.Machine()
	r.otherBoot = id.Supervisor.Boot != "" && pid.Boot() != "" && id.Supervisor.Boot != pid.Boot()
	if id.Machine != "" && machine != "" && id.Machine != machine {
		r.leave(LeftForeignHost, "the unit ran on another machine")
		return false
	}
	if r.otherBoot && (id.Machine == "" || machine == "") {
		r.leave(LeftUnknownIdentity, "another boot, and the machines cannot be compared: it may run elsewhere")
		return false
	}
	if err := r.Unit.Original(id); errors.Is(err, state.ErrCopy) {
		r.leave(LeftUnknownIdentity, err.Error())
		return false
	} else if err != nil {
		return r.unreadable(err)
	}
	return true
}

// lock takes the unit's lock. One that a dead supervisor's heir holds is waited
// for: it is concluding, or does so as soon as it is woken.
func (r *reaping) lock() (*atomicfile.Lock, error) {
	name := r.Unit.Path(state.FileLock)
	lock, err := atomicfile.TryLock(name)
	if errors.Is(err, atomicfile.ErrLocked) {
		detail := "somebody answers for the unit"
		if keeperStopped(r.id) && wakeUp(r.id.Keeper) == nil {
			detail = "its keeper was stopped; it was continued and concludes"
		}
		if alive, aerr := r.id.Supervisor.Alive(); aerr == nil && !alive && r.opts.Patience > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), r.opts.Patience)
			defer cancel()
			lock, err = atomicfile.WaitLock(ctx, name)
		}
		if errors.Is(err, atomicfile.ErrLocked) {
			r.leave(LeftSupervisorAlive, detail)
			return nil, err
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err // the directory is gone
	}
	if err != nil {
		r.unreadable(err)
	}
	return lock, err
}

// deserted reports that supervisor and keeper are provably gone. The lock is
// ours; but a file system may not show other holders.
func (r *reaping) deserted() bool {
	here := pid.Namespace()
	if ns := r.id.Supervisor.NS; !r.otherBoot && ns != 0 && here != 0 && ns != here {
		r.leave(LeftForeignNamespace, "the unit ran in another pid namespace, whose processes cannot be told from here")
		return false
	}
	for _, guard := range []struct {
		name string
		id   pid.ID
	}{{"supervisor", r.id.Supervisor}, {"keeper", r.id.Keeper}} {
		if guard.id.PID == 0 && guard.name == "keeper" {
			continue // Windows has none
		}
		alive, err := guard.id.Alive()
		if err != nil {
			r.leave(LeftUnknownIdentity, guard.name+": "+err.Error())
			return false
		}
		if alive {
			r.leave(LeftSupervisorAlive, "the "+guard.name+" is alive, its lock is not visible here")
			return false
		}
	}
	return true
}

func (r *reaping) run() Finding {
	var err error
	if r.worker, err = r.Unit.ReadWorker(); err != nil {
		r.unreadable(err)
		return r.Finding
	}
	if r.worker != nil {
		r.PID = r.worker.Worker.PID
	}
	if r.settled == nil {
		// Before anything is ended: what cannot be concluded is left whole.
		if r.conclude, err = adopt(r.rec, r.Unit, partyReaper, func(string) {}); err != nil {
			r.unreadable(err)
			return r.Finding
		}
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
	if r.anythingAlive() {
		if r.inside() {
			return r.leave(LeftActive, "this program runs inside the unit")
		}
		if !r.opts.IncludeActive && r.active() {
			return r.leave(LeftActive, "still alive, and its output grows; --include-active ends it")
		}
	}
	if r.leaf != nil {
		return r.endLeaf()
	}
	return r.endOrphans()
}

// open finds the leaf, and checks that the worker's number is still the
// worker's where nothing better than the number is known.
func (r *reaping) open() (reason, detail string) {
	if r.id.Leaf != "" && (r.worker == nil || r.worker.Containment == string(proc.Cgroup)) {
		leaf, err := proc.OpenLeaf(r.id.Leaf, r.id.LeafInode)
		switch {
		case err == nil:
			r.leaf = leaf
			return "", ""
		case errors.Is(err, proc.ErrGone):
			r.leafGone = true
		case errors.Is(err, proc.ErrMismatch):
			return LeftIdentityMismatch, err.Error()
		case !errors.Is(err, proc.ErrNoCgroup):
			return LeftUnknownIdentity, err.Error()
		}
	}
	if r.worker == nil {
		return "", ""
	}
	worker := r.worker.Worker
	alive, err := worker.Alive()
	if err != nil {
		return LeftUnknownIdentity, "worker: " + err.Error()
	}
	if alive || r.leafGone {
		return "", ""
	}
	now, err := pid.Of(worker.PID)
	if err != nil {
		return "", ""
	}
	if taken, err := now.Alive(); taken || err != nil {
		return LeftIdentityMismatch, fmt.Sprintf("process %d is not the unit's worker", now.PID)
	}
	return "", ""
}

func (r *reaping) anythingAlive() bool {
	if r.leaf != nil {
		populated, err := r.leaf.Populated()
		return err != nil || populated
	}
	found, err := r.remains()
	return err != nil || len(found) > 0
}

// inside reports that this very process belongs to the unit: it must not end
// itself half way.
func (r *reaping) inside() bool {
	if r.leaf != nil {
		members, _ := r.leaf.Members()
		return slices.Contains(members, os.Getpid())
	}
	mark, err := os.Stat(os.Getenv("PRUN_STATE_DIR"))
	if err != nil {
		return false
	}
	own, err := os.Stat(r.Unit.Dir)
	return err == nil && os.SameFile(mark, own)
}

// active reports output within the unit's stall threshold, or within a look.
// An orphan that works is worth more than an empty process table.
func (r *reaping) active() bool {
	total, written, changed := r.output()
	if written.IsZero() {
		return false
	}
	age := time.Since(written)
	if stall := time.Duration(r.id.StallAfter * float64(time.Second)); stall > 0 && age >= 0 && age < stall {
		return true
	}
	if age >= r.opts.Look && time.Since(changed) >= r.opts.Look {
		// It has stood still that long already. (A change time cannot be set
		// back; one in the future says nothing.)
		return false
	}
	deadline := time.NewTimer(r.opts.Look)
	defer deadline.Stop()
	step := time.NewTicker(100 * time.Millisecond)
	defer step.Stop()
	for {
		select {
		case <-deadline.C:
			now, _, _ := r.output()
			return now != total
		case <-step.C:
			if now, _, _ := r.output(); now != total {
				return true
			}
		}
	}
}

// output measures what the worker has written: bytes, and when.
func (r *reaping) output() (total int64, written, changed time.Time) {
	for _, name := range r.captures() {
		info, err := atomicfile.Look(name)
		if err != nil || !info.Mode.IsRegular() {
			continue
		}
		total += info.Size
		if info.ModTime.After(written) {
			written = info.ModTime
		}
		if info.ChangeTime.After(changed) {
			changed = info.ChangeTime
		}
	}
	return total, written, changed
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
	r.Killed = len(members)
	if !r.opts.DryRun {
		if err := r.leaf.Kill(reapBound); err != nil {
			return r.leave(LeftKillFailed, err.Error())
		}
		if err := r.leaf.Remove(); err != nil {
			// It is empty, which is what counts.
			r.Detail = err.Error()
		}
	}
	return r.settle(proc.Proof{Containment: proc.Cgroup, Empty: true, Leftovers: r.Killed}, string(proc.Cgroup))
}

// endOrphans ends what bears the unit's traces until a round finds none.
// Something that bears none cannot be seen, so this proves nothing, unless
// there was nothing to begin with.
func (r *reaping) endOrphans() Finding {
	var end time.Time
	seen := map[pid.ID]bool{}
	again := r.worker == nil && r.opts.SettleUnnamed && !r.opts.DryRun
	for {
		found, err := r.remains()
		if err != nil && r.worker == nil {
			return r.leave(LeftNoWorkerRecord, err.Error())
		}
		if err != nil {
			return r.leave(LeftKillFailed, err.Error())
		}
		for _, one := range found {
			seen[one] = true
			if r.PID == 0 {
				r.PID = one.PID
			}
		}
		if len(found) == 0 && again {
			// A worker on its way from fork to exec bears no traces yet.
			again = false
			pause := time.NewTimer(unnamedPause)
			<-pause.C
			continue
		}
		if len(found) == 0 || r.opts.DryRun {
			break
		}
		if end.IsZero() {
			end = time.Now().Add(reapBound)
		} else if time.Now().After(end) {
			// Only after a look that came after a kill: on a busy machine a look
			// alone may take long.
			return r.leave(LeftKillFailed, fmt.Sprintf("still alive after %v: %v", reapBound, found))
		}
		for _, one := range found {
			if err := one.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, pid.ErrGone) && !errors.Is(err, pid.ErrMismatch) {
				return r.leave(LeftKillFailed, err.Error())
			}
		}
		// A killed process is gone when its parent has taken it, which is not
		// ours to do.
		pause := time.NewTimer(5 * time.Millisecond)
		<-pause.C
	}
	r.Killed = len(seen)
	proof := proc.Proof{Containment: proc.Containment(r.id.Containment), Leftovers: r.Killed}
	if r.Killed == 0 {
		switch {
		case r.worker != nil && r.leafGone:
			// The kernel removes only an empty group, and no name is used twice.
			return r.settle(proc.Proof{Containment: proc.Cgroup, Empty: true}, string(proc.Cgroup))
		case r.worker == nil && !r.captured():
			// The captures are made before the worker is started.
			proof.Empty = true
			return r.settle(proof, MeansUnstarted)
		case r.worker == nil && r.settled == nil && !r.opts.SettleUnnamed:
			return r.leave(LeftNoWorkerRecord, "the worker was being started when its supervisor died, and nothing names it")
		}
	}
	proof.Note = "unproven: ended without a cgroup and without a parent; a process that cleared its environment, closed its output and left its session is not seen"
	if r.worker != nil {
		proof.Containment = proc.Containment(r.worker.Containment)
	}
	return r.settle(proof, "")
}

// remains are the living processes that are verifiably of this unit. The
// keeper of a unit that detached from it, and all below that, is not.
func (r *reaping) remains() ([]pid.ID, error) {
	t := proc.Traces{Marks: r.marks(), Spare: detachedUnits(r.Unit)}
	if r.worker != nil {
		t.Worker = r.worker.Worker
	}
	for _, name := range r.captures() {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			t.Outputs = append(t.Outputs, real)
		}
	}
	found, err := proc.Find(t)
	if errors.Is(err, errors.ErrUnsupported) && r.worker != nil {
		// There is nothing but the worker's own number then.
		if alive, aerr := r.worker.Worker.Alive(); aerr == nil && alive {
			return []pid.ID{r.worker.Worker}, nil
		}
		return nil, nil
	}
	return found, err
}

// marks are the names under which the worker may know the directory: not
// always the one that it is looked at by.
func (r *reaping) marks() []string {
	list := []string{r.Unit.Dir}
	if abs, err := filepath.Abs(r.Unit.Dir); err == nil {
		list = append(list, abs)
	}
	if real, err := filepath.EvalSymlinks(r.Unit.Dir); err == nil {
		list = append(list, real)
	}
	if l, err := ReadLaunch(r.Unit); err == nil && l.Base != "" {
		// Only a name with a nonce is nobody else's there.
		if _, whole := state.UnitOf(r.Unit.Name()); whole {
			list = append(list, filepath.Join(l.Base, r.Unit.Name()))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// settle gives the unit its outcome. means is empty where nothing is proven. A
// unit that had one, and nothing alive, is not worth a word.
func (r *reaping) settle(proof proc.Proof, means string) Finding {
	if r.settled != nil && r.Killed == 0 {
		return r.Finding
	}
	if r.opts.DryRun {
		r.Would = true
		return r.Finding
	}
	if r.settled == nil {
		o, err := r.conclude.conclude(r.ending(proof))
		if err != nil {
			r.Detail = err.Error()
		}
		if errors.Is(err, errUnrecorded) {
			r.Err = err
		} else {
			// That a result path could not take the output is the outcome's
			// news; the unit is settled.
			r.Outcome = &o
		}
	}
	r.Reaped, r.Terminated = means, means == ""
	return r.Finding
}

// ending is how the run ended, as far as anybody recorded it.
func (r *reaping) ending(proof proc.Proof) ending {
	e := ending{started: r.id.Created, cause: state.Lost, reason: "its supervisor and keeper were killed", proof: proof}
	if r.otherBoot {
		e.reason = "ended by a restart of the machine"
	}
	if r.worker != nil {
		e.started = r.worker.Started
	}
	if x, err := r.Unit.ReadWorkerExit(); err == nil && x != nil {
		e.cause, e.reason, e.exit = state.Exited, "", &proc.Exit{Code: x.Code, Signal: x.Signal}
	}
	e.notes = append(e.notes, "concluded by prun-reap")
	return e
}

func keeperStopped(id state.Identity) bool {
	if alive, err := id.Keeper.Alive(); err != nil || !alive {
		return false
	}
	stopped, err := pid.Stopped(id.Keeper.PID)
	return err == nil && stopped
}

// ClearBase removes from a directory of state directories what killed
// supervisors left: directories that never got their name, and claims of result
// paths that nobody holds. What is no name of ours, another user's, held or
// young is left.
func ClearBase(base string) error {
	err := state.EachEntry(base, func(e fs.DirEntry) {
		name := filepath.Join(base, e.Name())
		if e.Type().IsRegular() {
			state.DropClaim(name)
			return
		}
		final, hidden := strings.CutPrefix(e.Name(), state.HiddenPrefix)
		if _, whole := state.UnitOf(final); hidden && whole && e.IsDir() {
			ClearUnborn(name)
		}
	})
	if err != nil {
		return fmt.Errorf("clear %s: %w", base, err)
	}
	return nil
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
	held, err := atomicfile.Held(u.Path(state.FileLock))
	if errors.Is(err, fs.ErrNotExist) {
		// Its lock is the first thing in it: with anything else it is not what
		// it is taken for.
		return os.Remove(dir) == nil
	}
	if err != nil || held {
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
