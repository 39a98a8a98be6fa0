package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// Extra is what herd adds to a launch.
type Extra struct {
	Root   string `json:"root"`
	Device string `json:"device"`
	Task   string `json:"task"`
	Turn   int    `json:"turn"`
	Mode   string `json:"mode"` // "spawn" or "resume"
	// Events is the cap of events.jsonl in bytes.
	Events int64 `json:"events"`
	// Commit asks for the worktree's work to be committed at the turn's end.
	Commit bool `json:"commit,omitempty"`
}

// Encode is the form for supervise.Launch.Extra.
func (e Extra) Encode() (json.RawMessage, error) { return json.Marshal(e) }

func extraOf(l *supervise.Launch) (Extra, Turn, error) {
	var e Extra
	if err := json.Unmarshal(l.Extra, &e); err != nil {
		return e, Turn{}, fmt.Errorf("read launch: %w", err)
	}
	return e, Root{Dir: e.Root, Device: e.Device}.Task(e.Task).Turn(e.Turn), nil
}

// Record is herd's part in the life of a turn: it implements supervise.Record.
type Record struct{}

// Place implements supervise.Record.
func (Record) Place(l *supervise.Launch, _ int, nonce string) (hidden, final string) {
	_, t, err := extraOf(l)
	if err != nil {
		return "", ""
	}
	return filepath.Join(filepath.Dir(t.Dir), hiddenNew+strconv.Itoa(t.Number)+"-"+nonce), t.Dir
}

// Furnish implements supervise.Record.
func (Record) Furnish(u state.Unit, final string, l *supervise.Launch) (string, *supervise.Refusal) {
	refuse := func(err error) (string, *supervise.Refusal) {
		return "", &supervise.Refusal{Stage: supervise.StageStateDir, Path: final, Text: err.Error()}
	}
	e, t, err := extraOf(l)
	if err != nil {
		return refuse(err)
	}
	meta, err := t.Task.Meta()
	if err != nil {
		return refuse(err)
	}
	if TurnNumber(meta) != t.Number {
		return refuse(ErrStale)
	}
	if fi, err := os.Stat(l.Scratch); err != nil || !fi.IsDir() {
		return "", &supervise.Refusal{Stage: supervise.StageScratch, Path: l.Scratch, Text: fmt.Sprintf("the worker's directory is gone: %s", l.Scratch)}
	}
	if err := atomicfile.Write(u.Path(FilePrompt), []byte(meta.Text("prompt")), filePerm); err != nil {
		return refuse(err)
	}
	helper := Pairs{{"helper_pid", os.Getpid()}, {"mode", e.Mode}, {"started_utc", Epoch(time.Now())}}
	if err := swap(t.Task.Path(FileHelper), helper.Object().File()); err != nil {
		return refuse(err)
	}
	return l.Scratch, nil
}

// Open implements supervise.Record.
func (Record) Open(u state.Unit, l *supervise.Launch, b agent.Backend) (stdout, stderr *os.File, r supervise.Reading, err error) {
	e, t, err := extraOf(l)
	if err != nil {
		return nil, nil, nil, err
	}
	one, stdout, stderr, err := newReading(t, b.NewParser(l.Turn), e.Events)
	if err != nil {
		return nil, nil, nil, err
	}
	return stdout, stderr, one, nil
}

// Captures implements supervise.Capturer: the file that is made when the outputs are.
func (Record) Captures(u state.Unit, _ *supervise.Launch) []string {
	return []string{u.Path(FileFrom)}
}

// Started implements supervise.Starter.
func (Record) Started(_ state.Unit, l *supervise.Launch, w state.WorkerRecord) error {
	_, t, err := extraOf(l)
	if err != nil {
		return err
	}
	child := Pairs{{"backend_pid", w.Worker.PID}, {"helper_pid", os.Getpid()}, {"started_utc", Epoch(w.Started)}}
	return swap(t.Task.Path(FileChild), child.Object().File())
}

