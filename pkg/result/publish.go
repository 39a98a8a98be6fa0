package result

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
	"strings"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Publication is a text to be put at a result path.
type Publication struct {
	Path string
	// Temp is the hidden name, in the directory of Path, under which the text is
	// completed and by which a later concluder recognises it at Path. "" is
	// ".<base>.prun-<Owner>". Everyone who may conclude the same unit must use the same.
	Temp string
	// Body writes the text; it may be called more than once.
	Body func(io.Writer) error
	// Perm is the mode before the caller's umask; 0 is 0666.
	Perm fs.FileMode
	// Proven: no process of the unit is left. Then an empty file may be given up
	// for good; else it is kept under a hidden name, for a writer nobody knows of.
	Proven bool
	// Spare takes the text, mode 0600, when Path cannot. "" means nowhere.
	Spare string
	// Owner is "<pid>-<start>" of the unit's supervisor, whoever concludes; it
	// makes the hidden names. "" is this process, for callers that have none.
	Owner string
	// Step, when not nil, is called as each point is passed: C4 (text complete
	// under Temp), C5.1 (empty file examined), C5.2 (moved aside), C5.3 (found to
	// be the one examined), C5.4 (text at Path), C5.5 (lease found broken), C5 (ours
	// for good), C6 (directory synced). Dying at any of them is survivable: tests do.
	Step func(name string)
}

// Published says what became of a Publication.
type Published struct {
	Where    string // where the text is now: Path, Spare, or "" for nowhere
	Kept     string // an empty file, or late words of a worker, kept under this hidden name; "" for none
	Ours     bool   // Path holds our text
	Existing Kind   // what is at Path when Ours is false; else the kind of our text
	Note     string // for the record, when something unusual was met
}

const (
	holderWait  = 500 * time.Millisecond // for who has the empty file open for writing
	holderPause = 25 * time.Millisecond
	placeTries  = 200 // each costs somebody else a change of Path
)

// errEmptyHeld: an unproven writer sits on the empty file.
var errEmptyHeld = errors.New("somebody has the empty file open for writing")

// Publish puts a text at a result path where nothing, or an empty file, is, so
// that a reader sees nothing or all of it. It looks for itself: callers need not
// look first. What else may stand there:
//
//   - a file with bytes: a worker's, or an older FALLBACK. Never touched.
//   - a directory, FIFO, device, link: never touched, never followed; the text goes
//     to Spare and Note says so. A link to a file with bytes counts as that file.
//   - our own text, put there by a concluder that died: recognised by Temp.
//
// Absent: the complete text is linked. Empty: a read lease makes sure that nobody
// has it open for writing and makes later writers wait; the file is renamed
// aside and looked at (a result renamed onto it in between gets its name back), the
// text is linked, and if a writer has come meanwhile its file gets the name back
// and everything starts over. Somebody who holds the file open gets half a second; then
// it is left alone (text in Spare), or, when no process of the unit can be left
// (Proven), kept as Kept.
//
// The error is nil whenever the outcome is as described. Otherwise it tells why
// the text is not at Path: atomicfile.ErrUnsupported (neither links nor renames
// that never replace), a full disk, no permission. Where then says whether Spare has it.
//
// When Ours, the hidden name Temp stays until Sweep, so that whoever concludes
// after a crash knows our text from a worker's.
//
// Systems: macOS has no leases, so an empty file is renamed aside, looked at, and
// kept. On Windows writers are refused for the moment, not made to wait, and a
// writer without a proof cannot be given its name back in one step. Where links do
// not exist, and the text was renamed into place, a later concluder sees a FALLBACK
// and cannot tell whose.
func Publish(p Publication) (Published, error) {
	w := newPublisher(p)
	defer w.close()
	return w.publish()
}

type publisher struct {
	Publication
	dir    string
	body   atomicfile.Info // of the file Temp, ours or a dead concluder's
	kind   Kind            // of the text: Fallback, or Worker for a response
	aside  []displaced
	until  time.Time // end of the patience with a holder
	held   bool      // said so
	mover  *atomicfile.Lock
	moving bool
	notes  []string
}

// displaced is an empty file that was moved away from Path.
type displaced struct {
	name  string
	id    atomicfile.Info
	lease *atomicfile.Lease // nil: none could be had
}

func newPublisher(p Publication) *publisher {
	if p.Perm == 0 {
		p.Perm = 0o666
	}
	if p.Owner == "" {
		p.Owner = fmt.Sprintf("%d-0", os.Getpid())
	}
	if p.Temp == "" {
		p.Temp = atomicfile.TempName(p.Path, p.Owner)
	}
	if p.Step == nil {
		p.Step = func(string) {}
	}
	return &publisher{Publication: p, dir: filepath.Dir(p.Path)}
}

