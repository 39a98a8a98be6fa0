package session

import (
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/unix"
)

// ticks is USER_HZ, in which the kernel shows start times on every architecture that Go runs on.
const ticks = 100

// startTime is when a process began, by today's reading of the clock.
func startTime(id pid.ID) (time.Time, bool) {
	var up unix.Timespec
	if id.Start == 0 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}, false
	}
	boot := time.Now().Add(-time.Duration(up.Nano()))
	return boot.Add(time.Duration(id.Start) * (time.Second / ticks)), true
}
