package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

// The stages at which a search can fail.
const (
	stageRoot  = "root"
	stageEntry = "unit-entry"
)

// discovery is what was found below the roots. Units are sorted by path, each
// once.
type discovery struct {
	roots  []string
	units  []string
	errors []discoveryError
}

// discoveryError is a root or an entry that could not be seen: there is no unit
// that it could be an error of.
type discoveryError struct{ stage, path, name string }

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
func discover(roots []string, pick selection) discovery {
	var d discovery
	for _, r := range roots {
		root := absolute(r)
		d.roots = append(d.roots, root)
		if err := d.list(root, pick); err != nil {
			d.errors = append(d.errors, discoveryError{stageRoot, root, state.ErrorName(err)})
		}
	}
	slices.SortFunc(d.units, comparePaths)
	d.units = slices.Compact(d.units)
	return d
}

// absolute is the path of a root. A ".." behind a link means the parent of where
// the link leads, so such a path is resolved and not only shortened.
func absolute(root string) string {
	if strings.Contains(root, "..") {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return root
	}
	return abs
}

func comparePaths(a, b string) int {
	if runtime.GOOS == "windows" {
		if c := cmp.Compare(strings.ToLower(a), strings.ToLower(b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

func (d *discovery) list(root string, pick selection) error {
	dir, err := openDir(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		// In batches: a temporary directory can hold millions of names.
		entries, err := dir.ReadDir(1024)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), state.Prefix) && pick.name(e.Name()) {
				d.entry(filepath.Join(root, e.Name()), e, pick)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// entry takes a name of the right form if it is a directory or leads to one.
func (d *discovery) entry(name string, e fs.DirEntry, pick selection) {
	is := e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		fi, err := os.Stat(name)
		if err != nil {
			if _, gone := os.Lstat(name); errors.Is(gone, fs.ErrNotExist) {
				return // removed since it was listed
			}
			d.errors = append(d.errors, discoveryError{stageEntry, name, state.ErrorName(err)})
			return
		}
		is = fi.IsDir()
	}
	if is && pick.age(state.Unit{Dir: name}) {
		d.units = append(d.units, name)
	}
}

// openDir opens a directory to be listed, and nothing else: a FIFO would block.
func openDir(name string) (*os.File, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, &fs.PathError{Op: "list", Path: name, Err: syscall.ENOTDIR}
	}
	return os.Open(name)
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
