package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// orphan is a unit whose front door, keeper and supervisor were all killed
// while its worker and an escapee run.
func orphan(t *testing.T, env []string, args []string, script string) *unitRun {
	t.Helper()
	u := begin(t, env, args, script)
	u.says("started")
	unit := u.unit()
	u.until(5*time.Second, "a worker record", func() bool { w, _ := unit.ReadWorker(); return w != nil })
	id := u.identity()
	u.cmd.Process.Kill()
	u.kill(id.Keeper)
	u.kill(id.Supervisor)
	u.until(2*time.Second, "lost", func() bool { l, _ := unit.Liveness(); return l == state.LivenessLost })
	return u
}

var now = supervise.ReapOptions{Look: 150 * time.Millisecond}

func TestReapOrphan(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := orphan(t, env, []string{"--stall", "0"}, escapee+`sleep 60`)
		dry := now
		dry.DryRun = true
		if f := supervise.Reap(supervise.Dispatch{}, u.unit(), dry); !f.Would || len(u.marked()) == 0 {
			t.Errorf("dry run: %+v", f)
		}
		f := supervise.Reap(supervise.Dispatch{}, u.unit(), now)
		proven := strings.Contains(env[0], "=cgroup")
		if proven && f.Reaped != "cgroup" || !proven && !f.Terminated {
			t.Errorf("finding %+v\n%s", f, u.describe())
		}
		if left := u.marked(); len(left) != 0 {
			t.Errorf("alive after reaping: %v\n%s", left, u.describe())
		}
		o := u.outcome()
		if o.Cause != state.Lost || o.Result != state.ResultFallback || o.ProvenEmpty != proven {
			t.Errorf("outcome %+v", o)
		}
		b, err := os.ReadFile(u.result)
		if err != nil || !strings.HasPrefix(string(b), "# u result (FALLBACK, ") || !strings.Contains(string(b), "started") {
			t.Errorf("salvage %q %v", b, err)
		}
		if again := supervise.Reap(supervise.Dispatch{}, u.unit(), now); again.Left != "" || again.Would || again.Terminated || again.Reaped != "" {
			t.Errorf("second time: %+v", again)
		}
	})
}

// An orphan that works is left alone unless asked for.
func TestActiveOrphanIsLeft(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := orphan(t, env, []string{"--stall", "0"}, `echo started; while :; do echo more; sleep 0.02; done`)
		if f := supervise.Reap(supervise.Dispatch{}, u.unit(), now); f.Left != supervise.LeftActive {
			t.Errorf("finding %+v, want active", f)
		}
		if len(u.marked()) == 0 {
			t.Error("the worker was ended")
		}
		all := now
		all.IncludeActive = true
		if f := supervise.Reap(supervise.Dispatch{}, u.unit(), all); f.Left != "" {
			t.Errorf("finding %+v", f)
		}
		u.empty(time.Second)
	})
}