func (w *publisher) close() {
	w.alone(false)
	for _, d := range w.aside {
		if d.lease != nil {
			d.lease.Close()
		}
	}
}

func (w *publisher) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

func (w *publisher) publish() (Published, error) {
	if err := os.MkdirAll(w.dir, 0o777); err != nil {
		return w.spare(Absent, err)
	}
	if temp, err := atomicfile.Look(w.Temp); err == nil {
		w.body = temp
	}
	w.recover()
	info, _ := Inspect(w.Path) // an unreadable file is a Worker's here, and stays
	switch {
	case w.ours(info):
		w.kind = info.Kind
		return w.finish()
	case info.Kind == Worker || info.Kind == Fallback:
		return w.leave(info.Kind)
	case foreign(info):
		return w.misplaced()
	}
	if err := w.complete(); err != nil {
		return w.spare(info.Kind, err)
	}
	w.Step("C4")
	for range placeTries {
		err := atomicfile.Publish(w.Temp, w.Path)
		if err == nil {
			w.Step("C5.4")
			if w.interrupted() {
				continue
			}
			return w.finish()
		}
		if !errors.Is(err, atomicfile.ErrExists) {
			return w.spare(Absent, err)
		}
		info, _ := Inspect(w.Path)
		switch {
		case info.Kind == Absent:
		case info.Kind == Worker || info.Kind == Fallback:
			return w.leave(info.Kind)
		case foreign(info):
			return w.misplaced()
		default:
			if err := w.moveAside(); errors.Is(err, errEmptyHeld) {
				w.note("%s is empty and open for writing", w.Path)
				return w.spare(Empty, nil)
			} else if err != nil {
				return w.spare(Empty, err)
			}
		}
	}
	w.note("%s did not come to rest", w.Path)
	return w.spare(Empty, nil)
}

// foreign reports what Publish must not touch although it holds no words.
func foreign(info Info) bool {
	return info.Kind == Foreign || info.Kind == Empty && info.Mode&fs.ModeSymlink != 0
}

// ours reports whether info is our text, linked by a concluder that died before
// it could say so. A worker may have written its own words into that very file
// since; then line 1 no longer fits.
func (w *publisher) ours(info Info) bool {
	if !info.same(w.body) || info.Mode&fs.ModeSymlink != 0 {
		return false
	}
	if w.Body == nil {
		return true
	}
	// Let Body write its first line to learn what it is.
	var h head
	if err := w.Body(&h); err != nil && !errors.Is(err, errEnough) {
		return false
	}
	return info.Kind == h.kind()
}

var errEnough = errors.New("enough seen")

// head keeps the first line that is written to it, and wants no more.
type head struct{ seen []byte }

func (h *head) Write(p []byte) (int, error) {
	h.seen = append(h.seen, p[:min(len(p), headerMax-len(h.seen))]...)
	if len(h.seen) == headerMax || bytes.IndexByte(h.seen, '\n') >= 0 {
		return 0, errEnough
	}
	return len(p), nil
}

func (h *head) kind() Kind {
	line, _, _ := bytes.Cut(h.seen, []byte("\n"))
	switch {
	case len(h.seen) == 0:
		return Empty
	case IsFallbackHeader(line):
		return Fallback
	}
	return Worker
}

