//go:build unix

package session

import (
	"errors"
	"os"
	"syscall"
)

// drain empties one pipe until its end. What is read is kept before anybody else gets the lock, so that Drain, which
// holds it, knows that nothing is on its way.
func (r *reading) drain(i int) {
	raw, err := r.pipes[i].SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	for end := false; !end; {
		err := raw.Read(func(fd uintptr) bool {
			n, err := r.ready(i, fd, buf)
			end = n <= 0 && !errors.Is(err, syscall.EAGAIN)
			return end || n > 0
		})
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				r.rest(i, buf)
			}
			return
		}
	}
}

// ready keeps what one read gives without waiting.
func (r *reading) ready(i int, fd uintptr, buf []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readyLocked(i, fd, buf)
}

func (r *reading) readyLocked(i int, fd uintptr, buf []byte) (n int, err error) {
	for {
		n, err = syscall.Read(int(fd), buf)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if n > 0 {
		r.keep(i, buf[:n])
	}
	return n, err
}

// Drain implements supervise.Drainer: it keeps all that a worker that has ended left in its pipes.
func (r *reading) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	buf := make([]byte, 64<<10)
	for i, p := range r.pipes {
		raw, err := p.SyscallConn()
		if err != nil {
			continue
		}
		for taken := 0; taken < mostRest; {
			n := 0
			if err := raw.Control(func(fd uintptr) { n, _ = r.readyLocked(i, fd, buf) }); err != nil || n <= 0 {
				break
			}
			taken += n
		}
	}
}

// mostRest bounds what is taken from a pipe after the worker's end: the kernel's buffer, with room to spare.
const mostRest = 2 << 20

// rest takes what is in a pipe without waiting for more: whoever still holds it may be writing for ever.
func (r *reading) rest(i int, buf []byte) {
	raw, err := r.pipes[i].SyscallConn()
	if err != nil {
		return
	}
	for taken := 0; taken < mostRest; {
		n := 0
		if err := raw.Control(func(fd uintptr) { n, _ = r.ready(i, fd, buf) }); err != nil || n <= 0 {
			return
		}
		taken += n
	}
}

// letGo closes a pipe.
func letGo(p *os.File) { p.Close() }
