package atomicfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func openLeased(name string) (*os.File, error) {
	f, err := openLockFile(name, os.O_RDONLY|openNonblock|unix.O_NOFOLLOW)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EAGAIN) {
		// Unreadable, or under somebody else's write lease.
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	err = ignoringEINTR(func() error {
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		return err
	})
	if err == nil {
		return f, nil
	}
	f.Close()
	if err == unix.EAGAIN {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("%w: %w", ErrUnsupported, err) // EACCES (owner), EINVAL, ENOLCK, ENOSYS
}

// leaseIntact: while somebody waits the kernel names what is left of the lease
// to hold, F_UNLCK.
func leaseIntact(f *os.File) bool {
	kind, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind == unix.F_RDLCK
}
