package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/state"
)

// inner is a worker that dispatches a unit of its own.
func inner(dir, flags, script string) string {
	return fmt.Sprintf(`%s --backend command --prompt-file %s/p --result-file %s/inner --unit-id inner %s -- sh -c '%s' >%s/line`,
		binary, dir, dir, flags, script, dir)
}

// A unit dispatched from inside another one ends with it.
func TestNestedUnitEndsWithItsParent(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		dir := t.TempDir()
		u := begin(t, env, nil, `echo x >`+dir+`/p; `+inner(dir, "", "echo running; sleep 60")+` & while ! [ -s `+dir+`/line ]; do sleep 0.02; done; echo ready; sleep 60`)
		u.saysIn("u", "ready")
		u.cmd.Process.Signal(os.Interrupt)
		if got := u.wait(); got != 130 {
			t.Errorf("exit %d, want 130", got)
		}
		if left := u.marked(); len(left) != 0 {
			t.Errorf("alive: %v\n%s", left, u.describe())
		}
	})
}

// A unit that detached from inside another one lives on, and says whose it was.
func TestDetachedUnitOutlivesItsParent(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		dir := t.TempDir()
		u := begin(t, env, nil, `echo x >`+dir+`/p; `+inner(dir, "--detach", "echo running; while ! [ -e "+dir+"/end ]; do sleep 0.02; done; echo done >\"$PRUN_RESULT_FILE\"")+`; echo ready`)
		if got := u.wait(); got != 0 {
			t.Fatalf("exit %d\n%s", got, u.describe())
		}
		outer := u.unitCalled("u")
		o, err := outer.ReadOutcome()
		if err != nil || o == nil || !o.ProvenEmpty {
			t.Errorf("outer outcome %+v %v", o, err)
		}
		in := u.unitCalled("inner")
		if live, why := in.Liveness(); live != state.Running {
			t.Fatalf("inner unit is %v (%s), want running\n%s", live, why, u.describe())
		}
		if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var got *state.Outcome
		u.until(5*time.Second, "the inner unit's outcome", func() bool { got, _ = in.ReadOutcome(); return got != nil })
		if got.Cause != state.Exited || got.Result != state.ResultWorker || got.ParentUnit != outer.Dir || !got.ProvenEmpty {
			t.Errorf("inner outcome %+v", *got)
		}
		u.empty(2 * time.Second)
	})
}

// unitCalled waits for the state directory of a unit id.
func (u *unitRun) unitCalled(id string) state.Unit {
	u.t.Helper()
	var dir string
	u.until(5*time.Second, "a state directory of "+id, func() bool {
		dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*"))
		for _, d := range dirs {
			if name, ok := state.UnitOf(filepath.Base(d)); ok && name == id {
				dir = d
			}
		}
		return dir != ""
	})
	return state.Unit{Dir: dir}
}

func (u *unitRun) saysIn(id, text string) {
	u.t.Helper()
	unit := u.unitCalled(id)
	u.until(10*time.Second, "tail of "+id+" says "+text, func() bool {
		b, _ := os.ReadFile(unit.Path(state.FileTail))
		return strings.Contains(string(b), text)
	})
}
