// Package wake owns one answer: one of these paths may have changed, or the
// interval has passed. It uses inotify where there is one and polls where there
// is none, where it is exhausted, and where it cannot be trusted; a caller that
// looks at its files after every return of Wait is right in all of these, only
// later in some.
//
// It does not own what changed: callers look. It reports no content and no
// order. A file that is only being written to wakes nobody until its writer
// closes it, so that a busy tail costs nothing.
package wake

import (
	"context"
	"time"
)

// minGap is the least time between two returns of Wait on account of changes. It
// bounds what a directory full of busy strangers can cost, and a burst of
// changes becomes one look.
const minGap = 50 * time.Millisecond

// Watcher waits for changes of a set of paths. It is for one goroutine.
type Watcher struct {
	interval time.Duration
	woke     time.Time
	native   *native
}

// New returns a Watcher that wakes at least every interval. An interval of 0 or
// less is taken as a second: a poll that does not pause is a busy loop.
func New(interval time.Duration) *Watcher {
	w := &Watcher{native: newNative()}
	w.SetInterval(interval)
	return w
}

// SetInterval changes how long the next Wait waits at most.
func (w *Watcher) SetInterval(interval time.Duration) {
	if interval <= 0 {
		interval = time.Second
	}
	w.interval = interval
}

// Add adds a file or directory, which need not exist yet. A change that came
// before Add is not reported: add first, then look. A path that cannot be
// watched is polled.
func (w *Watcher) Add(path string) { w.native.add(path) }

// Close gives the watches back.
func (w *Watcher) Close() error { return w.native.close() }

// Wait returns nil when one of the paths may have changed, when the interval has
// passed, or for no reason at all, and ctx's error when that ends.
func (w *Watcher) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline := time.Now().Add(w.interval)
	changed, err := w.native.wait(ctx, deadline)
	if err != nil {
		return err
	}
	if !changed {
		w.woke = time.Now()
		return nil
	}
	// Late rather than twice: what follows within the gap is one look.
	if gap := minGap - time.Since(w.woke); gap > 0 {
		if err := pause(ctx, gap); err != nil {
			return err
		}
	}
	w.native.drain()
	w.woke = time.Now()
	return nil
}

// pause sleeps for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
