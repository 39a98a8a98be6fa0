package proc

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/unix"
)

type platform struct {
	ending sync.Mutex // held by End
	ended  bool
	proof  Proof

	taking sync.Mutex // held to signal the leader's group, and to free its number
	taken  bool
}

// noProof goes with every Proof: there is no subreaper and no job here.
const noProof = "macOS cannot prove it: what left its session and lost its parent is not seen"

func closeOnExecAbove(fd int) error { return closeOnExecListed(fd, "/dev/fd") }

func children() ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var list []int
	for _, k := range all {
		if int(k.Eproc.Ppid) == os.Getpid() {
			list = append(list, int(k.Proc.P_pid))
		}
	}
	return list, nil
}

func zombieChild(int) (Exit, bool) { return Exit{}, false }

func start(s Spec) (*Group, error) {
	g := &Group{containment: GroupOnly, done: make(chan struct{})}
	p, err := spawn(birth{
		path: s.Path, args: s.Args, env: s.Env, dir: s.Dir,
		files: []*os.File{s.Stdin, s.Stdout, s.Stderr},
		attr:  &syscall.SysProcAttr{Setsid: true}, oom: s.OOMScoreAdj, nice: s.Nice,
	})
	if err != nil {
		return nil, err
	}
	if g.id, err = pid.Of(p); err != nil {
		g.id = pid.ID{PID: p, Boot: pid.Boot()}
	}
	go func() {
		defer close(g.done)
		var known bool
		if g.exit, known = awaitExit(p, -1); !known {
			g.taking.Lock()
			defer g.taking.Unlock()
			g.taken = true
			g.exit = wait(p)
		}
	}()
	return g, nil
}

// awaitExit waits for the end of the child p without taking it, for at most d
// (negative: for ever). It is false when the end is not known without taking.
func awaitExit(p int, d time.Duration) (Exit, bool) {
	kq, err := unix.Kqueue()
	if err != nil {
		return Exit{}, false
	}
	defer unix.Close(kq)
	want := []unix.Kevent_t{{Ident: uint64(p), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT | unix.NOTE_EXITSTATUS}}
	var limit *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(d.Nanoseconds())
		limit = &t
	}
	got := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(kq, want, got, limit)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || got[0].Flags&unix.EV_ERROR != 0 {
			return Exit{}, false // a zombie already: ESRCH
		}
		return exitOf(unix.WaitStatus(got[0].Data)), true
	}
}

func exitOf(w unix.WaitStatus) Exit {
	if w.Signaled() {
		return Exit{Code: 128 + int(w.Signal()), Signal: int(w.Signal())}
	}
	return Exit{Code: w.ExitStatus()}
}

