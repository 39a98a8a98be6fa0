package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/session"
)

// built holds herd with crash points, and the fake of every backend.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "herd-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = dir
	for _, b := range [][]string{{"herd", "."}, {"codex", "../../testdata/fakeagent"}} {
		build := exec.Command("go", "build", "-tags", "forceposix crashpoints", "-o", filepath.Join(dir, b[0]), b[1])
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			os.Exit(1)
		}
	}
	for _, name := range []string{"claude", "pi", "muse"} {
		if err := os.Link(filepath.Join(dir, "codex"), filepath.Join(dir, name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// bed is a state root and a project of its own. Whatever is started in it carries a mark in its environment, so that
// nothing can hide from the test.
type bed struct {
	t     *testing.T
	mark  string
	state string
	dir   string // the project
	env   []string
}

func newBed(t *testing.T, env ...string) *bed {
	t.Helper()
	tmp := t.TempDir()
	b := &bed{t: t, mark: fmt.Sprintf("PRUN_TEST_MARK=%d-%d", os.Getpid(), time.Now().UnixNano()), state: filepath.Join(tmp, "st"), dir: filepath.Join(tmp, "proj")}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, b.mark, "DELEGATE_STATE_DIR=" + b.state, "DELEKIT_DEVICE_ID=dev"}
	for _, name := range backends() {
		b.env = append(b.env, "DELEGATE_"+strings.ToUpper(name)+"_BIN="+filepath.Join(built, name))
	}
	b.env = append(b.env, env...)
	t.Cleanup(b.clear)
	return b
}

// answer is what one run of herd came to.
type answer struct {
	code        int
	out, stderr string
}

func (b *bed) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(built, "herd"), args...)
	cmd.Env, cmd.Dir = b.env, b.dir
	return cmd
}

func (b *bed) run(args ...string) answer {
	b.t.Helper()
	return b.feed("", args...)
}

func (b *bed) feed(stdin string, args ...string) answer {
	b.t.Helper()
	var out, stderr bytes.Buffer
	cmd := b.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &stderr
	err := cmd.Start()
	if err != nil {
		b.t.Fatal(err)
	}
	timer := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	cmd.Wait()
	if !timer.Stop() {
		b.t.Fatalf("herd %v did not end\n%s", args, b.describe())
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	code := ws.ExitStatus()
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return answer{code, out.String(), stderr.String()}
}

// ok runs herd and wants status 0.
func (b *bed) ok(args ...string) string {
	b.t.Helper()
	a := b.run(args...)
	if a.code != 0 {
		b.t.Fatalf("herd %v: exit %d\n%s%s\n%s", args, a.code, a.out, a.stderr, b.describe())
	}
	return a.out
}

// fails runs herd and wants a status and a message.
func (b *bed) fails(code int, text string, args ...string) answer {
	b.t.Helper()
	a := b.run(args...)
	if a.code != code || !strings.Contains(a.stderr, text) {
		b.t.Errorf("herd %v: exit %d, want %d and %q\n%s%s", args, a.code, code, text, a.out, a.stderr)
	}
	return a
}

// spawn starts a task on codex whose steps are the script's.
func (b *bed) spawn(name, script string, args ...string) {
	b.t.Helper()
	b.ok(append([]string{"spawn", "workspace", steps(script), "--name", name}, args...)...)
}

// steps makes a prompt of which the fake follows every line.
func steps(script string) string {
	var p strings.Builder
	p.WriteString("Please:\n")
	for l := range strings.SplitSeq(script, "\n") {
		p.WriteString("FAKE: " + strings.TrimSpace(l) + "\n")
	}
	return p.String()
}

// settled waits for the end of a task's turn and returns its payload.
func (b *bed) settled(name string, limit time.Duration) map[string]any {
	b.t.Helper()
	b.until(limit, name+" is settled", func() bool { return b.exists(name, session.FileDone) })
	return b.payload(name)
}

func (b *bed) payload(name string) map[string]any {
	b.t.Helper()
	return b.decode(b.ok("status", name, "--json"))
}

func (b *bed) decode(text string) map[string]any {
	b.t.Helper()
	var p map[string]any
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		b.t.Fatalf("%q: %v", text, err)
	}
	return p
}

