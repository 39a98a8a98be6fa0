//go:build unix

package main

import (
	"os"
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// resume lets a stopped process act on what it was sent.
func resume(id pid.ID) error { return id.Signal(syscall.SIGCONT) }