// The worker's number now belongs to somebody else: nothing is signalled.
func TestRecycledNumberIsLeft(t *testing.T) {
	victim := exec.Command("sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	u := orphan(t, []string{"PRUN_CONTAINMENT=subreaper"}, []string{"--stall", "0"}, `echo started; exec sleep 60`)
	for _, p := range u.marked() {
		syscall.Kill(p, syscall.SIGKILL)
	}
	u.empty(2 * time.Second)
	unit := u.unit()
	w, err := unit.ReadWorker()
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	w.Worker.PID = victim.Process.Pid
	b, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unit.Path(state.FileWorker), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != supervise.LeftIdentityMismatch {
		t.Errorf("finding %+v, want identity-mismatch", f)
	}
	if id, err := pid.Of(victim.Process.Pid); err != nil {
		t.Error(err)
	} else if alive, _ := id.Alive(); !alive {
		t.Error("the victim is dead")
	}
}

func TestReapLeaves(t *testing.T) {
	doctored := func(t *testing.T, change func(*state.Identity)) state.Unit {
		u := orphan(t, []string{"PRUN_CONTAINMENT=subreaper"}, nil, `echo started; exec sleep 60`)
		unit := u.unit()
		id := u.identity()
		change(&id)
		if err := unit.WriteIdentity(id); err != nil {
			t.Fatal(err)
		}
		return unit
	}
	tests := []struct {
		name, want string
		change     func(*state.Identity)
	}{
		{"another machine", supervise.LeftForeignHost, func(id *state.Identity) { id.Machine = strings.Repeat("0", 32) }},
		{"another namespace", supervise.LeftForeignNamespace, func(id *state.Identity) { id.Supervisor.NS++ }},
		{"a copy", supervise.LeftUnknownIdentity, func(id *state.Identity) { id.DirIno++ }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			unit := doctored(t, tt.change)
			if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != tt.want {
				t.Errorf("finding %+v, want %s", f, tt.want)
			}
		})
	}
	t.Run("another boot", func(t *testing.T) {
		unit := doctored(t, func(id *state.Identity) {
			id.Supervisor.Boot, id.DirDev = "00000000-0000-0000-0000-000000000000", id.DirDev+1
		})
		if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Reaped != supervise.MeansBoot || f.Outcome == nil || f.Outcome.Cause != state.Lost {
			t.Errorf("finding %+v", f)
		}
	})
	t.Run("another boot of who knows which machine", func(t *testing.T) {
		unit := doctored(t, func(id *state.Identity) { id.Supervisor.Boot, id.Machine = "00000000-0000-0000-0000-000000000000", "" })
		if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != supervise.LeftUnknownIdentity || f.Err != nil {
			t.Errorf("finding %+v", f)
		}
	})
	t.Run("an older directory", func(t *testing.T) {
		dir := t.TempDir()
		if f := supervise.Reap(supervise.Dispatch{}, state.Unit{Dir: dir}, now); f.Left != supervise.LeftLegacyState {
			t.Errorf("finding %+v", f)
		}
	})
	t.Run("another user's", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("condition not met: root")
		}
		dir := t.TempDir()
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if f := supervise.Reap(supervise.Dispatch{}, state.Unit{Dir: dir}, now); f.Left != supervise.LeftNotOurs {
			t.Errorf("finding %+v", f)
		}
	})
}

// A unit that is answered for is not touched.
func TestReapLeavesLiveUnit(t *testing.T) {
	u := begin(t, nil, nil, `echo started; sleep 60`)
	u.says("started")
	if f := supervise.Reap(supervise.Dispatch{}, u.unit(), now); f.Left != supervise.LeftSupervisorAlive {
		t.Errorf("finding %+v, want supervisor-alive", f)
	}
	if len(u.marked()) < 4 {
		t.Errorf("something was ended\n%s", u.describe())
	}
}

// The unit may be looked at under another name than its worker knows; what has
// no mark is known by its session and by its output; and a cgroup that cannot be
// seen from here proves nothing.
func TestReapFindsWhatHides(t *testing.T) {
	const hidden = `echo started; env -i sleep 61 >/dev/null & env -i setsid sleep 62 & exec sleep 60`
	modes(t, func(t *testing.T, env []string) {
		u := orphan(t, env, []string{"--stall", "0"}, hidden)
		u.until(2*time.Second, "the hidden ones", func() bool { return len(sleepers(u)) == 3 })
		unit := u.unit()
		if strings.Contains(env[0], "=cgroup") {
			id := u.identity()
			leaf, inode := id.Leaf, id.LeafInode
			t.Cleanup(func() {
				if l, err := proc.OpenLeaf(leaf, inode); err == nil {
					_ = errors.Join(l.Kill(time.Second), l.Remove(), l.Close())
				}
			})
			id.Leaf = "/nonexistent/" + filepath.Base(leaf)
			if err := unit.WriteIdentity(id); err != nil {
				t.Fatal(err)
			}
		}
		link := filepath.Join(t.TempDir(), "elsewhere")
		if err := os.Symlink(u.base, link); err != nil {
			t.Fatal(err)
		}
		// Whatever is killed, it was seen: the list is taken before.
		alive := sleepers(u)
		f := supervise.Reap(supervise.Dispatch{}, state.Unit{Dir: filepath.Join(link, unit.Name())}, now)
		if !f.Terminated || f.Killed < 3 {
			t.Errorf("finding %+v", f)
		}
		for _, id := range alive {
			if yes, _ := id.Alive(); yes {
				t.Errorf("alive: %v", id)
			}
		}
		if o := u.outcome(); o.Cause != state.Lost || o.ProvenEmpty {
			t.Errorf("outcome %+v", o)
		}
	})
}

