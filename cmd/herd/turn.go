package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/session"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// Limits of a turn when nothing is said.
const (
	defaultStall    = 3600
	defaultDeadline = 21600
	defaultEvents   = 32
	defaultTTL      = 7
)

// linger is how long a worker may go on after its final event.
const linger = 30 * time.Second

// number reads a whole number from the environment; a bad one means the default and one warning.
func number(env *cli.Env, name string, def int) int {
	text := strings.TrimSpace(env.Getenv(name))
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		env.Warnf("%s=%q is not a whole number; using the default %d", name, text, def)
		return def
	}
	return n
}

func envStall(env *cli.Env) int    { return number(env, "DELEGATE_STALL_AFTER_S", defaultStall) }
func envDeadline(env *cli.Env) int { return number(env, "DELEGATE_MAX_WALLCLOCK_S", defaultDeadline) }

// eventsCap is the cap of events.jsonl in bytes.
func eventsCap(env *cli.Env) int64 {
	n := number(env, "DELEGATE_EVENTS_MAX_MB", defaultEvents)
	if n <= 0 || n > 1<<20 {
		env.Warnf("DELEGATE_EVENTS_MAX_MB=%d is out of range; using the default %d", n, defaultEvents)
		n = defaultEvents
	}
	return int64(n) << 20
}

func logTTL(env *cli.Env) time.Duration {
	n := number(env, "RUNNER_LOG_TTL_DAYS", defaultTTL)
	if n < 0 || n > 36500 {
		n = defaultTTL
	}
	return time.Duration(n) * 24 * time.Hour
}

// atOnce is a limit that has passed before it began.
const atOnce = time.Nanosecond

func stallLimit(seconds int) time.Duration {
	switch {
	case seconds == 0:
		return defaultStall * time.Second
	case seconds < 0:
		return atOnce
	}
	return time.Duration(min(seconds, 1<<31)) * time.Second
}

func deadlineLimit(seconds int) time.Duration {
	if seconds <= 0 {
		return atOnce
	}
	return time.Duration(min(seconds, 1<<31)) * time.Second
}

// findBinary returns the absolute path of a backend's program.
func findBinary(env *cli.Env, backend string) (string, error) {
	name := "DELEGATE_" + strings.ToUpper(backend) + "_BIN"
	if path := env.Getenv(name); path != "" {
		if !executable(path) {
			return "", say(exitBinary, "%s=%s is not executable", name, path)
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", cli.Fail(1, "%w", err)
		}
		return abs, nil
	}
	for _, dir := range filepath.SplitList(env.Getenv("PATH")) {
		if dir == "" {
			dir = "."
		}
		for _, suffix := range suffixes() {
			if path := filepath.Join(dir, backend+suffix); executable(path) {
				if abs, err := filepath.Abs(path); err == nil {
					return abs, nil
				}
			}
		}
	}
	return "", say(exitBinary, "%s CLI not found on PATH (or set %s)", backend, name)
}

func suffixes() []string {
	if runtime.GOOS == "windows" {
		return []string{".exe", ".cmd", ".bat", ""}
	}
	return []string{""}
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && (runtime.GOOS == "windows" || fi.Mode().Perm()&0o111 != 0)
}

var versionWord = regexp.MustCompile(`\b([0-9]+\.[0-9]+\.[0-9]+)`)

// versionLimit bounds the question for a version; a client on a cold disk takes seconds.
const versionLimit = 15 * time.Second

// clientVersion is the version of a backend whose command line depends on it (pi), as its package or the program
// itself says; "" when neither does.
func clientVersion(env *cli.Env, backend, bin string) string {
	if backend != "pi" {
		return ""
	}
	if v := packageVersion(bin); v != "" {
		return v
	}
	return askVersion(env, bin)
}

// packageVersion reads what stands beside a program that npm has installed. Starting it to ask takes ten times longer
// than all of spawn.
func packageVersion(bin string) string {
	real, err := filepath.EvalSymlinks(bin)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		b, err := atomicfile.ReadRegular(filepath.Join(dir, "package.json"), 1<<20)
		if err != nil {
			continue
		}
		if o, err := session.ParseObject(b); err == nil && strings.HasSuffix(o.Text("name"), "/pi-coding-agent") {
			return o.Text("version")
		}
		return ""
	}
	return ""
}

// askVersion runs the program; some versions answer on standard error.
func askVersion(env *cli.Env, bin string) string {
	r, err := proc.Run(context.Background(), proc.RunSpec{
		Path: bin, Args: []string{bin, "--version"}, Env: environ.Probe(env.Environ), Limit: versionLimit, MaxOutput: 64 << 10,
	})
	if err != nil || r.Exit.Code != 0 {
		return ""
	}
	if m := versionWord.FindSubmatch(append(append(r.Stdout, '\n'), r.Stderr...)); m != nil {
		return string(m[1])
	}
	return ""
}

