package state

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// The words a ledger line may have as its status.
const (
	// LedgerQueued: accepted, waiting for a slot.
	LedgerQueued = "queued"
	// LedgerDispatched: accepted and started.
	LedgerDispatched = "dispatched"
	// LedgerDone: ended well.
	LedgerDone = "done"
	// LedgerFailed: ended otherwise.
	LedgerFailed = "failed"
)

// Entry is one line of a ledger. The last line of a state directory counts.
type Entry struct {
	SchemaVersion int    `json:"schema_version"`
	ID            string `json:"id"`
	// Executor is what the file model holds.
	Executor   string `json:"executor"`
	Backend    string `json:"backend"`
	Mode       string `json:"mode"`
	PromptFile string `json:"prompt_file"`
	// StateDir tells the lines of one unit from those of another.
	StateDir   string `json:"state_dir"`
	CloneDir   string `json:"clone_dir"`
	ResultFile string `json:"result_file"`
	Status     string `json:"status"`
	// Start and End are UTC; End is nil until the unit ended.
	Start         time.Time  `json:"start"`
	End           *time.Time `json:"end"`
	ContinuedFrom string     `json:"continued_from"`
	// Cause and ExitCode are the outcome's cause and exit status, "" and nil
	// until it ended.
	Cause    Cause `json:"cause"`
	ExitCode *int  `json:"exit_code"`

	Extra Extra `json:"-"`
}

type entryFields Entry

// MarshalJSON writes the known keys in the order of the fields, then Extra's.
func (e Entry) MarshalJSON() ([]byte, error) {
	e.Start = e.Start.UTC()
	return encodeRecord(entryFields(e), e.Extra)
}

// UnmarshalJSON reads the known keys and keeps the others in Extra.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var f entryFields
	extra, err := decodeRecord(data, &f)
	if err != nil {
		return err
	}
	*e = Entry(f)
	e.Extra = extra
	return nil
}

// Ended reports whether the entry says that its unit ended.
func (e Entry) Ended() bool { return e.Status == LedgerDone || e.Status == LedgerFailed }

const (
	// ledgerLineMax bounds one line of a ledger; a longer one is not ours.
	ledgerLineMax = 1 << 20
	// ledgerWait bounds the wait for another writer. A line takes microseconds.
	ledgerWait = 10 * time.Second
	// ledgerWarnings bounds how many bad lines are named.
	ledgerWarnings = 20
)

// AppendLedger adds one line to file, which is made if missing, with the
// caller's umask: it is the caller's own. Writers exclude each other through a
// lock file beside it and a line left unfinished by a crash is closed first, so
// no two lines ever mix.
func AppendLedger(file string, e Entry) error {
	return withLedger(file, func() error { return appendLedger(file, e) })
}

// EndLedger adds the line that says how the unit in dir ended: its last line in
// the ledger with status, end, cause and exit code of o. A unit that has no line
// gets one with what o knows.
func EndLedger(file, dir string, o Outcome) error {
	return withLedger(file, func() error {
		entries, _, err := ReadLedger(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e := Entry{ID: o.Unit, Executor: o.Model, Backend: o.Backend, StateDir: dir, Start: o.StartedAt}
		for _, known := range entries {
			if known.StateDir == dir {
				e = known
			}
		}
		if e.Ended() {
			return nil
		}
		e.Status = LedgerFailed
		if o.Cause.OK() && ExitStatus(o) == 0 {
			e.Status = LedgerDone
		}
		if o.Model != "" {
			e.Executor = o.Model
		}
		end, code := o.EndedAt.UTC(), ExitStatus(o)
		e.End, e.Cause, e.ExitCode = &end, o.Cause, &code
		return appendLedger(file, e)
	})
}

// RemoveEmptyLedger takes back a ledger that was made for a unit which was then
// refused, unless another unit has written into it: looking and removing are one
// step for everybody who appends.
func RemoveEmptyLedger(file string) error {
	return withLedger(file, func() error {
		info, err := os.Lstat(file)
		if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
			return nil
		}
		// The lock too, while it is held: whoever waits for it makes a new one.
		return errors.Join(os.Remove(file), os.Remove(ledgerLock(file)))
	})
}

func ledgerLock(file string) string {
	dir, base := filepath.Split(file)
	return dir + "." + base + ".lock"
}

// withLedger runs f while it has the ledger to itself. The lock is on a file of
// its own: on Windows a locked file cannot be read by others.
func withLedger(file string, f func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	lock, err := atomicfile.WaitLock(ctx, ledgerLock(file))
	if err != nil {
		return fmt.Errorf("lock ledger %s: %w", file, err)
	}
	if err := errors.Join(f(), lock.Unlock()); err != nil {
		return fmt.Errorf("append to ledger %s: %w", file, err)
	}
	return nil
}

func appendLedger(file string, e Entry) error {
	if e.SchemaVersion == 0 {
		e.SchemaVersion = SchemaVersion
	}
	line, err := encodeJSON(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE|openNonblock, filePerm)
	if err != nil {
		return err
	}
	err = writeLine(f, line)
	return errors.Join(err, f.Close())
}

// writeLine appends line and its newline to f in one call.
func writeLine(f *os.File, line []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return ErrNotRegular
	}
	var text []byte
	if info.Size() > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			text = append(text, '\n')
		}
	}
	text = append(append(text, line...), '\n')
	_, err = f.Write(text)
	return err
}

// ReadLedger returns the last entry of every state directory, in the order of
// their first lines, and a warning for each line that is not an entry (the
// first twenty are named). It holds one line and one entry per unit in memory,
// however long the ledger is. A last line without its newline is being written
// and is read if it is whole already.
func ReadLedger(file string) (entries []Entry, warnings []string, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read ledger: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read ledger %s: %w", file, err)
	}
	entries, warnings, err = readLedger(f)
	if err != nil {
		return nil, nil, fmt.Errorf("read ledger %s: %w", file, err)
	}
	return entries, warnings, nil
}

func readLedger(r io.Reader) (entries []Entry, warnings []string, err error) {
	bad := 0
	warn := func(n int, why string) {
		if bad++; bad <= ledgerWarnings {
			warnings = append(warnings, fmt.Sprintf("line %d: %s", n, why))
		}
	}
	at := make(map[string]int)
	lines := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, long, err := readLine(lines, ledgerLineMax)
		if err != nil && err != io.EOF {
			return nil, nil, err
		}
		line = bytes.TrimSpace(line)
		var e Entry
		switch {
		case long:
			warn(n, "too long")
		case len(line) == 0:
		case e.UnmarshalJSON(line) != nil:
			if err == io.EOF {
				warn(n, "unfinished")
			} else {
				warn(n, "not a ledger entry")
			}
		case e.StateDir == "":
			warn(n, "no state_dir")
		default:
			if i, seen := at[e.StateDir]; seen {
				entries[i] = e
			} else {
				at[e.StateDir] = len(entries)
				entries = append(entries, e)
			}
		}
		if err == io.EOF {
			break
		}
	}
	if bad > ledgerWarnings {
		warnings = append(warnings, fmt.Sprintf("%d more lines are no ledger entries", bad-ledgerWarnings))
	}
	return entries, warnings, nil
}

// readLine returns the next line of at most limit bytes. A longer one is read
// to its end and not kept.
func readLine(r *bufio.Reader, limit int) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, long, err
		}
	}
}
