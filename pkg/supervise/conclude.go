package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
)

// concluder turns how a run ended into what is on disk: the salvage or the
// response at the result path, and the outcome, last of all. The supervisor,
// the keeper, the front door and prun-reap all use it, and any of them may be
// killed at any step and followed by another: every step finds out what its
// predecessor did.
type concluder struct {
	unit     state.Unit
	launch   Launch
	identity state.Identity
	backend  agent.Backend
	party    string
	// owner names the supervisor: it makes the names of files that this unit
	// alone puts beside its result.
	owner pid.ID
	note  func(string)
}

// ending is how a run ended, before anything was published.
type ending struct {
	// cause is state.Exited for a worker that ended by itself and is still to
	// be judged; every other cause stands.
	cause  state.Cause
	reason string
	signal int
	// status is the door's exit status for causes that carry their own
	// (launch-failed, blocked).
	status  int
	exit    *proc.Exit
	proof   proc.Proof
	started time.Time
	reading *reading
	notes   []string
}

func (e *ending) verdict(v verdict) {
	e.cause, e.signal, e.proof = v.cause, v.signal, v.proof
	e.notes = append(e.notes, v.notes...)
	exit := v.exit
	e.exit = &exit
	switch v.cause {
	case state.Interrupted:
		e.reason = interruptReason(v.signal)
	case state.IdleStall:
		e.reason = fmt.Sprintf("idle-stall: no new output for %d s", int(v.idle/time.Second))
	case state.HardTimeout:
		e.reason = string(state.HardTimeout)
	}
}

func interruptReason(sig int) string {
	return "stopped by " + signalName(sig)
}

// errUnrecorded: the outcome could not be published. Whoever stands above may
// try again.
var errUnrecorded = errors.New("outcome not recorded")

// conclude publishes what there is to publish and then the outcome. The error
// is for people: the outcome holds it as a note where it could be written.
func (c *concluder) conclude(e ending) (state.Outcome, error) {
	ended := time.Now()
	if err := c.home(); err != nil {
		// The tree is ended and nothing is recreated half-way; only the
		// result path, which is the caller's, still gets its salvage.
		e.notes = append(e.notes, err.Error())
	}
	if reaped(e.cause) {
		c.markTail(e.cause)
	}
	at(c.party, "C3")
	r := e.reading
	if r == nil {
		var err error
		if r, err = follow(c.parser(), c.captures()); err != nil {
			e.notes = append(e.notes, err.Error())
			r = &reading{}
		}
	}
	defer r.close()
	r.finish()
	ids := sessionRecorder{unit: c.unit, transcript: &r.transcript}
	ids.record()

	o := state.Outcome{
		SchemaVersion: 1,
		Unit:          c.launch.Unit, Backend: c.launch.Backend, Model: c.launch.Turn.Model,
		Cause: e.cause, Reason: e.reason, Signal: e.signal,
		StartedAt: e.started.UTC(), EndedAt: ended.UTC(), DurationMS: ended.Sub(e.started).Milliseconds(),
		SessionID:   r.transcript.Session,
		Usage:       usage(r.transcript.Usage),
		TailBytes:   r.bytes(),
		Containment: string(e.proof.Containment), ProvenEmpty: e.proof.Empty, Leftovers: e.proof.Leftovers,
		ParentUnit: c.launch.ParentUnit,
		Notes:      e.notes,
	}
	if e.proof.Note != "" {
		o.Notes = append(o.Notes, e.proof.Note)
	}
	if len(e.proof.Remaining) > 0 {
		o.Notes = append(o.Notes, fmt.Sprintf("still alive: %v", e.proof.Remaining))
	}
	standing := c.standing()
	response := c.judge(&o, e, r, standing == result.Worker)
	err := c.publish(&o, e, standing, response)
	if err != nil {
		o.Notes = append(o.Notes, err.Error())
	}
	status := c.status(o, e, err)
	o.ExitStatus = status
	c.ledgerEnd(o)
	at(c.party, "C7a")
	if perr := c.unit.PublishOutcome(o); perr != nil && !errors.Is(perr, state.ErrExists) {
		err = errors.Join(err, fmt.Errorf("%w: %w", errUnrecorded, perr))
		if o.ExitStatus == 0 {
			o.ExitStatus = exitNoResult
		}
	}
	at(c.party, "C7")
	// What was displaced may hold a late write of something that still lives.
	if serr := result.Sweep(c.launch.Result, c.ownerName(), !e.proof.Empty); serr != nil {
		err = errors.Join(err, serr)
	}
	at(c.party, "C8")
	return o, err
}

