package lane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// Extra is what a lane's launch carries beside what every unit's does.
type Extra struct {
	Run    string `json:"run"`    // directory of the run
	Lane   string `json:"lane"`   // directory of the lane
	Phase  string `json:"phase"`  // name of the lane
	Number int    `json:"number"` // of the unit
}

// ExtraOf packs e for a launch.
func ExtraOf(e Extra) json.RawMessage {
	b, _ := json.Marshal(e) // strings and a number: cannot fail
	return b
}

func (e Extra) lane() Lane {
	return Lane{Run: Run{ID: filepath.Base(e.Run), Dir: e.Run}, Phase: e.Phase, Dir: e.Lane}
}

func extraOf(l *supervise.Launch) (Extra, error) {
	var e Extra
	if err := json.Unmarshal(l.Extra, &e); err != nil {
		return e, fmt.Errorf("read launch of a lane: %w", err)
	}
	if !filepath.IsAbs(e.Lane) || !filepath.IsAbs(e.Run) || e.Number < 1 {
		return e, errors.New("read launch of a lane: no lane in it")
	}
	return e, nil
}

// Record is what a lane adds to the life of a unit: the directory in the lane's
// own, the lane's files for the worker's output, the worktree as evidence of
// progress, and the lane's status.
type Record struct {
	// tree is nil but in the supervisor of a worker that runs.
	tree *watcher
}

// NewRecord returns the Record of one process.
func NewRecord() *Record { return &Record{} }

// Place implements supervise.Record.
func (*Record) Place(l *supervise.Launch, _ int, nonce string) (hidden, final string) {
	e, err := extraOf(l)
	if err != nil {
		// Furnish says so; the names must be somewhere that fails.
		return filepath.Join(l.Base, hiddenPrefix+nonce), filepath.Join(l.Base, "unit-of-no-lane", nonce)
	}
	n := strconv.Itoa(e.Number)
	return filepath.Join(e.Lane, hiddenPrefix+unitPrefix+n+"-"+nonce), filepath.Join(e.Lane, unitPrefix+n)
}

// Furnish implements supervise.Record: the worker runs in the lane's worktree,
// which must be there.
func (*Record) Furnish(u state.Unit, final string, l *supervise.Launch) (string, *supervise.Refusal) {
	e, err := extraOf(l)
	if err != nil {
		return "", &supervise.Refusal{Stage: supervise.StageStateDir, Path: final, Text: err.Error()}
	}
	if fi, err := os.Stat(l.Scratch); err != nil || !fi.IsDir() {
		if err == nil {
			err = errors.New("not a directory")
		}
		return "", &supervise.Refusal{Stage: supervise.StageScratch, Path: l.Scratch, Text: err.Error()}
	}
	lane := e.lane()
	err = errors.Join(
		u.WriteEntry(state.FileDispatchPID, strconv.Itoa(os.Getpid())),
		u.WriteEntry(state.FileTimestamp, strconv.FormatInt(time.Now().Unix(), 10)),
		lane.note(FileWrapPID, strconv.Itoa(os.Getpid())),
		lane.note(FileWrapStart, time.Now().Format(lstart)),
	)
	if err != nil {
		return "", &supervise.Refusal{Stage: supervise.StageStateDir, Path: final, Text: err.Error()}
	}
	return l.Scratch, nil
}

// lstart is the form in which ps prints when a process began, and the original
// recorded it.
const lstart = "Mon Jan _2 15:04:05 2006"

// streams reports whether a backend's standard output is events, and its
// answer is found among them.
func streams(b agent.Backend) bool { return agent.Events(b, agent.DoorFanout) }

// ownAnswer reports whether the client itself writes result.md.
func ownAnswer(b agent.Backend) bool { return b.Name() == "codex" }

// Outputs says where the worker's two streams go: the answer of a program that
// just prints it is the result, events are a log of their own.
func Outputs(b agent.Backend) (stdout, stderr string) {
	if streams(b) {
		return FileEvents, FileLog
	}
	return FileResultMD, FileLog
}

// Open implements supervise.Record.
func (r *Record) Open(u state.Unit, l *supervise.Launch, b agent.Backend) (stdout, stderr *os.File, reading supervise.Reading, err error) {
	e, err := extraOf(l)
	if err != nil {
		return nil, nil, nil, err
	}
	lane := e.lane()
	out, errs := Outputs(b)
	if stdout, err = capture(lane.Path(out)); err != nil {
		return nil, nil, nil, err
	}
	if stderr, err = capture(lane.Path(errs)); err != nil {
		stdout.Close()
		return nil, nil, nil, err
	}
	if reading, err = r.Reread(u, l, b); err != nil {
		stdout.Close()
		stderr.Close()
		return nil, nil, nil, err
	}
	r.tree = watch(l.Scratch)
	// The worker starts next; should it not, the end says so.
	_ = lane.note(FileStatus, Running)
	return stdout, stderr, reading, nil
}

