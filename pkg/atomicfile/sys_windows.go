package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

const openNonblock = 0

// askingTakes: LockFileEx has no question, so Held takes the lock for an instant.
const askingTakes = true

// errDeletePending: the name belongs to a removed file that is still open.
const errDeletePending = windows.Errno(303)

// retry repeats op for up to two seconds while the reason is one that passes:
// a scanner, an indexer or a reader of ours that has the file open right now.
func retry(op func() error) error {
	const limit = 2 * time.Second
	deadline := time.Now().Add(limit)
	pause := time.Millisecond
	for {
		err := op()
		if err == nil || !passing(err) || !time.Now().Add(pause).Before(deadline) {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

func passing(err error) bool {
	for _, e := range []windows.Errno{
		windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION,
		windows.ERROR_ACCESS_DENIED, errDeletePending,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func moveFile(old, new string, flags uint32) error {
	from, err := windows.UTF16PtrFromString(old)
	if err != nil {
		return err
	}
	to, err := windows.UTF16PtrFromString(new)
	if err != nil {
		return err
	}
	return retry(func() error { return windows.MoveFileEx(from, to, flags) })
}

func rename(old, new string) error {
	// A directory in the way never passes: do not wait two seconds for it.
	if fi, err := os.Lstat(new); err == nil && fi.IsDir() {
		return os.Rename(old, new)
	}
	err := moveFile(old, new, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: new, Err: err}
	}
	return nil
}

func taken(err error) error {
	if errors.Is(err, windows.ERROR_ALREADY_EXISTS) || errors.Is(err, windows.ERROR_FILE_EXISTS) {
		return ErrExists
	}
	return err
}

func link(old, new string) error {
	err := retry(func() error { return os.Link(old, new) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, windows.ERROR_INVALID_FUNCTION), errors.Is(err, windows.ERROR_NOT_SUPPORTED),
		errors.Is(err, windows.ERROR_CALL_NOT_IMPLEMENTED), errors.Is(err, windows.ERROR_TOO_MANY_LINKS):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return taken(err)
}

// renameNoReplace: without MOVEFILE_REPLACE_EXISTING Windows itself refuses.
func renameNoReplace(old, new string) error {
	return taken(moveFile(old, new, windows.MOVEFILE_WRITE_THROUGH))
}

func exchange(a, b string) error { return ErrUnsupported }

// SyncDir does nothing: a rename is written through, and Windows has no way to
// sync a directory.
func SyncDir(dir string) error { return nil }

// Reserve does nothing: Windows gives reserved space back when the file is closed.
func Reserve(f *os.File, n int64) error { return nil }

// open lets others rename and remove what we hold open, unlike os.Open.
func open(name string, access, disposition, flags uint32) (*os.File, error) {
	return openShared(name, access, disposition, flags,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE)
}

func openShared(name string, access, disposition, flags, share uint32) (*os.File, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	h, err := windows.CreateFile(p, access, share, nil, disposition, windows.FILE_ATTRIBUTE_NORMAL|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

func openRead(name string) (*os.File, error) {
	return open(name, windows.GENERIC_READ, windows.OPEN_EXISTING, 0)
}

func openLock(name string) (*os.File, error) {
	if fi, err := os.Lstat(name); err == nil && !fi.Mode().IsRegular() {
		return nil, ErrNotRegular // what never passes is not waited for
	}
	var f *os.File
	err := retry(func() (err error) {
		f, err = open(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_ALWAYS,
			windows.FILE_FLAG_OPEN_REPARSE_POINT)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, regular(f)
}

func regular(f *os.File) error {
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
	}
	return err
}

// takeLock locks the first byte, which need not exist.
func takeLock(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}

func dropLock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

func lockHeld(name string) (bool, error) {
	fi, err := os.Lstat(name)
	if err != nil {
		return false, err
	}
	if !fi.Mode().IsRegular() {
		return false, ErrNotRegular
	}
	f, err := open(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_EXISTING,
		windows.FILE_FLAG_OPEN_REPARSE_POINT)
	if errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = takeLock(f)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, dropLock(f)
}
