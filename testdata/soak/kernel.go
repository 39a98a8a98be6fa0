//go:build linux

package main

import (
	"io"
	"os"
	"strings"
	"syscall"
)

// Linux up to 6.19 can spin for a minute when one process is reaped while its
// entry in /proc is being dropped elsewhere (busy waiting in
// shrink_dcache_parent, reached from release_task). Nothing then runs on that
// processor. Seen here with load 100 on two processors.

// stallWords are what the kernel says of it.
var stallWords = []string{"soft lockup", "workqueue lockup", "detected stalls on CPUs", "hung_task", "blocked for more than"}

// kernelLog is the kernel's log from when it was opened.
type kernelLog struct{ fd int }

// openKernelLog opens it at its end; where it cannot be read nothing is excused.
func openKernelLog() kernelLog {
	fd, err := syscall.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return kernelLog{-1}
	}
	if _, err := syscall.Seek(fd, 0, io.SeekEnd); err != nil {
		syscall.Close(fd)
		return kernelLog{-1}
	}
	return kernelLog{fd}
}

// stalls returns what it said since about standing still, and closes it.
func (l kernelLog) stalls() []string {
	if l.fd < 0 {
		return nil
	}
	defer syscall.Close(l.fd)
	var said []string
	b := make([]byte, os.Getpagesize()*2)
	for {
		n, err := syscall.Read(l.fd, b)
		if err == syscall.EPIPE || err == syscall.EINTR {
			continue // the oldest lines are gone
		}
		if err != nil || n <= 0 {
			return said
		}
		_, text, _ := strings.Cut(string(b[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		for _, w := range stallWords {
			if strings.Contains(text, w) {
				said = append(said, text)
				break
			}
		}
	}
}
