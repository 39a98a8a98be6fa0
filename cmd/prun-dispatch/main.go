// Command prun-dispatch runs one unit: it starts a coding agent or any other
// program, contained from birth, watches it, ends it when it hangs, and leaves
// a result, a salvage and an outcome that nothing can take back.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// options are the native command line and, less what they do not have, that of
// the Agy front.
type options struct {
	PromptFile string `long:"prompt-file" value-name:"FILE" description:"the unit's request; - reads standard input. Required"`
	ResultFile string `long:"result-file" value-name:"FILE" description:"where the result lands. Required"`
	UnitID     string `long:"unit-id" value-name:"ID" description:"name of the unit: letters, digits, dashes, underscores. Required"`

	Backend     string   `long:"backend" value-name:"NAME" env:"PRUN_BACKEND" default:"agy" description:"which program works"`
	Model       string   `long:"model" value-name:"NAME" description:"model to run, verbatim"`
	Effort      string   `long:"effort" value-name:"LEVEL" description:"reasoning effort"`
	Mode        string   `long:"mode" value-name:"MODE" description:"for agy: plan or accept-edits. Needed with PRUN_SCRATCH_CWD and with --add-dir"`
	Access      string   `long:"access" value-name:"LEVEL" choice:"read-only" choice:"workspace-write" choice:"danger-full-access" description:"what the worker may do"`
	AddDirs     []string `long:"add-dir" value-name:"DIR" description:"a further directory for the worker; repeatable"`
	Continue    string   `long:"continue-from" value-name:"STATE-DIR" description:"go on with the session recorded there"`
	Clone       string   `long:"clone" value-name:"REPO" description:"run in a throwaway clone of this repository, kept in the state directory"`
	BackendArgs []string `long:"backend-arg" value-name:"ARG" description:"a word handed to the client unchanged; repeatable"`

	Stall   *cli.Seconds `long:"stall" value-name:"SECONDS" description:"end the worker when its output has not grown for so long; 0 never (default: PRUN_STALL_THRESHOLD, agy: PRUN_AGY_STALL_THRESHOLD)"`
	Timeout *cli.Seconds `long:"timeout" value-name:"SECONDS" description:"end the worker after so long; 0 never (default: CODEX_DISPATCH_TIMEOUT, agy: its own limit and PRUN_AGY_GRACE)"`

	MaxWorkers   int          `long:"max-workers" value-name:"N" env:"PRUN_MAX_WORKERS" min:"0" max:"1000000" description:"wait until fewer than N workers of this user run on this machine; 0 does not wait"`
	QueueTimeout *cli.Seconds `long:"queue-timeout" value-name:"SECONDS" description:"give up waiting after so long (75); 0, the default, never"`

	Ledger string `long:"ledger" value-name:"FILE" description:"append one line when the unit is accepted and one when it ends"`
	JSON   bool   `long:"json" description:"print the outcome as the last line of standard error: OUTCOME and a JSON object"`
	Detach bool   `long:"detach" description:"return as soon as STATE-DIR is printed and the ledger has the unit, which goes on"`

	dialect dialect
}

func main() {
	o := &options{dialect: dialects[0]}
	cli.Main(tool(o), o)
}

