package proc

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// A process and its child, in no job of ours, and one beside them.
func TestKillTreeByParents(t *testing.T) {
	begin := func() (pid.ID, pid.ID) {
		file := filepath.Join(sharedDir(t), "ids")
		c := helperCommand("family", file, "")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go c.Wait()
		leader, kid := read(t, file), read(t, file+".child")
		t.Cleanup(func() {
			leader.Signal(syscall.SIGKILL)
			kid.Signal(syscall.SIGKILL)
		})
		return leader, kid
	}
	leader, kid := begin()
	beside, besideKid := begin()

	stale := leader
	stale.Start--
	if p := KillTree(stale, time.Second); p.Leftovers != 0 || p.Note == "" {
		t.Errorf("another identity: %+v", p)
	}
	if p := KillTree(leader, 5*time.Second); p.Leftovers != 1 || len(p.Remaining) != 0 || p.Empty {
		t.Errorf("%+v, want one below and nothing left", p)
	}
	dead(t, leader, kid)
	for _, id := range []pid.ID{beside, besideKid} {
		if id.Verdict() != pid.Alive {
			t.Errorf("process %v beside the tree is %v", id, id.Verdict())
		}
	}
	if p := KillTree(leader, time.Second); p.Leftovers != 0 || len(p.Remaining) != 0 {
		t.Errorf("gone already: %+v", p)
	}
}