// Reread implements supervise.Record.
func (Record) Reread(_ state.Unit, l *supervise.Launch, b agent.Backend) (supervise.Reading, error) {
	_, t, err := extraOf(l)
	if err != nil {
		return nil, err
	}
	return &reread{turn: t, parser: b.NewParser(l.Turn)}, nil
}

// Evidence implements supervise.Record: only what the worker says counts.
func (Record) Evidence(state.Unit, *supervise.Launch) int64 { return 0 }

// StopCause implements supervise.Record.
func (Record) StopCause(u state.Unit, _ int) state.Cause {
	if requested(u) != "" {
		return state.Killed
	}
	return state.Interrupted
}

// WorkerResult implements supervise.Record: a herd worker has none beside its messages.
func (Record) WorkerResult(*supervise.Conclusion) bool { return false }

// Requests that a verb leaves in a turn's directory before it signals the supervisor.
const (
	RequestKill      = "kill"
	RequestInterrupt = "interrupt" // by send --now: the turn is replaced by another
)

func requested(u state.Unit) string {
	b, err := readSmall(u.Path(FileRequest))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// verdict is how a turn ended, in the words of the record.
type verdict struct {
	state, reason, detail string
}

// judge maps the supervisor's outcome.
func judge(t Turn, l *supervise.Launch, o *state.Outcome, final string) verdict {
	if asked := requested(t.Unit()); asked != "" && (o.Cause == state.Killed || o.Cause == state.Interrupted || o.Cause == state.Lost) {
		v := verdict{Killed, ReasonKilled, ""}
		if asked == RequestInterrupt {
			v.reason = ReasonStopped
		}
		return v
	}
	switch o.Cause {
	case state.Exited:
		if final == "" {
			return verdict{Failed, ReasonFailed, "the turn ended without a message"}
		}
		if Question(final) {
			return verdict{state: AwaitingReply}
		}
		return verdict{state: Done}
	case state.Failed:
		v := verdict{Failed, ReasonFailed, o.Reason}
		switch {
		case o.Signal != 0:
			v.reason = "exit--" + strconv.Itoa(o.Signal)
		case o.ExitCode != nil && *o.ExitCode != 0:
			v.reason = "exit-" + strconv.Itoa(*o.ExitCode)
		}
		return v
	case state.IdleStall:
		return verdict{Stalled, ReasonNoOutput, o.Reason}
	case state.HardTimeout:
		return verdict{Failed, ReasonDeadline, o.Reason}
	case state.LaunchFailed, state.Blocked, state.DeadStart:
		return verdict{Failed, ReasonLaunch, o.Reason}
	case state.Killed, state.Interrupted:
		return verdict{Failed, ReasonStopped, o.Reason}
	}
	return overdue(t.Task, l.Stall, "supervisor-lost")
}

// overdue is how a turn whose supervisor is gone ended: by the record's own deadlines where they have passed.
func overdue(t Task, stall time.Duration, detail string) verdict {
	s := t.Look()
	s.FillTimes()
	now := time.Now()
	if at, ok := s.Meta.Number("deadline_utc"); ok && Epoch(now) > at {
		return verdict{Failed, ReasonDeadline, detail}
	}
	if s.Err == nil && stall > 0 && now.Sub(s.changed) > stall {
		return verdict{Stalled, ReasonNoOutput, detail}
	}
	return verdict{Failed, ReasonVanished, detail}
}

// commitLimit bounds the commit at the end of a turn, which must not hold the record up for long.
const commitLimit = 30 * time.Second

// Conclude implements supervise.Record.
func (r Record) Conclude(c *supervise.Conclusion) error {
	e, t, err := extraOf(c.Launch)
	if err != nil {
		return err
	}
	final := ""
	if c.Transcript != nil {
		final = reportText(c.Transcript.Response)
	}
	if final == "" {
		// A message of this turn that an earlier concluder, or the reading, has kept.
		if b, err := readFile(t.Path(FileReport), maxRecord); err == nil {
			final = string(b)
		} else if b, err := readFile(t.Task.Path(FileReport), maxRecord); err == nil {
			final = string(b)
		}
	}
	v := judge(t, c.Launch, c.Outcome, final)
	var all error
	if final != "" {
		all = errors.Join(all, swap(t.Path(FileReport), []byte(final)))
	}
	if v.state == Failed && v.detail != "" {
		if said := lastLine(t.Task.Path(FileStderr)); said != "" && !strings.Contains(v.detail, said) {
			c.Outcome.Notes = append(c.Outcome.Notes, "last line of stderr: "+OneLine(said))
		}
	}
	left := len(c.Proof.Remaining)
	if v.state != Done && v.state != AwaitingReply {
		// What earlier turns left alive ends with the first one that did not end well, its own leftovers too.
		all = errors.Join(all, r.endLeftovers(t, c, &left))
	} else if meta, err := t.Task.Meta(); err == nil && c.Outcome.Containment != string(proc.Cgroup) {
		// Without a cgroup those of earlier turns are not among this one's.
		if n, ok := meta.Int("leftovers"); ok && n > 0 {
			left += t.Task.kept(t.Number)
		}
	}
	var commit any
	if e.Commit {
		commit = commitWork(c.Launch.Scratch, t.Task.Name)
	}
	now := time.Now()
	record := Pairs{
		{"turn", t.Number}, {"mode", e.Mode}, {"state", v.state},
		{"started_utc", Epoch(c.Outcome.StartedAt)}, {"ended_utc", Epoch(now)},
		{"session_id", c.Outcome.SessionID}, {"usage", usagePairs(c.Outcome.Usage)},
		{"usage_total", t.total(c)}, {"leftovers", left},
	}
	if v.reason != "" {
		record = append(record, Pair{"stall_reason", v.reason})
	}
	if v.detail != "" {
		record = append(record, Pair{"detail", v.detail})
	}
	if c.Outcome.ExitCode != nil {
		record = append(record, Pair{"exit_code", *c.Outcome.ExitCode})
	}
	if commit != nil {
		record = append(record, Pair{"worktree_commit", commit})
	}
	if left > 0 && c.Outcome.Containment == string(proc.Cgroup) && c.Identity.Leaf != "" {
		record = append(record, Pair{"leaf", c.Identity.Leaf})
	}
	if final != "" {
		c.Outcome.Result = state.ResultResponse
	}
	return errors.Join(all, swap(t.Path(FileTurn), record.Object().File()))
}

// endLeftovers ends what stays of the task's turns.
func (r Record) endLeftovers(t Turn, c *supervise.Conclusion, left *int) error {
	if *left > 0 && c.Identity.Leaf != "" {
		if leaf, err := proc.OpenLeaf(c.Identity.Leaf, c.Identity.LeafInode); err == nil {
			err = errors.Join(leaf.Kill(leftoverBound), leaf.Remove(), leaf.Close())
			if err != nil {
				return fmt.Errorf("end leftovers: %w", err)
			}
			*left = 0
		}
	}
	if *left > 0 {
		if err := endMarked(t.Dir); err != nil {
			return err
		}
		*left = 0
	}
	return t.Task.EndLeftovers(t.Number)
}

const leftoverBound = 5 * time.Second

// total is what the task has used so far. Clients count differently: codex's tokens and claude's newer costs are of
// the whole conversation, everything else is of one process.
func (t Turn) total(c *supervise.Conclusion) Pairs {
	u := c.Outcome.Usage
	before := Object{}
	for n := t.Number - 1; n > 0; n-- {
		if o, err := readObject(t.Task.Turn(n).Path(FileTurn)); err == nil {
			before = o.Object("usage_total")
			break
		}
	}
	whole := c.Backend.Name() == "codex"
	count := func(key string, n *int64) any {
		old, had := before.Int(key)
		switch {
		case n == nil && !had:
			return nil
		case n == nil:
			return old
		case whole || !had:
			return *n
		}
		return old + *n
	}
	var cost any
	old, had := before.Number("cost_usd")
	switch {
	case u.CostUSD == nil && had:
		cost = old
	case u.CostUSD == nil:
	case !had || c.Transcript != nil && c.Transcript.Usage.CostOfSession:
		cost = *u.CostUSD
	default:
		cost = old + *u.CostUSD
	}
	return Pairs{
		{"input", count("input", u.Input)}, {"output", count("output", u.Output)},
		{"cached", count("cached", u.Cached)}, {"total", count("total", u.Total)}, {"cost_usd", cost},
	}
}

func usagePairs(u state.Usage) Pairs {
	return Pairs{{"input", u.Input}, {"output", u.Output}, {"cached", u.Cached}, {"total", u.Total}, {"cost_usd", u.CostUSD}}
}

// commitWork keeps a worktree's work and says how that went.
func commitWork(dir, task string) Pairs {
	ctx, cancel := context.WithTimeout(context.Background(), commitLimit)
	defer cancel()
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GIT_AUTHOR_") && !strings.HasPrefix(entry, "GIT_COMMITTER_") {
			env = append(env, entry)
		}
	}
	env = append(env, "GIT_AUTHOR_NAME=delegate", "GIT_AUTHOR_EMAIL=delegate@local",
		"GIT_COMMITTER_NAME=delegate", "GIT_COMMITTER_EMAIL=delegate@local")
	repo, err := git.Open(ctx, dir, env)
	id := ""
	if err == nil {
		id, err = repo.Save(ctx, dir, "herd("+task+"): "+time.Now().Format("20060102T150405"), commitLimit)
	}
	switch {
	case err != nil:
		return Pairs{{"error", err.Error()}}
	case id == "":
		return Pairs{{"commit", nil}}
	}
	return Pairs{{"commit", id}}
}

