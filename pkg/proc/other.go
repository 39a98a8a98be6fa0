//go:build !linux

package proc

import (
	"fmt"
	"runtime"
	"time"
)

type leafPlatform struct{}

var errLeaf = fmt.Errorf("cgroups on %s: %w", runtime.GOOS, ErrNoCgroup)

func newLeaf(string) (*Leaf, error)          { return nil, errLeaf }
func openLeaf(string, uint64) (*Leaf, error) { return nil, errLeaf }
func (*Leaf) members() ([]int, error)        { return nil, errLeaf }
func (*Leaf) populated() (bool, error)       { return false, errLeaf }
func (*Leaf) kill(time.Duration) error       { return errLeaf }
func (*Leaf) remove() error                  { return errLeaf }
func (*Leaf) close() error                   { return nil }
func leafOf(int) (string, error)             { return "", errLeaf }
func moveSelf(string) error                  { return errLeaf }

func becomeReaper() error { return nil }
