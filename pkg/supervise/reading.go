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

// reading follows the files a worker writes: how far they have grown, and what
// the backend's parser makes of the new bytes. It holds a read buffer and the
// parser's bounded line, never a tail.
type reading struct {
	transcript agent.Transcript
	files      []*followed
	buf        []byte
}

type followed struct {
	name   string
	f      *os.File
	offset int64
	feed   *agent.Feed
}

// follow opens the named captures. A file that does not exist (the worker was
// never started) is left out.
func follow(parser agent.Parser, names map[agent.Stream]string) (*reading, error) {
	r := &reading{}
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
			r.close()
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

// look parses what is new, within budget, and returns the number of bytes that
// count as growth: all captured ones less the retry notices of the backend.
func (r *reading) look(budget int64) int64 {
	var total int64
	for _, one := range r.files {
		total += one.advance(r, budget)
	}
	return total
}

func (one *followed) advance(r *reading, budget int64) int64 {
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

// finish parses everything that is left, the partial last line included.
func (r *reading) finish() {
	for _, one := range r.files {
		if one.feed == nil {
			continue
		}
		one.advance(r, 1<<62)
		one.feed.Close()
	}
}

// bytes is the size of all captures together.
func (r *reading) bytes() int64 {
	var total int64
	for _, one := range r.files {
		if fi, err := one.f.Stat(); err == nil {
			total += fi.Size()
		}
	}
	return total
}

func (r *reading) close() {
	if r == nil {
		return
	}
	for _, one := range r.files {
		one.f.Close()
	}
}