func (b *bed) path(name string, parts ...string) string {
	return filepath.Join(append([]string{b.state, "sessions", "dev", name}, parts...)...)
}

func (b *bed) exists(name string, parts ...string) bool {
	_, err := os.Lstat(b.path(name, parts...))
	return err == nil
}

func (b *bed) read(name string, parts ...string) string {
	text, _ := os.ReadFile(b.path(name, parts...))
	return string(text)
}

// says waits for a text among a task's events.
func (b *bed) says(name, text string) {
	b.t.Helper()
	b.until(10*time.Second, name+" says "+text, func() bool { return strings.Contains(b.read(name, session.FileEvents), text) })
}

// until waits for what a test needs before it goes on. The limits say what to
// expect of a machine that has time; a few times as much is when to give up on
// one that has none.
func (b *bed) until(limit time.Duration, what string, ok func() bool) {
	b.t.Helper()
	b.within(4*limit, what, ok)
}

func (b *bed) within(limit time.Duration, what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %v: %s\n%s", limit, what, b.describe())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// turn reads who answers for a turn.
func (b *bed) unit(name string, n int) session.Turn {
	return session.Root{Dir: b.state, Device: "dev"}.Task(name).Turn(n)
}

func (b *bed) supervisor(name string, n int) pid.ID {
	b.t.Helper()
	id, err := b.unit(name, n).Unit().ReadIdentity()
	if err != nil || id == nil {
		b.t.Fatalf("read identity: %v %v\n%s", id, err, b.describe())
	}
	return id.Supervisor
}

// marked lists the living processes that carry the mark.
func (b *bed) marked() []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil || p == os.Getpid() {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil || !bytes.Contains(text, []byte(b.mark)) {
			continue
		}
		if id, err := pid.Of(p); err == nil {
			if alive, _ := id.Alive(); alive {
				found = append(found, p)
			}
		}
	}
	return found
}

// empty waits until nothing of the bed is alive.
func (b *bed) empty(limit time.Duration) {
	b.t.Helper()
	// How soon is the promise itself here.
	b.within(limit, "nothing is alive", func() bool { return len(b.marked()) == 0 })
}

func (b *bed) clear() {
	for range 200 {
		left := b.marked()
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			if id, err := pid.Of(p); err == nil {
				_ = id.Signal(syscall.SIGKILL)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bed) describe() string {
	var text strings.Builder
	filepath.WalkDir(b.state, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() && fi.Size() < 3000 {
			content, _ := os.ReadFile(path)
			fmt.Fprintf(&text, "== %s\n%s\n", strings.TrimPrefix(path, b.state), content)
		}
		return nil
	})
	for _, p := range b.marked() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		fmt.Fprintf(&text, "alive %d: %s\n", p, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	return text.String()
}

// write puts a file into a task's directory, which is made if missing.
func (b *bed) write(text, name string, parts ...string) {
	b.t.Helper()
	path := b.path(name, parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// rounds is how often a random story is repeated.
func rounds(t *testing.T, def int) int {
	if s := os.Getenv("PRUN_TEST_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("PRUN_TEST_ROUNDS: %v", err)
		}
		return n
	}
	return def
}

// modes runs a story with a cgroup, where one can be had, and without.
func modes(t *testing.T, story func(t *testing.T, env string)) {
	for _, mode := range []string{"cgroup", "subreaper"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "cgroup" && !cgroupUsable() {
				t.Skip("condition not met: a writable cgroup v2")
			}
			story(t, "PRUN_CONTAINMENT="+mode)
		})
	}
}

func cgroupUsable() bool {
	leaf, err := proc.NewLeaf(fmt.Sprintf("prun-test-%d", os.Getpid()))
	if err != nil {
		return false
	}
	leaf.Remove()
	leaf.Close()
	return true
}

// victim is an unrelated process that must survive.
func (b *bed) victim() pid.ID {
	b.t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	id, err := pid.Of(cmd.Process.Pid)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func lives(id pid.ID) bool {
	alive, err := id.Alive()
	return err == nil && alive
}
