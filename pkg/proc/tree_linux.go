package proc

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func becomeReaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// reaper reports whether orphans below this process come to it.
func reaper() bool {
	var on int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0)
	return err == nil && on != 0 || os.Getpid() == 1
}

func closeOnExecAbove(fd int) error {
	err := unix.CloseRange(uint(fd+1), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Before Linux 5.11.
	return closeOnExecListed(fd, "/proc/self/fd")
}

func children() ([]int, error) { return childrenOf("self", nil) }

// childrenOf appends the children of process p to list. They hang on the
// thread that started or adopted them, so all threads are asked.
func childrenOf(p string, list []int) ([]int, error) {
	tasks, err := os.Open("/proc/" + p + "/task")
	if err != nil {
		return list, err
	}
	names, err := tasks.Readdirnames(-1)
	tasks.Close()
	if err != nil {
		return list, err
	}
	for _, t := range names {
		text, err := os.ReadFile("/proc/" + p + "/task/" + t + "/children")
		if err != nil {
			if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children"); err != nil {
				return childrenByParent(p, list)
			}
			continue // the thread has ended meanwhile
		}
		for field := range bytes.FieldsSeq(text) {
			if n, err := strconv.Atoi(string(field)); err == nil && n > 1 {
				list = append(list, n)
			}
		}
	}
	return list, nil
}

// childrenByParent is for kernels without CONFIG_PROC_CHILDREN.
func childrenByParent(p string, list []int) ([]int, error) {
	parent := os.Getpid()
	if p != "self" {
		parent, _ = strconv.Atoi(p)
	}
	all, err := processes()
	for _, n := range all {
		if look(n).parent == parent {
			list = append(list, n)
		}
	}
	return list, err
}

// processes returns every process number in /proc.
func processes() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n > 1 {
			list = append(list, n)
		}
	}
	return list, err
}

// facts are what /proc/PID/stat says; all zero when there is no such process.
type facts struct {
	state                  byte
	parent, group, session int
	start                  uint64
	envStart, envEnd       uint64 // 0 in the middle of exec, and when not ours to see
}

func (f facts) ended() bool {
	return f.state == 0 || f.state == 'Z' || f.state == 'X' || f.state == 'x'
}

func look(p int) facts {
	f, err := os.Open("/proc/" + strconv.Itoa(p) + "/stat")
	if err != nil {
		return facts{}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	// The name in parentheses is the program's own choice and may hold ')'.
	i := bytes.LastIndexByte(text, ')')
	if err != nil || i < 0 {
		return facts{}
	}
	w := strings.Fields(string(text[i+1:]))
	if len(w) < 20 {
		return facts{}
	}
	x := facts{state: w[0][0]}
	x.parent, _ = strconv.Atoi(w[1])
	x.group, _ = strconv.Atoi(w[2])
	x.session, _ = strconv.Atoi(w[3])
	x.start, _ = strconv.ParseUint(w[19], 10, 64)
	if len(w) > 48 {
		x.envStart, _ = strconv.ParseUint(w[47], 10, 64)
		x.envEnd, _ = strconv.ParseUint(w[48], 10, 64)
	}
	return x
}

// node is a process that cannot change hands while its descriptor is open:
// signals go through it.
type node struct{ pid, parent, fd int }

func (n node) kill()       { unix.PidfdSendSignal(n.fd, unix.SIGKILL, nil, 0) }
func (n node) alive() bool { return unix.PidfdSendSignal(n.fd, 0, nil, 0) != unix.ESRCH }
func (n node) close()      { unix.Close(n.fd) }

// ended reports that every thread has left. The state letter of /proc is that
// of the first thread, which may be a zombie while others still run or die.
func (n node) ended() bool {
	p := []unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		switch err {
		case nil:
			return p[0].Revents&(unix.POLLIN|unix.POLLHUP) != 0
		case unix.EINTR:
		default:
			return look(n.pid).ended()
		}
	}
}

// lives reports whether any thread of process p runs.
func lives(p int) bool {
	fd, err := unix.PidfdOpen(p, 0)
	if err != nil {
		return err != unix.ESRCH && !look(p).ended()
	}
	n := node{pid: p, fd: fd}
	defer n.close()
	return !n.ended()
}

// grip opens p and then asks whether it is the one that was meant. A number
// that changes hands after the question is harmless: the descriptor does not.
func grip(p int, meant func(facts) bool) (node, bool) {
	fd, err := unix.PidfdOpen(p, 0)
	if err != nil {
		return node{}, false
	}
	if !meant(look(p)) {
		unix.Close(fd)
		return node{}, false
	}
	return node{pid: p, fd: fd}, true
}

// descend walks everything below the processes roots, level by level and never
// below one that visit refuses, and calls visit for each. The roots must be
// pinned: children of ours that nobody takes meanwhile. Every other process is
// visited by descriptor, after it was seen to have a verified parent, because
// its number may be free at any moment. At most two levels of descriptors are
// open.
func descend(roots []int, visit func(n node) bool) {
	self := os.Getpid()
	var level []node
	expand := func(p int, alive func() bool) []node {
		list, _ := childrenOf(strconv.Itoa(p), nil)
		var found []node
		for _, c := range list {
			n, ok := grip(c, func(f facts) bool { return f.parent == p || f.parent == self })
			if ok {
				n.parent = p
				found = append(found, n)
			}
		}
		if !alive() {
			// The number p may be somebody else's by now, and with it the
			// list. What was below p is ours by now and comes up again.
			for _, n := range found {
				n.close()
			}
			return nil
		}
		return found
	}
	for _, p := range roots {
		level = append(level, expand(p, func() bool { return true })...)
	}
	for len(level) > 0 {
		var next []node
		for _, n := range level {
			// Look below first: once it is dead its children are ours.
			below := expand(n.pid, n.alive)
			if visit(n) {
				next = append(next, below...)
			} else {
				for _, b := range below {
					b.close()
				}
			}
			n.close()
		}
		level = next
	}
}
