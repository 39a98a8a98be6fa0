package main

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/state"
)

// column is one of the wide table. Those with a higher rank are left out first
// when the terminal is too narrow; rank 0 never is.
type column struct {
	head string // as line.NewTable takes it
	rank int
	cell func(r row) string
}

// printWide prints the table for people. limit is the width of the terminal, 0
// when there is none.
func (o *options) printWide(env *cli.Env, w *bufio.Writer, s *sweep, limit int) error {
	var rows []row
	if err := s.each(o, func(r row) error { rows = append(rows, r); return nil }); err != nil {
		return err
	}
	ids := labels(rows)
	cells := []column{
		{"unit", 0, func(r row) string { return ids[r.Unit] }},
		{"result", 0, resultCell},
		{">tail bytes", 2, func(r row) string { return grouped(r.TailBytes) }},
		{"state", 1, stateCell},
		{"outcome", 3, outcomeCell},
		{">age", 4, ageCell},
		{"executor", 5, func(r row) string { return r.executor }},
	}
	if o.LegacyPID {
		cells = append(cells, column{legacyColumn, 6, legacyCell})
	}
	cells = append(cells, column{"directory", 7, func(r row) string { return r.Unit }})
	cells = fit(cells, rows, limit)

	heads := make([]string, len(cells))
	for i, c := range cells {
		heads[i] = c.head
	}
	table := line.NewTable(heads...)
	for _, r := range rows {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = c.cell(r)
		}
		table.Row(texts...)
	}
	var b strings.Builder
	if _, err := table.WriteTo(&b); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	w.WriteString(env.Paint(env.Stdout, cli.Bold, lines[0]) + "\n")
	for i, r := range rows {
		text := lines[i+1]
		if c := mark(r); c != "" {
			text = env.Paint(env.Stdout, c, text)
		}
		w.WriteString(text + "\n")
		for _, l := range errorLines(r) {
			w.WriteString(env.Paint(env.Stdout, cli.Red, l) + "\n")
		}
	}
	o.printEnd(w, s)
	return nil
}

// fit leaves out columns until the widest row has room. The id and the result stay
// whatever the width: a cut id names nothing.
func fit(cells []column, rows []row, limit int) []column {
	if limit <= 0 {
		return cells
	}
	width := make(map[string]int)
	for _, c := range cells {
		width[c.head] = line.Width(strings.TrimPrefix(c.head, ">"))
		for _, r := range rows {
			width[c.head] = max(width[c.head], line.Width(escape(c.cell(r))))
		}
	}
	for {
		total, worst := -2, 0
		for i, c := range cells {
			total += width[c.head] + 2
			if c.rank > cells[worst].rank {
				worst = i
			}
		}
		if total <= limit || cells[worst].rank == 0 {
			return cells
		}
		cells = append(cells[:worst:worst], cells[worst+1:]...)
	}
}

// labels are the ids of the units; a directory whose name has none is called by
// its name. Ids that occur twice are told apart by the process number.
func labels(rows []row) map[string]string {
	ids, seen := make(map[string]string, len(rows)), make(map[string]int, len(rows))
	for _, r := range rows {
		base := filepath.Base(r.Unit)
		id, ok := state.UnitOf(base)
		if !ok {
			id = base
		}
		ids[r.Unit] = id
		seen[id]++
	}
	for _, r := range rows {
		if id := ids[r.Unit]; seen[id] > 1 {
			if parts := strings.Split(filepath.Base(r.Unit), "-"); len(parts) > 4 {
				ids[r.Unit] = id + " (" + parts[len(parts)-2] + ")"
			}
		}
	}
	return ids
}

func resultCell(r row) string {
	if r.PathState != state.PathResolved {
		return string(r.PathState)
	}
	return string(r.Result)
}

// stateCell says who answers for the unit. An older directory records nobody who
// could be recognised.
func stateCell(r row) string {
	switch {
	case r.ahead != nil && (r.identity == nil || r.identity.liveness == state.Running):
		return fmt.Sprintf("queued(%d)", *r.ahead)
	case r.identity != nil:
		return r.identity.liveness.String()
	case r.outcome != nil:
		return state.Settled.String()
	case r.unreadable:
		return "unreadable"
	}
	return "-"
}

func outcomeCell(r row) string {
	if r.outcome == nil {
		return ""
	}
	return fmt.Sprintf("%s %d", r.outcome.Cause, state.ExitStatus(*r.outcome))
}

func ageCell(r row) string {
	if r.age == nil {
		return ""
	}
	n := *r.age
	switch {
	case n < 100:
		return fmt.Sprintf("%ds", n)
	case n < 100*60:
		return fmt.Sprintf("%dm", n/60)
	case n < 100*3600:
		return fmt.Sprintf("%dh", n/3600)
	}
	return fmt.Sprintf("%dd", n/86400)
}

// mark is the colour of a row: red for what somebody should look at, yellow for
// what is going on or cannot be told.
func mark(r row) cli.Colour {
	live := r.identity != nil && (r.identity.liveness == state.Running || r.identity.liveness == state.Ending)
	lacks := r.Result == state.ResultMissing || r.Result == state.ResultEmpty || r.Result == state.ResultUnknown
	switch {
	case len(r.Errors) > 0, r.unreadable,
		r.outcome != nil && !r.outcome.Cause.OK(),
		r.identity != nil && r.identity.liveness == state.LivenessLost,
		!live && lacks && r.ahead == nil && r.tail() > 0:
		return cli.Red
	case live, r.ahead != nil, lacks:
		return cli.Yellow
	}
	return ""
}
