package proc

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is the part of siginfo_t that waitid fills in. The union of the
// kernel's struct begins at a multiple of the word size, which the empty array
// reproduces on 32 and 64 bits.
type siginfo struct {
	signo, errno, code int32
	_                  [0]uintptr
	pid                int32
	uid                uint32
	status             int32
	_                  [128]byte
}

const cldExited = 1

// exit reads how the process ended.
func (s *siginfo) exit() Exit {
	if s.code == cldExited {
		return Exit{Code: int(s.status)}
	}
	return Exit{Code: 128 + int(s.status), Signal: int(s.status)}
}

// peek looks for an ended child without taking it, the child p or any (0). The
// pid of the answer is 0 when none has ended, which only WNOHANG lets happen.
// __WALL includes children that were cloned without SIGCHLD.
func peek(p, flags int) (siginfo, error) {
	kind := unix.P_PID
	if p == 0 {
		kind = unix.P_ALL
	}
	for {
		var s siginfo
		err := unix.Waitid(kind, p, (*unix.Siginfo)(unsafe.Pointer(&s)), unix.WEXITED|unix.WNOWAIT|unix.WALL|flags, nil)
		if err != unix.EINTR {
			return s, err
		}
	}
}

// take takes the ended child p out of the process table. Its number is free
// from then on.
func take(p int) (Exit, bool) {
	for {
		var w unix.WaitStatus
		n, err := unix.Wait4(p, &w, unix.WALL|unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n != p {
			return Exit{}, false
		}
		if w.Signaled() {
			return Exit{Code: 128 + int(w.Signal()), Signal: int(w.Signal())}, true
		}
		return Exit{Code: w.ExitStatus()}, true
	}
}

func zombieChild(p int) (Exit, bool) {
	if p <= 0 {
		return Exit{}, false
	}
	s, err := peek(p, unix.WNOHANG)
	if err != nil || s.pid == 0 {
		return Exit{}, false
	}
	return s.exit(), true
}

// awaitChild blocks until the child p has ended, for at most d (negative: for
// ever). fd is a pidfd of it, or -1.
func awaitChild(p, fd int, d time.Duration) (Exit, bool) {
	if d < 0 {
		s, err := peek(p, 0)
		if err != nil {
			return Exit{}, false
		}
		return s.exit(), true
	}
	deadline := time.Now().Add(d)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if e, ended := zombieChild(p); ended {
			return e, true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return Exit{}, false
		}
		if fd < 0 || pollFor(fd, unix.POLLIN, left) != nil {
			time.Sleep(min(pause, left))
		}
	}
}

// pollFor waits until one of events comes up on fd, or for about d.
func pollFor(fd int, events int16, d time.Duration) error {
	ms := int(min(d/time.Millisecond+1, 1<<30))
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, ms)
	if err == unix.EINTR {
		return nil
	}
	return err
}
