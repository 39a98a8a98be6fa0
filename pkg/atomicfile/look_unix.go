//go:build linux || darwin

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

func lookByName(name string, follow bool) (Info, error) {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	fi, err := stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func lookAtFile(f *os.File) (Info, error) {
	fi, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func infoOf(fi fs.FileInfo) Info {
	info := Info{Size: fi.Size(), ModTime: fi.ModTime(), ChangeTime: fi.ModTime(), Mode: fi.Mode()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.Dev, info.Ino = uint64(st.Dev), st.Ino
		info.ChangeTime = changeTime(st)
	}
	return info
}
