//go:build unix

package state

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// statID returns device and inode of a file.
func statID(info fs.FileInfo) (dev, ino uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return uint64(st.Dev), uint64(st.Ino)
}

// dirID returns device and inode of dir. A copy of a state directory, or the
// same one seen through another file system, has others: no lock and no number
// in it may be believed then.
func dirID(dir string) (dev, ino uint64, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, fmt.Errorf("identify directory: %w", err)
	}
	dev, ino = statID(info)
	return dev, ino, nil
}

// notOurs reports that what has this name, a link itself, belongs to another
// user.
func notOurs(name string) bool {
	owner, ok := ownerOf(name)
	return ok && owner != os.Geteuid()
}

// untrusted is notOurs for what only a less privileged user can have made: root
// needs no trick to make us read something.
func untrusted(name string) bool {
	owner, ok := ownerOf(name)
	return ok && owner != os.Geteuid() && owner != 0
}

func ownerOf(name string) (uid int, ok bool) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
