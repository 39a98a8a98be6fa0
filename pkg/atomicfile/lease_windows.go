package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

func openLeased(name string) (*os.File, error) {
	info, err := Look(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode.IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := openShared(name, windows.GENERIC_READ, windows.OPEN_EXISTING,
		windows.FILE_FLAG_OPEN_REPARSE_POINT, windows.FILE_SHARE_READ|windows.FILE_SHARE_DELETE)
	if errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		return nil, ErrLocked
	}
	return f, err
}

// leaseIntact: a writer is refused, so nobody can be waiting.
func leaseIntact(*os.File) bool { return true }
