package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Change is one thing that happened to the source while it was copied, as far as
// it can be seen afterwards.
type Change string

// The changes. None of them makes a snapshot worse than its manifest says, and
// to see none proves nothing.
const (
	// Grew: it is longer than when it was opened.
	Grew Change = "grew"
	// Shrank: it is or was shorter than when it was opened.
	Shrank Change = "shrank"
	// Rewritten: it has the size it had and another time.
	Rewritten Change = "rewritten"
	// Replaced: its name means another file now.
	Replaced Change = "replaced"
	// Removed: its name means nothing any more.
	Removed Change = "removed"
)

// Request is one snapshot to take.
type Request struct {
	// Tail is the path of the file to copy; a link to a regular file is followed.
	Tail string
	// Dir is the directory that gets the archive. It is made, private, when it is
	// missing.
	Dir string
	// Name is the name in Dir; "" makes one up from the time.
	Name string
}

// Snapshot is a published archive.
type Snapshot struct {
	// Path is absolute.
	Path     string
	Manifest Manifest
	// Observed are the changes seen, in the order of the constants.
	Observed []Change
	// Warning is what went wrong after the archive had its name; it is whole all
	// the same.
	Warning string
}

// Take copies the tail into a new archive. Its errors are of type *Error, and
// wrap context.Cause(ctx) when ctx ended. Neither the tail nor anything that
// exists in Dir is changed.
func Take(ctx context.Context, r Request) (*Snapshot, error) {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return nil, fail(Destination, "find destination: %w", err)
	}
	tail, err := filepath.Abs(r.Tail)
	if err != nil {
		return nil, fail(Source, "find the tail: %w", err)
	}
	root, err := openDestination(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	source, err := atomicfile.OpenRegular(tail)
	if err != nil {
		return nil, fail(Source, "open the tail: %w", err)
	}
	defer source.Close()
	t := &taking{root: root, dir: dir, name: r.Name, tail: tail, source: source, bytes: source}
	return t.run(ctx)
}

// taking is one Take after everything was opened.
type taking struct {
	root   *os.Root
	dir    string
	name   string
	tail   string
	source *os.File
	bytes  io.Reader // of source; tests change the file while it is read
}

func (t *taking) run(ctx context.Context) (*Snapshot, error) {
	at := time.Now()
	before, err := atomicfile.LookAt(t.source)
	if err != nil {
		return nil, fail(Source, "look at the tail: %w", err)
	}
	if t.name != "" {
		// Only the link below decides; this saves reading gigabytes in vain.
		if _, err := t.root.Lstat(t.name); err == nil {
			return nil, t.taken()
		}
	}
	sweep(t.root)
	f, temp, err := t.create()
	if err != nil {
		return nil, fail(Destination, "create temporary file: %w", err)
	}
	m, err := t.fill(ctx, f, at, before.Size)
	if cerr := f.Close(); err == nil && cerr != nil {
		// On some network file systems this is where a failed write is told.
		err = fail(Archive, "build archive: %w", cerr)
	}
	if err != nil {
		remove(t.root, t.dir, temp)
		return nil, err
	}
	s := &Snapshot{Manifest: m, Observed: t.changes(before, m)}
	if err := t.publish(temp, at); err != nil {
		remove(t.root, t.dir, temp)
		return nil, err
	}
	s.Path = filepath.Join(t.dir, t.name)
	if err := remove(t.root, t.dir, temp); err != nil {
		s.Warning = fmt.Sprintf("temporary file %s could not be removed: %v", filepath.Join(t.dir, temp), err)
	} else if err := syncRoot(t.root); err != nil {
		s.Warning = fmt.Sprintf("the archive may not survive a power cut: %v", err)
	}
	return s, nil
}

// partRandom is how many random bytes stand in the name of a temporary file.
const partRandom = 8

// create makes the temporary file, which only its owner can open.
func (t *taking) create() (*os.File, string, error) {
	for {
		temp := partPrefix + random(partRandom) + partSuffix
		f, err := t.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			// A umask can take rights from the mode above.
			if err = f.Chmod(filePerm); err != nil {
				f.Close()
				remove(t.root, t.dir, temp)
				return nil, "", err
			}
			// A file system without such marks has no sweeping either.
			claim(f)
		}
		return f, temp, err
	}
}

