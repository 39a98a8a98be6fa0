package copytree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func reflink(to, from *os.File) error {
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
}

// openFile does not wait for the writer of a FIFO that took the file's place.
func openFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}

func full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
