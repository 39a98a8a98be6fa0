package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/testdata/modelserver"
)

// caseLimit is far above what any case takes; a case that reaches it has hung.
const caseLimit = 2 * time.Minute

// bench is what the cases share.
type bench struct {
	ctx                        context.Context
	dir, dispatch, codex, base string
	server                     *modelserver.Server
	done                       map[string]outcome
}

// outcome is what one case left.
type outcome struct {
	state.Outcome
	exit           int
	dir            string // the state directory
	result         string // the result file's text
	tail           string
	stdout, stderr string
	took           time.Duration
	requests       []modelserver.Request
	listed         []int // numbers that the tool call wrote down
}

// A step of the script is written into the prompt; PIDS in it stands for a file for process numbers.
type testCase struct {
	name   string
	script []string
	args   []string
	env    []string
	from   string // the case whose session is resumed
	check  func(b *bench, o outcome) error
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

var cases = []testCase{
	{
		name:   "plain",
		script: []string{"text The answer is plain."},
		check: func(_ *bench, o outcome) error {
			return all(
				equal("exit", o.exit, 0), equal("cause", o.Cause, state.Cause("exited")), equal("result", o.Result, "fallback"),
				contains("result file", o.result, "# plain result (FALLBACK, worker wrote no result file)"),
				contains("result file", o.result, "The answer is plain."),
				holds("a session id", uuid.MatchString(o.SessionID)), holds("a usage total", o.Usage.Total != nil && *o.Usage.Total > 0),
				equal("requests", len(o.requests), 1), holds("an authorized request", o.requests[0].Auth),
			)
		},
	},
	{
		name: "shell",
		script: []string{
			`shell cat > "$PRUN_RESULT_FILE" <<END\n# $PRUN_UNIT result\nConclusion: written by a tool\nFiles: none\nOpen items: none\nVerification: none\nEND`,
			"text The file is written.",
		},
		check: func(_ *bench, o outcome) error {
			return all(
				equal("exit", o.exit, 0), equal("result", o.Result, "worker"),
				equal("result file", o.result, "# shell result\nConclusion: written by a tool\nFiles: none\nOpen items: none\nVerification: none\n"),
				// No word on leftovers: on a busy machine codex can end before its own helper does.
				contains("tail", o.tail, "The file is written."),
			)
		},
	},
	{
		name: "leftovers",
		script: []string{
			// In codex's reach (killed by it when the command ends), in a session of its own, and that with its parent gone.
			`shell sleep 307 & echo $! >>PIDS; setsid sh -c 'echo $$ >>PIDS; exec sleep 308' </dev/null >/dev/null 2>&1 &` +
				` (setsid sh -c 'setsid sh -c "echo \$\$ >>PIDS; exec sleep 309" & sleep 0.2' </dev/null >/dev/null 2>&1 &);` +
				` while [ $(wc -l <PIDS) -lt 3 ]; do sleep 0.05; done; echo three are left`,
			"text They are left.",
		},
		args: []string{"--model", "gpt-5.5"}, // a model with plain tools; the default one is given code to run
		check: func(_ *bench, o outcome) error {
			return all(
				equal("exit", o.exit, 0), contains("tail", o.tail, "three are left"), equal("processes written down", len(o.listed), 3),
				holds("leftovers in the outcome", o.Leftovers >= 2), holds("proof that none is left", o.ProvenEmpty),
			)
		},
	},
	{
		name:   "http-401",
		script: []string{"status 401"},
		check: func(_ *bench, o outcome) error {
			return all(
				equal("exit", o.exit, 1), equal("cause", o.Cause, state.Cause("failed")), contains("reason", o.Reason, "401 Unauthorized"),
				holds("no retry notice as the reason", !strings.Contains(o.Reason, "Reconnecting")), equal("result", o.Result, "fallback"),
			)
		},
	},
	{
		name:   "http-429",
		script: []string{"status 429"},
		check: func(_ *bench, o outcome) error {
			return all(equal("exit", o.exit, 1), contains("reason", o.Reason, "429 Too Many Requests"), equal("result", o.Result, "fallback"))
		},
	},
	{
		name:   "usage-limit",
		script: []string{"usage_limit"},
		check: func(_ *bench, o outcome) error {
			return all(equal("exit", o.exit, 1), contains("reason", o.Reason, "usage limit"), contains("result file", o.result, "usage limit"))
		},
	},
	{
		name:   "hang",
		script: []string{"hang"},
		env:    []string{"PRUN_STALL_THRESHOLD=3"},
		check: func(_ *bench, o outcome) error {
			return all(
				equal("exit", o.exit, 124), equal("cause", o.Cause, state.Cause("idle-stall")), contains("result file", o.result, "exit code 124"),
				contains("result file", o.result, "INCOMPLETE; worker was reaped"), holds("an end within 12 s", o.took < 12*time.Second),
				holds("proof that none is left", o.ProvenEmpty),
			)
		},
	},
	{
		name:   "resume",
		script: []string{"text The second answer."},
		from:   "plain",
		check: func(b *bench, o outcome) error {
			before := b.done["plain"]
			if len(o.requests) != 1 || len(before.requests) != 1 {
				return fmt.Errorf("requests: %d, before %d", len(o.requests), len(before.requests))
			}
			return all(
				equal("exit", o.exit, 0), equal("session", o.SessionID, before.SessionID), contains("result file", o.result, "The second answer."),
				holds("the first turn in the request", o.requests[0].Items > before.requests[0].Items),
			)
		},
	},
}

func all(errs ...error) error { return errors.Join(errs...) }

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func contains(what, text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%s lacks %q", what, part)
	}
	return nil
}

