package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// OutcomeReserve is how many bytes are reserved for the outcome when a unit is
// born, and therefore the most an outcome may have.
const OutcomeReserve = 8 << 10

// Cause is why a unit ended.
type Cause string

// The causes. Exited and Failed are the worker's own end; the others are ours.
const (
	// Exited: the worker ended by itself and is judged a success.
	Exited Cause = "exited"
	// Failed: the worker ended by itself and is judged a failure: a code other
	// than 0, a signal, what its stream said, or a session that was not resumed.
	Failed Cause = "failed"
	// IdleStall: ended because its output did not grow.
	IdleStall Cause = "idle-stall"
	// HardTimeout: ended because its time was up.
	HardTimeout Cause = "hard-timeout"
	// DeadStart: ended because it never said or did anything.
	DeadStart Cause = "dead-start"
	// Killed: ended by herd kill or agent-fanout cancel.
	Killed Cause = "killed"
	// Interrupted: ended because a signal told the supervisor to stop.
	Interrupted Cause = "interrupted"
	// Blocked: not started, for want of quota or of a slot.
	Blocked Cause = "blocked"
	// LaunchFailed: not started, for any other reason.
	LaunchFailed Cause = "launch-failed"
	// Lost: the supervisor died before the worker's end was seen.
	Lost Cause = "lost"
)

// causes are all of them, in the order of the manual.
var causes = [...]Cause{Exited, Failed, IdleStall, HardTimeout, DeadStart, Killed, Interrupted, Blocked, LaunchFailed, Lost}

// Causes returns every cause this version writes.
func Causes() []Cause { return append([]Cause(nil), causes[:]...) }

// OK reports whether the unit ended well.
func (c Cause) OK() bool { return c == Exited }

// ResultKind is what stands at the result path, as the outcome says it.
type ResultKind string

// What an outcome may say about the result.
const (
	// ResultWorker: the worker wrote it.
	ResultWorker ResultKind = "worker"
	// ResultResponse: it is the worker's last message, published by us.
	ResultResponse ResultKind = "response"
	// ResultFallback: it is the tail, salvaged by us.
	ResultFallback ResultKind = "fallback"
	// ResultNone: there is none, or only what was there before.
	ResultNone ResultKind = "none"
)

// Usage is what the worker said it used. A nil pointer means it did not say.
type Usage struct {
	// Input, Output, Cached and Total are tokens.
	Input   *int64   `json:"input"`
	Output  *int64   `json:"output"`
	Cached  *int64   `json:"cached"`
	Total   *int64   `json:"total"`
	CostUSD *float64 `json:"cost_usd"`
}

// Outcome is how a unit ended. It is published last of all, and never changed.
// It holds no prompt, no environment value and no argument that holds one.
type Outcome struct {
	SchemaVersion int    `json:"schema_version"`
	Unit          string `json:"unit"`
	Backend       string `json:"backend"`
	// Model is what ran; "" when not known.
	Model string `json:"model"`
	Cause Cause  `json:"cause"`
	// ExitCode is the worker's own code, nil when it died of a signal, never
	// ran, or was not seen to end. Signal is what it died of, or 0; for
	// Interrupted and Killed it is the signal that asked for the end.
	ExitCode *int `json:"exit_code"`
	Signal   int  `json:"signal"`
	// Reason is one line for a person; "" for a success.
	Reason     string     `json:"reason"`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    time.Time  `json:"ended_at"`
	DurationMS int64      `json:"duration_ms"`
	Result     ResultKind `json:"result"`
	SessionID  string     `json:"session_id"`
	Usage      Usage      `json:"usage"`
	TailBytes  int64      `json:"tail_bytes"`
	// Containment is by which means the tree was held; ProvenEmpty whether it
	// was proven that nothing of it is left; Leftovers how many processes the
	// leader left behind.
	Containment string   `json:"containment"`
	ProvenEmpty bool     `json:"proven_empty"`
	Leftovers   int      `json:"leftovers"`
	ParentUnit  string   `json:"parent_unit"`
	Notes       []string `json:"notes"`
	// ExitStatus is what the door exits with; 0 beside a cause that is no
	// success means that nobody said, and the function ExitStatus derives it.
	ExitStatus int `json:"exit_status"`

	Extra Extra `json:"-"`
}

