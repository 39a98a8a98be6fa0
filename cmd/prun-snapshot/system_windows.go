package main

import (
	"os"
	"path/filepath"

	"github.com/prun-suite/prun/pkg/cli"
)

// stops are the signals that mean stop: Go turns the console's events into this one.
var stops = []os.Signal{os.Interrupt}

// number is that of SIGINT, which is what callers on other systems would see.
func number(os.Signal) int { return 2 }

// home is where snapshots go that were given no place.
func home(env *cli.Env) (string, error) {
	base := env.Getenv("LOCALAPPDATA")
	if base == "" {
		base = env.Getenv("USERPROFILE")
	}
	if base == "" {
		return "", quoted(exitDestination, "there is no home directory for the snapshot; name one with --dest or --output")
	}
	return filepath.Join(base, "anywhere-agents", "prun", "snapshots"), nil
}
