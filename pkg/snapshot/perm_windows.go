package snapshot

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

const dirSyncs = false

// exposed: the mode bits that Go makes up on Windows say nothing about who may
// enter; the per-user folders are private by their access lists.
func exposed(fs.FileMode) bool { return false }

func shared(fs.FileInfo) bool { return false }

// claim: a lock on Windows would keep the archive from being read back, so nothing
// is ever found abandoned there.
func claim(*os.File) bool { return false }

// remove goes by the path, because that way waits for a scanner that has the file
// open; a directory cannot be swapped here while root is open.
func remove(_ *os.Root, dir, name string) error { return atomicfile.Remove(filepath.Join(dir, name)) }
