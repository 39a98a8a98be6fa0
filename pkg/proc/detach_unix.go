//go:build unix

package proc

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/prun-suite/prun/pkg/pid"
)

// table mirrors something that is one per process in the kernel as well: the
// table of children, which waitid(P_ALL) reads as a whole. On Linux a
// Group and a sweep hold it for writing, everything that waits for one child for
// reading.
var table sync.RWMutex

func detach(s DetachSpec) (*Child, error) {
	if !table.TryRLock() {
		return nil, fmt.Errorf("start %s: %w", s.Path, ErrBusy)
	}
	defer table.RUnlock()
	c := &Child{}
	c.fd = -1
	p, err := spawn(birth{
		path: s.Path, args: s.Args, env: s.Env, dir: s.Dir, files: s.Files,
		attr: c.attr(&syscall.SysProcAttr{Setsid: s.NewSession}),
	})
	if err != nil {
		return nil, err
	}
	if c.id, err = pid.Of(p); err != nil {
		c.id = pid.ID{PID: p, Boot: pid.Boot(), NS: pid.Namespace()}
	}
	return c, nil
}
