package main

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

func cgroupUsable() bool {
	leaf, err := proc.NewLeaf(fmt.Sprintf("prun-test-%d", os.Getpid()))
	if err != nil {
		return false
	}
	leaf.Remove()
	leaf.Close()
	return true
}

// escapee is a worker that leaves a double-forked child of another session
// that ignores TERM, and then goes on.
const escapee = `(setsid sh -c 'trap "" TERM INT HUP; sleep 60' & ) ; echo started; `

// The front door is killed: the unit goes on and its result lands.
func TestFrontDoorKilled(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := begin(t, env, nil, `echo started; sleep 0.3; echo '# u result' >"$PRUN_RESULT_FILE"; exit 0`)
		u.says("started")
		u.cmd.Process.Kill()
		if got := u.wait(); got != 137 {
			t.Errorf("front door ended with %d, want 137", got)
		}
		o := u.outcome()
		if o.Cause != state.Exited || o.Result != state.ResultWorker || !o.ProvenEmpty {
			t.Errorf("outcome %+v", o)
		}
		u.empty(2 * time.Second)
	})
}

// The front door is told to stop: tree gone, FALLBACK names the signal.
func TestFrontDoorStopped(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		modes(t, func(t *testing.T, env []string) {
			u := begin(t, env, nil, escapee+`sleep 60`)
			u.says("started")
			u.cmd.Process.Signal(sig)
			if got, want := u.wait(), 128+int(sig); got != want {
				t.Errorf("exit %d, want %d\n%s", got, want, u.describe())
			}
			if left := u.marked(); len(left) != 0 {
				t.Errorf("alive after the front door ended: %v\n%s", left, u.describe())
			}
			b, err := os.ReadFile(u.result)
			name := map[syscall.Signal]string{15: "SIGTERM", 2: "SIGINT", 1: "SIGHUP"}[sig]
			if err != nil || !strings.Contains(string(b), name) || !result.IsFallbackHeader(b[:max(strings.IndexByte(string(b), '\n'), 0)]) {
				t.Errorf("result %q %v, want a FALLBACK that names %s", b, err, name)
			}
			if o := u.outcome(); o.Cause != state.Interrupted || o.Signal != int(sig) || !o.ProvenEmpty {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// The supervisor is killed: the keeper ends the tree and concludes.
func TestSupervisorKilled(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := begin(t, env, nil, escapee+`sleep 60`)
		u.says("started")
		u.kill(u.identity().Supervisor)
		u.empty(2 * time.Second)
		o := u.outcome()
		if o.Cause != state.Lost || o.Result != state.ResultFallback || !o.ProvenEmpty {
			t.Errorf("outcome %+v", o)
		}
		b, _ := os.ReadFile(u.result)
		if !strings.Contains(string(b), "supervisor") || !strings.Contains(string(b), "started") {
			t.Errorf("salvage %q", b)
		}
		if got := u.wait(); got != 70 {
			t.Errorf("exit %d, want 70", got)
		}
	})
}

// The keeper is killed: nothing changes but a note.
func TestKeeperKilled(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := begin(t, env, nil, escapee+`sleep 0.3; echo '# u result' >"$PRUN_RESULT_FILE"; exit 5`)
		u.says("started")
		u.kill(u.identity().Keeper)
		if got := u.wait(); got != 5 {
			t.Errorf("exit %d, want 5\n%s", got, u.describe())
		}
		o := u.outcome()
		if o.Result != state.ResultWorker || !o.ProvenEmpty || o.Leftovers == 0 {
			t.Errorf("outcome %+v", o)
		}
		u.empty(2 * time.Second)
	})
}

// Supervisor and keeper are killed together: the front door is the last above
// the tree, ends it and concludes.
func TestSupervisorAndKeeperKilled(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := begin(t, env, nil, escapee+`sleep 60`)
		u.says("started")
		id := u.identity()
		u.kill(id.Keeper)
		u.kill(id.Supervisor)
		if got := u.wait(); got != 70 {
			t.Errorf("exit %d, want 70\n%s", got, u.describe())
		}
		if o := u.outcome(); o.Cause != state.Lost || !o.ProvenEmpty {
			t.Errorf("outcome %+v", o)
		}
		u.empty(2 * time.Second)
	})
}

// All are killed at once: no outcome, and every reader says lost.
func TestAllKilled(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := begin(t, env, nil, escapee+`sleep 60`)
		u.says("started")
		id := u.identity()
		u.cmd.Process.Kill()
		u.kill(id.Keeper)
		u.kill(id.Supervisor)
		unit := u.unit()
		u.until(2*time.Second, "lost", func() bool { l, _ := unit.Liveness(); return l == state.LivenessLost })
		if o, err := unit.ReadOutcome(); o != nil || err != nil {
			t.Errorf("outcome %v %v, want none", o, err)
		}
	})
}

