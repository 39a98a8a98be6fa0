package proc

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runMark is set in the environment of every command of [Run], with a value of
// its own. Several commands may run at once and orphans of all of them come to
// this process, which may also have children that are none of Run's business:
// the mark tells them apart after a setsid and a double fork.
const runMark = "PRUN_RUN"

type short struct {
	pid, fd int
	mark    string
	leaf    *Leaf
	done    chan struct{}
	seen    map[int]uint64 // number and start of what was below the command
}

func startShort(s RunSpec, stdin, stdout, stderr *os.File) (shortTree, error) {
	if !table.TryRLock() {
		return nil, fmt.Errorf("start %s: %w", s.Path, ErrBusy)
	}
	// An orphan must come to us to be found. Being a subreaper for good does
	// no harm to a program that starts children through this package only.
	becomeReaper()
	t := &short{
		fd: -1, leaf: s.Leaf, done: make(chan struct{}), seen: make(map[int]uint64),
		mark: runMark + "=" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(rand.Uint64(), 16),
	}
	b := birth{
		path: s.Path, args: s.Args, dir: s.Dir,
		env:   append(slices.Clone(s.Env), t.mark),
		files: []*os.File{stdin, stdout, stderr},
		attr:  &syscall.SysProcAttr{Setsid: true, PidFD: &t.fd},
	}
	var err error
	if t.leaf != nil {
		b.attr.UseCgroupFD, b.attr.CgroupFD = true, t.leaf.fd
		if t.pid, err = spawn(b); err != nil {
			b.attr.UseCgroupFD = false
			t.pid, err = spawn(b)
		}
	} else {
		t.pid, err = spawn(b)
	}
	if err != nil {
		table.RUnlock()
		return nil, err
	}
	go func() {
		defer close(t.done)
		awaitChild(t.pid, t.fd, -1)
	}()
	return t, nil
}

func (t *short) ended() <-chan struct{} { return t.done }

func (t *short) finish(bound time.Duration) (Exit, []int) {
	defer table.RUnlock()
	begin := time.Now()
	deadline := begin.Add(bound)
	// Before the first signal: a child that has left the session and cleared its
	// environment is known by its parent alone.
	descend([]int{t.pid}, func(n node) bool {
		t.seen[n.pid] = look(n.pid).start
		return true
	})
	var left []int
	pause := 50 * time.Microsecond
	for clean := 0; ; {
		// The leader, alive or zombie, pins the number of its group and session.
		unix.Kill(-t.pid, unix.SIGKILL)
		if t.leaf != nil {
			t.leaf.kill(max(time.Until(deadline), time.Millisecond))
		}
		var unsure bool
		left, unsure = t.round()
		if len(left) == 0 && closed(t.done) && !(unsure && time.Since(begin) < execTime) {
			// Twice, because what dies hands its children to us.
			if clean++; clean == 2 {
				break
			}
			continue
		}
		clean = 0
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
	exit, ok := Exit{Code: 255}, false
	if closed(t.done) {
		if exit, ok = take(t.pid); !ok {
			exit = Exit{Code: 255} // taken by somebody else
		}
	} else {
		left = append(left, t.pid)
		// It cannot be killed now; take it when it goes.
		go func() {
			<-t.done
			take(t.pid)
		}()
	}
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
	if t.leaf != nil {
		if t.leaf.remove() == nil {
			t.leaf.close()
		} else {
			inside, _ := t.leaf.members()
			left = append(left, inside...)
		}
	}
	slices.Sort(left)
	return exit, slices.Compact(left)
}

// round kills whatever belongs to the command and takes what is dead of it. It
// returns what is still alive, and whether some child may belong to it and did
// not show. Everything but the leader is signalled by
// descriptor: other children of this process may be taken at any time by
// whoever started them.
func (t *short) round() (left []int, unsure bool) {
	kill := func(n node) bool {
		t.seen[n.pid] = look(n.pid).start
		if !n.ended() {
			left = append(left, n.pid)
		}
		n.kill()
		return true
	}
	// Below the leader first, while it is known whose they are.
	descend([]int{t.pid}, kill)
	kids, _ := children()
	self := os.Getpid()
	for _, p := range kids {
		if p == t.pid {
			continue
		}
		yes, known := t.owns(p)
		if unsure = unsure || !known; !yes {
			continue
		}
		n, ok := grip(p, func(f facts) bool {
			yes, _ := t.owns(p)
			return f.parent == self && yes
		})
		if !ok {
			continue
		}
		descend([]int{p}, kill)
		kill(n)
		n.close()
		take(p)
	}
	return left, unsure
}

// owns reports whether the child p of this process belongs to the command, and
// whether that can be told.
func (t *short) owns(p int) (yes, known bool) {
	f := look(p)
	if f.state == 0 {
		return false, true
	}
	if start, seen := t.seen[p]; seen && start == f.start || f.session == t.pid {
		return true, true
	}
	return marked(p, t.mark)
}
