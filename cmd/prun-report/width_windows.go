package main

import (
	"os"
	"syscall"
	"unsafe"
)

var screenInfo = syscall.NewLazyDLL("kernel32.dll").NewProc("GetConsoleScreenBufferInfo")

// fileColumns asks a console for the width of its window; 0 when it does not know.
func fileColumns(f *os.File) int {
	var info struct {
		size, cursor             [2]int16
		attributes               uint16
		left, top, right, bottom int16
		maximum                  [2]int16
	}
	if ok, _, _ := screenInfo.Call(f.Fd(), uintptr(unsafe.Pointer(&info))); ok == 0 {
		return 0
	}
	return int(info.right-info.left) + 1
}