// status is what the door exits with. A stop, a reap and a worker's own
// non-zero code go before the news that a result could not be written
// (decision 2).
func (c *concluder) status(o state.Outcome, e ending, err error) int {
	status := e.status
	if status == 0 {
		status = state.ExitStatus(o)
	}
	own := o.ExitCode != nil && *o.ExitCode != 0 || o.Signal != 0 || reaped(e.cause)
	if err != nil && !own && (status == 0 || e.cause == state.Exited) {
		return exitNoResult
	}
	return status
}

// exitNoResult says that a result or a salvage could not be written.
const exitNoResult = 74

// home checks that the state directory is still the one that was made.
func (c *concluder) home() error {
	fi, err := os.Stat(c.unit.Dir)
	if err != nil {
		return fmt.Errorf("state directory is gone: %w", err)
	}
	if dev, ino := fileID(fi); c.identity.DirIno != 0 && ino != 0 && (dev != c.identity.DirDev || ino != c.identity.DirIno) {
		return fmt.Errorf("state directory %s is not the one that was made", c.unit.Dir)
	}
	return nil
}

func reaped(cause state.Cause) bool {
	return cause == state.IdleStall || cause == state.HardTimeout || cause == state.DeadStart
}

// markTail appends the two lines that say in the tail itself that the worker
// was reaped. Whoever concludes again finds them there.
func (c *concluder) markTail(cause state.Cause) {
	name := c.unit.Path(state.FileTail)
	if !c.merged() {
		name = c.unit.Path(state.FileStderr)
	}
	text := []byte(fmt.Sprintf("\n%s: worker reaped (%s); exit code 124.\n", c.launch.Tool, cause))
	f, err := atomicfile.OpenRegular(name)
	if err != nil {
		return
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() >= int64(len(text)) {
		last := make([]byte, len(text))
		if _, err := f.ReadAt(last, fi.Size()-int64(len(text))); err == nil && bytes.Equal(last, text) {
			return
		}
	}
	if err := atomicfile.Append(name, text, 0o600); err != nil {
		c.note(err.Error())
	}
}

func (c *concluder) merged() bool { return c.backend.Capabilities().MergeStderr }

func (c *concluder) parser() agent.Parser {
	if c.backend == nil {
		return nil
	}
	return c.backend.NewParser(c.launch.Turn)
}

// captures are the files that the worker writes, by the stream they hold.
func (c *concluder) captures() map[agent.Stream]string {
	if c.merged() {
		return map[agent.Stream]string{agent.Merged: c.unit.Path(state.FileTail)}
	}
	return map[agent.Stream]string{
		agent.Stdout: c.unit.Path(state.FileTail),
		agent.Stderr: c.unit.Path(state.FileStderr),
	}
}

// standing says what is at the result path: result.Worker only for a file that
// this run's worker left there. A file that was there before and was not
// touched is result.Fallback's equal: it is kept and is no result.
func (c *concluder) standing() result.Kind {
	info, err := result.Inspect(c.launch.Result)
	if err != nil {
		return result.Foreign
	}
	if info.Mode&fs.ModeSymlink != 0 {
		// A link that was there before was resolved by the front door; this
		// one was left by the worker, and is neither followed nor replaced.
		return result.Foreign
	}
	if info.Kind == result.Worker && c.stale(info) {
		return result.Fallback
	}
	return info.Kind
}

// stale reports a result that was there before the run and was not touched.
func (c *concluder) stale(info result.Info) bool {
	b := c.identity.ResultBefore
	return b != nil && b.Size == info.Size && b.MTime.Equal(info.ModTime) && b.Ino == info.Ino && b.Dev == info.Dev
}

// judge fills in how the unit ended and returns the response to publish.
func (c *concluder) judge(o *state.Outcome, e ending, r *reading, workerResult bool) string {
	if e.exit != nil && e.exit.Signal == 0 {
		code := e.exit.Code
		o.ExitCode = &code
	}
	if e.cause != state.Exited {
		return ""
	}
	o.Signal = e.exit.Signal
	v := c.backend.Judge(c.launch.Turn, &r.transcript, agent.Ending{
		Code: e.exit.Status(), Signal: e.exit.Signal, WorkerResult: workerResult,
	})
	o.Notes = append(o.Notes, v.Notes...)
	if !v.OK {
		o.Cause = state.Failed
		o.Reason = v.Reason
	}
	o.ExitStatus = v.ExitStatus
	return v.Response
}

// publish puts at the result path what belongs there and records it in o.
func (c *concluder) publish(o *state.Outcome, e ending, standing result.Kind, response string) error {
	o.Result = state.ResultNone
	if standing == result.Worker {
		o.Result = state.ResultWorker
		if response == "" {
			return nil
		}
		where, err := result.PublishResponse(c.launch.Result, []byte(response), func(existing string) bool {
			return sameText(existing, response)
		})
		if err != nil {
			return err
		}
		o.Notes = append(o.Notes, "response beside the worker's result: "+where)
		return nil
	}
	if standing == result.Fallback && c.staleNow() {
		o.Notes = append(o.Notes, "stale result: "+c.launch.Result+" was there before and was not touched")
		c.note("stale result: " + c.launch.Result)
		return nil
	}
	body := func(w io.Writer) error { _, err := io.WriteString(w, response); return err }
	kind := state.ResultResponse
	if response == "" {
		if o.Cause == state.Exited && !c.launch.SalvageAlways {
			return nil
		}
		salvage := c.salvage(*o, e)
		body = func(w io.Writer) error { _, err := salvage.WriteTo(w); return err }
		kind = state.ResultFallback
	}
	at(c.party, "C4")
	p, err := result.Publish(result.Publication{
		Path: c.launch.Result, Body: body, Perm: 0o666, Proven: e.proof.Empty,
		Spare: c.unit.Path(state.FileSpareResult), Owner: c.ownerName(),
		Step: func(step string) { at(c.party, step) },
	})
	at(c.party, "C5")
	if err != nil {
		return err
	}
	if p.Note != "" {
		o.Notes = append(o.Notes, p.Note)
	}
	if p.Kept != "" {
		o.Notes = append(o.Notes, "displaced file kept: "+p.Kept)
	}
	switch {
	case p.Ours:
		o.Result = kind
		at(c.party, "C6")
		return nil
	case p.Existing == result.Worker:
		// The worker's file landed while ours was being written.
		return c.publish(o, e, result.Worker, response)
	}
	return fmt.Errorf("publish result: %s cannot take it; it is at %s", c.launch.Result, p.Where)
}

func (c *concluder) staleNow() bool {
	info, err := result.Inspect(c.launch.Result)
	return err == nil && c.stale(info)
}

// salvage describes the FALLBACK of this ending.
func (c *concluder) salvage(o state.Outcome, e ending) result.Salvage {
	s := result.Salvage{
		Form: c.launch.Form, Unit: c.launch.Unit, Tool: c.launch.Tool, Backend: c.launch.Backend,
		Reason: o.Reason, Reaped: reaped(e.cause), Tail: c.unit.Path(state.FileTail),
	}
	if c.launch.Form == result.FormCodex {
		switch {
		case s.Reaped:
			s.Reason = string(e.cause)
		case e.cause == state.Exited && !c.judgedByStream(o):
			// The old front said the same words whatever the exit code was.
			s.Reason = ""
		}
	}
	if !c.merged() {
		s.Stderr = c.unit.Path(state.FileStderr)
	}
	return s
}

// judgedByStream reports a failure that the exit code does not show.
func (c *concluder) judgedByStream(o state.Outcome) bool {
	return o.Cause == state.Failed && o.ExitCode != nil && *o.ExitCode == 0
}

func (c *concluder) ownerName() string {
	return strconv.Itoa(c.owner.PID) + "-" + strconv.FormatUint(c.owner.Start, 10)
}

// ledger records that the unit was accepted.
func (c *concluder) ledger(status string, e ending) {
	if c.launch.Ledger == "" {
		return
	}
	entry := c.entry(status)
	entry.Start = e.started.UTC()
	if err := state.AppendLedger(c.launch.Ledger, entry); err != nil {
		c.note(err.Error())
	}
}

// ledgerEnd records how it ended.
func (c *concluder) ledgerEnd(o state.Outcome) {
	if c.launch.Ledger == "" {
		return
	}
	status := state.LedgerDone
	if o.ExitStatus != 0 {
		status = state.LedgerFailed
	}
	entry := c.entry(status)
	entry.Start, entry.End, entry.Cause = o.StartedAt, &o.EndedAt, o.Cause
	entry.ExitCode = &o.ExitStatus
	if err := state.AppendLedger(c.launch.Ledger, entry); err != nil {
		c.note(err.Error())
	}
}

func (c *concluder) entry(status string) state.Entry {
	executor, err := c.unit.ReadEntry(state.FileModel)
	if err != nil {
		executor = ""
	}
	clone := ""
	if c.launch.CloneRepo != "" {
		clone = filepath.Join(c.unit.Dir, state.DirClone)
	}
	return state.Entry{
		SchemaVersion: 1,
		ID:            c.launch.Unit, Executor: executor, Backend: c.launch.Backend, Mode: c.launch.Turn.Mode,
		PromptFile: c.launch.PromptFile, StateDir: c.unit.Dir, CloneDir: clone, ResultFile: c.launch.Result,
		Status: status, ContinuedFrom: c.launch.ContinuedFrom,
	}
}

func usage(u agent.Usage) state.Usage {
	return state.Usage{Input: u.Input, Output: u.Output, Cached: u.Cached, Total: u.Total, CostUSD: u.CostUSD}
}

// sameText reports whether a file holds exactly text. It reads no more than
// that.
func sameText(name, text string) bool {
	b, err := atomicfile.ReadRegular(name, int64(len(text)))
	return err == nil && string(b) == text
}

func writeLaunch(u state.Unit, l Launch) error {
	b, err := json.Marshal(l.kept())
	if err != nil {
		return fmt.Errorf("encode launch: %w", err)
	}
	return atomicfile.Write(u.Path(state.FileLaunch), append(b, '\n'), 0o600)
}

// maxLaunch bounds the read-back of a launch record.
const maxLaunch = 1 << 20

// adopt prepares the conclusion of a unit whose supervisor is gone, from what
// is on disk.
func adopt(u state.Unit, party string, note func(string)) (*concluder, error) {
	b, err := atomicfile.ReadRegular(u.Path(state.FileLaunch), maxLaunch)
	if err != nil {
		return nil, fmt.Errorf("read launch: %w", err)
	}
	var l Launch
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("read launch: %w", err)
	}
	id, err := u.ReadIdentity()
	if err != nil {
		return nil, err
	}
	if id == nil {
		return nil, fmt.Errorf("read identity: %w", fs.ErrNotExist)
	}
	backend, ok := agent.Lookup(l.Backend)
	if !ok {
		return nil, fmt.Errorf("read launch: unknown backend %q", l.Backend)
	}
	l.Turn.StateDir, l.Turn.ResultFile = u.Dir, l.Result
	if model, err := u.ReadEntry(state.FileModel); err == nil && model != "" {
		l.Turn.Model = model
	}
	return &concluder{
		unit: u, launch: l, identity: *id, backend: backend, party: party, owner: id.Supervisor, note: note,
	}, nil
}
