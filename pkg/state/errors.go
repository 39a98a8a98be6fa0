package state

import (
	"errors"
	"fmt"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

var (
	// ErrExists is returned when an outcome was already published. The first
	// one stands; whoever comes second only cleans up. It is
	// atomicfile.ErrExists too.
	ErrExists = fmt.Errorf("outcome published already: %w", atomicfile.ErrExists)
	// ErrNotRegular is returned for a state file that is a directory, a FIFO, a
	// device or a socket. Nothing was read from it.
	ErrNotRegular = atomicfile.ErrNotRegular
	// ErrTooLarge is returned for a state file larger than its reader's bound.
	ErrTooLarge = atomicfile.ErrTooLarge
	// ErrMalformed is returned for a state file that holds no whole record.
	ErrMalformed = errors.New("malformed record")
	// ErrClaimed is returned when another live unit has the same result path.
	ErrClaimed = errors.New("claimed by another live unit")
	// ErrCopy is returned for a state directory that is not the one that its
	// identity was recorded in.
	ErrCopy = errors.New("copy or foreign view of the one that was made")
)
