package supervise

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

// catch sends stop requests to c: what Go makes of the console's events, and
// the event of pkg/pid, which is how herd and agent-fanout ask.
func catch(c chan<- os.Signal) error {
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return pid.OnStop(func() {
		select {
		case c <- syscall.SIGTERM:
		default:
		}
	})
}

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

// perhapsOurs: nobody inherits a worker here; the job ends it.
func perhapsOurs(int) bool { return false }
