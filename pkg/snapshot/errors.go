package snapshot

import (
	"fmt"
	"io/fs"
)

// Class is what a failure was about.
type Class int

// The classes of failures.
const (
	// Source: the file to be copied cannot be opened or is not a regular file.
	Source Class = iota + 1
	// Exists: the name is taken; what has it is untouched.
	Exists
	// Archive: it could not be built, or it did not hold what it should.
	Archive
	// Destination: the directory cannot be used, or it refuses the name.
	Destination
)

// Error is every failure of this package. No archive was published.
type Error struct {
	Class Class
	Err   error
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func fail(class Class, format string, args ...any) error {
	return &Error{Class: class, Err: fmt.Errorf(format, args...)}
}

// LooseError says that others than the owner can enter the destination
// directory. Snapshots hold prompts and what programs printed.
type LooseError struct {
	Dir  string
	Mode fs.FileMode
	// Shared: the directory is one that others use too, by its sticky bit or its
	// owner, so closing it would be the wrong advice.
	Shared bool
}

// Error names the mode and the command that would close the directory.
func (e *LooseError) Error() string {
	mode := uint32(e.Mode.Perm())
	if e.Mode&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	text := fmt.Sprintf("directory %s has mode %04o and is open to others", e.Dir, mode)
	if e.Shared {
		return text + fmt.Sprintf("; it is shared, so do not close it (chmod 700 %s) but name a new directory in it, which is made private", e.Dir)
	}
	return text + fmt.Sprintf("; chmod 700 %s", e.Dir)
}
