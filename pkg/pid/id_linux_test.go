package pid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const rest = " S 17 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3"
	for _, name := range []string{"sh", "a b", ") S 99 (", "x\n) Z 1", "((", ""} {
		st, err := parseStat([]byte("12 (" + name + ")" + rest))
		if err != nil || st != (stat{state: 'S', ppid: 17, start: 98765}) {
			t.Errorf("name %q: %+v, %v", name, st, err)
		}
	}
	for _, text := range []string{"", "12 (sh", "12 (sh)", "12 (sh) S 1 2", "12 (sh)" + strings.Replace(rest, "98765", "-1", 1), "12 (sh)" + strings.Replace(rest, "17", "x", 1)} {
		if st, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v, want an error", text, st)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 17 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3"))
	f.Fuzz(func(t *testing.T, text []byte) { parseStat(text) })
}

// A zombie answers kill(pid, 0) and still has its start time
// (PrimeIntellect-ai/prime-agent#2041).
func TestZombieIsGone(t *testing.T) {
	c := helperCommand(t, "wait")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	// Not the state letter: that is the first thread's, and others may still
	// be leaving.
	until(t, "the child is a zombie", func() bool { return id.Verdict() != Alive })
	if st, err := readStat(id.PID); err != nil || st.state != 'Z' {
		t.Errorf("state %c, %v, want Z", st.state, err)
	}
	if err := syscall.Kill(id.PID, 0); err != nil {
		t.Errorf("kill(zombie, 0): %v", err)
	}
	if alive, err := id.Alive(); alive || err != nil {
		t.Errorf("Alive() = %v, %v, want gone", alive, err)
	}
	if err := id.Signal(syscall.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("Signal: %v, want ErrGone", err)
	}
	if again, err := Of(id.PID); err != nil || again != id {
		t.Errorf("Of(zombie) = %+v, %v, want %+v", again, err, id)
	}
	// Without pidfds the state letter has to do.
	if err := id.match(-1); !errors.Is(err, ErrGone) {
		t.Errorf("match without a descriptor: %v, want ErrGone", err)
	}
}

var _ = helper("leaderless", func([]string) int {
	// The first thread leaves, another one goes on: /proc says Z.
	go func() {
		fmt.Println("ready")
		var b [1]byte
		os.Stdin.Read(b[:])
		os.Exit(0)
	}()
	unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	return 0
})

func TestThreadedProcessWithoutItsFirstThreadLives(t *testing.T) {
	c := helperCommand(t, "leaderless")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	}()
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "state Z", func() bool {
		st, err := readStat(id.PID)
		return err == nil && st.state == 'Z'
	})
	if id.Inode == 0 {
		t.Skip("no pidfd inodes: kernel before 6.9")
	}
	if alive, err := id.Alive(); !alive || err != nil {
		t.Errorf("Alive() = %v, %v, want alive", alive, err)
	}
}

func TestOtherBootIsGone(t *testing.T) {
	id := Self()
	id.Boot = "00000000-0000-0000-0000-000000000000"
	if alive, err := id.Alive(); alive || err != nil {
		t.Errorf("Alive() = %v, %v, want gone", alive, err)
	}
	c := living(t)
	other, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other.Boot = id.Boot
	if err := other.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal: %v, want ErrGone", err)
	}
	other.Boot = ""
	if _, err := other.Alive(); !errors.Is(err, ErrUnknown) {
		t.Errorf("no boot recorded: %v, want ErrUnknown", err)
	}
}

// The number means another process in another namespace: never dead, never
// signalled.
func TestOtherNamespaceIsUnknown(t *testing.T) {
	c := living(t)
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id.NS++
	if alive, err := id.Alive(); alive || !errors.Is(err, ErrUnknown) {
		t.Errorf("Alive() = %v, %v, want unknown", alive, err)
	}
	if err := id.Signal(syscall.SIGKILL); !errors.Is(err, ErrUnknown) {
		t.Errorf("Signal: %v, want ErrUnknown", err)
	}
	id.NS--
	if id.Verdict() != Alive {
		t.Error("the bystander was hit")
	}
}

func TestThreadNumberIsNoProcess(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range tasks {
		if n, _ := strconv.Atoi(e.Name()); n != os.Getpid() {
			if id, err := Of(n); !errors.Is(err, ErrGone) {
				t.Errorf("Of(thread) = %+v, %v, want ErrGone", id, err)
			}
			return
		}
	}
}

