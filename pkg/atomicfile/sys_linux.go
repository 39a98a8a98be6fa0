package atomicfile

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// askingTakes: F_OFD_GETLK only asks.
const askingTakes = false

func renameNoReplace(old, new string) error {
	return renameErr(ignoringEINTR(func() error {
		return unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, new, unix.RENAME_NOREPLACE)
	}))
}

func exchange(a, b string) error {
	return renameErr(ignoringEINTR(func() error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	}))
}

// Reserve sets n bytes of disk aside for f without changing its size, so that a
// later write within them cannot meet a full disk. Truncating f to zero gives
// them back: write first, then cut. A file system without the operation is no
// error; a full one is.
func Reserve(f *os.File, n int64) error {
	err := ignoringEINTR(func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
	})
	switch err {
	case nil, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.ENODEV:
		return nil
	}
	return &os.PathError{Op: "reserve space in", Path: f.Name(), Err: err}
}

func wholeFile(kind int16) unix.Flock_t {
	return unix.Flock_t{Type: kind, Whence: io.SeekStart}
}

func takeLock(f *os.File) error {
	l := wholeFile(unix.F_WRLCK)
	err := ignoringEINTR(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l) })
	if err == unix.EAGAIN || err == unix.EACCES {
		return ErrLocked
	}
	return err
}

func dropLock(f *os.File) error {
	l := wholeFile(unix.F_UNLCK)
	return ignoringEINTR(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l) })
}

func lockHeld(name string) (bool, error) {
	f, err := openLockFile(name, os.O_RDONLY|openNonblock|unix.O_NOFOLLOW)
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := wholeFile(unix.F_WRLCK)
	if err := ignoringEINTR(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) }); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}
