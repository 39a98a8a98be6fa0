//go:build unix

package userdir

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// place is below /tmp, which is there on every system, kept while somebody works, and
// where nobody can remove or rename what is another's (sticky).
func place(func(string) string) (string, error) {
	return "/tmp/prun-user-" + strconv.Itoa(os.Geteuid()), nil
}

func guarded(dir string, fi fs.FileInfo, made bool) error {
	if !owned(fi) {
		return fmt.Errorf("%w: it belongs to another user", ErrUnsafe)
	}
	if made && fi.Mode().Perm() != 0o700 {
		// A umask can take our own rights away.
		return os.Chmod(dir, 0o700)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%w: others may use it; run: chmod 700 %s", ErrUnsafe, dir)
	}
	return nil
}

func owned(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// ours reports whether what stands at dir is this user's, so that its trouble is to be
// told rather than stepped around.
func ours(dir string) bool {
	fi, err := os.Lstat(dir)
	return err == nil && owned(fi)
}
