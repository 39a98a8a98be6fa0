package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
)

const attachText = `Shows what the worker writes, from the last lines on, until the lane has ended. There is no terminal to type into: stopping this command stops only the view.`

// attachPoll is how often the files are looked at; a writer that does not close
// its file wakes nobody.
const attachPoll = 200 * time.Millisecond

type attachOptions struct{ laneOptions }

// Run is the verb.
func (o *attachOptions) Run(ctx context.Context, env *cli.Env) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	_, l, err := o.openLane(env)
	if err != nil {
		return err
	}
	v := l.Look()
	if v.Status == lane.Created {
		return refuse("lane was never started: %s", l.Phase)
	}
	env.Notef("following lane %s (%s) live; interrupting this command stops only the view", l.Phase, v.Status)
	out := env.Foreign()
	var views []*follower
	for _, name := range []string{v.EventLog, v.RunLog, v.Result} {
		// Where there are events the result is only the last of them.
		if name != "" && (name != v.Result || v.EventLog == "") {
			views = append(views, &follower{name: name})
		}
	}
	defer func() {
		for _, f := range views {
			f.close()
		}
	}()
	for {
		v = l.Look()
		for _, f := range views {
			if err := f.copy(out); err != nil {
				return err
			}
		}
		if lane.Ended(v.Status) {
			env.Notef("lane %s is %s", l.Phase, v.Status)
			return nil
		}
		pause := time.NewTimer(attachPoll)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// follower copies what is added to a file.
type follower struct {
	name string
	f    *os.File
	at   int64
}

func (f *follower) copy(w io.Writer) error {
	if f.f == nil {
		file, err := atomicfile.OpenRegular(f.name)
		if err != nil {
			return nil // not there yet
		}
		f.f = file
		from, _, err := tail(file, 20)
		if err != nil {
			return cli.Fail(1, "follow %s: %w", f.name, err)
		}
		f.at = from
	}
	fi, err := f.f.Stat()
	if err != nil {
		return cli.Fail(1, "follow %s: %w", f.name, err)
	}
	if fi.Size() < f.at {
		f.at = 0 // truncated in place
	}
	n, err := io.Copy(w, io.NewSectionReader(f.f, f.at, fi.Size()-f.at))
	f.at += n
	return err
}

func (f *follower) close() {
	if f.f != nil {
		f.f.Close()
	}
}
