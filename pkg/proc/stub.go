package proc

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

type platform struct{}
type childPlatform struct{}
type leafPlatform struct{}

func becomeReaper() error                             { return nil }
func closeOnExecAbove(int) error                      { return nil }
func children() ([]int, error)                        { return nil, errors.ErrUnsupported }
func premakeThreads(int)                              {}
func orphans(string) ([]pid.ID, error)                { return nil, errors.ErrUnsupported }
func zombieChild(int) (Exit, bool)                    { return Exit{}, false }
func start(Spec) (*Group, error)                      { return nil, errors.ErrUnsupported }
func (g *Group) signal(syscall.Signal) error          { return errors.ErrUnsupported }
func (g *Group) end(EndOptions) Proof                 { return Proof{} }
func sweep(*Leaf, EndOptions) Proof                   { return Proof{} }
func detach(DetachSpec) (*Child, error)               { return nil, errors.ErrUnsupported }
func (c *Child) await(time.Duration) (Exit, bool)     { return Exit{}, false }
func (c *Child) reap()                                {}
func run(context.Context, RunSpec) (RunResult, error) { return RunResult{}, errors.ErrUnsupported }
func newLeaf(string) (*Leaf, error)                   { return nil, ErrNoCgroup }
func openLeaf(string, uint64) (*Leaf, error)          { return nil, ErrNoCgroup }
func (l *Leaf) members() ([]int, error)               { return nil, ErrNoCgroup }
func (l *Leaf) populated() (bool, error)              { return false, ErrNoCgroup }
func (l *Leaf) kill(time.Duration) error              { return ErrNoCgroup }
func (l *Leaf) remove() error                         { return ErrNoCgroup }
func (l *Leaf) close() error                          { return nil }
func leafOf(int) (string, error)                      { return "", ErrNoCgroup }
func moveSelf(string) error                           { return ErrNoCgroup }
