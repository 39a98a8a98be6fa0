package proc

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type childPlatform struct {
	fd   int // pidfd, -1 without
	once sync.Once
}

func (c *Child) attr(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.PidFD = &c.fd
	return a
}

func (c *Child) await(d time.Duration) (Exit, bool) { return awaitChild(c.id.PID, c.fd, d) }

func (c *Child) reap() {
	c.once.Do(func() {
		take(c.id.PID)
		if c.fd >= 0 {
			unix.Close(c.fd)
		}
	})
}
