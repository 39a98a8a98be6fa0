package state

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// The stages at which a discovery can fail.
const (
	// StageRoot: a root could not be listed, or not to its end.
	StageRoot = "root"
	// StageUnitEntry: a name of the right form could not be looked at.
	StageUnitEntry = "unit-entry"
)

// Discovery is what was found in some directories.
type Discovery struct {
	// Roots are the directories, absolute, in the order in which they were given.
	Roots []string
	// Units are sorted by path, each once.
	Units []Unit
	// Errors are roots and entries that could not be seen: there is no unit that
	// one of them could be an error of.
	Errors []DiscoveryError
}

// DiscoveryError says what could not be seen.
type DiscoveryError struct {
	// Stage is StageRoot or StageUnitEntry.
	Stage string
	// Path is the root or the entry.
	Path string
	Err  error
}

// Discover finds the state directories in roots, links to directories included.
// A root that fails is an error and stops nothing, and one that is a FIFO does
// not block. want, if not nil, picks by the directory's base name. Nothing in
// the directories is looked at.
func Discover(roots []string, want func(name string) bool) Discovery {
	var d Discovery
	for _, r := range roots {
		root := absolute(r)
		d.Roots = append(d.Roots, root)
		if err := d.list(root, want); err != nil {
			d.Errors = append(d.Errors, DiscoveryError{StageRoot, root, err})
		}
	}
	slices.SortFunc(d.Units, func(a, b Unit) int { return comparePaths(a.Dir, b.Dir) })
	d.Units = slices.Compact(d.Units)
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

func (d *Discovery) list(root string, want func(string) bool) error {
	return EachEntry(root, func(e fs.DirEntry) {
		if strings.HasPrefix(e.Name(), Prefix) && (want == nil || want(e.Name())) {
			d.entry(filepath.Join(root, e.Name()), e)
		}
	})
}

// EachEntry calls visit for every entry of a directory, and of nothing else: a
// FIFO would block. It works in batches, because a temporary directory can hold
// millions of names.
func EachEntry(root string, visit func(fs.DirEntry)) error {
	fi, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return &fs.PathError{Op: "list", Path: root, Err: syscall.ENOTDIR}
	}
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(1024)
		for _, e := range entries {
			visit(e)
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
func (d *Discovery) entry(name string, e fs.DirEntry) {
	is := e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		fi, err := os.Stat(name)
		if err != nil {
			if _, gone := os.Lstat(name); errors.Is(gone, fs.ErrNotExist) {
				return // removed since it was listed
			}
			d.Errors = append(d.Errors, DiscoveryError{StageUnitEntry, name, err})
			return
		}
		is = fi.IsDir()
	}
	if is {
		d.Units = append(d.Units, Unit{Dir: name})
	}
}
