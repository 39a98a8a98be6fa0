//go:build unix

package session

import (
	"os"
	"syscall"
)

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
		err := raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), buf) })
		if err != nil || n <= 0 {
			return
		}
		r.take(i, buf[:n])
		taken += n
	}
}

// letGo closes a pipe.
func letGo(p *os.File) { p.Close() }
