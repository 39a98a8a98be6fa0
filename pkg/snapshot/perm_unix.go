//go:build unix

package snapshot

import (
	"io/fs"
	"os"
	"syscall"
)

const dirSyncs = true

// exposed reports whether anybody but the owner has a right on the directory.
func exposed(mode fs.FileMode) bool { return mode.Perm()&0o077 != 0 }

// shared reports whether the directory is there for others too: /tmp, or one
// that belongs to somebody else.
func shared(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return fi.Mode()&fs.ModeSticky != 0 || ok && int(st.Uid) != os.Geteuid()
}

// claim marks an open temporary file as being made, for as long as it stays open,
// and reports whether it could: nobody else is making it. The kernel drops the
// mark when its holder dies.
func claim(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// remove removes a name of ours from the destination.
func remove(root *os.Root, _, name string) error { return root.Remove(name) }
