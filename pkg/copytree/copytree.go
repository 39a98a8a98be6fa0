// Package copytree owns one thing: making at one path a copy of the file or
// directory at another that costs as little time and space as the file system
// allows.
//
// It does not own which paths are worth it, and it never touches the source.
//
// Invariant: after Copy the destination is whole, or it is not there.
package copytree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Means is how a copy was made.
type Means string

// The means, the best first.
const (
	Clone Means = "clone" // shares its blocks until one of the two is changed
	Plain Means = "copy"
	Link  Means = "link" // a symbolic link: both names are the same files
)

// Skipped names directories that are never copied, wherever they lie: they
// hold worktrees, among them perhaps the destination itself.
const Skipped = ".worktrees"

// Copy makes dst a copy of src, which may be a file, a directory or a symbolic
// link (copied as a link). Modes and times of modification are kept; sockets,
// FIFOs and devices are left out. When no copy can be made because there is no
// room, dst becomes a symbolic link to src.
//
// dst must not exist (the error wraps fs.ErrExist); missing directories above
// it are made.
func Copy(src, dst string) (Means, error) {
	src, err := filepath.Abs(src)
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", src, err)
	}
	if _, err := os.Lstat(src); err != nil {
		return "", fmt.Errorf("copy: %w", err)
	}
	if _, err := os.Lstat(dst); err == nil {
		return "", fmt.Errorf("copy %s: %w: %s", src, fs.ErrExist, dst)
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return "", fmt.Errorf("copy: %w", err)
	}
	// Under another name first, so that a copy that was killed half way is not
	// taken for one.
	temp := filepath.Join(filepath.Dir(dst), "."+filepath.Base(dst)+".prun-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	defer remove(temp)
	c := copier{temp: temp, means: Clone}
	if err := c.tree(src, temp); err != nil {
		if !full(err) {
			return "", fmt.Errorf("copy %s: %w", src, err)
		}
		remove(temp)
		if lerr := os.Symlink(src, temp); lerr != nil {
			return "", fmt.Errorf("copy %s: %w", src, errors.Join(err, lerr))
		}
		c.means = Link
	}
	if err := os.Rename(temp, dst); err != nil {
		return "", fmt.Errorf("copy %s: %w", src, err)
	}
	return c.means, nil
}

type copier struct {
	temp  string
	means Means
	buf   []byte
}

func (c *copier) tree(src, dst string) error {
	fi, err := os.Lstat(src)
	if err != nil {
		return err
	}
	switch mode := fi.Mode(); {
	case mode.IsRegular():
		return c.file(src, dst, fi)
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		return os.Symlink(target, dst)
	case mode.IsDir():
		return c.dir(src, dst, fi)
	}
	return nil
}

func (c *copier) dir(src, dst string, fi fs.FileInfo) error {
	if src == c.temp || filepath.Base(src) == Skipped {
		return nil
	}
	if err := os.Mkdir(dst, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := c.tree(filepath.Join(src, e.Name()), filepath.Join(dst, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return finish(dst, fi)
}

// finish gives a copy the mode and time of its source.
func finish(dst string, fi fs.FileInfo) error {
	return errors.Join(os.Chmod(dst, fi.Mode().Perm()), os.Chtimes(dst, time.Time{}, fi.ModTime()))
}

func (c *copier) file(src, dst string, fi fs.FileInfo) error {
	from, err := openFile(src)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = reflink(to, from)
	if err != nil {
		if fi.Size() > 0 {
			c.means = Plain
		}
		if c.buf == nil {
			c.buf = make([]byte, 256<<10)
		}
		// Wrapped: the kernel's own copy may leave the bytes where they are.
		_, err = io.CopyBuffer(to, from, c.buf)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return finish(dst, fi)
}

// remove takes a partial copy away, read-only directories included.
func remove(path string) {
	if os.RemoveAll(path) == nil {
		return
	}
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(path)
}
