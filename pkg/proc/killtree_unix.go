//go:build unix

package proc

import (
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

// hold stops a member, so that its children are all there are.
func (k *treeKill) hold(id pid.ID) { _ = id.Signal(syscall.SIGSTOP) }
