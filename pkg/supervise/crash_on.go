//go:build crashpoints

package supervise

import (
	"os"
	"strings"
	"syscall"
	"time"
)

// errnos are what PRUN_FAIL_AT can make a write meet.
var errnos = map[string]syscall.Errno{"ENOSPC": syscall.ENOSPC, "EIO": syscall.EIO, "EACCES": syscall.EACCES}

// fault returns the error that the write before a step is to meet, when
// PRUN_FAIL_AT names the step: a comma list of NAME=ERRNO, with names as for
// PRUN_CRASH_AT.
func fault(party, step string) error {
	for _, want := range strings.Split(os.Getenv("PRUN_FAIL_AT"), ",") {
		name, errno, _ := strings.Cut(want, "=")
		if name == step || name == party+"."+step {
			return &os.PathError{Op: "write", Path: step, Err: errnos[errno]}
		}
	}
	return nil
}

// at kills this process with SIGKILL, or stops it, when PRUN_CRASH_AT names
// the step: a comma list of NAME or NAME=stop, where NAME is "C5" for whoever
// gets there or "K.C5" for the keeper alone.
func at(party, step string) {
	for _, want := range strings.Split(os.Getenv("PRUN_CRASH_AT"), ",") {
		name, how, _ := strings.Cut(want, "=")
		if name != step && name != party+"."+step {
			continue
		}
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			continue
		}
		if how == "stop" {
			_ = self.Signal(syscall.SIGSTOP)
			continue
		}
		_ = self.Kill()
		// The signal reaches the other threads a moment later.
		time.Sleep(time.Hour)
	}
}
