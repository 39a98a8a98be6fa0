package proc

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Helper processes are this test binary again, told by a variable what to be.
// Each is registered beside the test that uses it; one that no test uses fails
// the run, an unknown one exits 2.
const helperVariable = "PRUN_PROC_HELPER"

var (
	helpers  = map[string]func(args []string) int{}
	usedLock sync.Mutex
	used     = map[string]bool{}
	atEnd    []func()
	rootOnly []string // helpers whose only tests skip without root
)

func helper(name string, run func(args []string) int) bool {
	helpers[name] = run
	return true
}

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(helperVariable); ok {
		run := helpers[name]
		if run == nil {
			fmt.Fprintf(os.Stderr, "no helper %q\n", name)
			os.Exit(2)
		}
		os.Exit(run(os.Args[1:]))
	}
	// Under nohup HUP is ignored, and every child would inherit that. What is caught
	// here is not: it has its default again in whatever is executed.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		for name := range helpers {
			if !used[name] && !slices.Contains(rootOnly, name) {
				fmt.Fprintf(os.Stderr, "helper %q is used by no test\n", name)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// self returns this test binary, in a place where every user may execute it.
var self = sync.OnceValue(func() string {
	name, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return name
})

// helperEnv returns the environment in which the test binary is the helper.
func helperEnv(name string, more ...string) []string {
	usedLock.Lock()
	defer usedLock.Unlock()
	used[name] = true
	return append(otherwise(name), more...)
}

// otherwise returns our environment with another helper's name in it.
func otherwise(name string) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, helperVariable+"=") })
	// The race detector otherwise lets every process linger for a second.
	return append(env, helperVariable+"="+name, "GORACE=atexit_sleep_ms=0")
}

func helperCommand(name string, args ...string) *exec.Cmd {
	c := exec.Command(self(), args...)
	c.Env = helperEnv(name)
	return c
}

// comes waits for a condition; false when it does not come in half a minute.
func comes(holds func() bool) bool {
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-limit.C:
			return false
		case <-look.C:
		}
	}
	return true
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !comes(holds) {
		t.Fatalf("waited in vain: %s", what)
	}
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// sharedDir is a directory that every user can write to.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "prun-proc-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return filepath.Clean(dir)
}
