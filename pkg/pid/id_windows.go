package pid

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

func ownNumber(pid int) bool { return pid == os.Getpid() }

// open returns a handle of the process that has the number now.
func open(pid int, access uint32) (windows.Handle, error) {
	h, err := windows.OpenProcess(access, false, uint32(pid))
	switch {
	case err == nil:
		return h, nil
	case errors.Is(err, windows.ERROR_INVALID_PARAMETER):
		// This is how the system says that no process has the number.
		return 0, ErrGone
	}
	return 0, fmt.Errorf("%w: %w", err, ErrUnknown)
}

func started(h windows.Handle) (uint64, error) {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return 0, fmt.Errorf("%w: %w", err, ErrUnknown)
	}
	return uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime), nil
}

func of(pid int) (ID, error) {
	h, err := open(pid, windows.PROCESS_QUERY_LIMITED_INFORMATION)
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	defer windows.CloseHandle(h)
	start, err := started(h)
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return ID{PID: pid, Start: start}, nil
}

var self = sync.OnceValue(func() ID {
	id, err := of(os.Getpid())
	if err != nil {
		return ID{PID: os.Getpid()}
	}
	return id
})

// boot is empty: a FILETIME is absolute, and a process of an earlier boot
// cannot have the start time of a present one.
func boot() string { return "" }

var machine = sync.OnceValue(func() string {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\Microsoft\Cryptography`, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err == nil {
		defer k.Close()
		if s, _, err := k.GetStringValue("MachineGuid"); err == nil && s != "" {
			return s
		}
	}
	if name, err := os.Hostname(); err == nil {
		return "host:" + name
	}
	return ""
})

func namespace() uint64 { return 0 }

// match returns nil when h is id and lives, else ErrGone, ErrMismatch or
// ErrUnknown.
func (id ID) match(h windows.Handle) error {
	start, err := started(h)
	if err != nil {
		return err
	}
	if start != id.Start {
		return ErrMismatch
	}
	// A process object outlives its process while anyone holds a handle.
	switch event, err := windows.WaitForSingleObject(h, 0); event {
	case windows.WAIT_OBJECT_0:
		return ErrGone
	case uint32(windows.WAIT_TIMEOUT):
		return nil
	default:
		return fmt.Errorf("%v: %w", err, ErrUnknown)
	}
}

func (id ID) alive() (bool, error) {
	h, err := open(id.PID, windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE)
	if err == nil {
		defer windows.CloseHandle(h)
		err = id.match(h)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrUnknown):
		return false, fmt.Errorf("look for process %d: %w", id.PID, err)
	}
	return false, nil
}

// signal asks a process that listens (OnStop); everything else, and SIGKILL,
// terminates it. Signal 0 only looks.
func (id ID) signal(sig syscall.Signal) error {
	h, err := open(id.PID, windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE|windows.PROCESS_TERMINATE)
	if err == nil {
		defer windows.CloseHandle(h)
		err = id.match(h)
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	if sig == 0 {
		return nil
	}
	if sig != syscall.SIGKILL && id.ask() {
		return nil
	}
	if err := windows.TerminateProcess(h, 128+uint32(sig)); err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// ancestors follows parent numbers only while each parent is older than its
// child: Windows keeps the number of a dead parent, which may be another
// process by now.
func ancestors() []int {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil
	}
	defer windows.CloseHandle(snap)
	parents := make(map[int]int)
	var e windows.ProcessEntry32
	e.Size = uint32(unsafe.Sizeof(e))
	for err = windows.Process32First(snap, &e); err == nil; err = windows.Process32Next(snap, &e) {
		parents[int(e.ProcessID)] = int(e.ParentProcessID)
	}
	var list []int
	child := self()
	for len(list) <= len(parents) {
		p, ok := parents[child.PID]
		if !ok || p <= 0 {
			break
		}
		id, err := of(p)
		if err == nil && id.Start > child.Start || errors.Is(err, ErrGone) {
			break
		}
		list = append(list, p)
		if err != nil {
			break
		}
		child = id
	}
	return list
}

func stopped(pid int) (bool, error) {
	h, err := open(pid, windows.PROCESS_QUERY_LIMITED_INFORMATION)
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	windows.CloseHandle(h)
	return false, nil
}
