//go:build crashpoints

package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// The long walk over all named steps: go test -tags 'forceposix crashpoints'
// -run Points ./cmd/prun-dispatch, or make soak.

// kinds are the workers by what they leave at the result path.
var kinds = []struct{ name, script string }{
	{"result", `echo said; echo '# u result' >"$PRUN_RESULT_FILE"; exit 0`},
	{"nothing", `echo said; exit 3`},
	{"empty", `echo said; : >"$PRUN_RESULT_FILE"; exit 0`},
}

func stepsOf(party string, from string) []string {
	var out []string
	points := supervise.Points()
	first := max(slices.Index(points, from), 0)
	for _, p := range points[first:] {
		if strings.Contains(party, p[:1]) {
			out = append(out, p)
		}
	}
	return out
}

// ours reports whether the story of that name belongs to the share that is asked
// for: PRUN_TEST_SHARE=K/N is the Kth of N, and without it every story is.
func ours(t *testing.T, name string) bool {
	share := os.Getenv("PRUN_TEST_SHARE")
	if share == "" {
		return true
	}
	var k, n uint32
	if _, err := fmt.Sscanf(share, "%d/%d", &k, &n); err != nil || n == 0 || k >= n {
		t.Fatalf("PRUN_TEST_SHARE=%s: want K/N, K from 0 to N-1", share)
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()%n == k
}

// everyKind runs a story for each kind of worker and containment.
func everyKind(t *testing.T, name string, env []string, story func(t *testing.T, u *unitRun, kind int)) {
	for kind, k := range kinds {
		for _, mode := range []string{"cgroup", "subreaper"} {
			if !ours(t, name+"-"+k.name+"-"+mode) {
				continue
			}
			t.Run(name+"-"+k.name+"-"+mode, func(t *testing.T) {
				if mode == "cgroup" && !cgroupUsable() {
					t.Skip("condition not met: a writable cgroup v2")
				}
				t.Parallel()
				story(t, begin(t, append([]string{"PRUN_CONTAINMENT=" + mode}, env...), nil, k.script), kind)
			})
		}
	}
}

// clean checks what must be true after any kill once everybody who may conclude
// has done so: one truthful outcome or none, no torn result, nothing temporary,
// nothing alive.
func (u *unitRun) clean(kind int) *state.Outcome {
	t := u.t
	t.Helper()
	u.empty(time.Minute)
	names, _ := filepath.Glob(filepath.Join(u.base, ".*"))
	if len(names) > 0 {
		t.Errorf("left in the base: %v\n%s", names, u.describe())
	}
	beside, _ := filepath.Glob(filepath.Join(filepath.Dir(u.result), ".*"))
	dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*"))
	b, rerr := os.ReadFile(u.result)
	if len(dirs) == 0 {
		if rerr == nil {
			t.Errorf("a result without a unit: %q", b)
		}
		return nil
	}
	unit := state.Unit{Dir: dirs[0]}
	o, err := unit.ReadOutcome()
	if err != nil || o == nil {
		t.Errorf("outcome %v %v\n%s", o, err, u.describe())
		return nil
	}
	// Without a proof that no writer is left, a file that was moved aside stays,
	// and the outcome names it.
	beside = slices.DeleteFunc(beside, func(name string) bool {
		return !o.ProvenEmpty && slices.ContainsFunc(o.Notes, func(n string) bool { return strings.Contains(n, name) })
	})
	if len(beside) > 0 {
		t.Errorf("left beside the result: %v\n%s", beside, u.describe())
	}
	names, _ = filepath.Glob(filepath.Join(unit.Dir, ".*"))
	if len(names) > 0 {
		t.Errorf("left in the state directory: %v\n%s", names, u.describe())
	}
	// A process that exits gives up its environment, by which it is known, before
	// its files.
	u.within(10*time.Second, "the lock is free", func() bool { return !unit.Held() })
	header, _, _ := strings.Cut(string(b), "\n")
	switch {
	case rerr != nil:
		if o.Result != state.ResultNone {
			t.Errorf("outcome says %s and there is no result\n%s", o.Result, u.describe())
		}
	case string(b) == "# u result\n":
		if o.Result != state.ResultWorker {
			t.Errorf("outcome says %s of the worker's result\n%s", o.Result, u.describe())
		}
	case len(b) == 0:
		if kind != 2 || o.Result != state.ResultNone {
			t.Errorf("an empty result stands, outcome says %s\n%s", o.Result, u.describe())
		}
	case !result.IsFallbackHeader([]byte(header)) || !strings.Contains(string(b), "\nVerification: ") || o.Result != state.ResultFallback:
		t.Errorf("torn result %q, outcome says %s\n%s", b, o.Result, u.describe())
	case !strings.HasSuffix(string(b), "said\n"):
		if tail, _ := os.ReadFile(unit.Path(state.FileTail)); len(tail) > 0 {
			t.Errorf("the FALLBACK lacks the tail: %q\n%s", b, u.describe())
		}
	}
	return o
}

// truthful checks an outcome against what the worker did.
func (u *unitRun) truthful(o *state.Outcome, kind int, known bool) {
	t := u.t
	t.Helper()
	if o == nil {
		return
	}
	want := []int{0, 3, 0}[kind]
	switch {
	case o.Cause == state.Lost || o.Cause == state.LaunchFailed:
		if known {
			t.Errorf("the worker's end was on disk, and the outcome says %s\n%s", o.Cause, u.describe())
		}
	case o.ExitCode == nil || *o.ExitCode != want || (o.Cause == state.Exited) != (want == 0):
		t.Errorf("outcome %+v, want exit code %d\n%s", *o, want, u.describe())
	}
	if kind == 0 && (o.Cause == state.Exited) && o.Result != state.ResultWorker {
		t.Errorf("the worker's result is called %s", o.Result)
	}
}

// Supervisor and keeper are killed at every pair of steps: the front door
// concludes.
func TestPointsOfSupervisorAndKeeper(t *testing.T) {
	for _, s := range stepsOf("SC", "S6") {
		for _, k := range stepsOf("C", "C2") {
			at := "S." + s + ",K." + k
			everyKind(t, at, []string{"PRUN_CRASH_AT=" + at}, func(t *testing.T, u *unitRun, kind int) {
				u.wait()
				if s == "S6" {
					// The front door was not told the name.
					u.empty(time.Minute)
					u.reap("")
				}
				u.truthful(u.clean(kind), kind, s >= "C1" && s[0] == 'C')
			})
		}
	}
}

// Supervisor, keeper and front door are killed, each at a step of its own:
// prun-reap concludes, and may be killed too.
func TestPointsOfEverybody(t *testing.T) {
	settle := stepsOf("C", "C2")
	for i, s := range stepsOf("SC", "S6") {
		for j, k := range settle {
			f := settle[(i+2*j)%len(settle)]
			r := settle[(3*i+j)%len(settle)]
			at := "S." + s + ",K." + k + ",F." + f
			everyKind(t, at, []string{"PRUN_CRASH_AT=" + at}, func(t *testing.T, u *unitRun, kind int) {
				u.wait()
				u.reap("R." + r)
				u.reap("")
				u.truthful(u.clean(kind), kind, s >= "C1" && s[0] == 'C')
			})
		}
	}
}

// Front door and keeper at every step that is theirs alone, for every kind.
func TestPointsOfFrontAndKeeper(t *testing.T) {
	for _, at := range []string{"F.F1", "F.F2", "F.F6", "K.K1", "K.K2", "F.F6,S.S7a", "F.F6,S.C4", "K.K2,S.S9", "K.K2,S.C5"} {
		everyKind(t, at, []string{"PRUN_CRASH_AT=" + at}, func(t *testing.T, u *unitRun, kind int) {
			u.wait()
			u.empty(time.Minute)
			u.reap("")
			o := u.clean(kind)
			u.truthful(o, kind, false)
			if o != nil && strings.HasPrefix(at, "F.") && o.Cause != state.LaunchFailed && o.Cause != state.Lost {
				t.Errorf("cause %s before go", o.Cause)
			}
		})
	}
}

// Every write that the life of a unit needs fails, for everybody and for the
// supervisor alone.
func TestPointsFailing(t *testing.T) {
	for _, step := range supervise.WritePoints() {
		for i, errno := range []string{"ENOSPC", "EIO", "EACCES"} {
			for _, who := range []string{"", "S."} {
				if who == "" && step[0] == 'S' || i > 0 && who == "" {
					continue
				}
				at := who + step + "=" + errno
				everyKind(t, at, []string{"PRUN_FAIL_AT=" + at}, func(t *testing.T, u *unitRun, kind int) {
					code := u.wait()
					u.failed(code, who, step, kind)
				})
			}
		}
	}
}

func (u *unitRun) failed(code int, who, step string, kind int) {
	t := u.t
	t.Helper()
	own := []int{0, 3, 0}[kind]
	contained := slices.Contains(u.cmd.Env, "PRUN_CONTAINMENT=cgroup")
	unrecorded := step == "C7" && who == ""
	if unrecorded {
		// Nobody could write the outcome: the next one can.
		u.empty(time.Minute)
		if code == 0 {
			t.Error("exit 0 without an outcome")
		}
		u.reap("")
	}
	o := u.clean(kind)
	says := func(cause state.Cause, status int) {
		t.Helper()
		if o == nil || o.Cause != cause || code != status {
			t.Errorf("exit %d, outcome %+v, want %s and %d\n%s", code, o, cause, status, u.describe())
		}
	}
	natural := state.Exited
	if own != 0 {
		natural = state.Failed
	}
	switch step {
	case "S2", "S3", "S5", "S6":
		if o != nil || code == 0 {
			t.Errorf("exit %d, outcome %+v, want a refusal\n%s", code, o, u.describe())
		}
	case "S4":
		if contained {
			if o != nil || code != 2 {
				t.Errorf("exit %d, outcome %+v, want a refusal\n%s", code, o, u.describe())
			}
			return
		}
		says(natural, own)
	case "S7b", "S8a":
		says(state.LaunchFailed, 70)
		if b, err := os.ReadFile(u.result); err != nil || !strings.HasPrefix(string(b), "# u result (FALLBACK") {
			t.Errorf("result %q %v", b, err)
		}
	case "S9", "C1":
		says(natural, own)
	case "C4":
		// With the worker's own result nothing has to be written.
		status := own
		if kind == 2 {
			status = 74
		}
		says(natural, status)
		if kind > 0 && o != nil && (o.Result != state.ResultNone || len(o.Notes) == 0) {
			t.Errorf("outcome %+v\n%s", o, u.describe())
		}
	case "C7":
		u.truthful(o, kind, true)
		if !unrecorded && code != own && code != 74 {
			t.Errorf("exit %d\n%s", code, u.describe())
		}
	}
}

// reaper is prun-reap with crash points, built once.
var reaper = sync.OnceValues(func() (string, error) {
	name := filepath.Join(filepath.Dir(binary), "prun-reap")
	build := exec.Command("go", "build", "-tags", "forceposix crashpoints", "-o", name, "../prun-reap")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build prun-reap: %w: %s", err, out)
	}
	return name, nil
})

// reap runs prun-reap over the unit's base.
func (u *unitRun) reap(at string) {
	u.t.Helper()
	name, err := reaper()
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.Command(name, "--include-active", "--root", u.base)
	cmd.Env = append(os.Environ(), "PRUN_CRASH_AT="+at)
	out, err := cmd.CombinedOutput()
	if at == "" && err != nil {
		u.t.Errorf("prun-reap: %v: %s\n%s", err, out, u.describe())
	}
}
