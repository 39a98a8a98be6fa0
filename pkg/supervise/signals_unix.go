//go:build unix

package supervise

import (
	"os"
	"strconv"
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

// stopSignals are those that a supervisor catches: the three that ask for an
// end, and two that must not kill it by accident.
var stopSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE}

func isStop(n syscall.Signal) bool {
	return n == syscall.SIGTERM || n == syscall.SIGINT || n == syscall.SIGHUP
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
