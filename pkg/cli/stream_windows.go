package cli

import (
	"errors"
	"strings"
	"syscall"
)

func catchPipe() {}

// closedPipeSystem knows what Windows says where Unix says EPIPE:
// ERROR_BROKEN_PIPE (109) and ERROR_NO_DATA (232).
func closedPipeSystem(err error) bool {
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, syscall.Errno(232))
}

func sameName(a, b string) bool { return strings.EqualFold(a, b) }
