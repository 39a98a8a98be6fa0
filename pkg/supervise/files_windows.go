package supervise

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// renamesOpenDirectories: an open lock file forbids the rename, so a state
// directory is built under its final name and is whole when it is announced.
const renamesOpenDirectories = false

// fileID: the state package records what identifies a directory here.
func fileID(fs.FileInfo) (dev, ino uint64) { return 0, 0 }

// findProgram looks for name in one directory of PATH, as it is or with an
// ending of PATHEXT; one with an ending is preferred. The store's stand-ins
// under WindowsApps open a shop window and are passed over.
func findProgram(dir, name string) (found string, executable bool) {
	if strings.Contains(strings.ToLower(dir)+`\`, `\windowsapps\`) {
		return "", false
	}
	exts := []string{}
	if filepath.Ext(name) != "" {
		exts = append(exts, "")
	}
	pathext := os.Getenv("PATHEXT")
	if pathext == "" {
		pathext = ".COM;.EXE;.BAT;.CMD"
	}
	exts = append(exts, filepath.SplitList(pathext)...)
	if filepath.Ext(name) == "" {
		exts = append(exts, "")
	}
	for _, ext := range exts {
		full := filepath.Join(dir, name+ext)
		if fi, err := os.Stat(full); err == nil && !fi.IsDir() {
			return full, true
		}
	}
	return "", false
}

// owned: the temporary folder is the user's own there.
func owned(dir string) bool {
	fi, err := os.Lstat(dir)
	return err == nil && fi.IsDir()
}

// private: mode bits say nothing here.
func private(fs.FileInfo) bool { return true }
