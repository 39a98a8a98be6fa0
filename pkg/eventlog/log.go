// Package eventlog owns the file that holds a worker's stream of events: a cap that holds at every moment, segments
// that are compressed when the file is full, and reading across all of them with memory that depends on nothing.
//
// It does not know what a line means. Lines stay whole: one that is longer than the bound is replaced by a short JSON
// object that says so. Nothing here ever makes the writer of the stream wait for long, and no error of a disk stops
// the reading of the stream: what cannot be kept is dropped and counted.
//
// Invariant: the current file never holds more than the cap, all rotated segments together never more than another
// cap once they are compressed, and a number is never used for two segments of one log while it is open.
package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/prun-suite/prun/pkg/atomicfile"
)

// MaxLine is the longest line that is kept whole; a log with a small cap keeps half of that at most.
const MaxLine = 8 << 20

const (
	filePerm = 0o600
	suffix   = ".zst"
	maxHead  = 64 << 10 // of a line that was cut
	block    = 64 << 10
)

// A Position is a place in a log: the number of the segment, counted from 1 over the log's life, and the offset in
// it.
type Position struct {
	Segment int   `json:"segment"`
	Offset  int64 `json:"offset"`
}

// Log is open for appending. Write is for one goroutine; the compression runs beside it.
type Log struct {
	name    string
	cap     int64
	longest int64

	f         *os.File
	segment   int
	size      int64 // bytes in f and pending
	lineStart int64 // where the current line begins
	pending   []byte
	// cut is the beginning of a line that is too long to be kept, length its bytes so far.
	cut    []byte
	length int64
	// skip: the rest of the line is dropped without a word, because the disk failed.
	skip bool
	err  error

	work sync.WaitGroup
	mu   sync.Mutex // the fields below
	lost Dropped
}

// Dropped counts what was removed to keep the cap.
type Dropped struct {
	Segments int
	Bytes    int64
}

// Open opens a log for appending, which is made if there is none. What a killed predecessor left is put in order: an
// unfinished last line is ended, a segment that was not yet compressed is.
func Open(name string, limit int64) (*Log, error) {
	l := &Log{name: name, cap: max(limit, 64<<10)}
	l.longest = min(MaxLine, l.cap/2)
	for _, s := range Segments(name) {
		if s.Name == name {
			continue
		}
		l.segment = max(l.segment, s.Number)
		if !s.compressed {
			l.pack(s.Number)
		}
	}
	l.segment++
	if err := l.open(os.O_CREATE); err != nil {
		return nil, err
	}
	fi, err := l.f.Stat()
	if err != nil {
		l.f.Close()
		return nil, fmt.Errorf("open events: %w", err)
	}
	l.size = fi.Size()
	if l.size > 0 {
		last := []byte{0}
		if _, err := l.f.ReadAt(last, l.size-1); err == nil && last[0] != '\n' {
			l.append([]byte{'\n'})
		}
	}
	l.lineStart = l.size
	if l.size > l.cap {
		l.rotate()
	}
	return l, l.flush()
}

func (l *Log) open(flag int) error {
	f, err := os.OpenFile(l.name, os.O_RDWR|os.O_APPEND|flag, filePerm)
	if err != nil {
		return fmt.Errorf("open events: %w", err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return fmt.Errorf("open events: %w", atomicfile.ErrNotRegular)
	}
	if err := f.Chmod(filePerm); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		f.Close()
		return fmt.Errorf("open events: %w", err)
	}
	l.f = f
	return nil
}

// Position is where the next line begins.
func (l *Log) Position() Position { return Position{l.segment, l.lineStart} }

// Write takes the next bytes of the stream. It never fails; Err says what could not be kept.
func (l *Log) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.piece(p)
			break
		}
		l.piece(p[:i])
		l.endLine()
		p = p[i+1:]
	}
	l.flush()
	return n, nil
}

