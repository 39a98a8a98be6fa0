//go:build !linux

package copytree

import (
	"errors"
	"os"
	"syscall"
)

func reflink(to, from *os.File) error { return errors.ErrUnsupported }

func openFile(name string) (*os.File, error) { return os.Open(name) }

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC)
}
