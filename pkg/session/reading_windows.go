package session

import (
	"errors"
	"os"
)

// rest has nothing to take: a pipe's reader cannot be interrupted here, and the job ends every holder.
func (r *reading) rest(int, []byte) {}

// letGo closes a pipe that may still be read from: the closing waits for the read, and that for everybody who holds
// the other end. The supervisor is about to end.
func letGo(p *os.File) { go p.Close() }

// drain empties one pipe until its end.
func (r *reading) drain(i int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.pipes[i].Read(buf)
		if n > 0 {
			r.mu.Lock()
			r.keep(i, buf[:n])
			r.mu.Unlock()
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				r.rest(i, buf)
			}
			return
		}
	}
}

// Drain implements supervise.Drainer. A read cannot be tried without waiting here; what is under way ends with the pipe.
func (r *reading) Drain() {}
