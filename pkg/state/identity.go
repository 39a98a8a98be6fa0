package state

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
)

// SchemaVersion is the version of the JSON records written here. Readers accept
// any: keys are only ever added.
const SchemaVersion = 1

// Identity says who answers for a unit and what its worker is contained in. It
// is written before the directory has its name and synced, so a directory
// without one is of an older version.
type Identity struct {
	SchemaVersion int    `json:"schema_version"`
	Unit          string `json:"unit"`
	Backend       string `json:"backend"`
	// Front is the process that printed STATE-DIR, Keeper the one that ends the
	// tree when the supervisor dies (zero where there is none), Supervisor the
	// one whose number is in the directory's name.
	Front      pid.ID `json:"front"`
	Keeper     pid.ID `json:"keeper"`
	Supervisor pid.ID `json:"supervisor"`
	// Machine is pid.Machine of the machine the unit runs on; a number means
	// nothing on another. Empty: not known.
	Machine string `json:"machine"`
	// DirDev and DirIno are those of the state directory. Others mean a copy.
	// Zero: not recorded.
	DirDev uint64 `json:"dir_dev"`
	DirIno uint64 `json:"dir_ino"`
	// Containment is cgroup, subreaper, job or group; Leaf is the path of the
	// cgroup and LeafInode its inode, which tells it from a later one of the
	// same name.
	Containment string `json:"containment"`
	Leaf        string `json:"leaf"`
	LeafInode   uint64 `json:"leaf_inode"`
	// Result is the absolute path of the result; ResultBefore the mark of what
	// stood there at the start, nil when nothing did.
	Result       string    `json:"result"`
	ResultBefore *FileMark `json:"result_before"`
	// ParentUnit is the state directory of the unit this one was started from.
	ParentUnit string    `json:"parent_unit"`
	Created    time.Time `json:"created"`
	// StallAfter and HardAfter are the limits in seconds, 0 = off.
	StallAfter float64 `json:"stall_after_s"`
	HardAfter  float64 `json:"hard_after_s"`
	// Ledger is the path of the ledger that wants a line at the end, or "".
	Ledger string `json:"ledger"`

	Extra Extra `json:"-"`
}

type identityFields Identity

// MarshalJSON writes the known keys in the order of the fields, then Extra's.
func (id Identity) MarshalJSON() ([]byte, error) {
	return encodeRecord(identityFields(id), id.Extra)
}

// UnmarshalJSON reads the known keys and keeps the others in Extra.
func (id *Identity) UnmarshalJSON(data []byte) error {
	var f identityFields
	extra, err := decodeRecord(data, &f)
	if err != nil {
		return err
	}
	*id = Identity(f)
	id.Extra = extra
	return nil
}

// WriteIdentity records id durably. Zero SchemaVersion, DirDev and DirIno are
// filled in; a directory that is then copied can be told from this one, one
// that is renamed cannot, which is how it gets its name.
func (u Unit) WriteIdentity(id Identity) error {
	if id.SchemaVersion == 0 {
		id.SchemaVersion = SchemaVersion
	}
	if id.DirDev == 0 && id.DirIno == 0 {
		dev, ino, err := dirID(u.Dir)
		if err != nil {
			return fmt.Errorf("write %s: %w", FileIdentity, err)
		}
		id.DirDev, id.DirIno = dev, ino
	}
	return u.replaceRecord(FileIdentity, id)
}

// ReadIdentity returns the record, or nil and no error when the directory is of
// a version that had none. ErrMalformed, ErrNotRegular and ErrTooLarge are
// wrapped.
func (u Unit) ReadIdentity() (*Identity, error) {
	var id Identity
	ok, err := u.readRecord(FileIdentity, &id)
	if !ok || err != nil {
		return nil, err
	}
	return &id, nil
}

