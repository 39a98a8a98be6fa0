package main

import (
	"os"
	"syscall"
	"unsafe"
)

// terminalWidth asks the terminal how many columns it has; 0 when it does not say.
func terminalWidth(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size))); errno != 0 {
			size.columns = 0
		}
	})
	if err != nil {
		return 0
	}
	return int(size.columns)
}
