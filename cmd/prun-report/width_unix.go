//go:build unix

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// fileColumns asks a terminal for its width; 0 when it does not know.
func fileColumns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0
	}
	return int(size.columns)
}
