package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// shortTree is a short command under way, as Run needs it on each system.
type shortTree interface {
	// ended is closed when the command itself has ended.
	ended() <-chan struct{}
	// finish kills what is left of the tree, takes the command and returns how
	// it ended and what could not be killed. It is called once.
	finish(bound time.Duration) (Exit, []int)
}

// Bounds for what comes after a command: its tree has been killed, so both are
// only reached when something of it could not be.
const (
	runKillBound  = DefaultBound
	runDrainBound = 200 * time.Millisecond
)

func run(ctx context.Context, s RunSpec) (RunResult, error) {
	if err := ctx.Err(); err != nil {
		return RunResult{}, err
	}
	if s.Limit <= 0 {
		s.Limit = DefaultRunLimit
	}
	if s.MaxOutput <= 0 {
		s.MaxOutput = DefaultRunOutput
	}
	var out, errs capture
	defer out.close()
	defer errs.close()
	if err := errors.Join(out.open(s.MaxOutput), errs.open(s.MaxOutput)); err != nil {
		return RunResult{}, &StartError{Path: s.Path, Err: err}
	}
	stdin, feed, err := input(s.Stdin)
	if err != nil {
		return RunResult{}, &StartError{Path: s.Path, Err: err}
	}
	limit := time.NewTimer(s.Limit)
	defer limit.Stop()
	tree, err := startShort(s, stdin, out.write, errs.write)
	if stdin != nil && feed != nil {
		stdin.Close()
	}
	out.write.Close()
	errs.write.Close()
	if err != nil {
		if feed != nil {
			feed.Close()
		}
		return RunResult{}, err
	}
	out.begin()
	errs.begin()
	if feed != nil {
		// Not waited for: the reader may block for ever. A command that does
		// not read its input only makes the copy fail.
		go func() {
			io.Copy(feed, s.Stdin)
			feed.Close()
		}()
		defer feed.Close()
	}

	var r RunResult
	select {
	case <-tree.ended():
	case <-limit.C:
		r.TimedOut = true
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.Exit, r.Remaining = tree.finish(runKillBound)
	r.Stdout = out.end(&r.Truncated)
	r.Stderr = errs.end(&r.Truncated)
	return r, err
}

// input returns what the command gets as its standard input and, when that is
// a pipe, our end of it.
func input(r io.Reader) (stdin, feed *os.File, err error) {
	switch r := r.(type) {
	case nil:
		return nil, nil, nil
	case *os.File:
		return r, nil, nil
	}
	return os.Pipe()
}

// capture reads one stream of a command: it keeps the first bytes and goes on
// reading, so that nobody is held up by a full pipe.
type capture struct {
	read, write *os.File
	limit       int
	done        chan struct{}

	mu   sync.Mutex
	kept []byte
	more bool
}

func (c *capture) open(limit int) (err error) {
	c.limit = limit
	c.read, c.write, err = os.Pipe()
	return err
}

func (c *capture) close() {
	for _, f := range []*os.File{c.read, c.write} {
		if f != nil {
			f.Close()
		}
	}
}

func (c *capture) begin() {
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		buf := make([]byte, 32<<10)
		for {
			n, err := c.read.Read(buf)
			c.mu.Lock()
			keep := min(n, c.limit-len(c.kept))
			c.kept = append(c.kept, buf[:keep]...)
			c.more = c.more || keep < n
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// end returns what was read. A process outside the tree that holds the pipe
// delays it by the drain bound at most.
func (c *capture) end(truncated *bool) []byte {
	wait := time.NewTimer(runDrainBound)
	defer wait.Stop()
	select {
	case <-c.done:
	case <-wait.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*truncated = *truncated || c.more
	kept := c.kept
	c.kept, c.limit = nil, 0
	return kept
}
