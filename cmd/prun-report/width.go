package main

import (
	"strconv"

	"github.com/prun-suite/prun/pkg/cli"
)

// columns is the width of the terminal on stdout: what it says itself, else
// COLUMNS, else what has always been one.
func columns(env *cli.Env) int {
	if f := env.File(env.Stdout); f != nil {
		if n := fileColumns(f); n > 0 {
			return n
		}
	}
	if n, err := strconv.Atoi(env.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return 80
}