// capture makes a file that a worker writes. O_APPEND keeps a truncation in
// place from leaving a hole.
func capture(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create capture: %w", err)
	}
	if err := f.Chmod(0o600); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		f.Close()
		return nil, fmt.Errorf("create capture: %w", err)
	}
	return f, nil
}

// Reread implements supervise.Record.
func (*Record) Reread(_ state.Unit, l *supervise.Launch, b agent.Backend) (supervise.Reading, error) {
	e, err := extraOf(l)
	if err != nil {
		return nil, err
	}
	lane := e.lane()
	out, errs := Outputs(b)
	parser := b.NewParser(l.Turn)
	if ownAnswer(b) {
		parser = &begins{Parser: parser}
	}
	f, err := supervise.Follow(parser, map[agent.Stream]string{agent.Stdout: lane.Path(out), agent.Stderr: lane.Path(errs)})
	if err != nil {
		return nil, err
	}
	if !ownAnswer(b) {
		return f, nil
	}
	return &codexReading{Following: f, result: lane.Path(FileResultMD), log: lane.Path(FileLog)}, nil
}

// begins takes the first event of codex, which it writes before it has asked
// anybody anything, for no growth.
type begins struct{ agent.Parser }

// Line implements agent.Parser.
func (p *begins) Line(stream agent.Stream, text []byte, tr *agent.Transcript) bool {
	before := tr.Session
	quiet := p.Parser.Line(stream, text, tr)
	return quiet || stream == agent.Stdout && tr.Session != before
}

// codexReading counts what is progress of codex: an event beyond its first,
// its answer and, once it has begun, what it says on standard error.
type codexReading struct {
	*supervise.Following
	result, log string
	begun       bool
}

// Look implements supervise.Reading.
func (r *codexReading) Look(budget int64) int64 {
	total := r.Following.Look(budget)
	log, answer := size(r.log), size(r.result)
	if events := total - log; events > 0 || answer > 0 {
		r.begun = true
	}
	if !r.begun {
		return 0
	}
	return total + answer
}

func size(name string) int64 {
	if fi, err := os.Lstat(name); err == nil && fi.Mode().IsRegular() {
		return fi.Size()
	}
	return 0
}

// Captures names the files that a worker writes, for whoever has to find out
// whether one that lost its supervisor still works.
func (*Record) Captures(_ state.Unit, l *supervise.Launch) []string {
	e, err := extraOf(l)
	if err != nil {
		return nil
	}
	lane := e.lane()
	return []string{lane.Path(FileResultMD), lane.Path(FileLog), lane.Path(FileEvents)}
}

// Evidence implements supervise.Record: changes of the worktree.
func (r *Record) Evidence(state.Unit, *supervise.Launch) int64 {
	if r.tree == nil {
		return 0
	}
	return r.tree.changes.Load()
}

// Started writes who the worker is into the files that the original had; for
// people and old readers, since identities stand in the unit's directory.
func (*Record) Started(_ state.Unit, l *supervise.Launch, w state.WorkerRecord) error {
	e, err := extraOf(l)
	if err != nil {
		return err
	}
	lane, n := e.lane(), strconv.Itoa(w.Worker.PID)
	return errors.Join(lane.note(FileChildPID, n), lane.note(FileChildPG, n), lane.note(FileChildAt, w.Started.Local().Format(lstart)))
}

// StopCause implements supervise.Record: a stop is a cancellation when one was
// asked for.
func (*Record) StopCause(u state.Unit, _ int) state.Cause {
	if (Lane{Dir: filepath.Dir(u.Dir)}).cancelAsked() {
		return state.Killed
	}
	return state.Interrupted
}

func (l Lane) cancelAsked() bool {
	_, err := os.Lstat(l.Path(FileCancel))
	return err == nil
}

// StopSteps is how a worker is asked to end when a stop was requested: as the
// launch says, with the time that a cancellation gives.
func (*Record) StopSteps(_ state.Unit, l *supervise.Launch) []agent.StopStep {
	e, err := extraOf(l)
	if err != nil || len(l.Stops) == 0 {
		return l.Stops
	}
	text, _, _ := strings.Cut(e.lane().Get(FileCancel), " ")
	grace, err := strconv.ParseInt(text, 10, 32)
	if err != nil || grace < 0 {
		return l.Stops
	}
	return []agent.StopStep{{Signal: l.Stops[0].Signal, Wait: time.Duration(grace) * time.Second}}
}

// RequestCancel leaves the request that makes a stop a cancellation, with the
// time that the worker gets.
func (l Lane) RequestCancel(grace time.Duration) error {
	return l.note(FileCancel, strconv.FormatInt(int64(grace/time.Second), 10)+" "+time.Now().UTC().Format(time.RFC3339))
}

// WorkerResult implements supervise.Record.
func (*Record) WorkerResult(c *supervise.Conclusion) bool {
	out, _ := Outputs(c.Backend)
	// Where the answer is what was printed, nothing of the worker's own is
	// told from it, and the backend judges without.
	return out != FileResultMD && size(c.Launch.Result) > 0
}