type outcomeFields Outcome

// MarshalJSON writes the known keys in the order of the fields, then Extra's.
// Times are UTC.
func (o Outcome) MarshalJSON() ([]byte, error) {
	o.StartedAt, o.EndedAt = o.StartedAt.UTC(), o.EndedAt.UTC()
	if o.Notes == nil {
		o.Notes = []string{}
	}
	return encodeRecord(outcomeFields(o), o.Extra)
}

// UnmarshalJSON reads the known keys and keeps the others in Extra.
func (o *Outcome) UnmarshalJSON(data []byte) error {
	var f outcomeFields
	extra, err := decodeRecord(data, &f)
	if err != nil {
		return err
	}
	*o = Outcome(f)
	o.Extra = extra
	return nil
}

// ReserveOutcome makes the file the outcome will be written into and reserves
// its blocks. Where the file system cannot reserve, the file is made all the
// same.
func (u Unit) ReserveOutcome() error {
	f, err := os.OpenFile(u.Path(FileOutcomeReserve), os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return fmt.Errorf("reserve outcome: %w", err)
	}
	err = errors.Join(f.Chmod(filePerm), atomicfile.Reserve(f, OutcomeReserve), f.Close())
	if err != nil {
		return fmt.Errorf("reserve outcome: %w", err)
	}
	return nil
}

// PublishOutcome makes o the unit's outcome. An outcome that would not fit into
// what was reserved is shortened: notes first, last ones first, then the
// reason. ErrExists is wrapped when another one was first; that one stands
// untouched, and what is left to do is cleaning up. The caller holds the unit's
// lock.
//
// After any other error there is no outcome and PublishOutcome may be called
// again.
func (u Unit) PublishOutcome(o Outcome) error {
	if err := u.publishOutcome(o); err != nil {
		return fmt.Errorf("publish outcome: %w", err)
	}
	return nil
}

