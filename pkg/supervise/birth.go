package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
)

// birthNames is what the keeper is told before anything exists, so that it can
// clear away a unit whose supervisor died half way.
type birthNames struct {
	Hidden string `json:"hidden"`
	Final  string `json:"final"`
	Leaf   string `json:"leaf,omitempty"`
	// Claim is the file that claims the result path.
	Claim string `json:"claim,omitempty"`
	// Result is the result path, and Owner what the names of the supervisor's
	// temporary files hold: a removed state directory no longer says it.
	Result string `json:"result,omitempty"`
	Owner  string `json:"owner,omitempty"`
}

// newborn is a unit whose state directory is complete under its final name.
type newborn struct {
	unit     state.Unit
	lock     *atomicfile.Lock
	claim    *atomicfile.Lock
	leaf     *proc.Leaf
	identity state.Identity
	scratch  string
	notes    []string
}

// bear makes the state directory: under a hidden name, locked, with every file
// that is promised before STATE-DIR, and then renamed in one step. After an
// error nothing of it is left. guard is told the names first and is sent the
// held locks; it may be nil (Windows).
func bear(rec Record, l *Launch, guard *guardLink, keeper pid.ID) (nb *newborn, refusal *Refusal) {
	nonce, err := state.NewNonce()
	if err != nil {
		return nil, &Refusal{Stage: StageStateDir, Path: l.Base, Text: err.Error()}
	}
	hidden, final := rec.Place(l, os.Getpid(), nonce)
	if !renamesOpenDirectories {
		// An open lock file forbids the rename there.
		hidden = final
	}
	names := birthNames{Hidden: hidden, Final: final}
	if l.Containment != proc.ModeSubreaper && l.ReuseLeaf == "" {
		names.Leaf = "prun-" + nonce
	}
	if l.Result != "" {
		names.Claim = state.ClaimName(l.Base, l.Result)
		names.Result, names.Owner = l.Result, ownerName(pid.Self())
	}
	if err := guard.tell(names); err != nil {
		return nil, &Refusal{Stage: StageStart, Text: err.Error()}
	}
	at(partySupervisor, "S1")

	nb = &newborn{unit: state.Unit{Dir: hidden}}
	made := ""
	defer func() {
		if refusal != nil {
			nb.abandon(made)
			nb = nil
		}
	}()
	refuse := func(stage, path string, err error) (*newborn, *Refusal) {
		return nb, &Refusal{Stage: stage, Path: path, Text: err.Error()}
	}

	if err := os.MkdirAll(filepath.Dir(final), 0o777); err != nil {
		return refuse(StageStateDir, final, err)
	}
	err = fault(partySupervisor, "S2")
	if err == nil {
		err = atomicfile.Mkdir(hidden, 0o700)
	}
	if err != nil {
		return refuse(StageStateDir, final, err)
	}
	made = hidden
	at(partySupervisor, "S2")

	if l.Result != "" {
		nb.claim, err = state.ClaimResult(l.Base, l.Result)
	}
	if err != nil {
		if errors.Is(err, atomicfile.ErrLocked) {
			return refuse(StageClaim, l.Result, errors.New("another live unit has this result path"))
		}
		// Without a lock the check is not possible here (some network file
		// systems); the unit itself still is.
		nb.notes = append(nb.notes, "result path not claimed: "+err.Error())
	}
	if err = fault(partySupervisor, "S3"); err == nil {
		nb.lock, err = atomicfile.TryLock(nb.unit.Path(state.FileLock))
	}
	if err != nil {
		return refuse(StageStateDir, final, err)
	}
	lent := []*os.File{nb.lock.File()}
	if nb.claim != nil {
		lent = append(lent, nb.claim.File())
	}
	if err := guard.lend(lent...); err != nil {
		return refuse(StageStart, "", err)
	}
	at(partySupervisor, "S3")

	if names.Leaf != "" {
		if err = fault(partySupervisor, "S4"); err == nil {
			nb.leaf, err = proc.NewLeaf(names.Leaf)
		}
		if err != nil && l.Containment == proc.ModeCgroup {
			return refuse(StageContain, "", err)
		}
	}
	if l.ReuseLeaf != "" {
		// Gone means that nothing of the earlier turns is alive; the worker
		// is then held by the subreaper alone.
		nb.leaf, _ = proc.OpenLeaf(l.ReuseLeaf, 0)
	}
	at(partySupervisor, "S4")

	if refusal := nb.furnish(rec, l, final, keeper); refusal != nil {
		return nb, refusal
	}
	at(partySupervisor, "S5")

	if hidden != final {
		if err = fault(partySupervisor, "S6"); err == nil {
			err = atomicfile.RenameNoReplace(hidden, final)
		}
		if errors.Is(err, atomicfile.ErrUnsupported) {
			err = os.Rename(hidden, final)
		}
		if err != nil {
			return refuse(StageStateDir, final, err)
		}
	}
	nb.unit.Dir, made = final, final
	if err := atomicfile.SyncDir(filepath.Dir(final)); err != nil {
		// The name may be lost at a power cut; the unit is none the worse now.
		nb.notes = append(nb.notes, err.Error())
	}
	at(partySupervisor, "S6")
	return nb, nil
}

