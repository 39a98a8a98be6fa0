//go:build !linux

package proc

import (
	"os"
	"time"
)

// short is a Group: no wait of these systems takes more than one process.
type short struct{ g *Group }

func startShort(s RunSpec, stdin, stdout, stderr *os.File) (shortTree, error) {
	g, err := start(Spec{Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	if err != nil {
		return nil, err
	}
	return short{g}, nil
}

func (t short) ended() <-chan struct{} { return t.g.done }

func (t short) finish(bound time.Duration) (Exit, []int) {
	p := t.g.end(EndOptions{Bound: bound})
	return t.g.Exit(), p.Remaining
}
