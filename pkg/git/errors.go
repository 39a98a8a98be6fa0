package git

import (
	"errors"
	"fmt"
	"strings"
)

// The reasons a caller tells apart. All errors of this package wrap one of
// them or are a [*CommandError].
var (
	// ErrNotRepository: the directory is missing, is no directory, or neither
	// it nor any directory above it is a git repository.
	ErrNotRepository = errors.New("not a git repository")
	// ErrForeignOwner: git refuses the repository because another user owns
	// it and the caller's configuration does not list it as safe.
	ErrForeignOwner = errors.New("repository is owned by another user")
	// ErrMissing: no git was found on PATH.
	ErrMissing = errors.New("git is not installed or not on PATH")
	// ErrTimeout: the bound given by the caller ran out; git was ended with
	// everything it had started.
	ErrTimeout = errors.New("time limit reached")
	// ErrOccupied: the place for the clone is taken.
	ErrOccupied = errors.New("clone directory exists and is not empty")
)

// CommandError is a git command that ended with a failure of its own.
type CommandError struct {
	Verb   string // the git command, such as "clone"
	Status int    // exit status; 128+n when it died of signal n
	Detail string // what git said last on stderr, on one line; "" when it said nothing
}

func (e *CommandError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("git %s: exit status %d", e.Verb, e.Status)
	}
	return fmt.Sprintf("git %s: %s", e.Verb, e.Detail)
}

// detail picks what a user needs from git's stderr: the lines git marks as
// fatal or error, else the last line. Progress and hints are left out, and the
// outcome is one line because callers print it behind their own prefix.
func detail(stderr []byte) string {
	var marked []string
	last := ""
	for line := range strings.Lines(string(stderr)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		for _, mark := range []string{"fatal: ", "error: "} {
			if rest, ok := strings.CutPrefix(line, mark); ok && len(marked) < 4 {
				marked = append(marked, rest)
			}
		}
	}
	text := last
	if len(marked) > 0 {
		text = strings.Join(marked, "; ")
	}
	const limit = 600
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return text
}
