//go:build unix

package session

import (
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// readTimed reads a regular file and says when it was written. A list reads thousands of small files, and this takes
// four system calls each where package os takes eleven.
func readTimed(name string, limit int64) ([]byte, time.Time, error) {
	fail := func(op string, err error) ([]byte, time.Time, error) {
		return nil, time.Time{}, &fs.PathError{Op: op, Path: name, Err: err}
	}
	var fd int
	var err error
	for {
		// A FIFO in its place must not make us wait.
		fd, err = syscall.Open(name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return fail("open", err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return fail("stat", err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fail("read", atomicfile.ErrNotRegular)
	}
	if st.Size > limit {
		return nil, time.Time{}, fmt.Errorf("read %s: %w: %d bytes, %d allowed", name, atomicfile.ErrTooLarge, st.Size, limit)
	}
	// One byte more than there is: a full buffer then says that the file has grown.
	buf := make([]byte, 0, st.Size+1)
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) > limit {
				return nil, time.Time{}, fmt.Errorf("read %s: %w: more than %d bytes", name, atomicfile.ErrTooLarge, limit)
			}
			buf = append(buf, make([]byte, len(buf))...)[:len(buf)]
		}
		n, err := syscall.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return fail("read", err)
		}
		whole := n < cap(buf)-len(buf)
		buf = buf[:len(buf)+n]
		if whole {
			// A short read of a regular file is its end.
			return buf, modTime(&st), nil
		}
	}
}

// running is a cheap question: most recorded numbers have no process any more.
func running(p int) bool {
	return syscall.Kill(p, 0) != syscall.ESRCH
}