// wait takes the child p, blocking until it has ended.
func wait(p int) Exit {
	for {
		var w unix.WaitStatus
		_, err := unix.Wait4(p, &w, 0, nil)
		switch err {
		case nil:
			return exitOf(w)
		case unix.EINTR:
		default:
			return Exit{Code: 255} // taken by somebody else
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
	if sig != 0 && sig != unix.SIGKILL && sig != unix.SIGSTOP && sig != unix.SIGTSTP {
		unix.Kill(-g.id.PID, unix.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("signal worker %d: %w", g.id.PID, err)
	}
	return nil
}

// descendants returns the identities of everything below root, and of what is
// in its session.
func descendants(root int, spare func(int) bool) (list []pid.ID, spared []int) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, nil
	}
	below := make(map[int][]int)
	for _, k := range all {
		below[int(k.Eproc.Ppid)] = append(below[int(k.Eproc.Ppid)], int(k.Proc.P_pid))
		if int(k.Eproc.Pgid) == root && int(k.Eproc.Ppid) == 1 {
			below[root] = append(below[root], int(k.Proc.P_pid))
		}
	}
	for level := below[root]; len(level) > 0; {
		var next []int
		for _, p := range level {
			if spare != nil && spare(p) {
				spared = append(spared, p)
				continue
			}
			if id, err := pid.Of(p); err == nil {
				list = append(list, id)
			}
			next = append(next, below[p]...)
			delete(below, p)
		}
		level = next
	}
	return list, spared
}

func (g *Group) end(o EndOptions) Proof {
	g.ending.Lock()
	defer g.ending.Unlock()
	if g.ended {
		return g.proof
	}
	g.ended = true
	if o.Bound <= 0 {
		o.Bound = DefaultBound
	}
	deadline := time.Now().Add(o.Bound)
	lives := true
	select {
	case <-g.done:
		lives = false
	default:
	}
	// The list is made before the first signal: afterwards the ties are gone.
	tree, spared := descendants(g.id.PID, o.Spare)
	if lives || !o.Keep {
		g.signal(unix.SIGKILL)
	}
	if lives {
		select {
		case <-g.done:
		case <-time.After(o.Bound):
			g.proof = Proof{Containment: GroupOnly, Remaining: []int{g.id.PID}, Spared: spared, Note: "the leader cannot be ended"}
			return g.proof
		}
	}
	g.taking.Lock()
	if !g.taken {
		g.taken = true
		wait(g.id.PID)
	}
	g.taking.Unlock()
	p := Proof{Containment: GroupOnly, Leftovers: len(tree), Spared: spared, Note: noProof}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		p.Remaining = nil
		for _, id := range tree {
			if alive, err := id.Alive(); !alive && err == nil {
				continue
			}
			p.Remaining = append(p.Remaining, id.PID)
			if !o.Keep {
				id.Signal(unix.SIGKILL)
			}
		}
		if o.Keep || len(p.Remaining) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(pause)
	}
	g.proof = p
	return p
}

func sweep(_ *Leaf, o EndOptions) Proof {
	if o.Bound <= 0 {
		o.Bound = DefaultBound
	}
	deadline := time.Now().Add(o.Bound)
	tree, spared := descendants(os.Getpid(), o.Spare)
	p := Proof{Containment: GroupOnly, Spared: spared, Note: noProof}
	for _, id := range tree {
		if alive, _ := id.Alive(); alive {
			p.Leftovers++
		}
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		p.Remaining = nil
		for _, id := range tree {
			if !o.Keep {
				id.Signal(unix.SIGKILL)
			}
			unix.Wait4(id.PID, nil, unix.WNOHANG, nil)
			if alive, err := id.Alive(); alive || err != nil {
				p.Remaining = append(p.Remaining, id.PID)
			}
		}
		if o.Keep || len(p.Remaining) == 0 || time.Now().After(deadline) {
			return p
		}
		time.Sleep(pause)
	}
}

// ignoredUnseen: os/signal is all that is asked here.
func ignoredUnseen(syscall.Signal) bool { return false }

// unmasked: the runtime gives children the mask that the program started with.
func unmasked() (undo func()) { return func() {} }

func renice(n int) {
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		unix.Setpriority(unix.PRIO_PROCESS, 0, now+n)
	}
}

func raiseOOM(int) (undo func()) { return func() {} }

type childPlatform struct {
	fd    int // unused here
	once  sync.Once
	mu    sync.Mutex
	taken bool
	exit  Exit
}

func (*Child) attr(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }

// await takes the child where its end is not to be had otherwise.
func (c *Child) await(d time.Duration) (Exit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken {
		return c.exit, true
	}
	if e, known := awaitExit(c.id.PID, d); known {
		return e, true
	}
	var w unix.WaitStatus
	flags := unix.WNOHANG
	if d < 0 {
		flags = 0
	}
	for {
		n, err := unix.Wait4(c.id.PID, &w, flags, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			c.taken, c.exit = true, Exit{Code: 255}
			return c.exit, true
		case n == 0:
			return Exit{}, false
		}
		c.taken, c.exit = true, exitOf(w)
		return c.exit, true
	}
}

func (c *Child) reap() {
	c.once.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.taken {
			unix.Wait4(c.id.PID, nil, unix.WNOHANG, nil)
		}
	})
}