func TestPidfdInode(t *testing.T) {
	id := Self()
	if id.Inode == 0 {
		t.Skip("no pidfd inodes: kernel before 6.9")
	}
	c := living(t)
	other, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if other.Inode == id.Inode {
		t.Error("two processes share an inode")
	}
	// Same number, same tick, other process: only the inode tells.
	other.Inode++
	if other.Verdict() != Gone {
		t.Errorf("verdict %v, want gone", other.Verdict())
	}
	if err := other.Signal(syscall.SIGKILL); !errors.Is(err, ErrMismatch) {
		t.Errorf("Signal: %v, want ErrMismatch", err)
	}
}

func TestStopped(t *testing.T) {
	c := living(t)
	if yes, err := Stopped(c.Process.Pid); yes || err != nil {
		t.Errorf("Stopped() = %v, %v", yes, err)
	}
	c.Process.Signal(syscall.SIGSTOP)
	until(t, "stopped", func() bool { yes, _ := Stopped(c.Process.Pid); return yes })
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if id.Verdict() != Alive {
		t.Error("a stopped process is not alive")
	}
}

var _ = helper("foreign", func(args []string) int {
	// Runs as nobody: looks at a process of root.
	n, err := Parse(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	id, err := Of(n)
	if err != nil {
		fmt.Println("of:", err)
		return 1
	}
	if alive, err := id.Alive(); !alive || err != nil {
		fmt.Println("alive:", alive, err)
		return 1
	}
	if err := id.Signal(syscall.SIGTERM); !errors.Is(err, syscall.EPERM) {
		fmt.Println("signal:", err)
		return 1
	}
	return 0
})

// EPERM says "exists, not ours", never "dead" (twisted/twisted#7555).
func TestNotOurs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: drops to uid 65534")
	}
	c := living(t)
	h := helperCommand(t, "foreign", strconv.Itoa(c.Process.Pid))
	h.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	h.Path = readable(t)
	if out, err := h.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// readable returns a copy of the test binary that nobody may execute: the
// build directory is root's alone.
func readable(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "prun-pid-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := dir + "/test"
	if err := errors.Join(os.Chmod(dir, 0o755), writeProgram(name, text), os.Chmod(name, 0o755)); err != nil {
		t.Fatal(err)
	}
	return name
}

var _ = helper("reuse", func([]string) int {
	// Process 1 of a pid namespace of its own, where numbers can be forced.
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Println("mount:", err)
		return 1
	}
	sleep := func() *exec.Cmd {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return c
	}
	first := sleep()
	id, err := Of(first.Process.Pid)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	first.Process.Kill()
	first.Wait()
	for range 200 {
		// The runtime's own threads take numbers too, so not every try hits.
		os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(id.PID-1)), 0)
		second := sleep()
		hit := second.Process.Pid == id.PID
		if hit {
			if alive, err := id.Alive(); alive || err != nil {
				fmt.Println("alive:", alive, err)
				return 1
			}
			if err := id.Signal(syscall.SIGKILL); !errors.Is(err, ErrMismatch) {
				fmt.Println("signal:", err)
				return 1
			}
			if now, err := Of(id.PID); err != nil || now.Verdict() != Alive {
				fmt.Println("the successor was hit:", err)
				return 1
			}
		}
		second.Process.Kill()
		second.Wait()
		if hit {
			fmt.Println("hit")
			return 0
		}
	}
	fmt.Println("the number did not come round")
	return 3
})

func TestReusedNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a pid namespace")
	}
	h := helperCommand(t, "reuse")
	h.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS}
	out, err := h.CombinedOutput()
	if errors.Is(err, unix.EPERM) || bytes.Contains(out, []byte("mount:")) {
		t.Skipf("needs a pid namespace with its own /proc: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func BenchmarkAlive(b *testing.B) {
	id := Self()
	for b.Loop() {
		if alive, err := id.Alive(); !alive || err != nil {
			b.Fatal(alive, err)
		}
	}
}

// writeProgram writes a file that is to be executed. A fork while it is open for
// writing would make it "busy" for whoever executes it next.
func writeProgram(name string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, text, 0o755)
}
