//go:build unix

package main

import (
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"github.com/prun-suite/prun/pkg/cli"
)

// stops are the signals that mean stop.
var stops = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

func number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// home is where snapshots go that were given no place.
func home(env *cli.Env) (string, error) {
	base := env.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		// The XDG rules: a relative one is to be ignored.
		dir := env.Getenv("HOME")
		if !filepath.IsAbs(dir) {
			// A daemon may have none; the password file does.
			u, err := user.Current()
			if err != nil || !filepath.IsAbs(u.HomeDir) {
				return "", quoted(exitDestination, "there is no home directory for the snapshot; name one with --dest or --output")
			}
			dir = u.HomeDir
		}
		base = filepath.Join(dir, ".local", "state")
	}
	return filepath.Join(base, "anywhere-agents", "prun", "snapshots"), nil
}
