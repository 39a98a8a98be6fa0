package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/unix"
)

type platform struct {
	leaf *Leaf
	fd   int // pidfd of the leader, -1 without

	ending sync.Mutex // held by End
	ended  bool
	proof  Proof

	killing atomic.Bool  // End has begun to kill
	late    atomic.Int64 // what the waiting thread took then that had died of it

	taking sync.Mutex // held to signal the leader's group, and to free its number
	taken  bool
}

func start(s Spec) (*Group, error) {
	if !table.TryLock() {
		return nil, fmt.Errorf("start %s: %w", s.Path, ErrBusy)
	}
	g, err := startAlone(s)
	if err != nil {
		table.Unlock()
		return nil, err
	}
	return g, nil
}

func startAlone(s Spec) (*Group, error) {
	g := &Group{containment: Subreaper, done: make(chan struct{}), platform: platform{leaf: s.Leaf}}
	if err := becomeReaper(); err != nil {
		// Not on any kernel since 3.4; a sandbox may forbid it.
		g.containment, g.note = GroupOnly, "not a subreaper: "+err.Error()
	}
	b := birth{
		path: s.Path, args: s.Args, env: s.Env, dir: s.Dir,
		files: []*os.File{s.Stdin, s.Stdout, s.Stderr},
		attr:  &syscall.SysProcAttr{Setsid: true, PidFD: &g.fd},
		oom:   s.OOMScoreAdj, nice: s.Nice,
	}
	g.fd = -1
	var p int
	var err error
	if g.leaf != nil {
		b.attr.UseCgroupFD, b.attr.CgroupFD = true, g.leaf.fd
		var inside error
		if p, inside = spawn(b); inside == nil {
			g.containment = Cgroup
		} else {
			// Old kernel, clone3 forbidden, EACCES, EROFS: or the program
			// itself. Nothing has run; without the leaf the two tell apart.
			b.attr.UseCgroupFD = false
			if p, err = spawn(b); err == nil {
				g.note = "no cgroup: " + unwrapStart(inside).Error()
				if err := g.leaf.Remove(); err != nil {
					g.note += "; " + err.Error()
				}
				g.leaf = nil
			}
		}
	} else {
		p, err = spawn(b)
	}
	if err != nil {
		return nil, err
	}
	if g.id, err = pid.Of(p); err != nil {
		g.id = pid.ID{PID: p, Boot: pid.Boot(), NS: pid.Namespace()}
	}
	go g.watch()
	return g, nil
}

func unwrapStart(err error) error {
	var e *StartError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// watch is the one wait of this process. It takes orphans that die while the
// leader lives and ends when it sees the leader's zombie, which it leaves.
func (g *Group) watch() {
	// Its own thread, and no bound: when the reaping was part of a loop that
	// also had to answer, a fork storm either delayed the answers by 14 s or
	// filled the process table with zombies.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(g.done)
	for {
		s, err := peek(0, 0)
		if err != nil {
			// The leader was taken by somebody else: its end is unknown.
			g.exit = Exit{Code: 255}
			return
		}
		if int(s.pid) == g.id.PID {
			g.exit = s.exit()
			return
		}
		if x, ok := take(int(s.pid)); ok && x.Signal == int(unix.SIGKILL) && g.killing.Load() {
			g.late.Add(1)
		}
	}
}

func (g *Group) signal(sig syscall.Signal) error {
	g.taking.Lock()
	defer g.taking.Unlock()
	if g.taken {
		return fmt.Errorf("signal worker %d: %w", g.id.PID, os.ErrProcessDone)
	}
	err := unix.Kill(-g.id.PID, sig)
	if sig != 0 && sig != unix.SIGCONT && sig != unix.SIGKILL && sig != unix.SIGSTOP && sig != unix.SIGTSTP {
		unix.Kill(-g.id.PID, unix.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("signal worker %d: %w", g.id.PID, err)
	}
	return nil
}

func (g *Group) end(o EndOptions) Proof {
	g.ending.Lock()
	defer g.ending.Unlock()
	if g.ended {
		return g.proof
	}
	g.ended = true
	s := newEnding(g.leaf, o)
	s.proof.Containment = g.containment
	defer func() { g.proof = s.proof }()

	running := !closed(g.done)
	s.survey(g.id.PID)
	if running || !o.Keep {
		g.killing.Store(true)
		g.signal(unix.SIGKILL)
	}
	if running {
		defer raisePriority()()
		s.killLeaf(o.Keep)
		g.awaitKilled(s)
		if !closed(g.done) {
			// In state D, or not ours to kill. The waiting thread stays, so
			// this process can never start another worker.
			s.remain(g.id.PID)
			s.proof.Note = "the leader cannot be ended"
			s.list()
			return s.proof
		}
	}
	s.killed = int(g.late.Load())
	g.taking.Lock()
	g.taken = true
	take(g.id.PID)
	g.taking.Unlock()
	if g.fd >= 0 {
		unix.Close(g.fd)
		g.fd = -1
	}
	s.finish()
	table.Unlock()
	return s.proof
}

// awaitKilled waits for the leader after SIGKILL. When it does not come it
// ends what it can of the rest, by descriptor, since the waiting thread takes
// children meanwhile.
func (g *Group) awaitKilled(e *ending) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		left := time.Until(e.deadline)
		if left <= 0 {
			return
		}
		select {
		case <-g.done:
			return
		case <-time.After(min(pause, left)):
			g.signal(unix.SIGKILL)
			descend([]int{os.Getpid()}, e.killNode)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
