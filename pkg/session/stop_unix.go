//go:build unix

package session

import (
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

// wakeProcess continues a process that a signal has stopped.
func wakeProcess(id pid.ID) { _ = id.Signal(syscall.SIGCONT) }