// turnSpec is a turn that is to begin.
type turnSpec struct {
	turn            session.Turn
	mode            string
	backend         string
	bin, version    string
	dir             string // the worker's
	model, effort   string
	access, resume  string
	fast, commit    bool
	stall, deadline int
	leaf            string
	prompt          string
}

// begin hands a turn to a supervisor and returns when it runs.
func (p place) begin(env *cli.Env, s turnSpec) error {
	b, ok := agent.Lookup(s.backend)
	if !ok {
		return cli.Fail(1, "backend %q is unknown", s.backend)
	}
	extra, err := session.Extra{
		Root: p.root.Dir, Device: p.root.Device, Task: s.turn.Task.Name, Turn: s.turn.Number, Mode: s.mode,
		Events: eventsCap(env), Commit: s.commit,
	}.Encode()
	if err != nil {
		return cli.Fail(1, "%w", err)
	}
	mode, err := proc.ParseMode(env.Getenv("PRUN_CONTAINMENT"))
	if err != nil {
		env.Warnf("PRUN_CONTAINMENT: %v; using the default auto", err)
		mode = proc.ModeAuto
	}
	l := supervise.Launch{
		Unit: s.turn.Task.Name, Backend: s.backend, Tool: "herd", Form: result.FormNamed,
		Base: s.turn.Task.Dir, Cwd: s.dir, CwdHash: state.CwdHash(s.dir), Scratch: s.dir, Bin: s.bin,
		Turn: agent.Turn{
			Door: agent.DoorHerd, Dir: s.dir, Model: s.model, Effort: s.effort, Access: s.access, Resume: s.resume, Fast: s.fast,
			PromptFile: s.turn.Task.Path(session.FilePrompt), SessionDir: s.turn.Task.Path(session.DirPi), ClientVersion: s.version,
		},
		Stall: stallLimit(s.stall), Hard: deadlineLimit(s.deadline), Linger: linger,
		Stops: agent.Stops(b, agent.DoorHerd), CI: true,
		KeepEnded:   s.access == agent.AccessFull,
		Containment: mode, Withhold: env.Getenv(environ.Withhold), Extra: extra,
	}
	if s.access == agent.AccessFull {
		l.ReuseLeaf = s.leaf
	}
	if parent := env.Getenv(environ.StateDir); parent != "" {
		if live, _ := (state.Unit{Dir: parent}).Liveness(); live == state.Running {
			l.ParentUnit = parent
		}
	}
	// So that a worker that calls herd itself meets the same tasks.
	for name, value := range map[string]string{"DELEGATE_STATE_DIR": p.root.Dir, "DELEKIT_DEVICE_ID": p.root.Device} {
		if err := os.Setenv(name, value); err != nil {
			return cli.Fail(1, "%w", err)
		}
	}
	report, err := supervise.Front(l, []byte(s.prompt), supervise.Door{
		Announce: func(string) error { return nil },
		Note:     func(text string) { env.Notef("%s", text) },
		Detach:   true, Record: session.Record{},
	})
	var refusal *supervise.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Stage == supervise.StageContain:
		return cli.Usage("PRUN_CONTAINMENT=cgroup cannot be had here: %s", refusal.Text)
	case errors.As(err, &refusal):
		return cli.Fail(1, "start turn: %s", refusal.Text)
	case err != nil:
		return cli.Fail(1, "start turn: %w", err)
	case report.Dir == "":
		return cli.Fail(1, "start turn: %w", errors.New("no supervisor"))
	}
	return nil
}

// grace is how long a backend's worker may take to end when it is asked.
func grace(backend string) time.Duration {
	b, ok := agent.Lookup(backend)
	if !ok {
		return 5 * time.Second
	}
	var sum time.Duration
	for _, s := range agent.Stops(b, agent.DoorHerd) {
		sum += s.Wait
	}
	return sum
}

// printBegun prints what spawn and send print.
func printBegun(env *cli.Env, t session.Task, json bool, words string) error {
	s := t.Look()
	s.Fill()
	if json {
		return printLine(env, s.Payload(time.Now()).Line())
	}
	return printLine(env, fmt.Sprintf("%s working pid=%s%s", t.Name, pidWord(s.Helper), words))
}

func pidWord(n int) string {
	if n == 0 {
		return "None"
	}
	return strconv.Itoa(n)
}

func printLine(env *cli.Env, text string) error {
	_, err := fmt.Fprintln(env.Stdout, text)
	return err
}
