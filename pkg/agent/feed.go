package agent

import (
	"bytes"
)

// Bounds of a line (decision 3.16).
const (
	maxWhole = 1 << 20  // a line up to this size is parsed whole
	maxPlain = 64 << 10 // what is kept of a longer line that is no JSON object

	maxLongNotes = 8 // how many longer lines are noted one by one
)

// A Feed splits the bytes of one stream into lines for a Parser. Its memory is bounded whatever comes: a line up to
// 1 MiB is parsed whole, a longer JSON object is reduced to its essentials while it passes by (see reducer), a
// longer line of text to its beginning. It is not safe for use by several goroutines.
type Feed struct {
	parser  Parser
	tr      *Transcript
	stream  Stream
	line    []byte   // the current line, up to maxWhole
	long    *reducer // the current line, when it has outgrown that
	length  int64    // bytes of the current line so far
	offset  int64    // bytes taken in all
	skip    bool     // after a truncation: drop everything to the next newline
	started bool     // a line has been delivered or a byte of one taken
	quiet   int64
}

// NewFeed returns a Feed that gives the lines of a stream to a parser.
func NewFeed(p Parser, tr *Transcript, stream Stream) *Feed {
	return &Feed{parser: p, tr: tr, stream: stream}
}

// answers is implemented by parsers of JSON lines: the places, as dotted keys, whose text is the answer.
type answers interface{ answerPaths() []string }

// partialQuiet is implemented by parsers with retry notices: whether an unfinished line is the beginning of one.
type partialQuiet interface{ quietSoFar(partial []byte) bool }

// Write takes the next bytes of the stream. It never fails.
func (f *Feed) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			f.take(p)
			break
		}
		f.take(p[:i])
		f.offset++
		f.end(1)
		p = p[i+1:]
	}
	return n, nil
}

// Truncated says that the file under the stream was cut and is read from its start again: the current line is given
// up, and what follows counts only from the next newline on, because a writer that appends may have been cut in the
// middle of a line. Offsets and Quiet count from the new start.
func (f *Feed) Truncated() {
	f.reset()
	f.skip, f.offset, f.quiet = true, 0, 0
}

// Close delivers a last line that has no newline. The Feed may be used again afterwards.
func (f *Feed) Close() error {
	if f.length > 0 {
		f.end(0)
	}
	return nil
}

// Quiet returns how many of the bytes taken since the start, or the last truncation, were retry notices, an unfinished one included. A caller takes
// them off the size of the tail before it asks whether the tail has grown.
func (f *Feed) Quiet() int64 {
	if p, ok := f.parser.(partialQuiet); ok && f.length > 0 && f.long == nil && !f.skip && p.quietSoFar(f.line) {
		return f.quiet + f.length
	}
	return f.quiet
}

func (f *Feed) take(p []byte) {
	f.offset += int64(len(p))
	f.length += int64(len(p))
	if f.skip {
		return
	}
	if f.long != nil {
		f.long.write(p)
		return
	}
	if len(f.line)+len(p) <= maxWhole {
		f.line = append(f.line, p...)
		return
	}
	var paths []string
	if a, ok := f.parser.(answers); ok {
		paths = a.answerPaths()
	}
	f.long = newReducer(paths)
	f.long.write(f.clean(f.line))
	f.line = nil // a megabyte is not worth keeping for the next line
	f.long.write(p)
}

// clean drops a byte order mark before the first line, where some shells put one.
func (f *Feed) clean(line []byte) []byte {
	if !f.started {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	f.started = true
	return line
}

// end finishes the current line; newline is the number of bytes its ending had.
func (f *Feed) end(newline int64) {
	if f.skip {
		f.skip = newline == 0
		f.reset()
		return
	}
	line := f.line
	if f.long != nil {
		start := f.offset - newline - f.length
		line = f.long.reduced()
		if f.tr.LongLines++; f.tr.LongLines <= maxLongNotes {
			f.tr.Note("a line of %d bytes at offset %d was read only in part", f.length, start)
		}
	} else {
		line = f.clean(line)
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > 0 && f.parser.Line(f.stream, line, f.tr) {
		f.quiet += f.length + newline
	}
	f.reset()
}

func (f *Feed) reset() {
	f.line, f.long, f.length = f.line[:0], nil, 0
}
