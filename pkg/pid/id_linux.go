package pid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stat is what /proc/PID/stat says.
type stat struct {
	state byte
	ppid  int
	start uint64
}

// parseStat reads the text of /proc/PID/stat. The second field is the
// program's own choice and may hold anything, ')' and newline included, so the
// fields are counted from the last ')'.
func parseStat(text []byte) (stat, error) {
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return stat{}, errors.New("no name in it")
	}
	fields := bytes.Fields(text[i+1:])
	// state is field 3 of the file, ppid 4, starttime 22.
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, errors.New("too few fields")
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return stat{}, fmt.Errorf("parent: %w", err)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start: %w", err)
	}
	return stat{state: fields[0][0], ppid: ppid, start: start}, nil
}

func readStat(pid int) (stat, error) {
	text, err := readBounded("/proc/"+strconv.Itoa(pid)+"/stat", 4096)
	if err != nil {
		return stat{}, err
	}
	st, err := parseStat(text)
	if err != nil {
		return stat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return st, nil
}

func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// pidFSMagic is the type of the file system of pidfds, from Linux 6.9 on.
// Before that all pidfds share one inode, which would equate all processes.
const pidFSMagic = 0x50494446

// handleInode returns the inode of a pidfd, 0 where it identifies nothing.
func handleInode(fd int) uint64 {
	var fst unix.Statfs_t
	if unix.Fstatfs(fd, &fst) != nil || uint32(fst.Type) != pidFSMagic {
		return 0
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Ino
}

// exited reports whether the whole process behind fd has ended, reaped or not.
// It is better than the state letter of /proc, which says Z for a process
// whose first thread has left while others run.
func exited(fd int) (yes, known bool) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if err == unix.EINTR {
			continue
		}
		return p[0].Revents&(unix.POLLIN|unix.POLLHUP) != 0, err == nil
	}
}

func isNotThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func of(pid int) (ID, error) {
	id := ID{PID: pid, Boot: boot(), NS: namespace()}
	fd, err := unix.PidfdOpen(pid, 0)
	if noProcess(err) {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, ErrGone)
	}
	if err == nil {
		defer unix.Close(fd)
		id.Inode = handleInode(fd)
	}
	st, err := readStat(pid)
	switch {
	case err == nil:
		id.Start = st.start
	case isNotThere(err) && (id.Inode == 0 || handleSignal(fd, 0) == unix.ESRCH):
		return ID{}, fmt.Errorf("identify process %d: %w", pid, ErrGone)
	default:
		return ID{}, fmt.Errorf("identify process %d: %w: %w", pid, err, ErrUnknown)
	}
	return id, nil
}

func handleSignal(fd int, sig syscall.Signal) error {
	return unix.PidfdSendSignal(fd, unix.Signal(sig), nil, 0)
}

var self = sync.OnceValue(func() ID {
	id, err := of(os.Getpid())
	if err != nil {
		return ID{PID: os.Getpid(), Boot: boot(), NS: namespace()}
	}
	return id
})

var boot = sync.OnceValue(func() string {
	text, err := readBounded("/proc/sys/kernel/random/boot_id", 128)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

var machine = sync.OnceValue(func() string {
	for _, name := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if text, err := readBounded(name, 128); err == nil {
			if s := strings.TrimSpace(string(text)); s != "" && s != "uninitialized" {
				return s
			}
		}
	}
	// Many containers have neither file; their host name is as unique as they are.
	if name, err := os.Hostname(); err == nil {
		return "host:" + name
	}
	return ""
})

var namespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
})

// foreign says why nothing that this process reads can answer for id, or that
// the boot alone answers.
func (id ID) foreign() (gone bool, err error) {
	if id.Boot == "" || boot() == "" {
		return false, fmt.Errorf("look for process %d: no boot recorded: %w", id.PID, ErrUnknown)
	}
	if id.Boot != boot() {
		return true, nil
	}
	if id.NS == 0 || id.NS != namespace() {
		// The number means another process here. That it is missing here says
		// nothing about there.
		return false, fmt.Errorf("look for process %d: recorded in another pid namespace: %w", id.PID, ErrUnknown)
	}
	return false, nil
}

// match compares the process that has the number with id. fd is a pidfd of it
// or -1. The error is nil (it is the one and it lives), ErrGone, ErrMismatch
// or ErrUnknown, wrapped.
func (id ID) match(fd int) error {
	if fd >= 0 {
		if id.Inode != 0 {
			if now := handleInode(fd); now != 0 && now != id.Inode {
				return ErrMismatch
			}
		}
	}
	st, err := readStat(id.PID)
	switch {
	case err == nil:
		if st.start != id.Start {
			return ErrMismatch
		}
	case fd >= 0 && id.Inode != 0 && handleInode(fd) == id.Inode:
		// /proc hides the processes of others (hidepid); the inode was enough.
	case isNotThere(err) && fd < 0 && syscall.Kill(id.PID, 0) == syscall.ESRCH:
		return ErrGone
	case isNotThere(err) && fd >= 0 && handleSignal(fd, 0) == unix.ESRCH:
		return ErrGone
	default:
		return fmt.Errorf("%w: %w", err, ErrUnknown)
	}
	if fd >= 0 {
		if ended, known := exited(fd); known {
			if ended {
				return ErrGone
			}
			return nil
		}
	}
	if err == nil && (st.state == 'Z' || st.state == 'X' || st.state == 'x') {
		return ErrGone
	}
	return nil
}

// open returns a pidfd, or -1 where the kernel has none or forbids them.
func (id ID) open() (int, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	switch {
	case err == nil:
		return fd, nil
	case noProcess(err):
		return -1, ErrGone
	}
	return -1, nil
}

// noProcess reports that pidfd_open found no process. A number that belongs to
// a thread is EINVAL, and ENOENT in newer kernels.
func noProcess(err error) bool {
	return err == unix.ESRCH || err == unix.EINVAL || err == unix.ENOENT
}

func (id ID) alive() (bool, error) {
	gone, err := id.foreign()
	if gone || err != nil {
		return false, err
	}
	fd, err := id.open()
	if err == nil {
		if fd >= 0 {
			defer unix.Close(fd)
		}
		err = id.match(fd)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrUnknown):
		return false, fmt.Errorf("look for process %d: %w", id.PID, err)
	}
	return false, nil
}

func (id ID) signal(sig syscall.Signal) error {
	gone, err := id.foreign()
	if gone {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	fd, err := id.open()
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	if fd >= 0 {
		defer unix.Close(fd)
	}
	if err := id.match(fd); err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	if fd >= 0 {
		err = handleSignal(fd, sig)
	}
	if fd < 0 || err == unix.ENOSYS {
		// Kernels before 5.3 and sandboxes without pidfds: between the check
		// and the signal the number would have to come round once.
		err = syscall.Kill(id.PID, sig)
	}
	if err == unix.ESRCH {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

func ancestors() []int {
	var list []int
	for p := os.Getppid(); p > 0; {
		list = append(list, p)
		st, err := readStat(p)
		// The bound only guards against a chain that changes while it is read.
		if err != nil || p == 1 || len(list) > 4096 {
			break
		}
		p = st.ppid
	}
	return list
}

func stopped(pid int) (bool, error) {
	st, err := readStat(pid)
	if err != nil {
		if isNotThere(err) {
			err = ErrGone
		}
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return st.state == 'T', nil
}
