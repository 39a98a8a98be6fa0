//go:build unix

package state

import "syscall"

// openNoFollow keeps a planted link from being written through, and a FIFO from
// blocking us.
const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// openNonblock keeps a FIFO from blocking us; links are followed.
const openNonblock = syscall.O_NONBLOCK
