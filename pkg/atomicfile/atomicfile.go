// Package atomicfile owns the ways in which this suite changes a file that
// another process may be reading: replace it whole, publish it under a name
// that nobody has yet, append one record, hold a lock on it for life.
//
// It does not own names, formats or retry policy above one system call, and it
// never changes the umask: a file is created and then given its mode, so that a
// worker started by the same process keeps its caller's umask.
//
// The invariant: a reader of a name written by Replace or Publish sees the old
// bytes, all of the new bytes, or nothing; and Publish never replaces what
// stands at a name, whenever it came there.
//
// Windows refuses to rename, remove or open a file that a virus scanner or an
// indexer holds for a moment. There these three are repeated for up to two
// seconds; elsewhere the first answer stands.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrExists says that something stands at the name to be published. It also
// matches fs.ErrExist.
var ErrExists = fmt.Errorf("name is taken: %w", fs.ErrExist)

// ErrUnsupported says that this file system has no operation that could do it
// without the risk of replacing something. It also matches errors.ErrUnsupported.
var ErrUnsupported = fmt.Errorf("not possible on this file system: %w", errors.ErrUnsupported)

// ErrLocked says that somebody else holds the lock.
var ErrLocked = errors.New("lock is held")

// ErrNotRegular says that the name is a directory, FIFO, device or socket.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge says that the file holds more bytes than the caller allowed.
var ErrTooLarge = errors.New("file is too large")

// Replace puts data at name, whole or not at all, and returns when it would
// survive a power cut. Mode perm is set whatever the umask. The bytes are
// written to a hidden file beside name (see TempName) which a crash may leave
// behind and Sweep removes. A link at name is itself replaced, not followed.
//
// After an error name holds what it held before, with one exception: when only
// the last step, syncing the directory, failed, name may hold the new bytes.
func Replace(name string, data []byte, perm fs.FileMode) error {
	return ReplaceWith(name, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// ReplaceWith is Replace for bytes that are better streamed than held. An error
// of body is returned wrapped and leaves name alone.
func ReplaceWith(name string, perm fs.FileMode, body func(io.Writer) error) (err error) {
	f, temp, err := createTemp(name)
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			Remove(temp)
			err = fmt.Errorf("replace %s: %w", name, err)
		}
	}()
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if err := body(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := rename(temp, name); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// Write creates name with data and mode perm, whatever the umask. It does not
// sync: it is for the small records of which a lost one costs nothing. An
// existing name, even a dangling link, is fs.ErrExist. A file that could not be
// filled is removed again.
func Write(name string, data []byte, perm fs.FileMode) error {
	f, err := createExclusive(name)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err = f.Chmod(perm)
	if err == nil {
		_, err = f.Write(data)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		Remove(name)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Append adds data to the end of name with one write, so that two appenders do
// not mix. A missing file is created with mode perm, whatever the umask. Links
// are followed; anything but a regular file is ErrNotRegular. When the disk is
// full a part of data may have been written: the error is then io.ErrShortWrite
// or the system's own.
func Append(name string, data []byte, perm fs.FileMode) error {
	f, err := openAppend(name, perm)
	if err != nil {
		return fmt.Errorf("append to %s: %w", name, err)
	}
	n, err := f.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("append to %s: %w", name, err)
	}
	return nil
}

func openAppend(name string, perm fs.FileMode) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND | openNonblock
	// Two goes: another process may create or remove the name in between.
	for range 4 {
		f, err := os.OpenFile(name, flags|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			if err := f.Chmod(perm); err != nil {
				f.Close()
				return nil, err
			}
			return f, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, err = os.OpenFile(name, flags, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if fi, lerr := os.Lstat(name); lerr == nil && fi.Mode()&fs.ModeSymlink != 0 {
				return nil, err // a dangling link: say so, do not create its target
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
			f.Close()
			if err == nil {
				err = ErrNotRegular
			}
			return nil, err
		}
		return f, nil
	}
	return nil, errors.New("name keeps appearing and vanishing")
}

// Publish gives the finished file temp the name name, which nobody may have: it
// makes a hard link, and temp stays as a second name of the same file, by which
// a later process recognises what is at name as ours. Where the file system has
// no hard links temp is renamed without replacing, and is gone then.
//
// ErrExists: something else stands at name, untouched. ErrUnsupported: neither
// way exists here. Both, and any other error, leave temp and name as they were.
// When name is already a link of temp the answer is nil: an earlier call of
// somebody with the same temp succeeded. Publish does not sync; see SyncDir.
func Publish(temp, name string) error { return publish(temp, name, link) }

func publish(temp, name string, link func(old, new string) error) error {
	err := link(temp, name)
	if errors.Is(err, ErrExists) {
		// Over NFS the reply to a link that succeeded can be lost, and the
		// repeated call finds its own work.
		a, aerr := os.Lstat(temp)
		b, berr := os.Lstat(name)
		if aerr == nil && berr == nil && os.SameFile(a, b) {
			return nil
		}
	}
	if errors.Is(err, ErrUnsupported) {
		err = renameNoReplace(temp, name)
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}
	return nil
}

// RenameNoReplace renames old to new unless something stands at new (ErrExists).
// Where the kernel or the file system cannot promise that, it is ErrUnsupported
// and nothing has happened: it never falls back to a plain rename.
func RenameNoReplace(old, new string) error {
	if err := renameNoReplace(old, new); err != nil {
		return fmt.Errorf("rename %s to %s: %w", old, new, err)
	}
	return nil
}

// Exchange swaps what stands at a and b in one step. ErrUnsupported where there
// is no such operation (always on Windows); fs.ErrNotExist when one is missing.
func Exchange(a, b string) error {
	if err := exchange(a, b); err != nil {
		return fmt.Errorf("exchange %s and %s: %w", a, b, err)
	}
	return nil
}

// Remove removes name; on Windows it waits up to two seconds for whoever has it
// open. A missing name is fs.ErrNotExist.
func Remove(name string) error {
	return retry(func() error { return os.Remove(name) })
}

// Mkdir makes the directory name, which must not exist (fs.ErrExist), with mode
// perm whatever the umask.
func Mkdir(name string, perm fs.FileMode) error {
	if err := os.Mkdir(name, perm); err != nil {
		return err
	}
	fi, err := os.Lstat(name)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("make directory %s: it was replaced at once", name)
	}
	if err == nil && fi.Mode().Perm() != perm.Perm() {
		err = os.Chmod(name, perm)
	}
	if err != nil {
		os.Remove(name)
		return err
	}
	return nil
}

// Rename renames old to new, replacing a file at new. It does not sync. On
// Windows it waits up to two seconds for whoever has either open.
func Rename(old, new string) error { return rename(old, new) }
