//go:build unix

package pid

import (
	"os"
	"syscall"
)

func ownNumber(pid int) bool { return pid == os.Getpid() || pid == syscall.Getpgrp() }
