package snapshot

import (
	"io/fs"
	"os"
)

const dirSyncs = false

// exposed: the mode bits that Go makes up on Windows say nothing about who may
// enter; the per-user folders are private by their access lists.
func exposed(fs.FileMode) bool { return false }

func shared(fs.FileInfo) bool { return false }

// claim: a lock on Windows would keep the archive from being read back, so nothing
// is ever found abandoned there.
func claim(*os.File) bool { return false }
