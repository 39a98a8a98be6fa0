package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
)

// The tests run this test binary as the fake.
func TestMain(m *testing.M) {
	if os.Getenv("FAKEAGENT_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// raceExit: a binary built with -race otherwise sleeps a second at its end.
const raceExit = "GORACE=atexit_sleep_ms=0"

type result struct {
	stdout, stderr string
	code           int
}

func runFake(t *testing.T, as, stdin string, env []string, args ...string) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), append([]string{"FAKEAGENT_TEST=1", raceExit, "FAKEAGENT_AS=" + as, "FAKEAGENT_LIFE=20s", "PRUN_RESULT_FILE=result.md"}, env...)...)
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &stdout, &stderr
	c.WaitDelay = time.Second // a child that holds the pipe is a case here
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

// Every backend's own argv and standard input must be what its fake accepts, and what the fake writes must be what
// its parser and judge understand.
func TestFakesSpeakTheirBackendsDialects(t *testing.T) {
	for _, b := range agent.All() {
		for _, door := range b.Capabilities().Doors {
			for _, c := range []struct {
				name, script, reason, session string
				code                          int
				resume                        bool
			}{
				{name: "ok", script: "say first words of it\ntext an answer that is long enough"},
				{name: "fail", script: "fail the model is on strike", code: 1, reason: "the model is on strike"},
				{name: "quota", script: "quota", code: 1, reason: "quota|limit|billing"},
				{name: "resume", script: "text an answer that is long enough", resume: true},
				{name: "resume elsewhere", script: "session 99999999-9999-7999-8999-999999999999\ntext an answer that is long enough", resume: true, code: 70, reason: "9999"},
				{name: "big line", script: "line 3m\ntext an answer that is long enough"},
				{name: "code", script: "start\nexit 124", code: 124},
			} {
				// omp prints only its answer in a lane, and has no session there.
				plain := b.Name() == "omp" && door == agent.DoorFanout
				if c.resume && (plain || !b.Capabilities().Resumes) {
					continue
				}
				t.Run(b.Name()+"/"+door+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					turn := agent.Turn{Unit: "u", Door: door, Dir: t.TempDir(), Model: "m", Effort: "high", Argv: []string{"x"}}
					if c.resume {
						turn.Resume = "01a22837-9239-74d3-8b29-9caab1dd2b89"
					}
					prompt := ""
					for _, s := range lines(c.script) {
						prompt += "FAKE: " + s + "\n"
					}
					turn.PromptFile = filepath.Join(t.TempDir(), "prompt")
					if err := os.WriteFile(turn.PromptFile, []byte(prompt), 0o600); err != nil {
						t.Fatal(err)
					}
					cmd, err := b.Command(turn)
					if err != nil {
						t.Fatal(err)
					}
					stdin, err := b.Stdin(turn, []byte(prompt))
					if err != nil {
						t.Fatal(err)
					}
					r := runFake(t, b.Name(), string(stdin), nil, cmd.Args...)
					tr := &agent.Transcript{}
					p := b.NewParser(turn)
					for _, s := range []struct {
						stream agent.Stream
						text   string
					}{{agent.Stdout, r.stdout}, {agent.Stderr, r.stderr}} {
						f := agent.NewFeed(p, tr, s.stream)
						f.Write([]byte(s.text))
						f.Close()
					}
					v := b.Judge(turn, tr, agent.Ending{Code: r.code})
					want := c.code
					if b.Name() == "agy" && (c.name == "fail" || c.name == "quota") {
						want = 3
					}
					// It exits with 0 in its JSON form; the verdict is the stream's.
					if b.Name() == "pi" && (c.name == "fail" || c.name == "quota") {
						want = 70
					}
					if v.ExitStatus != want {
						t.Errorf("exit %d, want %d; %+v\n%s\n%s", v.ExitStatus, want, v, r.stdout, r.stderr)
					}
					if said := v.Reason + strings.Join(v.Notes, " "); b.Name() != "command" && !slices.ContainsFunc(strings.Split(c.reason, "|"), func(w string) bool { return strings.Contains(said, w) }) {
						t.Errorf("reason %q lacks %q", said, c.reason)
					}
					if b.Capabilities().Streams && !plain && !c.resume && c.name != "fail" && tr.Session == "" {
						t.Error("no session")
					}
				})
			}
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		as   string
		args string
		code int
	}{
		{"codex", "exec resume 01a22837-9239-74d3-8b29-9caab1dd2b89 --sandbox read-only -", 2},
		{"codex", "exec --full-auto -", 2},
		{"codex", "exec --sandbox nosuch -", 2},
		{"codex", "exec -", 1}, // an empty prompt
		{"agy", "-p x --input-format stream-json", 2},
		{"agy", "--input-format stream-json", 2},
		{"agy", "--mode yolo", 2},
		{"agy", "--model claude-sonnet-4-6 --effort high", 1},
		{"agy", "--model gemini-3.8-flash-high --effort low", 1},
		{"agy", "words", 2},
		{"claude", "-p --output-format stream-json", 1},
	} {
		if r := runFake(t, c.as, "", nil, strings.Fields(c.args)...); r.code != c.code {
			t.Errorf("%s %s: exit %d, want %d\n%s%s", c.as, c.args, r.code, c.code, r.stdout, r.stderr)
		}
	}
}

