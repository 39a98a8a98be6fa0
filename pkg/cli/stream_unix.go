//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// catchPipe: Go kills a process that writes to a broken pipe on descriptor 1 or 2
// unless SIGPIPE is asked for. Catching it, unlike ignoring it, is not inherited
// by the programs we start. A caller who ignores it keeps that.
func catchPipe() {
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
}

func closedPipeSystem(error) bool { return false }

func sameName(a, b string) bool { return a == b }
