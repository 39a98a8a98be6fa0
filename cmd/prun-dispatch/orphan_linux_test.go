package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
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
		if again := supervise.Reap(supervise.Dispatch{}, u.unit(), now); again.Left != "" || again.Would {
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
		unit := doctored(t, func(id *state.Identity) { id.Supervisor.Boot = "00000000-0000-0000-0000-000000000000" })
		if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Reaped != supervise.MeansBoot || f.Outcome == nil || f.Outcome.Cause != state.Lost {
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
