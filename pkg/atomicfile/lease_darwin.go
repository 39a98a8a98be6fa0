package atomicfile

import "os"

func openLeased(name string) (*os.File, error) {
	f, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	f.Close()
	return nil, ErrUnsupported // macOS has no leases
}

func leaseIntact(*os.File) bool { return false }
