//go:build linux || darwin

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const openNonblock = unix.O_NONBLOCK | unix.O_NOCTTY

// retry is for Windows; here the first answer stands.
func retry(op func() error) error { return op() }

func rename(old, new string) error { return os.Rename(old, new) }

func openRead(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|openNonblock, 0)
}

// ignoringEINTR repeats a call that a signal cut short: Go delivers signals to
// itself for preemption.
func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func link(old, new string) error {
	err := ignoringEINTR(func() error {
		return unix.Linkat(unix.AT_FDCWD, old, unix.AT_FDCWD, new, 0)
	})
	switch err {
	case unix.EEXIST:
		return ErrExists
	case unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EMLINK:
		// EPERM is how Linux says that a file system (FAT, some FUSE) has no hard
		// links; the renaming that follows tells it from a real refusal.
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

func renameErr(err error) error {
	switch err {
	case unix.EEXIST:
		return ErrExists
	case unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP:
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// SyncDir makes the names in dir durable. A file system that cannot sync a
// directory is no error.
func SyncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	err = d.Sync()
	d.Close()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// openLock opens the lock file, creating it. Links are not followed: whoever
// could plant one could make two owners lock different files.
func openLock(name string) (*os.File, error) {
	const flags = os.O_RDWR | openNonblock | unix.O_NOFOLLOW
	f, err := os.OpenFile(name, flags|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		// A umask of 0777 must not lock the owner out of its own file.
		if err := f.Chmod(0o600); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return openLockFile(name, flags|os.O_CREATE)
}

func openLockFile(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %w", ErrNotRegular, err)
	}
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
