//go:build !linux && !windows

package proc

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/prun-suite/prun/pkg/pid"
)

func orphans(string) ([]pid.ID, error) {
	return nil, fmt.Errorf("look for orphans on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func find(Traces) ([]pid.ID, error) { return orphans("") }