func tool(o *options) cli.Tool {
	return cli.Tool{
		Name:    "prun-dispatch",
		Summary: "run one unit of a fan-out under supervision",
		Synopsis: []string{
			"--prompt-file FILE --result-file FILE --unit-id ID [options]",
			"--backend command --prompt-file FILE --result-file FILE --unit-id ID [options] -- COMMAND",
		},
		Description: `Starts one worker, prints STATE-DIR and the state directory's path on standard output, and waits. ` +
			`The worker is contained before its first instruction. When it ends, hangs or is stopped, everything below it is ended ` +
			`and its result is published where --result-file says: what the worker wrote there itself, its final message, ` +
			`or a FALLBACK with its output. The file outcome.json in the state directory says how it went.

A worker outlives this program: when prun-dispatch is killed the unit goes on, within its limits, and its result lands. ` +
			`When prun-dispatch is told to stop (INT, TERM, HUP, QUIT), the worker's whole tree is ended first; a second signal means at once.

The words after -- are the worker's command for --backend command.`,
		Exits: cli.Exits{
			0:   "the worker succeeded",
			2:   "wrong usage, or refused before anything was started",
			70:  "the backend failed although it exited 0, the supervisor was lost, or the worker could not be prepared",
			74:  "a result or a salvage could not be written, or STATE-DIR could not be printed (then no worker was started)",
			75:  "no quota, or no slot in time",
			124: "the worker was reaped (no output, or out of time), or the preflight timed out",
			126: "the worker's program cannot be executed",
			127: "the worker's program was not found",
		},
		ExitOther: "the worker's own exit status; 128+n when it, or this program, was ended by signal n",
		Files: []cli.File{
			{Path: "$TMPDIR/prun-task-*", Text: "state directories; see prun-state(5)"},
			{Path: "~/.claude/agy-quota-cache.json", Text: "snapshot of agy's meters; see agent-quota(1)"},
			{Path: "/tmp/prun-user-UID", Text: "where this user's workers are counted and answers of probes are kept"},
		},
		Environment: environment,
		Examples: []cli.Example{
			{Text: "One unit on codex:", Command: "prun-dispatch --backend codex --prompt-file u1.md --result-file /tmp/u1.result.md --unit-id u1"},
			{Text: "Any program, ended after a minute without output:", Command: "prun-dispatch --backend command --stall 60 --prompt-file p --result-file r --unit-id u2 -- sh -c 'cat; make test'"},
		},
		Sections:  []cli.Section{{Title: "QUOTA", Text: sectionQuota}, {Title: "WAITING FOR A SLOT", Text: sectionSlots}, {Title: "DIALECTS", Text: dialectSection()}},
		SeeAlso:   []string{"agent-quota(1)", "prun-gather(1)", "prun-monitor(1)", "prun-state(5)", "prun(7)"},
		Prefixes:  map[string]string{"m": "mode", "p": "prompt-file", "c": "continue-from"},
		Remainder: "COMMAND",
		Choices:   map[string][]string{"backend": backends()},
		Hidden: map[string]func(*cli.Env) int{
			supervise.KeeperCommand:     func(env *cli.Env) int { return supervise.Keep(supervise.Dispatch{}, env.Args[1:]) },
			supervise.SupervisorCommand: func(*cli.Env) int { return supervise.Supervise(supervise.Dispatch{}) },
			"__reap-watch":              reapWatch,
		},
		Raw: o.raw,
	}
}

const sectionQuota = `Agy has two groups of models with a meter each, Gemini and Claude and GPT. Before a unit starts, the snapshot that agent-quota(1) keeps is read. It counts for 900 seconds; an older one is refreshed first, by one query however many units ask at once, or by a deployed ~/.claude/agent-quota.py that is not ours. In each group the emptiest window decides.

The named model's group is Claude and GPT and is empty: the Gemini default runs instead, and a line MODEL-FALLBACK on standard error and in quota-note says so. The file model names what ran.

Gemini is empty, or both are: exit 75 with a FALLBACK, and nothing was launched. The message gives the reset times as agy words them, and outcome.json has them in resets. It never moves into the other group by itself; ` + varAgyModel + ` names a model of it.

A group that is not reported is unknown, not empty, and a snapshot that cannot be read, is out of date or is ahead of the clock stops nothing. A model of neither group is never asked about.

With ` + varBalance + `=on a unit that names no model moves to the other group (MODEL-BALANCE) when its own is empty, or when the other has at least 15 points more and reports both windows.

The built-in default that "agy models" does not list gives way to the newest of its family (MODEL-RESOLVE, or MODEL-FALLBACK back to Gemini). A named model runs verbatim or fails.

A run that fails at the backend (an exit status other than 0, a last status other than SUCCESS, an AGY_ERROR line) has the snapshot read anew before the unit's caller goes on, so that the next unit goes by it. A file named by AGY_QUOTA_CACHE is never refreshed.

"agy --version" and "agy models" are not repeated when the same program, with the same home directory and ANTIGRAVITY_* variables, answered them within the last minute; preflight-tail then says reused. Failures are never remembered.`

const sectionSlots = `All workers of this user on this machine are counted: units, turns of herd(1), lanes of agent-fanout(1). A unit with --max-workers waits, first come first served, until fewer than that many run. One without it is counted and never waits. The count is a kernel lock for each worker, so a slot is free the moment its holder is gone, however it went.

While it waits the unit is queued: STATE-DIR is printed, the file queued in it holds how many wait in front, prun-monitor(1) prints queued(N) and never stalled, the ledger's first line says queued, and no limit of its life runs. A stop ends it as it ends a running one; a killed prun-dispatch leaves it in the queue. With --queue-timeout it gives up: exit 75, cause blocked, a FALLBACK.

A unit inside a unit takes part in its slot and does not wait, or it could wait for its own parent. One that detaches from inside is counted, and does not wait either.

` + varMinFree + ` holds a new unit back while less memory is available; a worker that has just started counts as 256 MiB until its own shows. It ends nobody. It is ignored where the system does not say (not Linux).

On Linux a worker has an oom_score_adj of at least 300, so that the kernel takes it before its guards.`

// backends are those that this door serves.
func backends() []string {
	var names []string
	for _, b := range agent.All() {
		if agent.Serves(b, agent.DoorDispatch) {
			names = append(names, b.Name())
		}
	}
	return names
}

