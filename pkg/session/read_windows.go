package session

import (
	"os"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
)

// readTimed reads a regular file and says when it was written.
func readTimed(name string, limit int64) ([]byte, time.Time, error) {
	b, err := atomicfile.ReadRegular(name, limit)
	if err != nil {
		return nil, time.Time{}, err
	}
	fi, err := os.Stat(name)
	if err != nil {
		return nil, time.Time{}, err
	}
	return b, fi.ModTime(), nil
}

// running reports whether there is a process of that number.
func running(p int) bool {
	_, err := pid.Of(p)
	return err == nil
}