// fill builds the archive in f, reads it back and syncs it.
func (t *taking) fill(ctx context.Context, f *os.File, at time.Time, size int64) (Manifest, error) {
	m, err := build(ctx, f, t.bytes, size, func(copied int64, sum []byte) Manifest {
		return newManifest(t.tail, at, size, copied, sum)
	})
	if err != nil {
		return m, fail(Archive, "build archive: %w", err)
	}
	// The disk takes its time; what is read back meanwhile is in memory anyway.
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	err = validate(ctx, f, m)
	if serr := <-synced; err == nil && serr != nil {
		err = fail(Archive, "sync archive: %w", serr)
	}
	return m, err
}

// validate reads the archive back and compares it with what it was made of.
func validate(ctx context.Context, f *os.File, m Manifest) error {
	fi, err := f.Stat()
	if err != nil {
		return fail(Archive, "validate archive: %w", err)
	}
	c, err := check(ctx, f, fi.Size())
	if err != nil {
		return fail(Archive, "validate archive: %w", err)
	}
	switch {
	case string(c.manifest) != m.JSON("")+"\n":
		err = errors.New("manifest differs from what was written")
	case c.size != m.BytesCopied:
		err = fmt.Errorf("length mismatch: %d bytes, manifest says %d", c.size, m.BytesCopied)
	case hex.EncodeToString(c.sum) != m.SHA256:
		err = fmt.Errorf("digest mismatch: %x, manifest says %s", c.sum, m.SHA256)
	default:
		return nil
	}
	return fail(Archive, "validate archive: %w", err)
}

// publish gives the archive its name. It is a hard link because that is the one
// operation, everywhere, that neither replaces nor can be seen half done; where
// there is none, there is no snapshot.
func (t *taking) publish(temp string, at time.Time) error {
	named := t.name != ""
	for tries := 0; ; tries++ {
		if !named {
			t.name = "snapshot-" + stamp(at) + "-" + random(4) + ".zip"
		}
		err := t.root.Link(temp, t.name)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrExist):
			return fail(Destination, "publish %s: %w", filepath.Join(t.dir, t.name), err)
		case t.linked(temp):
			// The answer to a link that succeeded can be lost on NFS, and the
			// repeated call finds its own work.
			return nil
		case named || tries > 16:
			return t.taken()
		}
	}
}

func (t *taking) taken() error {
	return fail(Exists, "%s already exists; refusing to replace", filepath.Join(t.dir, t.name))
}

func (t *taking) linked(temp string) bool {
	a, aerr := t.root.Lstat(temp)
	b, berr := t.root.Lstat(t.name)
	return aerr == nil && berr == nil && os.SameFile(a, b)
}

// changes compares the source with what it was.
func (t *taking) changes(before atomicfile.Info, m Manifest) []Change {
	var seen []Change
	note := func(c Change) {
		if !slices.Contains(seen, c) {
			seen = append(seen, c)
		}
	}
	if now, err := atomicfile.LookAt(t.source); err == nil {
		if now.Size > before.Size {
			note(Grew)
		}
		if now.Size < before.Size || m.BytesCopied < before.Size {
			note(Shrank)
		}
		if now.Size == before.Size && m.BytesCopied == before.Size && !now.ModTime.Equal(before.ModTime) {
			note(Rewritten)
		}
	}
	switch now, err := atomicfile.LookThrough(t.tail); {
	case errors.Is(err, fs.ErrNotExist):
		note(Removed)
	case err == nil && before.Ino != 0 && !now.Same(before):
		note(Replaced)
	}
	return seen
}

// Verify reads an archive of any origin and checks that it is one: two stored
// members, a manifest that fits itself, and a copy with the length and the digest
// that the manifest names. Its errors are of type *Error: Source when the file
// cannot be opened, Archive when it is not what it should be.
func Verify(ctx context.Context, name string) (Manifest, error) {
	f, err := atomicfile.OpenRegular(name)
	if err != nil {
		return Manifest{}, fail(Source, "open archive: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return Manifest{}, fail(Source, "open archive: %w", err)
	}
	c, err := check(ctx, f, fi.Size())
	if err != nil {
		return Manifest{}, fail(Archive, "%s: %w", name, err)
	}
	m, err := readManifest(c.manifest)
	switch {
	case err != nil:
	case c.size != m.BytesCopied:
		err = fmt.Errorf("length mismatch: %d bytes, manifest says %d", c.size, m.BytesCopied)
	case hex.EncodeToString(c.sum) != m.SHA256:
		err = fmt.Errorf("digest mismatch: %x, manifest says %.80q", c.sum, m.SHA256)
	}
	if err != nil {
		return m, fail(Archive, "%s: %w", name, err)
	}
	return m, nil
}

// random returns n random bytes in hex. The reader of crypto/rand never fails.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
