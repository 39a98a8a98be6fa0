//go:build unix

package supervise

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// renamesOpenDirectories: a directory can be renamed while files in it are open.
const renamesOpenDirectories = true

func fileID(fi fs.FileInfo) (dev, ino uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino)
	}
	return 0, 0
}

// findProgram looks for name in one directory of PATH. found is empty when
// there is no such file, executable false when it cannot be run.
func findProgram(dir, name string) (found string, executable bool) {
	full := filepath.Join(dir, name)
	fi, err := os.Stat(full)
	if err != nil || fi.IsDir() {
		return "", false
	}
	return full, fi.Mode()&0o111 != 0
}

// owned reports a directory of this user's: nothing in another's is believed.
func owned(dir string) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// private reports that nobody but the owner may change a directory.
func private(fi fs.FileInfo) bool { return fi.Mode().Perm()&0o022 == 0 }