func (u Unit) publishOutcome(o Outcome) error {
	if o.SchemaVersion == 0 {
		o.SchemaVersion = SchemaVersion
	}
	data, err := fitOutcome(o)
	if err != nil {
		return err
	}
	final, reserve := u.Path(FileOutcome), u.Path(FileOutcomeReserve)
	// Asked before the first byte: once linked, the reserve IS the outcome, and
	// writing into it would change what readers already have.
	if _, err := os.Lstat(final); err == nil {
		return ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Never with O_TRUNC: it would give the reserved blocks back.
	f, err := os.OpenFile(reserve, os.O_WRONLY|os.O_CREATE|openNoFollow, filePerm)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync()
	}
	// A close error is a write error on some network file systems, and a link
	// to a short file must never be made.
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = atomicfile.Publish(reserve, final)
	if err != nil && !errors.Is(err, atomicfile.ErrExists) {
		// A second name costs an inode on tmpfs, and a quota on others: the
		// text has its blocks, so it is only given another name.
		if rerr := atomicfile.RenameNoReplace(reserve, final); rerr == nil || errors.Is(rerr, atomicfile.ErrExists) {
			err = rerr
		}
	}
	if errors.Is(err, atomicfile.ErrExists) {
		return ErrExists
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(u.Dir)
}

// Unfinished reports that a published outcome still has its second name: whoever
// published it was killed before it had done what comes after an outcome.
func (u Unit) Unfinished() bool {
	if _, err := os.Lstat(u.Path(FileOutcome)); err != nil {
		return false
	}
	_, err := os.Lstat(u.Path(FileOutcomeReserve))
	return err == nil
}

// SweepRecords removes what somebody who was killed while replacing a file of the
// unit has left beside it. The caller holds the unit's lock, and every process
// that wrote here is dead or is the caller.
func (u Unit) SweepRecords() {
	for _, name := range []string{FileIdentity, FileWorker} {
		_ = os.Remove(u.Path("." + name))
	}
	_ = atomicfile.Sweep(u.Dir, func(int) bool { return false })
}

// SweepOutcome removes the second name of a published outcome. It is the last
// step of a conclusion: until then the name says that something may be left to
// do. It does nothing while there is no outcome.
func (u Unit) SweepOutcome() {
	if _, err := os.Lstat(u.Path(FileOutcome)); err == nil {
		// A name that stays is harmless and is not worth an error.
		_ = os.Remove(u.Path(FileOutcomeReserve))
	}
}

// fitOutcome encodes o in at most OutcomeReserve bytes, newline included.
func fitOutcome(o Outcome) ([]byte, error) {
	const cut = " (shortened)"
	// JSON makes at most six bytes of one, so a step never takes too much.
	less := func(text string, over int) string {
		return shorten(strings.TrimSuffix(text, cut), max(over/6, 1)) + cut
	}
	// More than this was never going to fit, and fitting is a loop.
	o.Notes = append([]string(nil), o.Notes[:min(len(o.Notes), 64)]...)
	for i, note := range o.Notes {
		o.Notes[i] = shorten(note, max(len(note)-OutcomeReserve, 0))
	}
	o.Reason = shorten(o.Reason, max(len(o.Reason)-OutcomeReserve, 0))
	for {
		data, err := encodeJSON(o)
		if err != nil {
			return nil, err
		}
		over := len(data) + 1 - OutcomeReserve
		switch n := len(o.Notes); {
		case over <= 0:
			return append(data, '\n'), nil
		case n > 0 && len(o.Notes[n-1]) > 64:
			o.Notes[n-1] = less(o.Notes[n-1], over)
		case n > 0:
			o.Notes = o.Notes[:n-1]
		case o.Reason != "" && o.Reason != cut:
			o.Reason = less(o.Reason, over)
		case len(o.Extra) > 0:
			o.Extra = nil
		default:
			return nil, fmt.Errorf("encode outcome: %w", ErrTooLarge)
		}
	}
}

// shorten drops at least n bytes from the end of s without leaving half a rune.
func shorten(s string, n int) string {
	end := max(len(s)-n, 0)
	if end == len(s) {
		return s
	}
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end]
}

// ReadOutcome returns the outcome, or nil and no error when there is none yet.
// ErrMalformed, ErrNotRegular and ErrTooLarge are wrapped.
func (u Unit) ReadOutcome() (*Outcome, error) {
	var o Outcome
	ok, err := u.readRecord(FileOutcome, &o)
	if !ok || err != nil {
		return nil, err
	}
	return &o, nil
}

// ExitStatus returns what prun-dispatch exits with for o: what o itself
// records, else what its cause stands for.
func ExitStatus(o Outcome) int {
	const (
		internal = 70
		quota    = 75
		reaped   = 124
		signaled = 128
	)
	if o.ExitStatus != 0 {
		return o.ExitStatus
	}
	switch o.Cause {
	case Exited:
		if o.ExitCode != nil {
			return *o.ExitCode
		}
		return 0
	case Failed:
		switch {
		case o.Signal > 0:
			return signaled + o.Signal
		case o.ExitCode != nil && *o.ExitCode != 0:
			return *o.ExitCode
		}
		return internal
	case IdleStall, HardTimeout, DeadStart:
		return reaped
	case Killed, Interrupted:
		if o.Signal > 0 {
			return signaled + o.Signal
		}
		return signaled + 15
	case Blocked:
		return quota
	case LaunchFailed:
		if o.ExitCode != nil && *o.ExitCode != 0 {
			return *o.ExitCode
		}
		return internal
	}
	return internal
}