// complete writes the text under the hidden name.
func (w *publisher) complete() error {
	var h head
	err := writeNew(w.Temp, w.Perm, func(f io.Writer) error {
		return w.Body(writerFunc(func(p []byte) (int, error) {
			h.Write(p)
			return f.Write(p)
		}))
	})
	if err != nil {
		return err
	}
	w.kind = h.kind()
	w.body, err = atomicfile.Look(w.Temp)
	return err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// moverWait bounds the wait for another publisher that is at the same point; it
// only runs out when that one is stopped.
const moverWait = 2 * time.Second

// alone makes this the only publisher that moves something away from Path, or ends
// that. Without it a second one could move the text that the first has just
// placed, believing it to be the empty file, and a third could slip in.
func (w *publisher) alone(on bool) {
	name := moverName(w.Path)
	switch {
	case on && !w.moving:
		w.moving = true // once, also when it fails
		ctx, cancel := context.WithTimeout(context.Background(), moverWait)
		defer cancel()
		w.mover, _ = atomicfile.WaitLock(ctx, name) // a file system without locks: go on
	case !on && w.mover != nil:
		// While it is held: who waits for it sees that the name is another's.
		atomicfile.Remove(name)
		w.mover.Unlock()
		w.mover = nil
	}
}

// placeable finds out whether this file system can place the text, and give a
// file its name back, without the risk of replacing something. Before anything is
// moved: what stands at Path hides the answer.
func (w *publisher) placeable() error {
	probe := probeName(w.Path, w.Owner)
	if err := atomicfile.Remove(probe); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.Publish(w.Temp, probe); err != nil {
		return err
	}
	w.reclaim(probe)
	return nil
}

func probeName(path, owner string) string { return atomicfile.TempName(path, owner+"-probe") }

func moverName(path string) string { return atomicfile.TempName(path, "mover") }

// moveAside renames the empty file at Path away. nil means: try to place the text
// again, whether or not something was moved.
func (w *publisher) moveAside() error {
	if !w.moving {
		if err := w.placeable(); err != nil {
			return err
		}
	}
	w.alone(true)
	lease, err := atomicfile.TakeLease(w.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, atomicfile.ErrNotRegular):
		return nil
	case errors.Is(err, atomicfile.ErrLocked):
		if w.until.IsZero() {
			w.until = time.Now().Add(holderWait)
		}
		if time.Now().Before(w.until) {
			time.Sleep(holderPause)
			return nil
		}
		if !w.Proven {
			return errEmptyHeld
		}
		if !w.held {
			w.held = true
			w.note("somebody outside the unit has the empty %s open for writing", w.Path)
		}
	}
	d := displaced{lease: lease}
	if lease != nil {
		d.id, err = lease.Look()
	} else {
		d.id, err = atomicfile.Look(w.Path)
	}
	if err != nil || !d.id.Mode.IsRegular() || d.id.Size != 0 {
		d.drop()
		return nil
	}
	w.Step("C5.1")
	if err := w.rename(&d); err != nil {
		d.drop()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	w.Step("C5.2")
	moved, err := atomicfile.Look(d.name)
	if err != nil || !moved.Same(d.id) || moved.Size != 0 {
		// A worker's rename, or its first bytes, came between look and move.
		w.restore(displaced{name: d.name, id: moved})
		d.drop()
		return nil
	}
	w.Step("C5.3")
	w.aside = append(w.aside, d)
	return nil
}

func (d *displaced) drop() {
	if d.lease != nil {
		d.lease.Close()
		d.lease = nil
	}
}

// asideNames is how many displaced files one unit can have at a time.
const asideNames = 16

func asideName(path, owner string, n int) string {
	return atomicfile.TempName(path, fmt.Sprintf("%s-aside-%d", owner, n))
}

// rename moves Path to the first hidden name that is free.
func (w *publisher) rename(d *displaced) error {
	for n := 1; n <= asideNames; n++ {
		d.name = asideName(w.Path, w.Owner, n)
		err := atomicfile.RenameNoReplace(w.Path, d.name)
		if errors.Is(err, atomicfile.ErrUnsupported) {
			// The names are ours alone, so looking first is enough.
			if _, lerr := atomicfile.Look(d.name); lerr == nil {
				continue
			}
			err = atomicfile.Rename(w.Path, d.name)
		}
		if !errors.Is(err, atomicfile.ErrExists) {
			return err
		}
	}
	return fmt.Errorf("%d files were moved away from %s already", asideNames, w.Path)
}

// restore gives a displaced file its name back if nothing has taken it, and
// remembers it as displaced otherwise.
func (w *publisher) restore(d displaced) bool {
	err := atomicfile.RenameNoReplace(d.name, w.Path)
	if errors.Is(err, atomicfile.ErrUnsupported) {
		if err = atomicfile.Publish(d.name, w.Path); err == nil {
			atomicfile.Remove(d.name)
		}
	}
	if err == nil {
		return true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		w.aside = append(w.aside, d)
	}
	return false
}

// interrupted looks, with our text at Path, at what was moved aside. If a writer
// has come for one of these files, it gets its name back and our text is gone
// from Path again.
func (w *publisher) interrupted() bool {
	for i := len(w.aside) - 1; i >= 0; i-- {
		d := w.aside[i]
		broken := false
		if d.lease != nil {
			broken = !d.lease.Intact()
		} else if now, err := atomicfile.Look(d.name); err == nil {
			broken = now.Size > 0
		}
		if !broken {
			continue
		}
		w.Step("C5.5")
		w.aside = append(w.aside[:i], w.aside[i+1:]...)
		back := w.yield(d)
		d.drop() // only now: the writer goes on into a file that has its name
		if back {
			return true
		}
	}
	return false
}

// yield puts the displaced file d in the place of our text. False: something
// newer than both is at Path, and d is remembered as displaced.
func (w *publisher) yield(d displaced) bool {
	keep := func() bool {
		d.lease = nil // the caller's
		w.aside = append(w.aside, d)
		return false
	}
	now, err := atomicfile.Look(w.Path)
	if errors.Is(err, fs.ErrNotExist) {
		d.lease = nil
		return w.restore(d)
	}
	if err != nil || !now.Same(w.body) {
		return keep()
	}
	err = atomicfile.Exchange(d.name, w.Path)
	if errors.Is(err, atomicfile.ErrUnsupported) {
		d.lease = nil
		return w.swapIn(d, w.body)
	}
	if err != nil {
		return keep()
	}
	if out, err := atomicfile.Look(d.name); err == nil && out.Same(w.body) {
		w.reclaim(d.name)
		return true
	}
	// A worker's rename came between look and exchange, and is newer: back.
	atomicfile.Exchange(d.name, w.Path)
	return keep()
}

// reclaim drops a second name of our text, or makes it Temp again where there are
// no links and it is the only one.
func (w *publisher) reclaim(name string) {
	if _, err := atomicfile.Look(w.Temp); errors.Is(err, fs.ErrNotExist) {
		atomicfile.Rename(name, w.Temp)
		return
	}
	atomicfile.Remove(name)
}

// swapIn puts the displaced file d in the place of what is at Path, if that is
// old, in two steps: a reader finds nothing for a moment, and looks again. False:
// something newer is at Path, and d is remembered as displaced.
func (w *publisher) swapIn(d displaced, old atomicfile.Info) bool {
	var away displaced
	if err := w.rename(&away); err != nil {
		w.aside = append(w.aside, d)
		return false
	}
	out, err := atomicfile.Look(away.name)
	if err != nil || !out.Same(old) {
		away.id = out
		w.restore(away)
		w.aside = append(w.aside, d)
		return false
	}
	back := w.restore(d)
	if out.Same(w.body) {
		w.reclaim(away.name)
		return true
	}
	away.id = out
	w.aside = append(w.aside, away)
	return back
}

// recover deals with displaced files of a concluder that died: a worker's words
// come back to Path wherever it holds none, an empty file where nothing is.
func (w *publisher) recover() {
	for n := 1; n <= asideNames; n++ {
		d := displaced{name: asideName(w.Path, w.Owner, n)}
		var err error
		if d.id, err = atomicfile.Look(d.name); err != nil {
			continue
		}
		at, _ := Inspect(w.Path)
		switch {
		case w.body.Ino != 0 && d.id.Same(w.body): // died between exchange and remove
			atomicfile.Remove(d.name)
		case at.Kind == Absent:
			w.restore(d)
		case d.id.Size > 0 && w.ours(at):
			w.yield(d)
		case d.id.Size > 0 && at.Kind == Empty && at.Mode&fs.ModeSymlink == 0:
			// The empty file may have a writer too: it goes to a hidden name.
			if now, err := atomicfile.Look(w.Path); err == nil && now.Size == 0 {
				w.swapIn(d, now)
			} else {
				w.aside = append(w.aside, d)
			}
		default:
			w.aside = append(w.aside, d)
		}
	}
}

// settle removes the displaced files that nobody can miss and returns the name
// of one that had to be kept.
func (w *publisher) settle() (kept string) {
	rest := w.aside
	w.aside = nil
	for _, d := range rest {
		now, err := atomicfile.Look(d.name)
		if err != nil {
			d.drop()
			continue
		}
		if now.Size == 0 && w.Proven {
			if d.lease == nil {
				d.lease, _ = atomicfile.TakeLease(d.name)
			}
			if d.lease != nil && d.lease.Intact() {
				atomicfile.Remove(d.name)
				d.drop()
				continue
			}
		}
		d.drop()
		kept = d.name
		if now.Size > 0 {
			w.note("%d bytes that were written too late are kept in %s", now.Size, d.name)
		}
	}
	return kept
}

// finish: our text is at Path.
func (w *publisher) finish() (Published, error) {
	w.Step("C5")
	if now, err := Inspect(w.Path); err == nil && !now.same(w.body) && now.Kind == Worker {
		return w.leave(now.Kind) // a late rename has won already
	}
	out := Published{Where: w.Path, Ours: true, Existing: w.kind, Kept: w.settle()}
	err := atomicfile.SyncDir(w.dir)
	w.Step("C6")
	out.Note = strings.Join(w.notes, "; ")
	if err != nil {
		return out, fmt.Errorf("publish result: %w", err)
	}
	return out, nil
}

// leave: somebody's words are at Path, and ours are not wanted.
func (w *publisher) leave(kind Kind) (Published, error) {
	atomicfile.Remove(w.Temp)
	out := Published{Existing: kind, Kept: w.settle()}
	out.Note = strings.Join(w.notes, "; ")
	return out, nil
}

func (w *publisher) misplaced() (Published, error) {
	w.note("%s is not a regular file of its own", w.Path)
	return w.spare(Foreign, nil)
}

// spare puts the text into Spare because Path cannot take it, for cause.
func (w *publisher) spare(existing Kind, cause error) (Published, error) {
	atomicfile.Remove(w.Temp)
	out := Published{Existing: existing}
	rest := w.aside
	w.aside = nil
	for _, d := range rest {
		if w.restore(d) { // nothing of ours will take its place
			d.drop()
		}
	}
	out.Kept = w.settle()
	if w.Spare != "" {
		err := atomicfile.ReplaceWith(w.Spare, 0o600, func(f io.Writer) error { return buffered(f, w.Body) })
		if err == nil {
			out.Where = w.Spare
			w.note("the text is in %s", w.Spare)
		} else {
			cause = errors.Join(cause, err)
		}
	}
	out.Note = strings.Join(w.notes, "; ")
	if cause != nil {
		return out, fmt.Errorf("publish result: %w", cause)
	}
	return out, nil
}

// writeNew writes a new file, complete and synced or not at all. A stale one of
// that name is unlinked first, never written to: it may be linked elsewhere.
func writeNew(name string, perm fs.FileMode, body func(io.Writer) error) error {
	if err := atomicfile.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	err = buffered(f, body)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		atomicfile.Remove(name)
		return err
	}
	return nil
}

