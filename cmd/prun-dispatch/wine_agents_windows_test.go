package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// copyProgram puts a copy of a program under another name.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// client makes the fake agent a client of this name in a directory with a blank in its name, and returns its path.
func client(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "program files")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name+".exe")
	copyProgram(t, built(t, "fakeagent"), path)
	return path
}

// log is what the fake agent was given.
type agentLog struct {
	Argv  []string `json:"argv"`
	Stdin string   `json:"stdin"`
	Cwd   string   `json:"cwd"`
	Env   []string `json:"env"`
}

func readLog(t *testing.T, path string) (l agentLog) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The old PowerShell front's dialect with codex as a program, and as the .cmd file that npm installs: by its path, by
// its path without the ending, and by a name on PATH. What it is given is the same every time.
func TestWineCodex(t *testing.T) {
	codex := client(t, "codex")
	dir := filepath.Dir(codex)
	if err := os.WriteFile(filepath.Join(dir, "npm-codex.cmd"), []byte("@ECHO off\r\n\"%~dp0codex.exe\" %*\r\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var first agentLog
	for _, bin := range []string{codex, filepath.Join(dir, "npm-codex.cmd"), filepath.Join(dir, "npm-codex"), "npm-codex"} {
		log := filepath.Join(t.TempDir(), "log")
		u := launchWin(t, winSpec{
			front: []string{"--dialect=codex-ps1"},
			steps: []string{"text the answer", "result"},
			env: []string{"CODEX_BIN=" + bin, "FAKEAGENT_AS=codex", "FAKEAGENT_LOG=" + log,
				"PATH=" + dir + ";" + os.Getenv("PATH")},
		})
		u.want(0)
		if o := u.contained(state.Exited); o.Result != state.ResultWorker || o.SessionID == "" || o.Backend != "codex" {
			t.Errorf("%s: outcome %+v", bin, o)
		}
		u.has(u.result, "# u-1 result\n")
		got := readLog(t, log)
		if got.Stdin != "the request\n" || !strings.HasPrefix(got.Cwd, u.unit().Dir) {
			t.Errorf("%s: standard input %q in %s", bin, got.Stdin, got.Cwd)
		}
		if first.Argv == nil {
			first = got
		}
		if !slices.Equal(got.Argv[1:], first.Argv[1:]) {
			t.Errorf("%s: argv %q, want %q", bin, got.Argv[1:], first.Argv[1:])
		}
		u.plainFiles()
	}
}

func TestWineCodexReaped(t *testing.T) {
	u := launchWin(t, winSpec{
		front: []string{"--dialect=codex-ps1"},
		steps: []string{"say the last words", "child-setsid", "hang"},
		env:   []string{"CODEX_BIN=" + client(t, "codex"), "PRUN_STALL_THRESHOLD=1"},
	})
	children := u.children(1)
	u.want(124)
	u.says("worker reaped by reap-watch (idle-stall)", "the last words")
	u.has(u.result, "# u-1 result (FALLBACK, ", "the last words")
	u.gone("a child of the worker", children...)
	u.plainFiles()
}

func TestWineAgy(t *testing.T) {
	agy := client(t, "agy")
	log := filepath.Join(t.TempDir(), "log")
	u := launchWin(t, winSpec{
		front: []string{"--dialect=agy"},
		steps: []string{"text the answer of the agent, long enough to be one"},
		env:   []string{"ANTIGRAVITY_BIN=" + agy, "FAKEAGENT_LOG=" + log},
	})
	u.want(0)
	o := u.contained(state.Exited)
	if o.Result != state.ResultResponse || o.SessionID == "" || o.Backend != "agy" {
		t.Errorf("outcome %+v", o)
	}
	u.has(u.result, "the answer of the agent, long enough to be one")
	if id, err := u.unit().ReadEntry(state.FileConversationID); err != nil || id != o.SessionID {
		t.Errorf("conversation-id %q, %v", id, err)
	}
	if got := readLog(t, log); !strings.Contains(strings.Join(got.Argv, " "), "--print-timeout") {
		t.Errorf("argv %q", got.Argv)
	}
	u.plainFiles()

	u = launchWin(t, winSpec{
		front: []string{"--dialect=agy"},
		steps: []string{"say half an answer", "exit 9"},
		env:   []string{"ANTIGRAVITY_BIN=" + agy},
	})
	u.want(9)
	u.has(u.result, "FALLBACK", "half an answer")
	u.contained(state.Failed)
}

// The environment and the empty working directory of a worker.
func TestWineWorkerSurroundings(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	u := launchWin(t, winSpec{steps: []string{"log " + log}, env: []string{"CLAUDECODE=1", "claude_code_entrypoint=x", "GIT_DIR=x", "KEPT=ü"}})
	u.want(0)
	got := readLog(t, log)
	for _, want := range []string{"PRUN_UNIT=u-1", "PRUN_STATE_DIR=" + u.unit().Dir, "PRUN_RESULT_FILE=" + u.result, "KEPT=ü"} {
		if !slices.Contains(got.Env, want) {
			t.Errorf("the worker's environment lacks %s", want)
		}
	}
	for _, e := range got.Env {
		for _, not := range []string{"CLAUDECODE=", "CLAUDE_CODE_ENTRYPOINT=", "GIT_DIR=", "PRUN__"} {
			if strings.HasPrefix(strings.ToUpper(e), not) {
				t.Errorf("the worker's environment holds %s", e)
			}
		}
	}
}

// What a tool that is running uses can be replaced: the state files by rename, the program by moving it aside, which
// is the way Windows has.
func TestWineReplacedWhileRunning(t *testing.T) {
	bin := client(t, "prun-dispatch")
	copyProgram(t, built(t, "prun-dispatch"), bin)
	u := launchWin(t, winSpec{bin: bin, steps: []string{"out begun", "await go", "result"}, env: []string{"PRUN_SCRATCH_CWD=."}})
	u.identities()
	if err := os.Rename(bin, bin+".old"); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, built(t, "fakeagent"), bin)
	unit := u.unit()
	entries, err := os.ReadDir(unit.Dir)
	if err != nil {
		t.Fatal(err)
	}
	replaced := 0
	for _, e := range entries {
		switch e.Name() {
		case state.FileTail, state.FilePrompt, state.FileLock:
			// Open in the worker or the supervisor for the life of the unit.
			continue
		}
		if e.IsDir() {
			continue
		}
		text, err := os.ReadFile(unit.Path(e.Name()))
		if err == nil {
			err = atomicfile.Replace(unit.Path(e.Name()), text, 0o600)
		}
		if err != nil {
			t.Errorf("replace %s: %v", e.Name(), err)
		}
		replaced++
	}
	if replaced < 5 {
		t.Errorf("only %d state files: %v", replaced, entries)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	u.want(0)
	if o := u.contained(state.Exited); o.Result != state.ResultWorker {
		t.Errorf("outcome %+v", o)
	}
}

// A result is published although somebody has the file at its place open: an empty one, which is no result.
func TestWinePublishOverAnOpenFile(t *testing.T) {
	u := launchWin(t, winSpec{
		front: []string{"--dialect=codex-ps1"},
		steps: []string{"result-empty", "say the words", "await go", "exit 3"},
		env:   []string{"CODEX_BIN=" + client(t, "codex"), "PRUN_SCRATCH_CWD=."},
	})
	until(t, "the empty result", func() bool { _, err := os.Stat(u.result); return err == nil })
	// Without FILE_SHARE_DELETE, as most programs open files.
	f, err := os.Open(u.result)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker's end", func() bool { x, err := u.unit().ReadWorkerExit(); return err == nil && x != nil })
	// Less than the supervisor is patient for.
	<-time.After(500 * time.Millisecond)
	f.Close()
	u.want(3)
	u.has(u.result, "# u-1 result (FALLBACK, ", "the words")
	if o := u.outcome(); o.Result != state.ResultFallback {
		t.Errorf("outcome %+v", o)
	}
	u.plainFiles()
}

// The same when it is not closed: the salvage is kept in the state directory, and said to be there.
func TestWinePublishBesideAHeldFile(t *testing.T) {
	u := launchWin(t, winSpec{
		front: []string{"--dialect=codex-ps1"},
		steps: []string{"result-empty", "say the words", "await go", "exit 3"},
		env:   []string{"CODEX_BIN=" + client(t, "codex"), "PRUN_SCRATCH_CWD=."},
	})
	until(t, "the empty result", func() bool { _, err := os.Stat(u.result); return err == nil })
	f, err := os.Open(u.result)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	status := u.wait()
	if b, err := os.ReadFile(u.result); err == nil && len(b) > 0 {
		// Wine renames over open files; then nothing is in the way.
		t.Skip("this system replaces a file that is open")
	}
	if status != 3 && status != 74 {
		t.Errorf("exit status %d\n%s", status, &u.stderr)
	}
	u.has(u.unit().Path(state.FileSpareResult), "FALLBACK", "the words")
}

// run runs another tool of the suite to its end.
func (u *winUnit) run(status int, name string, args ...string) (stdout, stderr string) {
	u.t.Helper()
	var out, errs strings.Builder
	c := exec.Command(built(u.t, name), args...)
	c.Dir = u.dir
	c.Env = append(winEnv(), "PRUN_STATE_BASE="+u.base)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if c.ProcessState == nil {
		u.t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != status {
		u.t.Errorf("%s %q: exit status %d, want %d\n%s%s", name, args, got, status, &out, &errs)
	}
	if strings.Contains(out.String(), "\r") {
		u.t.Errorf("%s prints carriage returns: %q", name, out.String())
	}
	return out.String(), errs.String()
}

func TestWineMonitorAndGather(t *testing.T) {
	good := launchWin(t, winSpec{steps: []string{"result"}})
	bad := launchWin(t, winSpec{steps: []string{"out only words"}})
	busy := launchWin(t, winSpec{steps: []string{"drip 0.1 0"}})
	good.want(0)
	bad.want(0)
	busy.identities()

	out, _ := good.run(0, "prun-monitor", "--timeout", "30", good.unit().Dir)
	for _, want := range []string{"MONITOR-START", "MONITOR-EVENT all-done", "done"} {
		if !strings.Contains(out, want) {
			t.Errorf("prun-monitor lacks %q:\n%s", want, out)
		}
	}
	out, _ = good.run(3, "prun-monitor", "--timeout", "30", "--json", good.unit().Dir, bad.unit().Dir)
	if !strings.Contains(out, `"status":"failed(fallback)"`) {
		t.Errorf("prun-monitor:\n%s", out)
	}
	out, _ = busy.run(2, "prun-monitor", "--timeout", "1", busy.unit().Dir)
	if !strings.Contains(out, "growing") {
		t.Errorf("prun-monitor:\n%s", out)
	}

	out, _ = good.run(0, "prun-gather", "--timeout", "30", "--unit", good.unit().Dir)
	if !strings.Contains(out, "DONE "+good.result+"\n") {
		t.Errorf("prun-gather:\n%s", out)
	}
	good.run(0, "prun-gather", "--timeout", "30", "--window", "0.1", "--poll", "0.1", good.result, bad.result)
	good.run(2, "prun-gather", "--timeout", "1", good.result, busy.result)
}

// The monitor learns of an end within a second although nothing tells it.
func TestWineMonitorIsQuick(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"await go", "result"}, env: []string{"PRUN_SCRATCH_CWD=."}})
	u.identities()
	c := exec.Command(built(t, "prun-monitor"), u.unit().Dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	if _, err := out.Read(make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	u.want(0)
	settled := time.Now()
	io.Copy(io.Discard, out)
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	// Half the default look; the machine may be busy.
	if took := time.Since(settled); took > 7*time.Second {
		t.Errorf("the monitor ended %v after the unit", took)
	}
}

// Nobody is left to conclude: the monitor says so, and prun-reap settles the unit.
func TestWineReap(t *testing.T) {
	u := launchWin(t, winSpec{options: []string{"--detach"}, steps: []string{"out the last words", "child", "hang"}})
	u.want(0)
	supervisor, worker := u.identities()
	children := u.children(1)
	if err := supervisor.Signal(9); err != nil {
		t.Fatal(err)
	}
	u.gone("a part of the unit", append(children, supervisor, worker)...)
	out, _ := u.run(3, "prun-monitor", "--timeout", "60", "--poll", "0.2", u.unit().Dir)
	if !strings.Contains(out, "failed(dispatch-dead)") {
		t.Errorf("prun-monitor:\n%s", out)
	}
	out, _ = u.run(0, "prun-reap", "--dry-run")
	if !strings.Contains(out, "WOULD-REAP "+filepath.Base(u.unit().Dir)) {
		t.Errorf("prun-reap --dry-run:\n%s", out)
	}
	out, _ = u.run(0, "prun-reap")
	if !strings.Contains(out, "u-1") {
		t.Errorf("prun-reap:\n%s", out)
	}
	if o := u.outcome(); o.Cause != state.Lost {
		t.Errorf("outcome %+v", o)
	}
	u.has(u.result, "FALLBACK", "the last words\n")
	u.run(0, "prun-reap")
	u.run(3, "prun-monitor", "--timeout", "10", u.unit().Dir)
	u.plainFiles()
}

// A live unit is none of prun-reap's business.
func TestWineReapLeavesTheLiving(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"await go"}, env: []string{"PRUN_SCRATCH_CWD=."}})
	_, worker := u.identities()
	out, _ := u.run(3, "prun-reap", "--include-active")
	if !strings.Contains(out, "supervisor-alive") {
		t.Errorf("prun-reap:\n%s", out)
	}
	if alive, err := worker.Alive(); !alive {
		t.Errorf("the worker was ended: %v", err)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	u.want(0)
}

func TestWineReportAndSnapshot(t *testing.T) {
	u := launchWin(t, winSpec{steps: []string{"out words", "result"}})
	u.want(0)
	name := filepath.Base(u.unit().Dir)
	out, _ := u.run(0, "prun-report", "--root", u.base)
	if !strings.Contains(out, "u-1") {
		t.Errorf("prun-report:\n%s", out)
	}
	out, _ = u.run(0, "prun-report", "--root", u.base, "--json", "--detail")
	var any map[string]any
	if err := json.Unmarshal([]byte(out), &any); err != nil || !strings.Contains(out, name) {
		t.Errorf("prun-report --json: %v\n%s", err, out)
	}
	zip := filepath.Join(u.dir, "a snapshot ü.zip")
	u.run(0, "prun-snapshot", "--unit", u.unit().Dir, "--output", zip)
	if fi, err := os.Stat(zip); err != nil || fi.Size() == 0 {
		t.Errorf("snapshot: %v", err)
	}
	u.run(0, "prun-snapshot", "--verify", zip)
}
