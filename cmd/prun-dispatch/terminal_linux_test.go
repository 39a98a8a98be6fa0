package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal makes a pseudo terminal: our end and the program's.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("condition not met: a pseudo terminal: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("condition not met: a pseudo terminal: %v", err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// On a terminal, the key for an interrupt and the loss of the terminal reach the
// front door alone: the worker has no terminal, and one orderly end follows
// (E11, E27, E28). What nohup has set stays.
func TestTerminal(t *testing.T) {
	tests := []struct {
		name   string
		before string
		act    func(*testing.T, *os.File)
		status int
		says   string
	}{
		{"interrupt key", "", func(t *testing.T, f *os.File) {
			if _, err := f.Write([]byte{3}); err != nil {
				t.Error(err)
			}
		}, 130, "SIGINT"},
		{"quit key", "", func(t *testing.T, f *os.File) {
			if _, err := f.Write([]byte{28}); err != nil {
				t.Error(err)
			}
		}, 131, "SIGQUIT"},
		{"hang-up", "", func(_ *testing.T, f *os.File) { f.Close() }, 129, "SIGHUP"},
		{"hang-up under nohup", "trap '' HUP; ", func(_ *testing.T, f *os.File) { f.Close() }, 7, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			base := filepath.Join(dir, "s")
			prompt, result := filepath.Join(dir, "p"), filepath.Join(dir, "r")
			for _, err := range []error{os.Mkdir(base, 0o755), os.WriteFile(prompt, []byte("the request\n"), 0o644)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			ours, theirs := terminal(t)
			script := `(: </dev/tty) 2>/dev/null || echo no terminal; echo ready; n=0; while ! [ -e ` + dir + `/end ] && [ $n -lt 3000 ]; do n=$((n+1)); sleep 0.02; done; exit 7`
			c := exec.Command("sh", "-c", tt.before+`exec "$@"`, "-", binary, "--backend", "command", "--prompt-file", prompt,
				"--result-file", result, "--unit-id", "u", "--", "sh", "-c", script)
			mark := "PRUN_TEST_MARK=" + dir
			c.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + base, mark}
			c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			u := &unitRun{t: t, mark: mark, base: base, result: result, cmd: c, done: make(chan struct{})}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			go func() { c.Wait(); close(u.done) }()
			t.Cleanup(u.clear)
			u.says("no terminal\nready")
			tt.act(t, ours)
			if tt.status == 7 {
				u.until(5*time.Second, "the worker to outlive its terminal", func() bool { return len(u.marked()) > 0 })
				if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := u.wait(); got != tt.status {
				t.Errorf("exit %d, want %d\n%s", got, tt.status, u.describe())
			}
			if left := u.marked(); len(left) != 0 {
				t.Errorf("alive: %v\n%s", left, u.describe())
			}
			b, err := os.ReadFile(result)
			if err != nil || !strings.HasPrefix(string(b), "# u result (FALLBACK, ") || !strings.Contains(string(b), tt.says) {
				t.Errorf("salvage %q %v, want %s named", b, err, tt.says)
			}
			if o := u.outcome(); !o.ProvenEmpty || o.ExitStatus != tt.status {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}