// raw takes the dialect argument off. The shell fronts are answered here; the
// Agy front's options are a subset of ours and parsed as they are.
func (o *options) raw(ctx context.Context, env *cli.Env) (handled bool, err error) {
	if len(env.Args) == 0 || !strings.HasPrefix(env.Args[0], dialectOption) {
		return false, nil
	}
	d, err := findDialect(strings.TrimPrefix(env.Args[0], dialectOption))
	if err != nil {
		return true, cli.Usage("%v", err)
	}
	env.Args = env.Args[1:]
	env.Name = d.prefix
	if d.usage == "" {
		o.dialect = d
		return false, nil
	}
	given, err := parseShell(d, env.Args)
	if err != nil {
		return true, err
	}
	return true, dispatch(ctx, env, d, given)
}

// Run is the native entry and that of the Agy front.
func (o *options) Run(ctx context.Context, env *cli.Env) error {
	return dispatch(ctx, env, o.dialect, o)
}

// dispatch checks, starts the unit, waits for it and tells how it went.
func dispatch(ctx context.Context, env *cli.Env, d dialect, o *options) error {
	r, err := check(ctx, env, d, o)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	listen(signals, &r.launch)
	defer signal.Stop(signals)
	report, err := supervise.Front(r.launch, r.prompt, supervise.Door{
		Announce: func(dir string) error { return line.NewWriter(env.Stdout).Print(line.StateDir(dir)) },
		Note:     func(text string) { env.Notef("%s", text) },
		Signals:  signals,
		Detach:   o.Detach,
		Record:   supervise.Dispatch{},
	})
	var refusal *supervise.Refusal
	switch {
	case errors.As(err, &refusal):
		r.undo()
		return d.refused(refusal)
	case err != nil:
		return cli.Fail(70, "%w", err)
	case report.Unprinted != nil:
		return cli.Fail(74, "print STATE-DIR: %w", report.Unprinted)
	case report.Outcome == nil:
		return nil
	}
	tell(env, d, o, report, r)
	return cli.Status(state.ExitStatus(*report.Outcome))
}

// tell prints what a person wants to see after the end: the last lines of what
// the worker said, why it failed, and, on request, the whole outcome.
func tell(env *cli.Env, d dialect, o *options, report supervise.Report, r request) {
	u := state.Unit{Dir: report.Dir}
	out := report.Outcome
	echo(env.Stderr, u.Path(state.FileTail), "")
	if !r.mergedStderr {
		// What kept the worker from starting is all that stands there, and the reason.
		echo(env.Stderr, u.Path(state.FileStderr), out.Reason)
	}
	if out.Reason != "" {
		env.Notef("%s", out.Reason)
	}
	if d.name == "codex-ps1" && (out.Cause == state.IdleStall || out.Cause == state.HardTimeout) {
		env.Notef("worker reaped by reap-watch (%s)", out.Cause)
	}
	for _, n := range out.Notes {
		if !quiet(n) {
			env.Notef("%s", n)
		}
	}
	if o.JSON {
		b, err := json.Marshal(out)
		if err != nil {
			env.Warnf("encode outcome: %v", err)
			return
		}
		io.WriteString(env.Stderr, line.Outcome(string(b)).String()+"\n")
	}
}

// quiet picks the notes that are for outcome.json only: they change nothing for
// whoever waits, or were seen already.
func quiet(note string) bool {
	for _, s := range []string{"late tick ", "keeper-lost", "concluded by the ", "model ", "Agy: ", "codex: ", "Agy reported no usage", "a line of "} {
		if strings.HasPrefix(note, s) {
			return true
		}
	}
	return false
}

// refused words a refusal of our own parts in the front's dialect. The old
// texts name no cause; it follows as a hint.
func (d dialect) refused(f *supervise.Refusal) error {
	isolated := "failed to prepare isolated working directory: " + f.Text
	switch f.Stage {
	case supervise.StageStateDir:
		if d.backend == "agy" {
			return d.fail(2, isolated)
		}
		return cli.WithHint(d.fail(2, "failed to create state-dir: "+f.Path), "%s", line.Escape(f.Text))
	case supervise.StageScratch:
		if d.backend == "agy" {
			return d.fail(2, isolated)
		}
		return cli.WithHint(d.fail(2, "failed to create scratch cwd: "+f.Path), "%s", line.Escape(f.Text))
	case supervise.StageClaim:
		return d.fail(2, "result path is in use by another live unit: "+f.Path)
	case supervise.StageContain:
		return d.fail(2, "PRUN_CONTAINMENT=cgroup cannot be had here: "+f.Text)
	}
	return d.fail(70, fmt.Sprintf("could not start the supervisor: %s", f.Text))
}

// fail ends with one line in the dialect's form.
func (d dialect) fail(status int, text string) error {
	if d.quoted {
		return cli.Quoted(status, d.prefix+": "+line.Escape(text))
	}
	return cli.Fail(status, "%s", text)
}
