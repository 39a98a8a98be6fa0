package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/quota"
	"github.com/prun-suite/prun/pkg/state"
)

// concluder turns how a run ended into what is on disk: what the door's Record
// publishes, and the outcome, last of all. The supervisor, the keeper, the front
// door and prun-reap all use it, and any of them may be killed at any step and
// followed by another: every step finds out what its predecessor did.
type concluder struct {
	record   Record
	unit     state.Unit
	launch   Launch
	identity state.Identity
	backend  agent.Backend
	party    string
	note     func(string)
	// release, if not nil, gives up what was held beside the unit's lock.
	release func()
	// accepted: the ledger has its first line of the unit.
	accepted bool
	// backendFailed is set by conclude: what the unit hit is newer evidence
	// than any reading of the meters.
	backendFailed bool
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
	reading Reading
	notes   []string
	resets  []quota.Reset
}

func (e *ending) verdict(v verdict) {
	e.cause, e.signal, e.proof = v.cause, v.signal, v.proof
	e.notes = append(e.notes, v.notes...)
	exit := v.exit
	e.exit = &exit
	switch v.cause {
	case state.Interrupted, state.Killed:
		e.reason = interruptReason(v.signal)
	case state.IdleStall:
		e.reason = fmt.Sprintf("idle-stall: no new output for %d s (limit %d s)", int(v.idle/time.Second), int(v.limit/time.Second))
	case state.HardTimeout:
		e.reason = fmt.Sprintf("hard-timeout: still running after %d s", int(v.limit/time.Second))
	case state.DeadStart:
		e.reason = fmt.Sprintf("dead-start: no sign of progress in %d s", int(v.limit/time.Second))
	}
}

func interruptReason(sig int) string {
	return "stopped by " + signalName(sig)
}

// errUnrecorded: the outcome could not be published. Whoever stands above may
// try again.
var errUnrecorded = errors.New("outcome not recorded")

// exitNoResult says that a result or a salvage could not be written.
const exitNoResult = 74