// piece adds bytes of the current line.
func (l *Log) piece(p []byte) {
	switch {
	case l.skip || len(p) == 0:
		return
	case l.cut != nil:
		l.length += int64(len(p))
		return
	}
	if l.size == l.lineStart {
		l.tellDropped()
	}
	if line := l.size - l.lineStart; line+int64(len(p)) > l.longest {
		l.beginCut(p)
		return
	}
	if l.size+int64(len(p))+1 > l.cap {
		l.rotate()
	}
	l.append(p)
}

func (l *Log) append(p []byte) {
	l.pending = append(l.pending, p...)
	l.size += int64(len(p))
	if len(l.pending) >= block {
		l.flush()
	}
}

// endLine ends the current line; a blank one leaves nothing.
func (l *Log) endLine() {
	switch {
	case l.skip:
		l.skip = false
	case l.cut != nil:
		l.endCut()
	default:
		if n := len(l.pending); n > 0 && l.pending[n-1] == '\r' && l.size > l.lineStart {
			l.pending = l.pending[:n-1]
			l.size--
		}
		if l.size > l.lineStart {
			l.append([]byte{'\n'})
		}
	}
	l.lineStart = l.size
}

func (l *Log) flush() error {
	if len(l.pending) == 0 {
		return l.err
	}
	_, err := l.f.Write(l.pending)
	l.pending = l.pending[:0]
	if err != nil {
		// A disk that is full: the line goes, what stands before it stays.
		l.err = fmt.Errorf("write events: %w", err)
		if terr := l.f.Truncate(l.lineStart); terr != nil {
			l.err = errors.Join(l.err, terr)
		}
		if fi, serr := l.f.Stat(); serr == nil {
			l.lineStart = min(l.lineStart, fi.Size())
		}
		l.size, l.skip = l.lineStart, true
	}
	return l.err
}

// beginCut takes the current line back out of the file: only its beginning and its length are kept.
func (l *Log) beginCut(p []byte) {
	l.flush()
	if l.skip {
		return
	}
	line := l.size - l.lineStart
	room := min(maxHead, l.longest/8)
	head := make([]byte, min(line, room))
	if n, err := l.f.ReadAt(head, l.lineStart); err != nil && !errors.Is(err, io.EOF) {
		head = head[:n]
	}
	head = append(head, p[:min(int64(len(p)), room-int64(len(head)))]...)
	if err := l.f.Truncate(l.lineStart); err != nil {
		l.err = fmt.Errorf("cut line: %w", err)
	}
	l.size, l.cut, l.length = l.lineStart, head, line+int64(len(p))
	if l.cut == nil {
		l.cut = []byte{}
	}
}

func (l *Log) endCut() {
	line, err := json.Marshal(struct {
		Type   string `json:"type"`
		Length int64  `json:"length"`
		Head   string `json:"head"`
	}{"herd.cut", l.length, string(l.cut)})
	l.cut, l.length = nil, 0
	if err == nil {
		l.own(line)
	}
}

// own writes a line of ours.
func (l *Log) own(line []byte) {
	if l.size+int64(len(line))+1 > l.cap {
		l.rotate()
	}
	l.append(line)
	l.append([]byte{'\n'})
	l.lineStart = l.size
}

func (l *Log) tellDropped() {
	l.mu.Lock()
	d := l.lost
	l.lost = Dropped{}
	l.mu.Unlock()
	if d.Segments > 0 {
		l.own([]byte(fmt.Sprintf(`{"type":"herd.dropped","segments":%d,"bytes":%d}`, d.Segments, d.Bytes)))
	}
}

// rotate makes the current file a segment and goes on in a new one, which begins with the current line.
func (l *Log) rotate() {
	l.flush()
	// At most one segment waits to be compressed: the disk must not hold more than it was promised for long.
	l.work.Wait()
	full := segmentName(l.name, l.segment)
	// An open file cannot be renamed everywhere.
	l.f.Close()
	err := atomicfile.Rename(l.name, full)
	if err == nil {
		err = l.open(os.O_CREATE | os.O_EXCL)
		if err != nil {
			err = errors.Join(err, atomicfile.Rename(full, l.name))
		}
	}
	if err != nil {
		l.restart(err)
		return
	}
	carry := l.size - l.lineStart
	if carry > 0 {
		if err := l.carry(full, l.lineStart, carry); err != nil {
			l.err = fmt.Errorf("rotate events: %w", err)
		}
	}
	l.pack(l.segment)
	l.segment++
	l.size, l.lineStart = carry, 0
}

