package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/session"
)

type list struct {
	All      bool `long:"all" description:"finished and killed tasks, too"`
	AnyOwner bool `long:"any-owner" description:"tasks that were started elsewhere, too"`
	JSON     bool `long:"json" description:"print JSON"`
}

// Run prints a row for every task. A pipe gets the original's rows, a terminal more.
func (o *list) Run(_ context.Context, env *cli.Env) error {
	p, tasks, err := start(env)
	if err != nil {
		return err
	}
	shown := func(s session.Snapshot) bool {
		if s.Err != nil {
			return true
		}
		return (o.All || s.State != session.Done && s.State != session.Killed) && (o.AnyOwner || s.Meta.Text("owner") == p.owner)
	}
	now, ttl := time.Now(), logTTL(env)
	var rows []session.Snapshot
	fill := func(s *session.Snapshot) {
		switch {
		case !shown(*s):
		case o.JSON:
			s.Fill()
		default:
			// The rows say nothing about processes.
			s.FillTimes()
		}
	}
	for _, s := range session.LookAll(tasks, fill) {
		s.Tidy(ttl, now)
		if shown(s) {
			rows = append(rows, s)
		}
	}
	if o.JSON {
		values := make([]any, len(rows))
		for i, s := range rows {
			values[i] = s.Payload(now)
		}
		return printLine(env, session.List(values))
	}
	if len(rows) == 0 {
		return printLine(env, "no tasks")
	}
	if env.Terminal(env.Stdout) {
		return o.table(env, rows, now)
	}
	var b strings.Builder
	for _, s := range rows {
		fmt.Fprintf(&b, "%-26s %-14s %-7s age=%-7s %s\n", s.Task.Name, s.State, dash(s.Meta.Text("backend")), age(s, now), s.Meta.Text("repo"))
	}
	_, err = env.Stdout.Write([]byte(b.String()))
	return err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func age(s session.Snapshot, now time.Time) string {
	d, ok := s.Age(now)
	if !ok {
		return "-"
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}

// table is the list for a person, fitted to the terminal: the last column gets what the others leave.
func (o *list) table(env *cli.Env, rows []session.Snapshot, now time.Time) error {
	width := columns(env)
	cells := make([][]string, len(rows))
	used := 0
	for i, s := range rows {
		id := dash(s.Meta.Text("session_id"))
		if width < wide {
			id = cut(id, 9)
		}
		cells[i] = []string{cut(s.Task.Name, 40), s.State, pidWord0(s.Turn()), short(now.Sub(s.Since())), dash(s.Meta.Text("backend")), id}
		used = max(used, len(strings.Join(cells[i], "  "))+4)
	}
	t := line.NewTable("TASK", "STATE", ">TURN", ">AGE", "BACKEND", "SESSION", "LAST")
	for i, s := range rows {
		last := s.LastWords()
		if why := s.Why(); why != "" {
			last = why
		}
		t.Row(append(cells[i], cut(last, max(20, width-used-12)))...)
	}
	_, err := t.WriteTo(env.Stdout)
	return err
}

// wide is a terminal that has room for whole session ids.
const wide = 130

// columns is the width of the terminal that stdout is.
func columns(env *cli.Env) int {
	if f := env.File(env.Stdout); f != nil {
		if n := terminalWidth(f); n > 0 {
			return n
		}
	}
	return max(40, number(env, "COLUMNS", 100))
}

func pidWord0(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// short is a duration as people say it.
func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// cut shortens a text at a whole character.
func cut(s string, n int) string {
	list := []rune(s)
	if len(list) <= n {
		return s
	}
	return string(list[:n-1]) + "…"
}