// WorkerRecord says who the worker is. It follows the worker's start within a
// millisecond; in between the leaf or the environment mark stands in for it.
type WorkerRecord struct {
	SchemaVersion int       `json:"schema_version"`
	Worker        pid.ID    `json:"worker"`
	Containment   string    `json:"containment"`
	Leaf          string    `json:"leaf"`
	LeafInode     uint64    `json:"leaf_inode"`
	Started       time.Time `json:"started"`

	Extra Extra `json:"-"`
}

type workerFields WorkerRecord

// MarshalJSON writes the known keys in the order of the fields, then Extra's.
func (w WorkerRecord) MarshalJSON() ([]byte, error) {
	return encodeRecord(workerFields(w), w.Extra)
}

// UnmarshalJSON reads the known keys and keeps the others in Extra.
func (w *WorkerRecord) UnmarshalJSON(data []byte) error {
	var f workerFields
	extra, err := decodeRecord(data, &f)
	if err != nil {
		return err
	}
	*w = WorkerRecord(f)
	w.Extra = extra
	return nil
}

// WriteWorker records w, whole.
func (u Unit) WriteWorker(w WorkerRecord) error {
	if w.SchemaVersion == 0 {
		w.SchemaVersion = SchemaVersion
	}
	// Not synced: it serves the present boot only, and a sync here would delay
	// the look at a worker that ends at once.
	return u.swapRecord(FileWorker, w)
}

// ReadWorker returns the record, or nil and no error when no worker was started
// or the directory is of an older version.
func (u Unit) ReadWorker() (*WorkerRecord, error) {
	var w WorkerRecord
	ok, err := u.readRecord(FileWorker, &w)
	if !ok || err != nil {
		return nil, err
	}
	return &w, nil
}

// WorkerExit is how the worker itself ended. Signal is 0 unless it died of one;
// Code means nothing then.
type WorkerExit struct {
	Code, Signal int
	// Ended is when it was seen, zero when not recorded.
	Ended time.Time
}

// WriteWorkerExit records the worker's end the moment it is seen, before anything else is
// done, so that whoever concludes later says "ended by itself" and not "lost".
// It is not synced: a machine that goes down has no worker to speak of. One
// line: code, signal, time. The newline ends it; a reader believes no line
// without one.
func (u Unit) WriteWorkerExit(code, signal int) error {
	line := fmt.Sprintf("%d %d %s", code, signal, time.Now().UTC().Format(time.RFC3339Nano))
	err := u.WriteEntry(FileWorkerExit, line)
	if errors.Is(err, fs.ErrExist) {
		// A supervisor that died in this write left half a line; its keeper
		// knows the end from the kernel and records it whole.
		err = u.ReplaceEntry(FileWorkerExit, line)
	}
	return err
}

// ReadWorkerExit returns the record, or nil and no error when there is none.
func (u Unit) ReadWorkerExit() (*WorkerExit, error) {
	data, err := u.read(FileWorkerExit, EntryMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	x, err := parseWorkerExit(string(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", FileWorkerExit, err)
	}
	return &x, nil
}

func parseWorkerExit(text string) (WorkerExit, error) {
	var x WorkerExit
	line, _, whole := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if !whole || len(words) < 2 {
		return x, ErrMalformed
	}
	var err error
	if x.Code, err = strconv.Atoi(words[0]); err != nil {
		return x, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if x.Signal, err = strconv.Atoi(words[1]); err != nil {
		return x, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if x.Signal < 0 {
		return x, ErrMalformed
	}
	if len(words) > 2 {
		if x.Ended, err = time.Parse(time.RFC3339Nano, words[2]); err != nil {
			return x, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return x, nil
}

// swapRecord is replaceRecord without the syncs: whole for every reader, and
// gone after a power cut.
func (u Unit) swapRecord(name string, record any) error {
	data, err := encodeJSON(record)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := u.Path("." + name)
	if err := atomicfile.Write(temp, append(data, '\n'), filePerm); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := atomicfile.Rename(temp, u.Path(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// replaceRecord writes a JSON file of the unit whole, durably.
func (u Unit) replaceRecord(name string, record any) error {
	data, err := encodeJSON(record)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := atomicfile.Replace(u.Path(name), append(data, '\n'), filePerm); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
