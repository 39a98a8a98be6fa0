//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/prun-suite/prun/pkg/supervise"
)

// listen takes the signals that ask for an end, except those that the caller
// had set to be ignored (nohup, a shell's background job): they stay ignored,
// here and in the supervisor.
func listen(c chan os.Signal, l *supervise.Launch) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			l.Ignored = append(l.Ignored, int(sig))
			continue
		}
		signal.Notify(c, sig)
	}
	// A reader of STATE-DIR that went away is an error of the write, not our
	// death.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// nonblock keeps the open of a planted FIFO from waiting for a reader.
const nonblock = syscall.O_NONBLOCK
