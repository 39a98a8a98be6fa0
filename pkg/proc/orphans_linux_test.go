package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// TestFind: each trace alone gives a process away, what is below it is found with
// it, and what is spared is not.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "tail")
	// The leader; one with a mark; one that only writes to the output; one that
	// only has the session; one below the marked one without any trace of its own;
	// a spared one with one below it; one that reads the output, and is known only
	// by its parent.
	script := `exec 3>&1 1>>"$1"; exec 1>/dev/null
setsid env PRUN_STATE_DIR="$2" sh -c 'env -i setsid sleep 600 & echo marked $$; echo kin $!; wait' >&3 &
env -i setsid sh -c 'echo writer $$ >&3; exec 3>&-; exec sleep 600' >>"$1" &
env -i sh -c 'echo session $$ >&3; exec 3>&-; exec sleep 600' >/dev/null &
setsid env PRUN_STATE_DIR="$2" sh -c 'sleep 600 & echo spared $$; echo sparedkin $!; wait' >&3 &
env -i setsid sh -c 'echo reader $$ >&3; exec 3>&-; exec sleep 600' <"$1" >/dev/null &
echo leader $$ >&3
exec 3>&-
wait`
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", script, "sh", out, dir)
	c.Stdout, c.SysProcAttr = w, &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ids := map[string]pid.ID{}
	t.Cleanup(func() {
		for _, id := range ids {
			_ = id.Signal(syscall.SIGKILL)
		}
		c.Wait()
	})
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf, text := make([]byte, 4096), ""
	for strings.Count(text, "\n") < 8 {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, text)
		}
		text += string(buf[:n])
	}
	r.Close()
	for l := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(l), " ")
		p, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		id, err := pid.Of(p)
		if err != nil {
			t.Fatal(name, err)
		}
		ids[name] = id
	}
	real, err := filepath.EvalSymlinks(out)
	if err != nil {
		t.Fatal(err)
	}
	all := Traces{Marks: []string{"/nowhere", dir}, Worker: ids["leader"], Outputs: []string{real},
		Spare: func(p int) bool { return p == ids["spared"].PID }}
	names := func(found []pid.ID) []string {
		var list []string
		for name, id := range ids {
			if slices.Contains(found, id) {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	tests := []struct {
		name   string
		traces Traces
		want   string
	}{
		{"mark", Traces{Marks: all.Marks}, "kin marked spared sparedkin"},
		{"output", Traces{Outputs: all.Outputs}, "writer"},
		{"all, but the spared", all, "kin leader marked reader session writer"},
	}
	for _, tt := range tests {
		found, err := Find(tt.traces)
		if got := strings.Join(names(found), " "); err != nil || got != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.name, got, err, tt.want)
		}
	}
	// A leader with another start time is another process: its session counts
	// for nothing.
	other := all.Worker
	other.Start++
	if found, err := Find(Traces{Worker: other}); err != nil || len(names(found)) != 0 {
		t.Errorf("another leader: %v %v", names(found), err)
	}
}

// A leaf that is out of sight is not one that is gone.
func TestLeafOutOfSight(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "prun-0"), "/nonexistent/a/b"} {
		if _, err := OpenLeaf(path, 0); !errors.Is(err, ErrNoCgroup) || errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
