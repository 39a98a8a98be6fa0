//go:build unix

package supervise

import (
	"fmt"
	"os"
	"syscall"
)

// pair makes a connected pair of stream sockets, close-on-exec, non-blocking
// so that the runtime's poller serves them. Message borders are ours (lines),
// which lets pipes carry the same protocol on Windows.
func pair(name string) (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			syscall.Close(fds[0])
			syscall.Close(fds[1])
			return nil, nil, fmt.Errorf("make socket pair: %w", err)
		}
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// writeNow writes what can be written without waiting and returns how much.
func writeNow(f *os.File, b []byte) int {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), b)
		return true
	})
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// inherited takes over a descriptor that our parent handed down.
func inherited(fd int, name string) (*os.File, error) {
	if _, err := syscall.Getpeername(fd); err != nil {
		return nil, fmt.Errorf("take over %s: descriptor %d: %w", name, fd, err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("take over %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
