package atomicfile

import (
	"io/fs"
	"os"
	"time"
)

// Info is one look at a file, with its identity. os.FileInfo would do but for
// two things: it hides the time of the inode, and on Windows it finds the
// identity by name when it is first compared, by which time the name may mean
// another file.
type Info struct {
	Size       int64
	ModTime    time.Time
	ChangeTime time.Time // of the inode; who writes the file cannot set it back
	Dev, Ino   uint64    // volume serial number and file index on Windows
	Mode       fs.FileMode
}

// Same reports whether two looks met the same file, whatever its names. A volume
// without a number (0: some network shares, and Wine 8 once an open file has been
// renamed) is taken for the other's.
func (i Info) Same(j Info) bool {
	return i.Ino != 0 && i.Ino == j.Ino && (i.Dev == j.Dev || i.Dev == 0 || j.Dev == 0)
}

// Look tells what stands at name. A link is looked at, not followed.
func Look(name string) (Info, error) { return lookByName(name, false) }

// LookThrough is Look at what a link leads to.
func LookThrough(name string) (Info, error) { return lookByName(name, true) }

// LookAt is Look at an open file.
func LookAt(f *os.File) (Info, error) { return lookAtFile(f) }
