package pid

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// States of kinfo_proc.p_stat, from <sys/proc.h>.
const (
	stateStopped = 4
	stateZombie  = 5
)

func read(pid int) (*unix.KinfoProc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		// An empty answer, which x/sys reports as EIO, is how the kernel says
		// that there is no such process.
		if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
			return nil, ErrGone
		}
		return nil, fmt.Errorf("%w: %w", err, ErrUnknown)
	}
	if int(k.Proc.P_pid) != pid {
		return nil, ErrGone
	}
	return k, nil
}

func started(k *unix.KinfoProc) uint64 {
	return uint64(k.Proc.P_starttime.Sec)*1_000_000 + uint64(k.Proc.P_starttime.Usec)
}

func of(pid int) (ID, error) {
	k, err := read(pid)
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return ID{PID: pid, Start: started(k), Boot: boot()}, nil
}

var self = sync.OnceValue(func() ID {
	id, err := of(os.Getpid())
	if err != nil {
		return ID{PID: os.Getpid(), Boot: boot()}
	}
	return id
})

var boot = sync.OnceValue(func() string {
	s, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(s)
})

var machine = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return "host:" + name
})

func namespace() uint64 { return 0 }

// match returns nil when id lives, else ErrGone, ErrMismatch or ErrUnknown.
func (id ID) match() error {
	if id.Boot != "" && boot() != "" && id.Boot != boot() {
		return ErrGone
	}
	k, err := read(id.PID)
	switch {
	case err != nil:
		return err
	case started(k) != id.Start:
		return ErrMismatch
	case k.Proc.P_stat == stateZombie:
		return ErrGone
	}
	return nil
}

func (id ID) alive() (bool, error) {
	err := id.match()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrUnknown):
		return false, fmt.Errorf("look for process %d: %w", id.PID, err)
	}
	return false, nil
}

// signal has no handle to go through: between the check and the signal the
// number would have to come round once.
func (id ID) signal(sig syscall.Signal) error {
	err := id.match()
	if err == nil {
		err = syscall.Kill(id.PID, sig)
	}
	if err == syscall.ESRCH {
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
		k, err := read(p)
		if err != nil || p == 1 || len(list) > 4096 {
			break
		}
		p = int(k.Eproc.Ppid)
	}
	return list
}

func stopped(pid int) (bool, error) {
	k, err := read(pid)
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return k.Proc.P_stat == stateStopped, nil
}