// conclude publishes what there is to publish and then the outcome. What went
// wrong is in the returned outcome's notes too, also where those on disk could
// not hold it.
func (c *concluder) conclude(e ending) (state.Outcome, error) {
	ended := time.Now()
	gone := c.home()
	if gone == nil && reaped(e.cause) {
		c.markTail(e.cause)
	}
	at(c.party, "C3")
	r := e.reading
	if r == nil {
		var err error
		if r, err = c.record.Reread(c.unit, &c.launch, c.backend); err != nil {
			e.notes = append(e.notes, err.Error())
			r = &Following{}
		}
	}
	defer r.Close()
	r.Finish()
	tr := r.Transcript()
	o := state.Outcome{
		SchemaVersion: 1,
		Unit:          c.launch.Unit, Backend: c.launch.Backend, Model: c.launch.Turn.Model,
		Cause: e.cause, Reason: e.reason, Signal: e.signal,
		StartedAt: e.started.UTC(), EndedAt: ended.UTC(), DurationMS: ended.Sub(e.started).Milliseconds(),
		SessionID:   tr.Session,
		Usage:       usage(tr.Usage),
		TailBytes:   r.Bytes(),
		Containment: string(e.proof.Containment), ProvenEmpty: e.proof.Empty, Leftovers: e.proof.Leftovers,
		ParentUnit: c.launch.ParentUnit,
		Result:     state.ResultNone,
		Notes:      e.notes,
	}
	if e.proof.Note != "" {
		o.Notes = append(o.Notes, e.proof.Note)
	}
	if len(e.proof.Remaining) > 0 {
		o.Notes = append(o.Notes, fmt.Sprintf("still alive: %v", e.proof.Remaining))
	}
	conclusion := &Conclusion{
		Unit: c.unit, Launch: &c.launch, Identity: c.identity, Backend: c.backend,
		Outcome: &o, Transcript: tr, Proof: e.proof, Owner: c.launch.Owner, Note: c.note,
		Gone:  gone != nil,
		Step:  func(name string) { at(c.party, name) },
		fault: func(step string) error { return fault(c.party, step) },
	}
	if f, ok := r.(*Following); ok {
		conclusion.source = f.source
	}
	c.judge(conclusion, e)
	if len(e.resets) > 0 {
		if b, err := json.Marshal(e.resets); err == nil {
			o.Extra = state.Extra{"resets": b}
		}
	}
	var all error
	trouble := func(err error) {
		if err != nil {
			o.Notes = append(o.Notes, err.Error())
			all = errors.Join(all, err)
		}
	}
	trouble(c.record.Conclude(conclusion))
	o.ExitStatus = c.status(o, e, all)
	// Before the outcome: who finds that does not conclude again, and of two
	// lines the last one counts.
	c.ledgerEnd(o)
	at(c.party, "C7a")
	unrecorded := gone
	if gone == nil {
		if unrecorded = fault(c.party, "C7"); unrecorded == nil {
			unrecorded = c.unit.PublishOutcome(o)
		}
		if errors.Is(unrecorded, state.ErrExists) {
			unrecorded = nil
		}
	}
	if unrecorded != nil {
		// Nothing is recreated half-way; only the result path, which is the
		// caller's, has got what it should.
		trouble(fmt.Errorf("%w: %w", errUnrecorded, unrecorded))
		if o.ExitStatus == 0 {
			o.ExitStatus = exitNoResult
		}
	}
	at(c.party, "C7")
	trouble(c.record.Settled(c.unit, &c.launch, &o))
	if !errors.Is(all, errUnrecorded) || gone != nil {
		c.tidy()
	}
	at(c.party, "C8")
	return o, all
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

// home checks that the state directory is still the one that was made.
func (c *concluder) home() error {
	if _, err := os.Stat(c.unit.Dir); err != nil {
		return fmt.Errorf("state directory is gone: %w", err)
	}
	err := c.unit.Original(&c.identity)
	if errors.Is(err, state.ErrCopy) {
		return fmt.Errorf("state directory %s is not the one that was made", c.unit.Dir)
	}
	return err
}

func reaped(cause state.Cause) bool {
	return cause == state.IdleStall || cause == state.HardTimeout || cause == state.DeadStart
}

// markTail appends the two lines that say in the tail itself that the worker
// was reaped. Whoever concludes again finds them there. A record without a
// tail of that name has none to mark.
func (c *concluder) markTail(cause state.Cause) {
	name := c.unit.Path(state.FileTail)
	if !c.backend.Capabilities().MergeStderr {
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

// judge asks the backend how a worker that ended by itself did.
func (c *concluder) judge(k *Conclusion, e ending) {
	o := k.Outcome
	if e.exit != nil && e.exit.Signal == 0 {
		code := e.exit.Code
		o.ExitCode = &code
	}
	if e.cause != state.Exited {
		return
	}
	o.Signal = e.exit.Signal
	v := c.backend.Judge(c.launch.Turn, k.Transcript, agent.Ending{
		Code: e.exit.Status(), Signal: e.exit.Signal, WorkerResult: c.record.WorkerResult(k),
	})
	k.Verdict = &v
	c.backendFailed = v.BackendFailed
	o.Notes = append(o.Notes, v.Notes...)
	if !v.OK {
		o.Cause, o.Reason = state.Failed, v.Reason
	}
	o.ExitStatus = v.ExitStatus
}

// ownerName is the part of temporary names that belongs to one supervisor.
func ownerName(id pid.ID) string {
	return strconv.Itoa(id.PID) + "-" + strconv.FormatUint(id.Start, 10)
}

// ledger records that the unit was accepted.
func (c *concluder) ledger(status string, start time.Time) {
	if c.launch.Ledger == "" {
		return
	}
	entry := c.entry(status)
	entry.Start = start.UTC()
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
	if err != nil || executor == "" {
		// Not written before the worker is prepared.
		executor = c.launch.Turn.Model
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

func writeLaunch(u state.Unit, l Launch) error {
	b, err := json.Marshal(l.kept())
	if err != nil {
		return fmt.Errorf("encode launch: %w", err)
	}
	return atomicfile.Write(u.Path(state.FileLaunch), append(b, '\n'), 0o600)
}

// maxLaunch bounds the read-back of a launch record.
const maxLaunch = 1 << 20

// ReadLaunch reads what the front door decided about a unit. The error wraps
// fs.ErrNotExist for a directory without such a record.
func ReadLaunch(u state.Unit) (Launch, error) {
	var l Launch
	b, err := atomicfile.ReadRegular(u.Path(state.FileLaunch), maxLaunch)
	if err != nil {
		return l, fmt.Errorf("read launch: %w", err)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("read launch: %w", err)
	}
	l.Turn.StateDir, l.Turn.ResultFile = u.Dir, l.Result
	return l, nil
}

// adopt prepares the conclusion of a unit whose supervisor is gone, from what
// is on disk.
func adopt(rec Record, u state.Unit, party string, note func(string)) (*concluder, error) {
	l, err := ReadLaunch(u)
	if err != nil {
		return nil, err
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
	if model, err := u.ReadEntry(state.FileModel); err == nil && model != "" {
		l.Turn.Model = model
	}
	l.Owner = ownerName(id.Supervisor)
	return &concluder{
		record: rec, unit: u, launch: l, identity: *id, backend: backend, party: party, note: note,
	}, nil
}
