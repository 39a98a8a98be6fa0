package pid

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Helper processes are this test binary again, told by a variable what to be.
// Each is registered beside the test that uses it.
const helperVariable = "PRUN_PID_HELPER"

var helpers = map[string]func(args []string) int{}

func helper(name string, run func(args []string) int) bool {
	helpers[name] = run
	return true
}

func TestMain(m *testing.M) {
	name, ok := os.LookupEnv(helperVariable)
	if !ok {
		os.Exit(m.Run())
	}
	run := helpers[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "no helper %q\n", name)
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}

func helperCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Env = append(os.Environ(), helperVariable+"="+name)
	return c
}

// until waits for a condition, and fails the test when it does not come.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-limit.C:
			t.Fatalf("waited in vain: %s", what)
		case <-look.C:
		}
	}
}

var _ = helper("wait", func([]string) int {
	// Ends when its standard input does.
	var b [1]byte
	os.Stdin.Read(b[:])
	return 0
})

// living starts a process that lives until the test ends.
func living(t *testing.T) *exec.Cmd {
	t.Helper()
	c := helperCommand(t, "wait")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	})
	return c
}
