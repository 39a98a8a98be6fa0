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

	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// binary is agent-fanout with crash points, clients a directory with fakeagent
// under the names of the clients that it imitates; both are built once.
var binary, clients string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__bare" {
		// A bare git, for comparisons.
		os.Exit(bareWorktree(os.Args[2:]))
	}
	dir, err := os.MkdirTemp("", "agent-fanout-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary, clients = filepath.Join(dir, "agent-fanout"), filepath.Join(dir, "clients")
	for _, b := range [][]string{
		{"-tags", "forceposix crashpoints", "-o", binary, "."},
		{"-o", filepath.Join(clients, "codex"), "../../testdata/fakeagent"},
	} {
		build := exec.Command("go", append([]string{"build"}, b...)...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			os.Exit(1)
		}
	}
	for _, name := range []string{"omp", "claude", "pi", "agy", "fake"} {
		if err := os.Link(filepath.Join(clients, "codex"), filepath.Join(clients, name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is a home, a state directory and a repository for one test. Everything
// that is started in it carries a mark in its environment, so that nothing can
// hide from the test.
type world struct {
	t    *testing.T
	root string
	repo string
	env  []string
	mark string
}

// answer is what one call of agent-fanout said.
type answer struct {
	out, err string
	code     int
	took     time.Duration
}

// value is the value of a key=value line.
func (a answer) value(key string) string {
	for line := range strings.Lines(a.out) {
		if v, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.TrimSuffix(v, "\n")
		}
	}
	return ""
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: root, repo: filepath.Join(root, "repo")}
	w.mark = "PRUN_TEST_MARK=" + filepath.Base(filepath.Dir(root)) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	w.env = []string{
		"PATH=" + clients + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(root, "home"), "TMPDIR=" + filepath.Join(root, "tmp"),
		"AGENT_FANOUT_STATE_HOME=" + filepath.Join(root, "state"), "GIT_CONFIG_NOSYSTEM=1", w.mark,
	}
	for _, d := range []string{"home", "tmp", "repo"} {
		w.mkdir(d)
	}
	w.write("home/.gitconfig", "[user]\n\tname = n\n\temail = n@example.com\n[init]\n\tdefaultBranch = main\n")
	w.git("repo", "init", "-q")
	w.write("repo/a.txt", "one\ntwo\nthree\nfour\nfive\n")
	w.write("repo/b.txt", "bee\n")
	w.write("repo/.gitignore", "/build/\n.env\nnode_modules/\n")
	w.git("repo", "add", ".")
	w.git("repo", "commit", "-q", "-m", "first")
	w.write("brief.md", "the brief\n")
	t.Cleanup(w.clear)
	return w
}

func (w *world) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(w.root, name)
}

func (w *world) mkdir(name string) {
	w.t.Helper()
	if err := os.MkdirAll(w.path(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(name, text string) {
	w.t.Helper()
	w.mkdir(filepath.Dir(w.path(name)))
	if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func (w *world) exists(name string) bool {
	_, err := os.Lstat(w.path(name))
	return err == nil
}

// git runs the real one in dir.
func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = w.path(dir), w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// call runs agent-fanout in the repository.
func (w *world) call(args ...string) answer { return w.callIn(w.repo, nil, args...) }

func (w *world) callIn(dir string, env []string, args ...string) answer {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = dir, append(w.env[:len(w.env):len(w.env)], env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// A test may hang here only if a process of ours holds the pipe.
	cmd.WaitDelay = 20 * time.Second
	began := time.Now()
	err := cmd.Run()
	a := answer{out: out.String(), err: errs.String(), took: time.Since(began)}
	if cmd.ProcessState == nil {
		a.code, a.err = -1, err.Error()
		return a
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if a.code = ws.ExitStatus(); ws.Signaled() {
		a.code = 128 + int(ws.Signal())
	}
	return a
}

// ok is call for a call that must succeed.
func (w *world) ok(args ...string) answer {
	w.t.Helper()
	a := w.call(args...)
	if a.code != 0 {
		w.t.Fatalf("agent-fanout %q: status %d\n%s%s%s", args, a.code, a.out, a.err, w.describe())
	}
	return a
}

// fails is call for a call that must end with a status and say something.
func (w *world) fails(code int, says string, args ...string) answer {
	w.t.Helper()
	a := w.call(args...)
	if a.code != code || !strings.Contains(a.err, says) {
		w.t.Fatalf("agent-fanout %q: status %d, want %d and %q\n%s%s", args, a.code, code, says, a.out, a.err)
	}
	return a
}

// run makes a run with lanes and returns the directories of their worktrees.
func (w *world) run(id string, phases ...string) (trees map[string]string) {
	w.t.Helper()
	w.ok("init", "--sid", id)
	trees = map[string]string{}
	for _, p := range phases {
		trees[p] = w.ok("add-lane", "--run", id, "--phase", p).value("worktree")
	}
	return trees
}

// sh starts a shell script in a lane.
func (w *world) sh(id, phase, script string, flags ...string) {
	w.t.Helper()
	args := append([]string{"start", "--run", id, "--phase", phase, "--brief", w.path("brief.md"), "--runner", "command"}, flags...)
	w.ok(append(args, "--", "sh", "-c", script)...)
}

// wait waits for a lane and returns its status.
func (w *world) wait(id, phase string) string {
	w.t.Helper()
	a := w.call("wait", "--run", id, "--phase", phase, "--timeout", "30")
	if a.code == 3 || a.code == 2 {
		w.t.Fatalf("lane %s has not ended: %s%s%s", phase, a.out, a.err, w.describe())
	}
	return strings.TrimSpace(a.out)
}

// lane is the state directory of a lane.
func (w *world) lane(id, phase string) string {
	w.t.Helper()
	found, _ := filepath.Glob(filepath.Join(w.root, "state/runs/*", id, "lanes", phase))
	if len(found) != 1 {
		w.t.Fatalf("lane %s/%s: %v", id, phase, found)
	}
	return found[0]
}

func (w *world) value(id, phase, file string) string {
	b, _ := os.ReadFile(filepath.Join(w.lane(id, phase), file))
	return strings.TrimSuffix(string(b), "\n")
}

func (w *world) unit(id, phase string) state.Unit {
	return state.Unit{Dir: filepath.Join(w.lane(id, phase), "unit-"+w.value(id, phase, lane.FileUnit))}
}

func (w *world) identity(id, phase string) state.Identity {
	w.t.Helper()
	var got *state.Identity
	w.until(5*time.Second, "an identity", func() bool {
		got, _ = w.unit(id, phase).ReadIdentity()
		return got != nil
	})
	return *got
}

// status is status --json.
func (w *world) status(id string) statusJSON {
	w.t.Helper()
	a := w.ok("status", "--run", id, "--json")
	var s statusJSON
	if err := json.Unmarshal([]byte(a.out), &s); err != nil {
		w.t.Fatalf("status --json: %v\n%s", err, a.out)
	}
	return s
}

func (w *world) laneStatus(id, phase string) laneJSON {
	w.t.Helper()
	for _, l := range w.status(id).Lanes {
		if l.Phase == phase {
			return l
		}
	}
	w.t.Fatalf("status does not name lane %s", phase)
	return laneJSON{}
}

func (w *world) until(limit time.Duration, what string, ok func() bool) {
	w.t.Helper()
	// The limits say what to expect of a machine that has time; a few times as
	// much is when to give up on one that has none.
	deadline := time.Now().Add(4 * limit)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %v: %s\n%s", limit, what, w.describe())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// marked lists the living processes of this world, the test's own aside.
func (w *world) marked() []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil || p == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil || !bytes.Contains(b, []byte(w.mark)) {
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

// empty waits until nothing of this world is alive.
func (w *world) empty(limit time.Duration) {
	w.t.Helper()
	// Reading every process's environment is not cheap.
	deadline := time.Now().Add(limit)
	for len(w.marked()) > 0 {
		if time.Now().After(deadline) {
			w.t.Fatalf("something is alive after %v\n%s", limit, w.describe())
		}
		time.Sleep(40 * time.Millisecond)
	}
}

func (w *world) kill9(id pid.ID) {
	w.t.Helper()
	if err := id.Signal(syscall.SIGKILL); err != nil {
		w.t.Logf("kill %d: %v", id.PID, err)
	}
}

func (w *world) clear() {
	for range 400 {
		left := w.marked()
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			if id, err := pid.Of(p); err == nil {
				_ = id.Signal(syscall.SIGKILL)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *world) describe() string {
	var b strings.Builder
	filepath.WalkDir(filepath.Join(w.root, "state"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() && fi.Size() < 2000 && fi.Size() > 0 {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&b, "== %s\n%s\n", strings.TrimPrefix(path, w.root), text)
		}
		return nil
	})
	for _, p := range w.marked() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		fmt.Fprintf(&b, "alive %d: %s\n", p, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	return b.String()
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

// argv is the argument list that fakeagent reported.
func argv(t *testing.T, report string) []string {
	t.Helper()
	var got struct {
		Argv []string `json:"argv"`
	}
	if err := json.Unmarshal([]byte(report), &got); err != nil || len(got.Argv) == 0 {
		t.Fatalf("report: %v\n%s", err, report)
	}
	return got.Argv[1:]
}
