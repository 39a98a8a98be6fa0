//go:build !linux

package wake

import (
	"context"
	"io/fs"
	"os"
	"time"
)

// pollGap is how often the paths are looked at where nothing tells of changes,
// so that a change is known within a second. With many paths, or a slow file
// system, looks are rarer: they take no more than a hundredth of the time.
const (
	pollGap   = 500 * time.Millisecond
	pollShare = 100
)

// native remembers how each path looked.
type native struct {
	paths map[string]look
	took  time.Duration // by the last round
}

// look is what a change would change.
type look struct {
	there bool
	size  int64
	mtime time.Time
	mode  fs.FileMode
}

func lookAt(path string) look {
	fi, err := os.Lstat(path)
	if err != nil {
		return look{}
	}
	return look{there: true, size: fi.Size(), mtime: fi.ModTime(), mode: fi.Mode()}
}

func newNative() *native { return &native{paths: map[string]look{}} }

func (n *native) add(path string) {
	if _, known := n.paths[path]; !known {
		n.paths[path] = lookAt(path)
	}
}

func (*native) drain()       {}
func (*native) close() error { return nil }

func (n *native) wait(ctx context.Context, deadline time.Time) (bool, error) {
	for {
		gap := max(pollGap, pollShare*n.took)
		if err := pause(ctx, min(gap, time.Until(deadline))); err != nil {
			return false, err
		}
		if !time.Now().Before(deadline) {
			// The caller looks now in any case.
			return false, nil
		}
		if n.changed() {
			return true, nil
		}
	}
}

// changed looks at every path, so that one round is one report.
func (n *native) changed() bool {
	start := time.Now()
	any := false
	for path, before := range n.paths {
		if now := lookAt(path); now != before {
			n.paths[path] = now
			any = true
		}
	}
	n.took = time.Since(start)
	return any
}