// Each party, and every set of them, is killed at a random moment; the front
// door is also told to stop at one. The rounds of one kind run beside each other.
func TestRandomKills(t *testing.T) {
	seed := time.Now().UnixNano()
	if s := os.Getenv("PRUN_TEST_SEED"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("PRUN_TEST_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("PRUN_TEST_SEED=%d", seed)
	rnd := rand.New(rand.NewSource(seed))
	modes(t, func(t *testing.T, env []string) {
		for victims, name := range []string{
			"front-told", "front", "keeper", "front-keeper", "supervisor", "front-supervisor", "keeper-supervisor", "all",
		} {
			for round := range rounds(t, 20) {
				delay := time.Duration(rnd.Intn(90_000)) * time.Microsecond
				kind := rnd.Intn(3)
				script := escapee + []string{
					`sleep 0.05; echo '# u result' >"$PRUN_RESULT_FILE"; exit 0`,
					`sleep 0.05; exit 3`,
					`: >"$PRUN_RESULT_FILE"; sleep 0.05; exit 0`,
				}[kind]
				t.Run(fmt.Sprintf("%s-%d-kind%d-%v", name, round, kind, delay), func(t *testing.T) {
					t.Parallel()
					u := begin(t, env, nil, script)
					pause(delay)
					if victims == 0 {
						u.cmd.Process.Signal(syscall.SIGTERM)
						u.wait()
					} else {
						killParties(u, victims)
					}
					u.settled(victims&6 == 6, kind)
				})
			}
		}
	})
}

// pause lets a random moment come; nothing is waited for.
func pause(d time.Duration) { <-time.After(d) }

// killParties kills the front door (1), the keeper (2) and the supervisor (4).
func killParties(u *unitRun, victims int) {
	if victims&1 != 0 {
		u.cmd.Process.Kill()
	}
	for _, p := range u.marked() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		name, _, _ := strings.Cut(string(b), "\x00")
		if name == "prun-keeper" && victims&2 != 0 || name == "prun-supervisor" && victims&4 != 0 {
			syscall.Kill(p, syscall.SIGKILL)
		}
	}
}

// settled checks what must be true after any kill: one truthful end, no torn
// result, no temporary name, nothing alive that no record names.
func (u *unitRun) settled(guardsGone bool, kind int) {
	t := u.t
	t.Helper()
	if !guardsGone {
		// A bound for a machine that has no time; it is a matter of milliseconds.
		u.empty(time.Minute)
	}
	dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*"))
	if len(dirs) > 1 {
		t.Fatalf("more than one state directory: %v", dirs)
	}
	hidden, _ := filepath.Glob(filepath.Join(u.base, state.HiddenPrefix+"*"))
	if len(hidden) > 0 && !guardsGone {
		t.Errorf("hidden directory left: %v\n%s", hidden, u.describe())
	}
	if len(dirs) == 0 {
		if _, err := os.Lstat(u.result); err == nil {
			t.Errorf("a result without a unit\n%s", u.describe())
		}
		return
	}
	unit := state.Unit{Dir: dirs[0]}
	if guardsGone {
		// Nobody concludes but the front door, if it lives.
		select {
		case <-u.done:
		case <-time.After(20 * time.Second):
			if u.cmd.ProcessState == nil && len(u.marked()) == 0 {
				t.Fatalf("front door hangs\n%s", u.describe())
			}
		}
	}
	o, err := unit.ReadOutcome()
	if err != nil {
		t.Fatalf("outcome unreadable: %v\n%s", err, u.describe())
	}
	if o == nil {
		// A killed guard counts as alive until its last thread is gone.
		deadline := time.Now().Add(5 * time.Second)
		live, why := unit.Liveness()
		for guardsGone && live == state.Ending && time.Now().Before(deadline) {
			pause(5 * time.Millisecond)
			live, why = unit.Liveness()
		}
		if !guardsGone || live != state.LivenessLost && live != state.Running {
			t.Errorf("no outcome and %v (%s)\n%s", live, why, u.describe())
		}
		return
	}
	if !o.ProvenEmpty {
		t.Errorf("not proven empty: %+v", *o)
	}
	b, err := os.ReadFile(u.result)
	switch {
	case err != nil && o.Result != state.ResultNone:
		t.Errorf("no result file, outcome says %s\n%s", o.Result, u.describe())
	case err == nil && string(b) == "# u result\n":
		if o.Result != state.ResultWorker {
			t.Errorf("the worker's result stands and the outcome says %s\n%s", o.Result, u.describe())
		}
	case err == nil && len(b) == 0:
		if kind != 2 {
			t.Errorf("an empty result stands\n%s", u.describe())
		}
	case err == nil:
		if !strings.HasPrefix(string(b), "# u result (FALLBACK, ") || !strings.Contains(string(b), "Verification:") {
			t.Errorf("torn result %q\n%s", b, u.describe())
		}
	}
	left := func() []string {
		names, _ := filepath.Glob(filepath.Join(filepath.Dir(u.result), ".r.prun*"))
		return names
	}
	if guardsGone && len(left()) > 0 {
		// All died between the outcome (C7) and the clearing up (C8): nobody is
		// left for it but prun-reap, which has to do it.
		if f := supervise.Reap(supervise.Dispatch{}, unit, now); f.Left != "" || f.Err != nil {
			t.Errorf("reaping %+v\n%s", f, u.describe())
		}
		if b2, err := os.ReadFile(u.result); err != nil || string(b2) != string(b) {
			t.Errorf("reaping changed the result to %q (%v)", b2, err)
		}
	}
	if names := left(); len(names) > 0 {
		t.Errorf("temporary names left: %v\n%s", names, u.describe())
	}
	if _, err := os.Lstat(unit.Path(state.FileOutcomeReserve)); err == nil && o.Cause != state.Lost {
		t.Logf("reserve left beside the outcome")
	}
}

// Each named step of the supervisor's life is its last, with every kind of
// result.
func TestSupervisorCrashPoints(t *testing.T) {
	kinds := []string{
		`echo said; echo '# u result' >"$PRUN_RESULT_FILE"; exit 0`,
		`echo said; exit 3`,
		`echo said; : >"$PRUN_RESULT_FILE"; exit 0`,
	}
	modes(t, func(t *testing.T, env []string) {
		for _, point := range supervise.Points() {
			if point[0] != 'S' && point[0] != 'C' {
				continue
			}
			for kind, script := range kinds {
				t.Run(fmt.Sprintf("%s-%d", point, kind), func(t *testing.T) {
					t.Parallel()
					u := begin(t, append(env, "PRUN_CRASH_AT=S."+point), nil, script)
					code := u.wait()
					u.settled(false, kind)
					dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*"))
					if before := point < "S6" && point[0] == 'S'; before {
						if len(dirs) != 0 || code != 70 {
							t.Errorf("exit %d, directories %v\n%s", code, dirs, u.describe())
						}
						return
					}
					o := u.outcome()
					// Seen by the supervisor or by the keeper as a zombie: the end
					// is known from C0 on.
					if known := point[0] == 'C'; known && o.Cause == state.Lost {
						t.Errorf("the worker's end was known, and the outcome says %s\n%s", o.Cause, u.describe())
					}
					if point[0] == 'S' && o.Cause != state.Lost && o.Cause != state.Exited && o.Cause != state.Failed {
						t.Errorf("cause %s\n%s", o.Cause, u.describe())
					}
				})
			}
		}
	})
}

// Each named step of the front door and the keeper.
func TestFrontAndKeeperCrashPoints(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		for _, point := range []string{"F.F1", "F.F2", "F.F6", "K.K1", "K.K2"} {
			t.Run(point, func(t *testing.T) {
				u := begin(t, append(env, "PRUN_CRASH_AT="+point), nil, `echo '# u result' >"$PRUN_RESULT_FILE"`)
				code := u.wait()
				u.empty(5 * time.Second)
				dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*"))
				switch point {
				case "F.F1":
					if len(dirs) != 0 || code != 137 {
						t.Errorf("exit %d, %v", code, dirs)
					}
				case "F.F2", "F.F6":
					// Before go: the unit was announced and never ran, or was never
					// made.
					if len(dirs) == 1 {
						o := u.outcome()
						if o.Cause != state.LaunchFailed {
							t.Errorf("cause %s, want launch-failed\n%s", o.Cause, u.describe())
						}
					}
				case "K.K1":
					if code != 70 || len(dirs) != 0 {
						t.Errorf("exit %d, %v", code, dirs)
					}
				case "K.K2":
					// Dead before it was told the unit's names: nothing was made.
					// Dead after: the supervisor goes on without it.
					if made := len(dirs) == 1; made && code != 0 || !made && code != 70 {
						t.Errorf("exit %d, directories %v\n%s", code, dirs, u.describe())
					}
				}
			})
		}
	})
}

// A supervisor that was stopped hears a request to stop.
func TestStoppedSupervisorIsWoken(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		u := begin(t, env, nil, `echo started; sleep 60`)
		u.says("started")
		if err := u.identity().Supervisor.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		u.cmd.Process.Signal(syscall.SIGTERM)
		if got := u.wait(); got != 143 {
			t.Errorf("exit %d, want 143\n%s", got, u.describe())
		}
		u.empty(time.Second)
	})
}