// sleepers are the processes of a unit that have its tail or its session, found by
// the worker's number without the code under test.
func sleepers(u *unitRun) (list []pid.ID) {
	w, err := u.unit().ReadWorker()
	if err != nil || w == nil {
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		cwd, _ := os.Readlink("/proc/" + e.Name() + "/cwd")
		if !strings.HasPrefix(string(cmdline), "sleep\x0060\x00") && !strings.HasPrefix(string(cmdline), "sleep\x0061\x00") &&
			!strings.HasPrefix(string(cmdline), "sleep\x0062\x00") || !strings.HasPrefix(cwd, u.base) {
			continue
		}
		if id, err := pid.Of(p); err == nil {
			list = append(list, id)
		}
	}
	return list
}

// Several reapers at once, and one while a keeper that was stopped concludes: the
// unit is settled once, and nobody who comes too late says a word or writes a line.
func TestReapersAtOnce(t *testing.T) {
	patient := now
	patient.Patience = 20 * time.Second
	entries := func(t *testing.T, ledger string) int {
		b, err := os.ReadFile(ledger)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
	t.Run("reapers", func(t *testing.T) {
		ledger := filepath.Join(t.TempDir(), "ledger")
		u := orphan(t, nil, []string{"--stall", "0", "--ledger", ledger}, escapee+`sleep 60`)
		findings := make(chan supervise.Finding, 6)
		for range cap(findings) {
			go func() { findings <- supervise.Reap(supervise.Dispatch{}, u.unit(), patient) }()
		}
		spoke := 0
		for range cap(findings) {
			f := <-findings
			if f.Left != "" || f.Err != nil {
				t.Errorf("finding %+v", f)
			}
			if f.Reaped != "" || f.Terminated {
				spoke++
			}
		}
		if spoke != 1 {
			t.Errorf("%d reapers say that they did it", spoke)
		}
		if n := entries(t, ledger); n != 2 {
			t.Errorf("%d lines in the ledger, want 2", n)
		}
		u.empty(time.Second)
	})
	t.Run("keeper", func(t *testing.T) {
		ledger := filepath.Join(t.TempDir(), "ledger")
		u := begin(t, []string{"PRUN_CRASH_AT=K.C7a=stop"}, []string{"--stall", "0", "--ledger", ledger}, `echo started; exec sleep 60`)
		u.says("started")
		id := u.identity()
		u.kill(id.Supervisor)
		u.until(5*time.Second, "a stopped keeper", func() bool { yes, _ := pid.Stopped(id.Keeper.PID); return yes })
		dry := now
		dry.DryRun = true
		if f := supervise.Reap(supervise.Dispatch{}, u.unit(), dry); f.Left != supervise.LeftSupervisorAlive {
			t.Errorf("dry run: %+v", f)
		}
		if f := supervise.Reap(supervise.Dispatch{}, u.unit(), patient); f.Left != "" || f.Outcome != nil || f.Terminated || f.Reaped != "" {
			t.Errorf("finding %+v, want nothing", f)
		}
		u.wait()
		if n := entries(t, ledger); n != 2 {
			t.Errorf("%d lines in the ledger, want 2", n)
		}
	})
}

// The front door and prun-reap may both stand ready for a unit whose supervisor and
// keeper were killed.
func TestFrontWaitsForReaper(t *testing.T) {
	u := begin(t, nil, []string{"--stall", "0"}, `echo started; exec sleep 60`)
	u.says("started")
	id, unit := u.identity(), u.unit()
	front, err := pid.Of(u.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := front.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	u.kill(id.Keeper)
	u.kill(id.Supervisor)
	u.until(2*time.Second, "lost", func() bool { l, _ := unit.Liveness(); return l == state.LivenessLost })
	if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != "" || f.Outcome == nil {
		t.Errorf("finding %+v", f)
	}
	if err := front.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	u.wait()
	if o := u.outcome(); o.Cause != state.Lost {
		t.Errorf("outcome %+v", o)
	}
	if text := u.stderr.String(); strings.Contains(text, "conclude unit") {
		t.Errorf("the front door complains: %s", text)
	}
}

// What was seen of the worker's own end is the unit's end.
func TestReapSettlesFromTheRecord(t *testing.T) {
	u := begin(t, []string{"PRUN_CRASH_AT=S.C1=stop"}, nil, `echo started; echo "# u result" >"$PRUN_RESULT_FILE"; exit 0`)
	unit, id := u.unit(), u.identity()
	u.until(5*time.Second, "the worker's end", func() bool { x, _ := unit.ReadWorkerExit(); return x != nil })
	u.cmd.Process.Kill()
	u.kill(id.Keeper)
	u.kill(id.Supervisor)
	u.until(2*time.Second, "lost", func() bool { l, _ := unit.Liveness(); return l == state.LivenessLost })
	f := supervise.Reap(supervise.Dispatch{}, unit, now)
	if f.Left != "" || f.Outcome == nil || f.Outcome.Cause != state.Exited || f.Outcome.Result != state.ResultWorker {
		t.Errorf("finding %+v", f)
	}
}

// What a unit was told to leave alive is not an orphan, unless asked for.
func TestReapSparesWhatWasKept(t *testing.T) {
	u := begin(t, []string{"PRUN_LEFTOVERS=keep"}, []string{"--stall", "0"}, `echo started; (setsid sleep 60 >/dev/null 2>&1 &); exit 0`)
	u.wait()
	if o := u.outcome(); o.ProvenEmpty || o.Leftovers != 1 {
		t.Fatalf("outcome %+v", o)
	}
	spare := now
	spare.SpareKept = true
	f := supervise.Reap(supervise.Dispatch{}, u.unit(), spare)
	if f.Left != "" || f.Reaped != "" || f.Terminated || len(u.marked()) != 1 {
		t.Errorf("finding %+v, alive %v", f, u.marked())
	}
	if f := supervise.Reap(supervise.Dispatch{}, u.unit(), now); f.Left != "" || f.Killed != 1 {
		t.Errorf("finding %+v", f)
	}
	u.empty(time.Second)
}

// Nothing is believed in a directory that others can write to or that is a link,
// and what cannot be read is an error.
func TestReapDisbelieves(t *testing.T) {
	u := orphan(t, []string{"PRUN_CONTAINMENT=subreaper"}, []string{"--stall", "0"}, `echo started; exec sleep 60`)
	unit := u.unit()
	link := filepath.Join(t.TempDir(), unit.Name())
	if err := os.Symlink(unit.Dir, link); err != nil {
		t.Fatal(err)
	}
	if f := supervise.Reap(supervise.Dispatch{}, state.Unit{Dir: link}, now); f.Left != supervise.LeftNotOurs {
		t.Errorf("a link: %+v", f)
	}
	if err := os.Chmod(unit.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != supervise.LeftNotOurs {
		t.Errorf("open to others: %+v", f)
	}
	if err := os.Chmod(unit.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{state.FileWorker, state.FileLaunch, state.FileIdentity, state.FileOutcome} {
		whole, _ := os.ReadFile(unit.Path(name))
		if err := os.WriteFile(unit.Path(name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != supervise.LeftUnknownIdentity || f.Err == nil {
			t.Errorf("%s: %+v", name, f)
		}
		if whole == nil {
			os.Remove(unit.Path(name))
		} else if err := os.WriteFile(unit.Path(name), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(u.marked()) != 1 {
		t.Error("something was ended")
	}
	if f := supervise.Reap(supervise.Dispatch{}, unit, now); !f.Terminated {
		t.Errorf("finding %+v", f)
	}
	if f := supervise.Reap(supervise.Dispatch{}, state.Unit{Dir: unit.Dir + "-gone"}, now); f.Left != "" {
		t.Errorf("a directory that is gone: %+v", f)
	}
}

// An orphan whose output has stood still long enough is not looked at any longer.
func TestNoLookAtWhatStoodStill(t *testing.T) {
	u := orphan(t, nil, []string{"--stall", "0"}, `echo started; exec sleep 60`)
	long := now
	long.Look = 3 * time.Second
	fi, err := os.Stat(u.unit().Path(state.FileTail))
	if err != nil {
		t.Fatal(err)
	}
	u.until(10*time.Second, "an old tail", func() bool { return time.Since(fi.ModTime()) > long.Look })
	begun := time.Now()
	if f := supervise.Reap(supervise.Dispatch{}, u.unit(), long); f.Left != "" {
		t.Errorf("finding %+v", f)
	}
	if took := time.Since(begun); took > long.Look {
		t.Errorf("took %v; a look alone is %v", took, long.Look)
	}
}

// A worker removes its own state directory, and the supervisor is killed while
// it publishes what is left: no temporary name stays beside the result.
func TestRemovedWhilePublishing(t *testing.T) {
	for _, step := range []string{"C5.1", "C5.2", "C5.3", "C5.4"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			u := begin(t, []string{"PRUN_CRASH_AT=S." + step}, nil, `rm -rf "$PRUN_STATE_DIR"; exit 3`)
			u.wait()
			u.empty(time.Minute)
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(u.result), ".*")); len(left) > 0 {
				t.Errorf("left beside the result: %v\n%s", left, u.describe())
			}
		})
	}
}