// Settled implements supervise.Record: the record, and last of all the marker.
func (Record) Settled(_ state.Unit, l *supervise.Launch, o *state.Outcome) error {
	_, t, err := extraOf(l)
	if err != nil {
		return err
	}
	turn, err := readObject(t.Path(FileTurn))
	if err != nil {
		// Conclude could not write it; the outcome says enough.
		v := judge(t, l, o, "")
		p := Pairs{{"state", v.state}, {"stall_reason", v.reason}, {"detail", v.detail}}
		turn = p.Object()
	}
	// Records that were being replaced when their writer was killed.
	_ = atomicfile.Sweep(t.Task.Dir, func(p int) bool { _, err := pid.Of(p); return err == nil })
	return settle(t, turn)
}

// settle copies a turn's end into the task's record. Nothing is synced: the outcome is, and a sweep that finds it
// beside an older record does this again. A sync has been seen to take ten seconds on a busy disk.
func settle(t Turn, turn Object) error {
	task := t.Task
	err := task.UpdateMeta(t.Number, false, func(m *Object) bool {
		m.Set("state", first(turn.Text("state"), Failed))
		for _, key := range []string{"stall_reason", "detail", "exit_code", "worktree_commit", "leaf"} {
			if turn.Has(key) && turn.Text(key) != "" || turn.Has(key) && key != "stall_reason" && key != "detail" {
				m.Set(key, turn.Member(key))
			} else {
				m.Delete(key)
			}
		}
		if n, ok := turn.Int("leftovers"); ok && n > 0 {
			m.Set("leftovers", n)
		} else {
			m.Delete("leftovers")
		}
		if turn.Has("usage_total") {
			m.Set("usage", turn.Member("usage_total"))
		}
		return true
	})
	if errors.Is(err, ErrStale) || errors.Is(err, fs.ErrNotExist) {
		// The task has gone on, or is gone: an older turn has nothing to say.
		return nil
	}
	if b, rerr := readFile(t.Path(FileReport), maxRecord); rerr == nil {
		err = errors.Join(err, swap(task.Path(FileReport), b))
	}
	s := task.Look()
	s.Fill()
	// The one who writes this is on its way out.
	s.HelperAlive = false
	return errors.Join(err, s.WriteStatus(time.Now()), mark(task.Path(FileDone)))
}
