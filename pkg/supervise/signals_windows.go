package supervise

import (
	"os"
	"strconv"
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

func isStop(n syscall.Signal) bool {
	return n == syscall.SIGTERM || n == syscall.SIGINT
}

func signalName(n int) string {
	switch syscall.Signal(n) {
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGKILL:
		return "SIGKILL"
	}
	return "signal " + strconv.Itoa(n)
}

// wakeUp has no meaning where processes are not stopped by a signal.
func wakeUp(pid.ID) error { return nil }
