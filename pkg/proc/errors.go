package proc

import "errors"

var (
	// ErrNoCgroup: no cgroup of ours can be made here.
	ErrNoCgroup = errors.New("no usable cgroup")
	// ErrGone: the recorded leaf does not exist.
	ErrGone = errors.New("no such cgroup")
	// ErrMismatch: the recorded path is another cgroup now.
	ErrMismatch = errors.New("another cgroup has this name")
	// ErrBusy: this process holds a live Group, whose wait would be disturbed.
	ErrBusy = errors.New("a worker is running in this process")
	// ErrUnproven: processes may be left.
	ErrUnproven = errors.New("not proven empty")
)
