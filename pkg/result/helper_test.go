package result

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const owner = "4711-99"

// fallback is long enough that a part of it would be seen.
var fallback = "# u1 result (FALLBACK, worker wrote no result file)\n" + strings.Repeat("salvaged words\n", 4000)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func publication(path string) Publication {
	return Publication{Path: path, Body: text(fallback), Owner: owner, Proven: true, Spare: filepath.Join(filepath.Dir(path), "spare")}
}

// helpers are what the test binary does when it is started again as another
// process.
var helpers = map[string]func(args []string){
	// publish PATH DIE [PAUSE]: publishes and is killed at the point DIE; at PAUSE it
	// says so and waits for a word.
	"publish": func(args []string) {
		p := publication(args[0])
		p.Step = func(name string) {
			if len(args) > 2 && name == args[2] {
				fmt.Println(name)
				bufio.NewReader(os.Stdin).ReadString('\n')
			}
			if name == args[1] {
				self, _ := os.FindProcess(os.Getpid())
				self.Kill()
				select {}
			}
		}
		_, err := Publish(p)
		fmt.Println("survived", err)
	},
}

const helperVariable = "PRUN_RESULT_HELPER"

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

func helper(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+name)
	return cmd
}

// until polls for a condition that must come true.
func until(t testing.TB, what string, cond func() bool) {
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

func write(t testing.TB, name, text string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(text), 0o600))
}

// read returns the bytes of name, "<absent>" if there is none.
func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return "<absent>"
	}
	must(t, err)
	return string(b)
}

func short(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%.40q... (%d bytes)", s, len(s))
	}
	return fmt.Sprintf("%q", s)
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// tempDir is t.TempDir, without os.RemoveAll: the Windows call behind it does not
// exist in Wine 8, where these tests run too.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "result")
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
