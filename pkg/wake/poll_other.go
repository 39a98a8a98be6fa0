//go:build !linux

package wake

import (
	"context"
	"time"
)

// native is nothing here: the interval is all there is.
type native struct{}

func newNative() *native { return nil }

func (*native) add(string)   {}
func (*native) drain()       {}
func (*native) close() error { return nil }

func (*native) wait(ctx context.Context, deadline time.Time) (bool, error) {
	return false, pause(ctx, time.Until(deadline))
}