// carry moves the end of a segment to the beginning of the current file.
func (l *Log) carry(name string, start, n int64) error {
	old, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer old.Close()
	_, err = io.Copy(l.f, io.NewSectionReader(old, start, n))
	return errors.Join(err, old.Truncate(start))
}

// restart drops what the current file holds, for want of a way to keep it.
func (l *Log) restart(why error) {
	l.err = fmt.Errorf("rotate events: %w", why)
	if err := l.open(os.O_CREATE | os.O_TRUNC); err != nil {
		l.err = errors.Join(l.err, err)
		if l.f, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			l.err = errors.Join(l.err, err)
		}
	}
	l.skip = l.size > l.lineStart
	l.size, l.lineStart = 0, 0
}

// pack compresses a segment beside the writing.
func (l *Log) pack(n int) {
	l.work.Go(func() {
		if err := compress(segmentName(l.name, n)); err != nil {
			// It stays as it is and counts as it is.
			return
		}
		d := Prune(l.name, l.cap)
		l.mu.Lock()
		l.lost.Segments += d.Segments
		l.lost.Bytes += d.Bytes
		l.mu.Unlock()
	})
}

// Err is the last failure to keep something.
func (l *Log) Err() error { return l.err }

// Close ends an unfinished line and waits for the compression.
func (l *Log) Close() error {
	if l.cut != nil || l.size > l.lineStart {
		l.endLine()
	}
	l.flush()
	l.work.Wait()
	return errors.Join(l.err, l.f.Close())
}

func segmentName(name string, n int) string { return name + "." + strconv.Itoa(n) }

// compress replaces a file by its compressed form. Level and window are the smallest: a supervisor has a few MiB.
func compress(name string) error {
	in, err := atomicfile.OpenRegular(name)
	if err != nil {
		return err
	}
	defer in.Close()
	temp := atomicfile.TempName(name+suffix, strconv.Itoa(os.Getpid())+"-0")
	_ = os.Remove(temp)
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return fmt.Errorf("compress events: %w", err)
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true))
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{z}, in, make([]byte, block))
		err = errors.Join(err, z.Close())
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = atomicfile.Rename(temp, name+suffix)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("compress events: %w", err)
	}
	in.Close()
	return atomicfile.Remove(name)
}

// Prune removes the oldest rotated segments until the rest holds at most limit bytes.
func Prune(name string, limit int64) Dropped {
	var d Dropped
	var total int64
	all := Segments(name)
	for _, s := range slices.Backward(all) {
		if s.Name == name {
			continue
		}
		if total += s.Size; total > limit {
			if atomicfile.Remove(s.Name) == nil {
				d.Segments++
				d.Bytes += s.Size
			}
		}
	}
	return d
}

// A Segment is one file of a log.
type Segment struct {
	Number     int
	Name       string
	Size       int64 // on disk
	compressed bool
}

// Segments lists the files of a log, oldest first; the current one is last and has the number after them.
func Segments(name string) []Segment {
	dir, base := filepath.Split(name)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return nil
	}
	found := map[int]Segment{}
	newest := 0
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base+".")
		if !ok || e.Type()&fs.ModeType != 0 {
			continue
		}
		digits, compressed := strings.CutSuffix(rest, suffix)
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || strconv.Itoa(n) != digits {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if other, twice := found[n]; twice && !other.compressed {
			// Its compressed form has just been finished.
			continue
		}
		found[n] = Segment{n, filepath.Join(dir, e.Name()), info.Size(), compressed}
		newest = max(newest, n)
	}
	list := make([]Segment, 0, len(found)+1)
	for _, s := range found {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Segment) int { return a.Number - b.Number })
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
		list = append(list, Segment{newest + 1, name, info.Size(), false})
	}
	return list
}
