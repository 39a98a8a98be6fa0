package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

const (
	// EntryMax bounds a one-line file in bytes. Exactly this many is fine.
	EntryMax = 64 << 10
	// recordMax bounds a JSON record in bytes. Ours are below 8 KiB; the room
	// is for later versions.
	recordMax = 1 << 20
	// filePerm is what every file in a state directory gets, whatever the
	// umask: the tail and the prompt are nobody else's to read.
	filePerm fs.FileMode = 0o600
)

// Unit is a state directory. The zero value is none; a Unit for a directory
// that does not exist is legal, and everything read from it is absent.
type Unit struct {
	// Dir is the path of the directory, as the caller gave it.
	Dir string
}

// Path returns the path of one of the unit's files.
func (u Unit) Path(file string) string { return filepath.Join(u.Dir, file) }

// Name returns the base name of the directory, as monitors print it.
func (u Unit) Name() string { return filepath.Base(u.Dir) }

// ReadEntry returns the text of a one-line file without the white space around
// it, in particular without the CR that the old front left on Windows. Inner
// bytes are as they are on disk: a path need not be UTF-8. The error wraps
// fs.ErrNotExist, ErrNotRegular or ErrTooLarge where one of them is the reason.
// ReadEntry never blocks.
func (u Unit) ReadEntry(name string) (string, error) {
	data, err := u.read(name, EntryMax)
	if err != nil {
		return "", err
	}
	return strip(string(data)), nil
}

// FirstLine returns the first line of a one-line file, without its line ending
// but with any other white space. It is how monitor has always read a result
// path. Errors are those of ReadEntry.
func (u Unit) FirstLine(name string) (string, error) {
	data, err := u.read(name, EntryMax)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

// WriteEntry writes a one-line file that must not exist yet, without syncing
// it: the old one-line files are evidence for people and old readers, and what
// must survive a crash stands in identity.json.
func (u Unit) WriteEntry(name, text string) error {
	if err := atomicfile.Write(u.Path(name), []byte(text+"\n"), filePerm); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// ReplaceEntry writes a one-line file whole, over an older one if there is one.
func (u Unit) ReplaceEntry(name, text string) error {
	if err := atomicfile.Replace(u.Path(name), []byte(text+"\n"), filePerm); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Queued returns how many workers were ahead of a unit that waits for a slot,
// and whether it waits at all.
func (u Unit) Queued() (ahead int, waiting bool) {
	text, err := u.ReadEntry(FileQueued)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		// The file's existence is the fact; its number is only its detail.
		n = 0
	}
	return n, true
}

// read reads one of the unit's files, bounded and without blocking. In the
// directory of another user, root excepted, a link is not followed: it would
// lead to what the reader may read and its owner may not.
func (u Unit) read(name string, limit int64) ([]byte, error) {
	readFile := atomicfile.ReadRegular
	if untrusted(u.Dir) {
		readFile = readUnlinked
	}
	data, err := readFile(u.Path(name), limit)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// readUnlinked is atomicfile.ReadRegular for a name that must not be a link,
// whatever is done to it meanwhile.
func readUnlinked(name string, limit int64) ([]byte, error) {
	if fi, err := os.Lstat(name); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w", name, ErrNotRegular)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|openNoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, ErrNotRegular), err)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("read %s: %w: more than the %d bytes allowed", name, ErrTooLarge, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// strip removes the white space that Python's str.strip removes, which is what
// the entries were always read with: Unicode's, and four separators of ASCII.
func strip(s string) string {
	for {
		t := strings.Trim(strings.TrimSpace(s), "\x1c\x1d\x1e\x1f")
		if t == s {
			return t
		}
		s = t
	}
}

// FileMark says which content a path had: enough to tell whether somebody wrote
// it since.
type FileMark struct {
	// Size is in bytes.
	Size int64 `json:"size"`
	// MTime is the modification time, to the nanosecond.
	MTime time.Time `json:"mtime"`
	// Ino and Dev are 0 where the system has none.
	Ino uint64 `json:"ino"`
	Dev uint64 `json:"dev"`
}

// MarkFile returns the mark of the regular file at path, links followed, or nil
// when there is none. Any other failure is an error.
func MarkFile(path string) (*FileMark, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mark %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("mark %s: %w", path, ErrNotRegular)
	}
	dev, ino := statID(info)
	return &FileMark{Size: info.Size(), MTime: info.ModTime(), Ino: ino, Dev: dev}, nil
}

// Unchanged reports whether path still has the content that was marked. A nil
// mark means there was no file.
func (m *FileMark) Unchanged(path string) bool {
	now, err := MarkFile(path)
	if err != nil || m == nil || now == nil {
		return err == nil && m == nil && now == nil
	}
	return m.Size == now.Size && m.MTime.Equal(now.MTime) &&
		(m.Ino == 0 || now.Ino == 0 || m.Ino == now.Ino)
}