func holds(what string, ok bool) error {
	if !ok {
		return fmt.Errorf("missing: %s", what)
	}
	return nil
}

// withContainments adds the cases in which something has to be ended a second time, without a cgroup, where Linux has
// that choice.
func withContainments() []testCase {
	every := slices.Clone(cases)
	if runtime.GOOS != "linux" {
		return every
	}
	for _, c := range cases {
		if c.name == "leftovers" || c.name == "hang" {
			c.name += "-subreaper"
			c.env = append(slices.Clone(c.env), "PRUN_CONTAINMENT=subreaper")
			every = append(every, c)
		}
	}
	return every
}

// all runs the cases and returns how many failed.
func (b *bench) all(only string) (failed int) {
	every := withContainments()
	needed := []string{only}
	for _, c := range every {
		if c.name == only && c.from != "" {
			needed = append(needed, c.from)
		}
	}
	for _, c := range every {
		if only != "" && !slices.Contains(needed, c.name) {
			continue
		}
		o, err := b.run(c)
		if err == nil {
			err = all(c.check(b, o), b.nothingLeft(o))
		}
		if err != nil {
			failed++
			fmt.Printf("FAIL %s (%.1f s)\n%v\nprun-dispatch said:\n%s%s\n", c.name, o.took.Seconds(), err, o.stdout, o.stderr)
			continue
		}
		b.done[c.name] = o
		fmt.Printf("ok   %-19s %4.1f s, exit %d, %s, leftovers %d\n", c.name, o.took.Seconds(), o.exit, o.Containment, o.Leftovers)
	}
	return failed
}

