package pid

import "errors"

var (
	// ErrGone: no process has the number, or only a zombie does.
	ErrGone = errors.New("no such process")
	// ErrMismatch: the number belongs to another process now.
	ErrMismatch = errors.New("the number belongs to another process")
	// ErrForbidden: the number must never be signalled, see [Forbidden].
	ErrForbidden = errors.New("refusing to signal this process")
	// ErrUnknown: neither alive nor gone can be said.
	ErrUnknown = errors.New("cannot tell")
)
