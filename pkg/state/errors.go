package state

import "errors"

var (
	// ErrExists is returned when an outcome was already published. The first
	// one stands; whoever comes second only cleans up.
	ErrExists = errors.New("already published")
	// ErrNotRegular is returned for a state file that is a directory, a FIFO, a
	// device or a socket. Nothing was read from it.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge is returned for a state file larger than its reader's bound.
	ErrTooLarge = errors.New("too large")
	// ErrMalformed is returned for a state file that holds no whole record.
	ErrMalformed = errors.New("malformed record")
	// ErrClaimed is returned when another live unit has the same result path.
	ErrClaimed = errors.New("claimed by another live unit")
)
