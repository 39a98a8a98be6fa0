package main

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

// selection says which units are looked at.
type selection struct {
	globs []string
	since time.Time // zero: all
}

func (o *options) selection() (selection, error) {
	for _, g := range o.Units {
		if _, err := path.Match(g, ""); err != nil {
			return selection{}, cli.Usage("option --units: %q: not a pattern", g)
		}
	}
	s := selection{globs: o.Units}
	if o.Since.given {
		s.since = time.Now().Add(-o.Since.d)
	}
	return s, nil
}

// name reports whether a directory of that base name is wanted.
func (s selection) name(base string) bool {
	if len(s.globs) == 0 {
		return true
	}
	id, _ := state.UnitOf(base)
	return slices.ContainsFunc(s.globs, func(g string) bool {
		whole, _ := path.Match(g, base)
		part, _ := path.Match(g, id)
		return whole || part && id != ""
	})
}

// age reports whether the unit is young enough. One that does not tell its age is:
// what is not known is shown.
func (s selection) age(u state.Unit) bool {
	if s.since.IsZero() {
		return true
	}
	begun, ok := begin(u, nil)
	return !ok || !begun.Before(s.since)
}

// discover lists the roots. One that fails is an error and stops nothing.
func discover(roots []string, pick selection) state.Discovery {
	d := state.Discover(roots, pick.name)
	d.Units = slices.DeleteFunc(d.Units, func(u state.Unit) bool { return !pick.age(u) })
	return d
}

// begin is when a unit was dispatched: what its front wrote down, else what its
// supervisor did.
func begin(u state.Unit, id *state.Identity) (time.Time, bool) {
	if text, err := u.ReadEntry(state.FileTimestamp); err == nil {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < math.MaxInt32*64 {
			return time.Unix(n, 0), true
		}
	}
	if id == nil {
		id, _ = u.ReadIdentity()
	}
	if id != nil && !id.Created.IsZero() {
		return id.Created, true
	}
	return time.Time{}, false
}

// ago is a span of time back from now.
type ago struct {
	d     time.Duration
	given bool
}

// UnmarshalFlag reads digits with at most one unit.
func (a *ago) UnmarshalFlag(text string) error {
	digits, unit := text, time.Second
	if n := len(text) - 1; n > 0 {
		for letter, u := range map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour} {
			if text[n] == letter {
				digits, unit = text[:n], u
			}
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return fmt.Errorf("not a duration: a whole number, alone (seconds) or with s, m, h, d or w")
	}
	const longest = 100 * 365 * 24 * time.Hour
	a.given = true
	if a.d = longest; n < uint64(longest/unit) {
		a.d = time.Duration(n) * unit
	}
	return nil
}
