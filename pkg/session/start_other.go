//go:build !linux

package session

import (
	"runtime"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// startTime is when a process began: a FILETIME on Windows, microseconds since 1970 on macOS.
func startTime(id pid.ID) (time.Time, bool) {
	if id.Start == 0 {
		return time.Time{}, false
	}
	if runtime.GOOS == "windows" {
		const epoch = 116444736000000000 // 1601 to 1970 in units of 100 ns
		return time.Unix(0, (int64(id.Start)-epoch)*100), true
	}
	return time.UnixMicro(int64(id.Start)), true
}
