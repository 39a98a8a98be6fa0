package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/prun-suite/prun/pkg/supervise"
)

// listen takes the console's interrupt and the closing of its window.
func listen(c chan os.Signal, _ *supervise.Launch) {
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
}

const nonblock = 0