// Conclude implements supervise.Record. A result.md that holds anything is
// never written to.
func (r *Record) Conclude(c *supervise.Conclusion) error {
	e, err := extraOf(c.Launch)
	if err != nil {
		return err
	}
	lane, o := e.lane(), c.Outcome
	if o.Cause == state.Lost && lane.cancelAsked() {
		o.Cause, o.Reason = state.Killed, "cancelled"
	}
	if c.Gone {
		// The unit's directory was taken away, perhaps the lane's with it:
		// nothing is made again half-way.
		if _, err := os.Stat(lane.Path(FilePhase)); err != nil {
			return nil
		}
	}
	if size(c.Launch.Result) > 0 {
		o.Result = state.ResultWorker
		if standing, err := result.Inspect(c.Launch.Result); err == nil && standing.Kind == result.Fallback {
			// Whoever concluded before was killed after this.
			o.Result = state.ResultFallback
		}
		return lane.diagnose(c)
	}
	var body func(io.Writer) error
	kind := state.ResultResponse
	switch {
	case c.Verdict != nil && c.Verdict.OK && c.Verdict.Response != "":
		body = func(w io.Writer) error { _, err := io.WriteString(w, c.Verdict.Response); return err }
	case o.Cause == state.Exited:
		return nil
	default:
		s := lane.salvage(c)
		body = func(w io.Writer) error { _, err := s.WriteTo(w); return err }
		kind = state.ResultFallback
	}
	c.Step("C4")
	p, err := result.Publish(result.Publication{
		Path: c.Launch.Result, Body: body, Perm: 0o600, Proven: c.Proof.Empty,
		Spare: c.Unit.Path(state.FileSpareResult), Owner: c.Owner, Step: c.Step,
	})
	c.Step("C5")
	if err != nil {
		return err
	}
	if p.Note != "" {
		o.Notes = append(o.Notes, p.Note)
	}
	if p.Ours {
		o.Result = kind
	} else if p.Existing == result.Worker {
		o.Result = state.ResultWorker
	}
	return nil
}

// reaped reports whether a limit ended the worker.
func reaped(cause state.Cause) bool {
	return cause == state.IdleStall || cause == state.HardTimeout || cause == state.DeadStart
}

// salvage is the text that stands for a missing answer.
func (l Lane) salvage(c *supervise.Conclusion) result.Salvage {
	s := result.Salvage{
		Form: result.FormNamed, Unit: l.Phase, Tool: "agent-fanout", Backend: c.Launch.Backend,
		Reason: c.Outcome.Reason, Reaped: reaped(c.Outcome.Cause), Stderr: l.Path(FileLog),
	}
	if streams(c.Backend) {
		s.Tail = l.Path(FileEvents)
	}
	return s
}

// diagnose adds to the log of a lane that was reaped why, because its result
// is left alone.
func (l Lane) diagnose(c *supervise.Conclusion) error {
	if !reaped(c.Outcome.Cause) {
		return nil
	}
	text := fmt.Sprintf("agent-fanout: worker ended (%s): %s; exit code 124\n", c.Outcome.Cause, c.Outcome.Reason)
	if l.logEndsWith(text) {
		return nil
	}
	if err := atomicfile.Append(l.Path(FileLog), []byte("\n"+text), 0o600); err != nil {
		return fmt.Errorf("say why the worker was ended: %w", err)
	}
	return nil
}

func (l Lane) logEndsWith(text string) bool {
	f, err := atomicfile.OpenRegular(l.Path(FileLog))
	if err != nil {
		return false
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() < int64(len(text)) {
		return false
	}
	last := make([]byte, len(text))
	_, err = f.ReadAt(last, fi.Size()-int64(len(text)))
	return err == nil && string(last) == text
}

// Settled implements supervise.Record: the lane's exit code and status, last of
// all, unless the lane has been started again since.
func (*Record) Settled(_ state.Unit, l *supervise.Launch, o *state.Outcome) error {
	e, err := extraOf(l)
	if err != nil {
		return err
	}
	lane := e.lane()
	if _, err := os.Stat(lane.Path(FilePhase)); errors.Is(err, fs.ErrNotExist) {
		return nil // the lane is gone
	}
	err = result.Sweep(l.Result, l.Owner, !o.ProvenEmpty)
	// Values that were being replaced when their writer was killed.
	_ = atomicfile.Sweep(filepath.Dir(lane.Path(FilePhase)), living)
	if lane.Number() != e.Number {
		return err
	}
	return errors.Join(err, lane.finish(o))
}

func living(p int) bool {
	_, err := pid.Of(p)
	return err == nil
}

var (
	_ supervise.Record   = (*Record)(nil)
	_ supervise.Stopper  = (*Record)(nil)
	_ supervise.Capturer = (*Record)(nil)
	_ supervise.Starter  = (*Record)(nil)
)