// furnish writes everything that is promised before the unit is announced.
func (nb *newborn) furnish(rec Record, l *Launch, final string, keeper pid.ID) (refusal *Refusal) {
	u := nb.unit
	refuse := func(err error) *Refusal {
		return &Refusal{Stage: StageStateDir, Path: final, Text: err.Error()}
	}
	if nb.scratch, refusal = rec.Furnish(u, final, l); refusal != nil {
		return refusal
	}
	if err := errors.Join(fault(partySupervisor, "S5"), writeLaunch(u, *l)); err != nil {
		return refuse(err)
	}
	if err := u.ReserveOutcome(); err != nil {
		return refuse(err)
	}

	fi, err := os.Stat(u.Dir)
	if err != nil {
		return refuse(fmt.Errorf("stat state directory: %w", err))
	}
	dev, ino := fileID(fi)
	nb.identity = state.Identity{
		SchemaVersion: 1,
		Unit:          l.Unit, Backend: l.Backend,
		Front: l.Front, Keeper: keeper, Supervisor: pid.Self(),
		Machine: pid.Machine(),
		DirDev:  dev, DirIno: ino,
		Containment:  string(planned(nb.leaf)),
		Result:       l.Result,
		ResultBefore: markResult(l.Result),
		ParentUnit:   l.ParentUnit,
		Created:      time.Now().UTC(),
		StallAfter:   l.Stall.Seconds(), HardAfter: l.Hard.Seconds(),
		Ledger: l.Ledger,
	}
	if nb.leaf != nil {
		nb.identity.Leaf, nb.identity.LeafInode = nb.leaf.Path(), nb.leaf.Inode()
	}
	if err := u.WriteIdentity(nb.identity); err != nil {
		return refuse(err)
	}
	return nil
}

// planned is the containment that a unit is born with, as far as it is known
// before the worker starts.
func planned(leaf *proc.Leaf) proc.Containment {
	switch {
	case leaf != nil:
		return proc.Cgroup
	case runtime.GOOS == "linux":
		return proc.Subreaper
	case runtime.GOOS == "windows":
		return proc.Job
	}
	return proc.GroupOnly
}

// markResult records the file that stands at the result path before the run,
// by which a result that nobody touched is told from a new one.
func markResult(path string) *state.FileMark {
	if path == "" {
		return nil
	}
	info, err := result.Inspect(path)
	if err != nil || info.Kind == result.Absent || info.Kind == result.Foreign {
		return nil
	}
	return &state.FileMark{Size: info.Size, MTime: info.ModTime, Ino: info.Ino, Dev: info.Dev}
}

// abandon clears away what a refused birth has made.
func (nb *newborn) abandon(dir string) {
	if nb.leaf != nil {
		_ = nb.leaf.Remove()
		nb.leaf.Close()
	}
	if dir != "" {
		removeState(dir)
	}
	if nb.lock != nil {
		_ = nb.lock.Unlock()
	}
	if nb.claim != nil {
		_ = state.ReleaseClaim(nb.claim)
	}
}

// removeState removes a directory that was never announced. It insists on the
// mark of one: nothing else is ever removed recursively by this package.
func removeState(dir string) {
	fi, err := os.Lstat(dir)
	if err != nil || fi.Mode()&fs.ModeDir == 0 {
		return
	}
	if _, err := os.Lstat(filepath.Join(dir, state.FileOutcome)); err == nil {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		// The lock goes last: without it nobody would know the directory for
		// what it is, if this process is killed on the way.
		if e.Name() != state.FileLock {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(filepath.Join(dir, state.FileLock))
	_ = os.Remove(dir)
}
