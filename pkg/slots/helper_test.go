package slots

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// The test binary plays a supervisor when this is set: "<pool> <limit> <hold>".
const helperVariable = "SLOTS_TEST_HELPER"

func TestMain(m *testing.M) {
	if text := os.Getenv(helperVariable); text != "" {
		if err := supervisor(strings.Fields(text)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// supervisor joins, says "in", holds the slot for a time or until its input ends, and
// goes. While it is in it sits on one of as many seats as the limit allows; that nobody
// finds them all taken is what proves the count, independently of it.
func supervisor(args []string) error {
	dir, name := args[0], args[3]
	limit, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	hold, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	p, err := Open(dir)
	if err != nil {
		return err
	}
	slot, err := p.Join(context.Background(), Request{Limit: limit, Unit: name, Dir: "/units/" + name, Waiting: func(pos Position) {
		fmt.Println("waiting", pos.Ahead)
	}})
	if err != nil {
		return err
	}
	seat, err := sit(dir+"-seats", limit)
	if err != nil {
		return err
	}
	log := dir + "-log"
	if err := atomicfile.Append(log, []byte("in "+name+"\n"), 0o600); err != nil {
		return err
	}
	fmt.Println("in")
	if hold > 0 {
		<-time.After(hold)
	} else {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	if err := atomicfile.Append(log, []byte("out "+name+"\n"), 0o600); err != nil {
		return err
	}
	if err := seat.Unlock(); err != nil {
		return err
	}
	return slot.Release()
}

// sit takes a free seat. The kernel frees those of a killed process one after the other,
// so for an instant its slot can be free and its seat not.
func sit(dir string, seats int) (*atomicfile.Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Second)
	for time.Now().Before(deadline) {
		for i := range seats {
			if l, err := atomicfile.TryLock(filepath.Join(dir, strconv.Itoa(i))); err == nil {
				return l, nil
			}
		}
	}
	return nil, fmt.Errorf("VIOLATION: no seat of %d is free", seats)
}

// process is a running supervisor.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	says  chan string // lines of its output; closed at its end
}

func start(t *testing.T, pool string, limit int, hold time.Duration, name string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self), says: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0",
		fmt.Sprintf("%s=%s %d %s %s", helperVariable, pool, limit, hold, name))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = &violations{t}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.says <- lines.Text()
		}
		close(p.says)
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// violations fails the test on whatever a supervisor says on stderr.
type violations struct{ t *testing.T }

func (v *violations) Write(b []byte) (int, error) {
	v.t.Errorf("a supervisor: %s", b)
	return len(b), nil
}

// hears waits until the process has said a line.
func (p *process) hears(want string) {
	p.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case text, open := <-p.says:
			if !open {
				p.t.Fatalf("the supervisor ended before it said %q", want)
			}
			if text == want || want == "waiting" && strings.HasPrefix(text, want) {
				return
			}
		case <-deadline:
			p.t.Fatalf("the supervisor has not said %q", want)
		}
	}
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// finish lets it go and expects a clean end.
func (p *process) finish() {
	p.t.Helper()
	p.stdin.Close()
	for range p.says {
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("a supervisor ended with %v", err)
	}
}
