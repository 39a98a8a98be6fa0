package eventlog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"
	"github.com/prun-suite/prun/pkg/atomicfile"
)

// open returns the content of a segment. A segment that was compressed since it was listed is found under its new
// name.
func (s Segment) open() (io.ReadCloser, error) {
	f, err := atomicfile.OpenRegular(s.Name)
	if errors.Is(err, fs.ErrNotExist) && !s.compressed {
		s.Name, s.compressed = s.Name+suffix, true
		f, err = atomicfile.OpenRegular(s.Name)
	}
	if err != nil {
		return nil, err
	}
	if !s.compressed {
		return f, nil
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &unpacked{z, f}, nil
}

type unpacked struct {
	z *zstd.Decoder
	f io.Closer
}

func (u *unpacked) Read(p []byte) (int, error) { return u.z.Read(p) }

func (u *unpacked) Close() error {
	u.z.Close()
	return u.f.Close()
}

// Copy writes the whole lines of a log to w: all of them (tail 0), the last tail ones, or all but the first -tail
// when tail is negative. Lines end at \n only. An unfinished last line is left out. Memory does not depend on the
// log.
func Copy(w io.Writer, name string, tail int) error {
	return CopyRange(w, name, tail, Position{}, nil)
}

// CopyRange is Copy of the part of a log from one position to another; a nil end is the log's.
func CopyRange(w io.Writer, name string, tail int, from Position, to *Position) error {
	list := within(Segments(name), from, to)
	skip := int64(0)
	if tail < 0 {
		skip = -int64(tail)
	}
	if tail > 0 {
		// Counted from the newest back, so that a long history is not read for its last lines.
		var have int64
		first := len(list)
		for first > 0 && have < int64(tail) {
			first--
			n, err := count(list[first], from, to)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			have += n
		}
		list, skip = list[first:], max(0, have-int64(tail))
	}
	for _, s := range list {
		err := lines(s, from, to, func(part []byte, begins, ends bool) error {
			if skip > 0 {
				if ends {
					skip--
				}
				return nil
			}
			_, err := w.Write(part)
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Each calls fn with every whole line of a log; a line longer than limit is given cut. The slice is used again.
func Each(name string, from Position, to *Position, limit int, fn func(line []byte)) error {
	var line []byte
	for _, s := range within(Segments(name), from, to) {
		line = line[:0]
		err := lines(s, from, to, func(part []byte, begins, ends bool) error {
			if begins {
				line = line[:0]
			}
			line = append(line, part[:min(len(part), max(0, limit-len(line)))]...)
			if ends {
				fn(bytes.TrimSuffix(line, []byte("\n")))
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func within(list []Segment, from Position, to *Position) []Segment {
	var kept []Segment
	for _, s := range list {
		if s.Number >= from.Segment && (to == nil || s.Number <= to.Segment) {
			kept = append(kept, s)
		}
	}
	return kept
}

func count(s Segment, from Position, to *Position) (n int64, err error) {
	err = lines(s, from, to, func(_ []byte, _, ends bool) error {
		if ends {
			n++
		}
		return nil
	})
	return n, err
}

// lines gives the parts of every whole line of a segment. What is after the last newline is not a line yet: it is
// withheld by looking only at what was there before.
func lines(s Segment, from Position, to *Position, part func(p []byte, begins, ends bool) error) error {
	r, err := s.open()
	if err != nil {
		return err
	}
	defer r.Close()
	limit := int64(1) << 62
	if to != nil && s.Number == to.Segment {
		limit = to.Offset
	}
	if !s.compressed {
		if end, err := lastLine(s, r, limit); err == nil {
			limit = end
		}
	}
	in := bufio.NewReaderSize(io.LimitReader(r, limit), block)
	if s.Number == from.Segment && from.Offset > 0 {
		if _, err := io.CopyN(io.Discard, in, from.Offset); err != nil {
			return nil
		}
	}
	begins := true
	for {
		p, err := in.ReadSlice('\n')
		if len(p) > 0 {
			ends := p[len(p)-1] == '\n'
			if err := part(p, begins, ends); err != nil {
				return err
			}
			begins = ends
		}
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// lastLine returns the offset after the last newline of a plain file.
func lastLine(s Segment, r io.ReadCloser, limit int64) (int64, error) {
	at, ok := r.(interface {
		io.ReaderAt
		io.Seeker
	})
	if !ok {
		return 0, fs.ErrInvalid
	}
	end, err := at.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if _, err := at.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	end = min(end, limit)
	buf := make([]byte, block)
	for end > 0 {
		start := max(0, end-int64(len(buf)))
		p := buf[:end-start]
		if _, err := at.ReadAt(p, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// End is the position after the last whole line of a log.
func End(name string) Position {
	list := Segments(name)
	if len(list) == 0 || list[len(list)-1].Name != name {
		return Position{}
	}
	s := list[len(list)-1]
	r, err := s.open()
	if err != nil {
		return Position{}
	}
	defer r.Close()
	offset, err := lastLine(s, r, 1<<62)
	if err != nil {
		return Position{}
	}
	return Position{s.Number, offset}
}
