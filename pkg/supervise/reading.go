package supervise

import (
	"errors"
	"io"
	"os"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
)

// lookBudget bounds how much of a flood one tick parses, so that a stop request
// is never answered late; the rest is parsed when the worker has ended.
const lookBudget = 32 << 20

// Following is the Reading of plain files: it follows the files a worker writes: how far they have grown, and what
// the backend's parser makes of the new bytes. It holds a read buffer and the
// parser's bounded line, never a tail.
type Following struct {
	transcript agent.Transcript
	files      []*followed
	buf        []byte
	// session, if not empty, is the file that gets the session's id the moment
	// the stream names it, so that it survives whatever happens afterwards.
	session string
	written string
}

type followed struct {
	name   string
	f      *os.File
	offset int64
	feed   *agent.Feed
}

// Follow opens the named captures. A file that does not exist (the worker was
// never started) is left out. The parser may be nil: only sizes are seen then.
func Follow(parser agent.Parser, names map[agent.Stream]string) (*Following, error) {
	r := &Following{}
	for _, stream := range []agent.Stream{agent.Stdout, agent.Stderr, agent.Merged} {
		name := names[stream]
		if name == "" {
			continue
		}
		f, err := atomicfile.OpenRegular(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			r.Close()
			return nil, err
		}
		one := &followed{name: name, f: f}
		if parser != nil {
			one.feed = agent.NewFeed(parser, &r.transcript, stream)
		}
		r.files = append(r.files, one)
	}
	return r, nil
}

// Transcript implements Reading.
func (r *Following) Transcript() *agent.Transcript { return &r.transcript }

// Look implements Reading: all captured bytes count, less the retry notices of
// the backend.
func (r *Following) Look(budget int64) int64 {
	var total int64
	for _, one := range r.files {
		total += one.advance(r, budget)
	}
	r.record()
	return total
}

func (r *Following) record() {
	id := r.transcript.Session
	if r.session == "" || id == "" || id == r.written {
		return
	}
	if atomicfile.Replace(r.session, []byte(id+"\n"), 0o600) == nil {
		r.written = id
	}
}

func (one *followed) advance(r *Following, budget int64) int64 {
	fi, err := one.f.Stat()
	if err != nil {
		return one.offset
	}
	size := fi.Size()
	if one.feed == nil {
		return size
	}
	if size < one.offset {
		// Truncated in place: what is parsed next may begin inside a line.
		one.offset = 0
		one.feed.Truncated()
	}
	if r.buf == nil {
		r.buf = make([]byte, 64<<10)
	}
	for budget > 0 && one.offset < size {
		n, err := one.f.ReadAt(r.buf[:min(int64(len(r.buf)), size-one.offset)], one.offset)
		if n > 0 {
			one.offset += int64(n)
			budget -= int64(n)
			_, _ = one.feed.Write(r.buf[:n])
		}
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			break
		}
	}
	return size - one.feed.Quiet()
}

// Finish implements Reading.
func (r *Following) Finish() {
	for _, one := range r.files {
		if one.feed == nil {
			continue
		}
		one.advance(r, 1<<62)
		one.feed.Close()
	}
	r.record()
}

// Bytes implements Reading: the size of all captures together.
func (r *Following) Bytes() int64 {
	var total int64
	for _, one := range r.files {
		if fi, err := one.f.Stat(); err == nil {
			total += fi.Size()
		}
	}
	return total
}

// source is where the named capture can be read now.
func (r *Following) source(name string) string {
	for _, one := range r.files {
		if one.name == name {
			return openName(one.f, name)
		}
	}
	return name
}

// Close implements Reading.
func (r *Following) Close() {
	for _, one := range r.files {
		one.f.Close()
	}
}
