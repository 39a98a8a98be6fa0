package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

const nobody = 65534

// delegated makes a cgroup that belongs to nobody, as an administrator would
// hand it over, and returns an open directory to start a process in.
func delegated(t *testing.T) *os.File {
	t.Helper()
	here, err := proc.LeafOf(os.Getpid())
	if err != nil {
		t.Skip("condition not met: a cgroup v2")
	}
	dir := filepath.Join(here, "prun-delegated-"+filepath.Base(filepath.Dir(t.TempDir()))+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for os.Remove(dir) != nil && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
	})
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := os.Chown(filepath.Join(dir, name), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A worker that double-forks a setsid child that ignores TERM is reaped, as
// root and as nobody, with and without a cgroup; the outcome says which
// containment proved it.
func TestEscapeeIsReapedForEveryUser(t *testing.T) {
	tests := []struct {
		name, mode             string
		unprivileged, delegate bool
		containment            proc.Containment
	}{
		{"root with cgroup", "cgroup", false, false, proc.Cgroup},
		{"root without", "subreaper", false, false, proc.Subreaper},
		{"nobody", "auto", true, false, proc.Subreaper},
		{"nobody in a delegated cgroup", "cgroup", true, true, proc.Cgroup},
		{"nobody in a delegated cgroup, hidden", "subreaper", true, true, proc.Subreaper},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if os.Getuid() != 0 && (tt.unprivileged || tt.containment == proc.Cgroup) {
				t.Skip("condition not met: root")
			}
			if tt.containment == proc.Cgroup && !cgroupUsable() {
				t.Skip("condition not met: a writable cgroup v2")
			}
			attr := &syscall.SysProcAttr{}
			if tt.unprivileged {
				attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			}
			if tt.delegate {
				attr.UseCgroupFD, attr.CgroupFD = true, int(delegated(t).Fd())
			}
			u := beginAs(t, attr, []string{"PRUN_CONTAINMENT=" + tt.mode}, []string{"--stall", "1"}, escapee+`sleep 60`)
			if got := u.wait(); got != 124 {
				t.Errorf("exit %d, want 124\n%s", got, u.describe())
			}
			if left := u.marked(); len(left) != 0 {
				t.Errorf("alive after exit 124: %v\n%s", left, u.describe())
			}
			o := u.outcome()
			if o.Cause != state.IdleStall || o.Containment != string(tt.containment) || !o.ProvenEmpty || o.Leftovers == 0 {
				t.Errorf("outcome %+v", o)
			}
			b, err := os.ReadFile(u.unit().Path(state.FileTail))
			if want := "started\n\nprun-dispatch: worker reaped (idle-stall); exit code 124.\n"; err != nil || string(b) != want {
				t.Errorf("tail %q %v, want %q", b, err, want)
			}
		})
	}
}
