//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

// catch sends to c what a supervisor catches: the signals that ask for an end, and
// one that must not kill it by accident.
func catch(c chan<- os.Signal) error {
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	return nil
}

func isStop(n syscall.Signal) bool {
	return n == syscall.SIGTERM || n == syscall.SIGINT || n == syscall.SIGHUP || n == syscall.SIGQUIT
}

// perhapsOurs reports a signal by which a worker may have been ended by us, or
// because one of us was killed.
func perhapsOurs(n int) bool {
	switch syscall.Signal(n) {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGPIPE:
		return true
	}
	return false
}

func signalName(n int) string {
	switch syscall.Signal(n) {
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	case syscall.SIGKILL:
		return "SIGKILL"
	}
	return "signal " + strconv.Itoa(n)
}

// wakeUp continues a stopped process.
func wakeUp(id pid.ID) error { return id.Signal(syscall.SIGCONT) }
