package proc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// notOurs starts a shell script as a process that is nobody's child here, in a
// session of its own, and returns its identity and those that the script
// printed, one number a line, after n of them.
func notOurs(t *testing.T, script string, n int) (root pid.ID, others []pid.ID) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command("sh", "-c", `setsid sh -c 'echo $$; `+script+`' </dev/null 2>/dev/null &`)
	c.Stdout = w
	err = c.Run()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	for i := 0; i <= n && lines.Scan(); i++ {
		p, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			t.Fatal(err)
		}
		id, err := pid.Of(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = id.Signal(syscall.SIGKILL) })
		if others = append(others, id); i == 0 {
			root, others = id, nil
		}
	}
	if len(others) != n {
		t.Fatalf("the script printed %d numbers, want %d", len(others), n)
	}
	return root, others
}

func gone(t *testing.T, id pid.ID) bool {
	t.Helper()
	alive, err := id.Alive()
	if err != nil {
		t.Fatal(err)
	}
	return !alive
}

func TestKillTree(t *testing.T) {
	tests := []struct {
		name, script string
		n            int
	}{
		{"alone", `exec sleep 60`, 0},
		{"children", `sleep 60 & echo $!; sleep 60 & echo $!; wait`, 2},
		{"three levels", `sh -c "sh -c \"sleep 60 & echo \\\$!; wait\" & echo \$!; wait" & echo $!; wait`, 3},
		{"stubborn", `trap "" TERM INT HUP; sleep 60 & echo $!; wait`, 1},
		{"another session", `setsid sh -c "echo \$\$; exec sleep 60" & wait`, 1},
		{"orphan in the session", `(sleep 60 & echo $!); wait; exec sleep 60`, 1},
		{"stopped", `sleep 60 & echo $!; kill -STOP $!; kill -STOP $$`, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, others := notOurs(t, tt.script, tt.n)
			bystander, _ := notOurs(t, `exec sleep 60`, 0)
			p := KillTree(root, 5*time.Second)
			if len(p.Remaining) != 0 || p.Leftovers < tt.n || p.Empty {
				t.Errorf("proof %+v, want at least %d below and nothing left", p, tt.n)
			}
			for _, id := range append(others, root) {
				if !gone(t, id) {
					t.Errorf("process %v is alive", id)
				}
			}
			if gone(t, bystander) {
				t.Error("a process beside the tree was ended")
			}
		})
	}
}

// Processes that come while the tree is being ended are ended too.
func TestKillTreeThatGrows(t *testing.T) {
	root, _ := notOurs(t, `i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep 60 & done; while :; do sleep 0.01; done`, 0)
	p := KillTree(root, 5*time.Second)
	if len(p.Remaining) != 0 {
		t.Errorf("proof %+v", p)
	}
	all, err := census()
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(all, func(k kin) bool { return k.session != root.PID || !lives(k.pid) })
	if len(left) > 0 {
		t.Errorf("alive in its session: %v", left)
	}
}

// A number that belongs to somebody else now, our own and an ancestor's are
// left alone.
func TestKillTreeRefuses(t *testing.T) {
	other, _ := notOurs(t, `exec sleep 60`, 0)
	stale := other
	stale.Start--
	stale.Inode = 0
	for _, id := range []pid.ID{stale, pid.Self()} {
		if p := KillTree(id, time.Second); p.Leftovers != 0 || p.Note == "" {
			t.Errorf("%v: proof %+v", id, p)
		}
	}
	if parent, err := pid.Of(os.Getppid()); err == nil {
		if p := KillTree(parent, time.Second); fmt.Sprint(p.Remaining) != fmt.Sprint([]int{parent.PID}) {
			t.Errorf("our parent: proof %+v", p)
		}
	}
	if gone(t, other) {
		t.Error("a process with another identity was ended")
	}
}
