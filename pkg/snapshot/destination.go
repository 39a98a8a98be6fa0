package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

const (
	dirPerm  fs.FileMode = 0o700
	filePerm fs.FileMode = 0o600
)

// openDestination makes dir if it is missing and opens it. Everything after is
// done relative to what was opened and checked here: a directory that is swapped
// for another one afterwards gets nothing.
func openDestination(dir string) (*os.Root, error) {
	if err := makePrivate(dir); err != nil {
		return nil, fail(Destination, "prepare destination: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail(Destination, "open destination: %w", err)
	}
	fi, err := root.Stat(".")
	if err == nil && exposed(fi.Mode()) {
		err = &LooseError{Dir: dir, Mode: fi.Mode(), Shared: shared(fi)}
	}
	if err != nil {
		root.Close()
		return nil, fail(Destination, "destination refused: %w", err)
	}
	return root, nil
}

// makePrivate makes dir and what is missing above it, all of it for the owner
// alone, whatever the umask. What exists is left as it is.
func makePrivate(dir string) error {
	fi, err := os.Stat(dir)
	switch {
	case err == nil && !fi.IsDir():
		return &fs.PathError{Op: "use", Path: dir, Err: syscall.ENOTDIR}
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makePrivate(parent); err != nil {
			return err
		}
	}
	// Another one of us may be making the same directory; it is checked when it
	// is open.
	if err := atomicfile.Mkdir(dir, dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A synced archive in a directory that a power cut takes away is no archive.
	return atomicfile.SyncDir(parent)
}

// syncRoot makes the names in the open directory durable.
func syncRoot(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) || !dirSyncs {
		// Not every file system can, and Windows has no such thing.
		return nil
	}
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

const (
	partPrefix = ".snap-"
	partSuffix = ".part"
	// abandonedAfter protects a file that is being made and not claimed yet.
	abandonedAfter = 10 * time.Minute
)

// sweep removes what makers that were killed have left behind: gigabytes, and
// private ones. A file that anybody still holds, or that is young, stays. What
// cannot be removed is no reason against a snapshot.
func sweep(root *os.Root) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			middle, ok := strings.CutPrefix(name, partPrefix)
			if middle, ok = strings.CutSuffix(middle, partSuffix); ok && len(middle) == 2*partRandom && strings.Trim(middle, "0123456789abcdef") == "" {
				sweepOne(root, name)
			}
		}
		if err != nil {
			return // the end, or a directory that went away
		}
	}
}

func sweepOne(root *os.Root, name string) {
	if fi, err := root.Lstat(name); err != nil || !fi.Mode().IsRegular() || time.Since(fi.ModTime()) < abandonedAfter {
		return
	}
	f, err := root.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	if claim(f) {
		root.Remove(name)
	}
}