func TestAgyProbes(t *testing.T) {
	for _, form := range []string{"tsv", "plain", "heading", "joined"} {
		r := runFake(t, "agy", "", []string{"FAKEAGENT_MODELS_FORM=" + form, "FAKEAGENT_MODELS=gemini-4-flash-high,x-1"}, "models")
		if got := strings.Join(agent.AgyListed([]byte(r.stdout)), " "); got != "gemini-4-flash-high x-1" {
			t.Errorf("%s: %q from %q", form, got, r.stdout)
		}
	}
	if r := runFake(t, "agy", "", []string{"FAKEAGENT_MODELS_SCRIPT=err no\nexit 7"}, "models"); r.code != 7 || r.stderr != "no\n" {
		t.Errorf("%+v", r)
	}
	if r := runFake(t, "agy", "", nil, "--version"); r.stdout != "1.2.17\n" {
		t.Errorf("%+v", r)
	}
	r := runFake(t, "agy", "", nil, "-p", "/usage", "--output-format", "json", "--print-timeout", "30s")
	var usage struct {
		Command struct {
			Data struct{ Groups []struct{ Name string } }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &usage); err != nil || usage.Command.Data.Groups[0].Name != "Gemini Models" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestStepsOfAProgram(t *testing.T) {
	r := runFake(t, "anything", "the prompt", nil, `outn a\x41\n`, "err e", "argv", "flood 10", "drip 0 3 ab", "exit 3")
	want := "aA\nargv[0]=<"
	if !strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "stdin bytes=10\nyyyyyyyyyy\nababab") || r.stderr != "e\n" || r.code != 3 {
		t.Errorf("%+v", r)
	}
	if r := runFake(t, "anything", "FAKE: exit 5\n", nil); r.code != 5 {
		t.Errorf("%+v", r)
	}
	if r := runFake(t, "anything", "", nil, "dance"); r.code != 99 {
		t.Errorf("a mistake in a script: %+v", r)
	}
}

func TestResultSteps(t *testing.T) {
	dir := t.TempDir()
	for verb, want := range map[string]string{
		"result": "# u result\n", "result body": "body", "result-empty": "", "result-slow 0.01": "# u result\n", "result-late 0.01": "# u result\n",
	} {
		name := filepath.Join(dir, strings.ReplaceAll(verb, " ", "_")+".md")
		if r := runFake(t, "x", "", []string{"FAKEAGENT_RESULT=" + name}, verb); r.code != 0 {
			t.Fatalf("%s: %+v", verb, r)
		}
		poll(t, verb, func() bool {
			data, err := os.ReadFile(name)
			return err == nil && strings.HasPrefix(string(data), want)
		})
	}
	if runtime.GOOS == "windows" {
		return
	}
	for verb, mode := range map[string]os.FileMode{"result-link /nowhere": os.ModeSymlink, "result-dir": os.ModeDir, "result-fifo": os.ModeNamedPipe} {
		name := filepath.Join(dir, strings.ReplaceAll(verb, "/", "_"))
		runFake(t, "x", "", []string{"FAKEAGENT_RESULT=" + name}, verb)
		if info, err := os.Lstat(name); err != nil || info.Mode().Type() != mode {
			t.Errorf("%s: %v, %v", verb, info, err)
		}
	}
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	t.Fatalf("%s did not happen", what)
}

// Children are in place when their step is over, are listed, and end by themselves.
func TestChildrenEndByThemselves(t *testing.T) {
	kinds := []string{"child", "child-setsid", "child-double", "child-stubborn", "child-talk", "child-quiet"}
	pids := filepath.Join(t.TempDir(), "pids")
	var steps []string
	for _, k := range kinds {
		steps = append(steps, k+" 0.3")
	}
	steps = append(steps, "children 3 0.3", "out left")
	r := runFake(t, "x", "", []string{"FAKEAGENT_PIDS=" + pids}, steps...)
	if !strings.Contains(r.stdout, "left\n") || r.code != 0 {
		t.Fatalf("%+v", r)
	}
	var found []int
	poll(t, "every child's number", func() bool {
		data, err := os.ReadFile(pids)
		if err != nil {
			return false
		}
		found = nil
		for _, f := range strings.Fields(string(data)) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, n)
		}
		return len(found) == len(kinds)+3
	})
	if runtime.GOOS != "linux" {
		return
	}
	for _, pid := range found {
		poll(t, fmt.Sprintf("the end of %d", pid), func() bool {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(data, []byte(") Z "))
		})
	}
}

func TestReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log.json")
	runFake(t, "x", "the prompt", []string{"FAKEAGENT_LOG=" + name, "MARK=m"}, "exit 0")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Argv  []string
		Env   []string
		Stdin string
		Cwd   string
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Stdin != "the prompt" || got.Cwd == "" || len(got.Argv) != 2 || !strings.Contains(strings.Join(got.Env, "\n"), "\nMARK=m\n") {
		t.Errorf("%s", data)
	}
}
