package atomicfile

import (
	"fmt"
	"os"
)

// Lease is the promise that nobody has a file open for writing. On Linux it is a
// read lease: whoever opens the file for writing waits in the kernel until the
// lease is closed (at most /proc/sys/fs/lease-break-time, 45 s), and Intact then
// says false. On Windows the file is open without sharing for writing: whoever
// opens it for writing is refused meanwhile. Readers are never disturbed, and
// the file may be renamed and removed.
type Lease struct{ f *os.File }

// TakeLease takes a lease on the regular file name; a link is not followed.
// ErrLocked: somebody has it open (or mapped) for writing. ErrUnsupported: no
// lease can be had, because the system, the file system or the owner of the
// file does not allow it; nothing is known about writers then. ErrNotRegular and
// fs.ErrNotExist as usual.
func TakeLease(name string) (*Lease, error) {
	f, err := openLeased(name)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", name, err)
	}
	return &Lease{f}, nil
}

// Look is a look at the leased file, whatever its name is by now.
func (l *Lease) Look() (Info, error) { return LookAt(l.f) }

// Intact reports whether still nobody has asked to write.
func (l *Lease) Intact() bool { return leaseIntact(l.f) }

// Close gives the lease up; a waiting writer goes on.
func (l *Lease) Close() error { return l.f.Close() }
