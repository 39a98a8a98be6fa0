package userdir

import (
	"io/fs"
	"os"
	"path/filepath"
)

// place is in the user's own profile, which the system keeps others out of.
func place(getenv func(string) string) (string, error) {
	if local := getenv("LOCALAPPDATA"); local != "" {
		return filepath.Join(local, "prun-user"), nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "prun-user"), err
}

func guarded(string, fs.FileInfo, bool) error { return nil }

func ours(string) bool { return true }
