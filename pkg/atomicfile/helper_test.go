package atomicfile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// helpers are what the test binary does when it is started again as another
// process: some promises only mean something when a process dies.
var helpers = map[string]func(args []string){
	"replace-for-ever": func(args []string) {
		for i := 0; ; i++ {
			if err := Replace(args[0], content(i), 0o600); err != nil {
				fmt.Println("error:", err)
				os.Exit(1)
			}
			if i == 0 {
				fmt.Println("ready")
			}
		}
	},
	"hold-lock": func(args []string) {
		l, err := TryLock(args[0])
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		runtime.KeepAlive(l)
	},
	"sit": func([]string) {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
	},
}

// content is a text whose wholeness can be seen.
func content(i int) []byte {
	b := make([]byte, 64<<10)
	for j := range b {
		b[j] = 'a' + byte(i%26)
	}
	return b
}

func whole(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return false
		}
	}
	return len(b) == 64<<10
}

const helperVariable = "PRUN_ATOMICFILE_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		run, ok := helpers[name]
		if !ok {
			os.Exit(2)
		}
		run(os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helper starts the named helper and returns when it has said that it is ready.
// It is killed at the end of the test at the latest.
func helper(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+name)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("helper %s said %q, %v", name, line, err)
	}
	return cmd
}

// until polls for a condition that must come true.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	return string(b)
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// tempDir is t.TempDir, without os.RemoveAll: the Windows call behind it does not
// exist in Wine 8, where these tests run too.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "atomicfile")
	must(t, err)
	t.Cleanup(func() { removeTree(dir) })
	return dir
}

func removeTree(name string) {
	entries, _ := os.ReadDir(name)
	for _, e := range entries {
		removeTree(filepath.Join(name, e.Name()))
	}
	os.Remove(name)
}
