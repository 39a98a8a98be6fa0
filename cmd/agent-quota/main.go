// Command agent-quota shows what the accounts of Claude, Codex and Agy have left, keeps
// the snapshot that prun-dispatch routes by, and answers whether one of them is empty.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/quota"
)

const (
	exitFailed  = 1
	exitUnknown = 3
	exitEmpty   = 75
)

// Accounts that --check knows.
const (
	checkClaude = "claude"
	checkCodex  = "codex"
	checkGemini = "agy-gemini"
	checkSecond = "agy-second"
)

var tool = cli.Tool{
	Name:    "agent-quota",
	Summary: "show what the agents' accounts have left",
	Description: `Prints a row for Claude, one for Codex and one for each of Agy's two groups: the model, what is left of the short and the long window and when each is reset, and in brackets how old the reading is. No row asks a service: Claude's comes from the cache of its status line, Codex's from the latest session rollouts, Agy's from a snapshot. When the snapshot is older than AGY_QUOTA_TTL_SECONDS a refresh is started that this program does not wait for.

A dash in place of a number means that the meter was not reported. An age of "?" means that the reading has no time, or one ahead of the clock. Codex's plan meter is shown before the meters of single models, which are in brackets when there is nothing else.

With --refresh-agy the snapshot is refreshed now, by one zero-turn "agy -p /usage", unless the snapshot or the last attempt is younger than AGY_QUOTA_TTL_SECONDS or another refresh is under way. --force passes over the two ages, never over the other refresh.

With --check the exit status is the answer and one line says why. For Agy it is what prun-dispatch would decide: a snapshot older than 900 seconds is refreshed first, and a group that the snapshot does not report is unknown, never empty. For Claude and Codex a window that has been reset since says nothing.`,
	Exits: cli.Exits{
		0:           "Done; with --refresh-agy also when nothing was due; with --check the account has quota.",
		exitFailed:  "--refresh-agy: there is no agy, or it did not answer.",
		exitUnknown: "--check: not known.",
		exitEmpty:   "--check: empty.",
	},
	Files: []cli.File{
		{Path: "~/.claude/agy-quota-cache.json", Text: "Agy's snapshot. Beside it: .last-attempt, when agy was last asked, failures included; .refresh.lock, which is there while it is asked; and .prun-lock, whose kernel lock is what the programs of the suite go by"},
		{Path: "~/.claude/rate-limits-cache.json", Text: "what Claude's status line last saw"},
		{Path: "~/.codex/sessions/**/rollout-*.jsonl", Text: "Codex's sessions; the ends of the latest twelve are read"},
	},
	Environment: []cli.EnvVar{
		{Name: "AGY_QUOTA_CACHE", Text: "another place of Agy's snapshot. prun-dispatch takes a file that is named here as it is, however old"},
		{Name: "AGY_QUOTA_TTL_SECONDS", Default: "300", Text: "how old snapshot and last attempt must be before a refresh is due"},
		{Name: "AGY_QUOTA_TIMEOUT_SECONDS", Default: "30", Text: "how long agy may take to answer; it is ended 5 seconds later"},
		{Name: "ANTIGRAVITY_BIN", Default: "agy", Text: "the Antigravity CLI"},
		{Name: "CLAUDE_RL_CACHE", Text: "another place of Claude's cache"},
		{Name: "CODEX_HOME", Default: "~/.codex", Text: "Codex's directory"},
	},
	Examples: []cli.Example{
		{Text: "Look before a large batch:", Command: "agent-quota"},
		{Text: "Wait for Gemini:", Command: "until agent-quota --check agy-gemini; do sleep 600; done"},
	},
	SeeAlso:  []string{"prun-dispatch(1)", "prun(7)"},
	Synopsis: []string{"[--json]", "--refresh-agy [--force]", "--check ACCOUNT [--json]"},
	Raw:      raw,
}

// options are the command line.
type options struct {
	Refresh bool   `long:"refresh-agy" description:"Refresh Agy's snapshot if that is due"`
	Force   bool   `long:"force" description:"With --refresh-agy: it is due, whatever the ages"`
	JSON    bool   `long:"json" description:"Print one JSON object"`
	Check   string `long:"check" value-name:"ACCOUNT" choice:"claude" choice:"codex" choice:"agy-gemini" choice:"agy-second" description:"Answer whether this account has quota (0), is empty (75) or not known (3)"`
}

func main() { cli.Main(tool, new(options)) }

// dialect is the hidden first word by which the old name calls.
const dialect = "--dialect=agent-quota.py"

// raw keeps the old name's promise that any words but its own two print the readout.
func raw(_ context.Context, env *cli.Env) (bool, error) {
	if len(env.Args) == 0 || env.Args[0] != dialect {
		return false, nil
	}
	env.Args = env.Args[1:]
	words := strings.Join(env.Args, " ")
	if words == "--refresh-agy" || words == "--refresh-agy --force" {
		return false, nil
	}
	if len(env.Args) > 0 {
		name, _, _ := strings.Cut(env.Args[0], "=")
		switch name {
		case "--json", "--check", "--help", "-h", "--version", "--man":
			return false, nil
		}
	}
	env.Args = nil
	return false, nil
}

