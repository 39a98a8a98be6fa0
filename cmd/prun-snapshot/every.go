package main

import (
	"context"
	"fmt"
	"io"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/snapshot"
	"github.com/prun-suite/prun/pkg/state"
)

// every takes a snapshot of each unit whose result is missing or empty. A failure
// is that unit's alone: what can still be kept is.
func (o *options) every(ctx context.Context, env *cli.Env, dir string) error {
	roots := o.Roots
	if len(roots) == 0 {
		roots = []string{state.Base(env.Getenv)}
	}
	found := state.Discover(roots, nil)
	worst := 0
	for _, e := range found.Errors {
		// A root that cannot be listed may hide output that nobody will look for
		// again, so it counts as a tail that could not be opened. A link that
		// leads nowhere hides none.
		if e.Stage == state.StageRoot {
			env.Warnf("%v", e.Err)
			worst = exitSource
		}
	}
	out := line.NewWriter(env.Stdout)
	if o.JSON {
		if _, err := io.WriteString(env.Stdout, "{\n  \"snapshots\": ["); err != nil {
			return err
		}
	}
	taken, untold := 0, 0
	for _, u := range found.Units {
		seen := u.Observe(state.ObserveOptions{})
		switch seen.Result {
		case state.ResultMissing, state.ResultEmpty:
		case state.ResultUnknown:
			if seen.TailBytes == nil || *seen.TailBytes > 0 {
				untold++
			}
			continue
		default:
			continue
		}
		s, err := snapshot.Take(ctx, snapshot.Request{Tail: u.Path(state.FileTail), Dir: dir})
		if code := stoppedBy(ctx); code != 0 && err != nil {
			return cli.Fail(code, "stopped; %d units were copied", taken)
		}
		code := 0
		if err != nil {
			code = status(err)
		} else if s.Warning != "" {
			env.Warnf("%s", s.Warning)
		}
		worst = max(worst, code)
		if o.JSON {
			err = printEntry(env.Stdout, taken == 0, u.Dir, s, code, err)
		} else if err != nil {
			err = out.Text(fmt.Sprintf("failed %s %d %v", u.Name(), code, err))
		} else {
			err = out.Text("published " + u.Name() + " " + s.Path)
		}
		if err != nil {
			return err
		}
		taken++
	}
	if o.JSON {
		end := "\n  ]\n}\n"
		if taken == 0 {
			end = "]\n}\n"
		}
		if _, err := io.WriteString(env.Stdout, end); err != nil {
			return err
		}
	}
	if untold > 0 {
		if untold == 1 {
			env.Notef("1 unit whose result cannot be told holds output and was left out; prun-report shows it, --unit takes it")
		} else {
			env.Notef("%d units whose result cannot be told hold output and were left out; prun-report shows them, --unit takes them", untold)
		}
	}
	return cli.Status(worst)
}

// printEntry prints one element of the list.
func printEntry(w io.Writer, first bool, unit string, s *snapshot.Snapshot, code int, failure error) error {
	text := "null"
	if failure != nil {
		text = snapshot.Quote(failure.Error())
	}
	comma := ","
	if first {
		comma = ""
	}
	const in = "    "
	_, err := io.WriteString(w, comma+"\n"+in+"{"+fields(s, in)+
		",\n"+in+`  "unit": `+snapshot.Quote(unit)+
		fmt.Sprintf(",\n%s  \"exit\": %d", in, code)+
		",\n"+in+`  "error": `+text+"\n"+in+"}")
	return err
}
