package proc

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ignoredUnseen reports a signal that is ignored without os/signal knowing it:
// the runtime never looks at the terminal's stop signals.
func ignoredUnseen(s syscall.Signal) bool {
	switch s {
	case syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
	default:
		return false
	}
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		return false // another layout; the handler is not the first word
	}
	var old [8]uintptr
	// The size of the kernel's signal set is 8 on all but mips.
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	const ignore = 1
	return errno == 0 && old[0] == ignore
}

// unmasked empties the signal mask of this thread, which a child inherits: a
// caller that blocked SIGTERM would make every worker deaf to it.
func unmasked() (undo func()) {
	var none, old unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_SETMASK, &none, &old) != nil {
		return func() {}
	}
	return func() { unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }
}

func renice(n int) {
	// The system call, unlike the library's function, answers 20-nice.
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		unix.Setpriority(unix.PRIO_PROCESS, 0, 20-now+n)
	}
}

// raiseOOM makes this process, and so what it forks, the better victim for the
// kernel, until undone: then the worker goes and its guards stay. Failure is
// silent; it is an advantage, not a promise.
func raiseOOM(to int) (undo func()) {
	const name = "/proc/self/oom_score_adj"
	text, err := os.ReadFile(name)
	if err != nil {
		return func() {}
	}
	old, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || old >= to || os.WriteFile(name, []byte(strconv.Itoa(min(to, 1000))), 0) != nil {
		return func() {}
	}
	return func() { os.WriteFile(name, []byte(strconv.Itoa(old)), 0) }
}