func buffered(f io.Writer, body func(io.Writer) error) error {
	b := bufio.NewWriterSize(f, 64<<10)
	if err := body(b); err != nil {
		return err
	}
	return b.Flush()
}

// Sweep removes the hidden names that Publish and PublishResponse use for path
// and owner: the last step of a conclusion or of a reap. The caller must be the
// only one that concludes this unit.
//
// Words of a worker that were displaced get their name back if path holds none,
// and are never removed. keepDisplaced is for a unit whose end is not proven: then
// empty displaced files stay too. Otherwise they go, unless somebody has one open
// for writing.
func Sweep(path, owner string, keepDisplaced bool) error {
	w := newPublisher(Publication{Path: path, Owner: owner})
	defer w.close()
	if temp, err := atomicfile.Look(w.Temp); err == nil {
		w.body = temp
	}
	w.recover()
	for _, d := range w.aside {
		if keepDisplaced {
			break
		}
		// Where leases are unknown the caller's proof must do.
		if now, err := atomicfile.Look(d.name); err != nil || now.Size > 0 {
			continue
		}
		if l, err := atomicfile.TakeLease(d.name); err == nil {
			d.lease = l
		} else if errors.Is(err, atomicfile.ErrLocked) {
			continue
		}
		atomicfile.Remove(d.name)
		d.drop()
	}
	if _, err := atomicfile.Look(moverName(path)); err == nil {
		w.alone(true) // of a dead one: take it, and close removes it
	}
	var failed error
	for _, name := range []string{w.Temp, probeName(path, owner)} {
		// Below something that is no directory there is nothing of ours either.
		err := atomicfile.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, sweepResponses(path))
}

// responseTag marks the hidden files of PublishResponse.
const responseTag = "-response"

// sweepResponses removes what a death in PublishResponse left.
func sweepResponses(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil // no directory, nothing left in it
	}
	defer d.Close()
	pattern := filepath.Base(atomicfile.TempName(path, responseTag))
	prefix := strings.TrimSuffix(pattern, responseTag)
	var failed error
	for {
		names, err := d.Readdirnames(256)
		for _, base := range names {
			pid, ok := strings.CutSuffix(strings.TrimPrefix(base, prefix), responseTag)
			if !ok || !strings.HasPrefix(base, prefix) || strings.Trim(pid, "0123456789") != "" {
				continue
			}
			if err := atomicfile.Remove(filepath.Join(filepath.Dir(path), base)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err)
			}
		}
		if err != nil {
			return failed
		}
	}
}