// Run does what was asked.
func (o *options) Run(ctx context.Context, env *cli.Env) error {
	switch {
	case o.Force && !o.Refresh:
		return cli.Usage("--force goes with --refresh-agy")
	case o.Refresh && (o.Check != "" || o.JSON):
		return cli.Usage("--refresh-agy goes with --force only")
	}
	config, warnings := quota.Standard(env.Getenv)
	for _, w := range warnings {
		env.Warnf("%s", w)
	}
	config.Env = environ.Probe(env.Environ)
	config.Agy = func() (string, error) { return findAgy(env) }
	r := &readout{env: env, keeper: quota.NewKeeper(config), now: time.Now(), home: config.Home, out: line.NewWriter(env.Stdout)}
	switch {
	case o.Refresh:
		return r.refresh(ctx, o.Force)
	case o.Check != "":
		return r.check(ctx, o.Check, o.JSON)
	}
	r.begin()
	if o.JSON {
		return r.print(r.object())
	}
	for _, row := range r.rows() {
		if err := r.out.Text(row); err != nil {
			return err
		}
	}
	return nil
}

// findAgy: an empty ANTIGRAVITY_BIN means agy here, unlike in a dispatch, where it was
// always a mistake.
func findAgy(env *cli.Env) (string, error) {
	b, _ := agent.Lookup("agy")
	return agent.Find(b, env.Getenv, func(name string) bool { return env.Getenv(name) != "" }, runtime.GOOS)
}

// readout is one run.
type readout struct {
	env    *cli.Env
	keeper *quota.Keeper
	now    time.Time
	home   string
	out    *line.Writer
	// noAgy: there is no Antigravity CLI. started: a refresh runs in the background.
	noAgy, started bool
}

func (r *readout) refresh(ctx context.Context, force bool) error {
	if _, err := r.keeper.Agy(); err != nil {
		return cli.Fail(exitFailed, "%s", bare(err))
	}
	if _, err := r.keeper.Refresh(ctx, force); err != nil {
		return cli.Fail(exitFailed, "%w", err)
	}
	return nil
}

func bare(err error) string {
	return strings.TrimPrefix(err.Error(), agent.ErrNoBinary.Error()+": ")
}

// begin starts a refresh when one is due. Nobody waits for it, and it outlives us.
func (r *readout) begin() {
	if _, err := r.keeper.Agy(); err != nil {
		r.noAgy = true
		return
	}
	if !r.keeper.Due() {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	// A pipe of our caller must not stay open in it.
	if err := proc.CloseOnExecAbove(2); err != nil {
		return
	}
	child, err := proc.Detach(proc.DetachSpec{
		Path: self, Args: []string{self, "--refresh-agy"}, Env: environ.Front(r.env.Environ), NewSession: true, BreakAway: true,
	})
	if err != nil {
		r.env.Warnf("start a refresh: %v", err)
		return
	}
	child.Reap()
	r.started = true
}

// check answers for one account.
func (r *readout) check(ctx context.Context, account string, asJSON bool) error {
	a := answer{Check: account, verdict: quota.Unknown}
	switch account {
	case checkGemini, checkSecond:
		pool := quota.Gemini
		if account == checkSecond {
			pool = quota.Second
		}
		s, err := r.keeper.Snapshot(ctx)
		st, known := s.State(pool, r.now)
		switch {
		case err != nil:
			a.Why = bare(err)
		case !known:
			a.Why = "the snapshot does not report it"
		default:
			a.verdict = quota.Has
			if st.Empty() {
				a.verdict = quota.Exhausted
			}
			a.fill(st.Left*100, st.Reset, st.ResetAt)
		}
	default:
		reading, err := r.codex()
		if account == checkClaude {
			reading, err = r.claude()
		}
		w, verdict := reading.Lowest(r.now)
		switch {
		case err != nil:
			a.Why = err.Error()
		case reading.Side:
			a.Why = "only the meter of a single model is recorded"
		case verdict == quota.Unknown:
			a.Why = "no window is recorded that still holds"
		default:
			a.verdict = verdict
			a.fill(w.Left, clock(w.ResetAt), w.ResetAt)
		}
	}
	a.Verdict = word(a.verdict)
	var err error
	if asJSON {
		err = r.print(a)
	} else {
		err = r.out.Text(a.String())
	}
	if err != nil {
		return err
	}
	switch a.verdict {
	case quota.Has:
		return nil
	case quota.Exhausted:
		return cli.Status(exitEmpty)
	}
	return cli.Status(exitUnknown)
}

// answer is that of --check.
type answer struct {
	Check   string   `json:"check"`
	Verdict string   `json:"verdict"`
	Left    *float64 `json:"left_percent"`
	Reset   string   `json:"reset_time,omitempty"`
	At      string   `json:"resets_at,omitempty"`
	Why     string   `json:"reason,omitempty"`
	verdict quota.Verdict
}

func (a *answer) fill(left float64, reset string, at time.Time) {
	a.Left, a.Reset, a.At = &left, reset, clock(at)
}

func (a answer) String() string {
	text := a.Check + " " + a.verdict.String()
	switch a.verdict {
	case quota.Has:
		return fmt.Sprintf("%s (%.0f%% left)", text, *a.Left)
	case quota.Exhausted:
		if a.Reset == "" {
			return text + " (resets later)"
		}
		return text + " (resets " + a.Reset + ")"
	}
	return text + " (" + a.Why + ")"
}

// word is a verdict as JSON has it.
func word(v quota.Verdict) string {
	switch v {
	case quota.Has:
		return "available"
	case quota.Exhausted:
		return "empty"
	}
	return "unknown"
}

// clock is a time for machines, "" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (r *readout) print(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = r.env.Stdout.Write(append(b, '\n'))
	return err
}