// run dispatches one unit and reads what it left.
func (b *bench) run(c testCase) (outcome, error) {
	dir := filepath.Join(b.dir, c.name)
	home, codexHome := filepath.Join(b.dir, "home"), filepath.Join(b.dir, "codex-home")
	for _, d := range []string{dir, home, codexHome} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return outcome{}, fmt.Errorf("make %s: %w", d, err)
		}
	}
	pids, result, prompt := filepath.Join(dir, "pids"), filepath.Join(dir, "result.md"), filepath.Join(dir, "prompt.md")
	text := "Do what the script says.\n"
	for _, s := range c.script {
		text += "MOCK: " + strings.ReplaceAll(s, "PIDS", pids) + "\n"
	}
	if err := os.WriteFile(prompt, []byte(text), 0o600); err != nil {
		return outcome{}, fmt.Errorf("write the prompt: %w", err)
	}
	provider := fmt.Sprintf(`model_providers.mock={name="mock",base_url=%q,wire_api="responses",env_key="MOCK_KEY"}`, b.base)
	args := []string{"--backend", "codex", "--prompt-file", prompt, "--result-file", result, "--unit-id", c.name}
	for _, a := range []string{"-c", "model_provider=mock", "-c", provider} {
		args = append(args, "--backend-arg", a)
	}
	args = append(args, c.args...)
	if c.from != "" {
		before, ok := b.done[c.from]
		if !ok {
			return outcome{}, fmt.Errorf("case %s did not succeed", c.from)
		}
		args = append(args, "--continue-from", before.dir)
	}
	limited, cancel := context.WithTimeout(b.ctx, caseLimit)
	defer cancel()
	cmd := exec.CommandContext(limited, b.dispatch, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = dir
	cmd.Env = append(withoutOurs(os.Environ()), append([]string{"CODEX_BIN=" + b.codex, "CODEX_HOME=" + codexHome, "HOME=" + home,
		"MOCK_KEY=no-secret", "TMPDIR=" + b.dir}, c.env...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	seen := len(b.server.Requests())
	start := time.Now()
	err := cmd.Run()
	o := outcome{took: time.Since(start), stdout: stdout.String(), stderr: stderr.String(), requests: b.server.Requests()[seen:]}
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return o, fmt.Errorf("run prun-dispatch: %w", err)
	}
	o.exit = cmd.ProcessState.ExitCode()
	first, _, _ := strings.Cut(o.stdout, "\n")
	var found bool
	if o.dir, found = strings.CutPrefix(first, "STATE-DIR "); !found {
		return o, fmt.Errorf("no STATE-DIR line")
	}
	read, err := state.Unit{Dir: o.dir}.ReadOutcome()
	if err != nil {
		return o, fmt.Errorf("read the outcome: %w", err)
	}
	if read == nil {
		return o, fmt.Errorf("no outcome in %s", o.dir)
	}
	o.Outcome = *read
	for name, into := range map[string]*string{result: &o.result, filepath.Join(o.dir, state.FileTail): &o.tail} {
		data, err := os.ReadFile(name)
		if err != nil {
			return o, fmt.Errorf("read what the unit left: %w", err)
		}
		*into = string(data)
	}
	data, err := os.ReadFile(pids)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return o, fmt.Errorf("read process numbers: %w", err)
	}
	for _, word := range strings.Fields(string(data)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return o, fmt.Errorf("read process numbers: %w", err)
		}
		o.listed = append(o.listed, n)
	}
	return o, nil
}

// withoutOurs drops what would steer the suite or the client from outside.
func withoutOurs(env []string) []string {
	return slices.DeleteFunc(env, func(e string) bool {
		return strings.HasPrefix(e, "PRUN_") || strings.HasPrefix(e, "CODEX_") || strings.HasPrefix(e, "OPENAI_")
	})
}

// nothingLeft looks for processes of the unit: those it wrote down, and any whose environment names its directory.
func (b *bench) nothingLeft(o outcome) error {
	var left []error
	for _, n := range o.listed {
		if id, err := pid.Of(n); err == nil {
			if alive, err := id.Alive(); alive || err != nil {
				left = append(left, fmt.Errorf("process %d is still there", n))
			}
		}
	}
	if runtime.GOOS != "linux" {
		return all(left...)
	}
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil {
			continue // gone, or another user's
		}
		if bytes.Contains(env, []byte("PRUN_STATE_DIR="+o.dir+"\x00")) {
			left = append(left, fmt.Errorf("%s belongs to the unit", filepath.Dir(name)))
		}
	}
	return all(left...)
}
