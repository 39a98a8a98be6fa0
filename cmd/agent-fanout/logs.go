package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
)

type logsOptions struct {
	laneOptions
	Tail   int  `long:"tail" value-name:"N" default:"50" min:"0" description:"how many lines"`
	Events bool `long:"events" description:"the events instead of the log"`
}

// Run is the verb.
func (o *logsOptions) Run(_ context.Context, env *cli.Env) error {
	_, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	v := l.Look()
	name := v.RunLog
	if o.Events {
		name = v.EventLog
	}
	if name == "" {
		return cli.Status(1)
	}
	f, err := atomicfile.OpenRegular(name)
	if errors.Is(err, os.ErrNotExist) {
		// Recorded, and nothing was said yet.
		return nil
	}
	if err != nil {
		return cli.Fail(1, "%w", err)
	}
	defer f.Close()
	from, size, err := tail(f, o.Tail)
	if err != nil {
		return cli.Fail(1, "read log: %w", err)
	}
	_, err = io.Copy(env.Foreign(), io.NewSectionReader(f, from, size-from))
	return err
}

// tail finds where the last n lines of a file begin. A last line without its
// newline is one. It reads backwards and holds one block, however long a line
// is.
func tail(f *os.File, n int) (from, size int64, err error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	size = fi.Size()
	if n == 0 {
		return size, size, nil
	}
	buf := make([]byte, 64<<10)
	// The newline at the very end ends a line, it does not begin one.
	at, left := size, n
	for at > 0 {
		step := min(int64(len(buf)), at)
		block := buf[:step]
		if _, err := f.ReadAt(block, at-step); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		end := len(block)
		if at == size && block[end-1] == '\n' {
			end--
		}
		for {
			i := bytes.LastIndexByte(block[:end], '\n')
			if i < 0 {
				break
			}
			if left--; left == 0 {
				return at - step + int64(i) + 1, size, nil
			}
			end = i
		}
		at -= step
	}
	return 0, size, nil
}
