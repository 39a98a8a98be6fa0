package supervise

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// Whoever inherits a dead worker does not call our own kill the worker's end: a
// keeper that was killed while it ended the tree left the front door a zombie that
// read "killed by signal 9 (possibly out of memory)".
func TestInheritedZombie(t *testing.T) {
	// Under nohup HUP is ignored, and every child would inherit that. What is caught
	// here is not: it has its default again in whatever is executed.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	tests := []struct {
		script string
		want   *proc.Exit
		doubt  string
	}{
		{"exit 3", &proc.Exit{Code: 3}, ""},
		{"exit 0", &proc.Exit{}, ""},
		{"kill -s ABRT $$", &proc.Exit{Code: 134, Signal: 6}, ""},
		{"kill -s KILL $$", nil, "SIGKILL"},
		{"kill -s TERM $$", nil, "SIGTERM"},
		{"kill -s INT $$", nil, "SIGINT"},
		{"kill -s HUP $$", nil, "SIGHUP"},
		{"kill -s PIPE $$", nil, "signal 13"},
	}
	for _, tt := range tests {
		t.Run(tt.script, func(t *testing.T) {
			u := state.Unit{Dir: t.TempDir()}
			cmd := exec.Command("sh", "-c", "ulimit -c 0; "+tt.script)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			worker := &state.WorkerRecord{Worker: pid.ID{PID: cmd.Process.Pid}}
			deadline := time.Now().Add(10 * time.Second)
			for {
				if _, dead := proc.ZombieChild(cmd.Process.Pid); dead {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it does not end")
				}
				<-time.After(time.Millisecond)
			}
			got, doubt := lastExit(u, worker)
			if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Errorf("exit %+v, want %+v", got, tt.want)
			}
			if (doubt == "") != (tt.doubt == "") || !strings.Contains(doubt, tt.doubt) {
				t.Errorf("doubt %q", doubt)
			}
			// What the supervisor has seen and recorded stands.
			if err := u.WriteWorkerExit(0, 9); err != nil {
				t.Fatal(err)
			}
			if got, doubt := lastExit(u, worker); got == nil || got.Signal != 9 || doubt != "" {
				t.Errorf("recorded: %+v %q", got, doubt)
			}
		})
	}
}
