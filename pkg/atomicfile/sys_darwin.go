package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// askingTakes: flock has no question, so Held takes a shared lock for an instant.
const askingTakes = true

func renameNoReplace(old, new string) error {
	return renameErr(ignoringEINTR(func() error { return unix.RenamexNp(old, new, unix.RENAME_EXCL) }))
}

func exchange(a, b string) error {
	return renameErr(ignoringEINTR(func() error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }))
}

// Reserve sets n bytes of disk aside for f without changing its size. Where
// that is not possible it is no error; a full disk is.
func Reserve(f *os.File, n int64) error {
	err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &unix.Fstore_t{
		Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n,
	})
	if err == unix.ENOSPC || err == unix.EDQUOT {
		return &os.PathError{Op: "reserve space in", Path: f.Name(), Err: err}
	}
	return nil
}

func flock(f *os.File, how int) error {
	err := ignoringEINTR(func() error { return unix.Flock(int(f.Fd()), how) })
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}

func takeLock(f *os.File) error { return flock(f, unix.LOCK_EX|unix.LOCK_NB) }
func dropLock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func lockHeld(name string) (bool, error) {
	f, err := openLockFile(name, os.O_RDONLY|openNonblock|unix.O_NOFOLLOW)
	if err != nil {
		return false, err
	}
	defer f.Close() // frees it
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == ErrLocked {
		return true, nil
	}
	return false, err
}
