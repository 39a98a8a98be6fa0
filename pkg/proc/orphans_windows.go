package proc

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf16"
	"unsafe"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/windows"
)

func orphans(mark string) ([]pid.ID, error) { return find(Traces{Marks: []string{mark}}) }

// find reads the environments of this user's processes. Sessions do not exist
// here, and who has a file open is not told.
func find(t Traces) ([]pid.ID, error) {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer windows.CloseHandle(snap)
	ours := append(pid.Ancestors(), os.Getpid())
	var list []pid.ID
	var e windows.ProcessEntry32
	e.Size = uint32(unsafe.Sizeof(e))
	for err = windows.Process32First(snap, &e); err == nil; err = windows.Process32Next(snap, &e) {
		p := int(e.ProcessID)
		if slices.Contains(ours, p) || t.Spare != nil && t.Spare(p) {
			continue
		}
		// The identity first: the number could change hands after the reading.
		id, err := pid.Of(p)
		if err != nil || id != t.Worker && !bears(p, t.Marks) || consoleHost(p) {
			continue
		}
		if alive, err := id.Alive(); err == nil && alive {
			list = append(list, id)
		}
	}
	return list, nil
}

// bears reports whether the environment that p was started with names one of
// the state directories. Processes of others cannot be read, and are not ours.
func bears(p int, marks []string) bool {
	const name = "PRUN_STATE_DIR="
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_INFORMATION|windows.PROCESS_VM_READ, false, uint32(p))
	if err != nil {
		return false
	}
	defer windows.CloseHandle(h)
	for _, e := range environment(h) {
		if len(e) <= len(name) || !strings.EqualFold(e[:len(name)], name) {
			continue
		}
		for _, m := range marks {
			if strings.EqualFold(e[len(name):], m) {
				return true
			}
		}
	}
	return false
}

// environment reads the environment block of a process; nil when it cannot.
// Addresses over there are numbers here: as pointers they would lead the
// collector astray.
func environment(h windows.Handle) []string {
	// PROCESS_BASIC_INFORMATION
	var basic struct{ status, peb, affinity, priority, pid, parent uintptr }
	err := windows.NtQueryInformationProcess(h, windows.ProcessBasicInformation, unsafe.Pointer(&basic), uint32(unsafe.Sizeof(basic)), nil)
	if err != nil || basic.peb == 0 {
		return nil
	}
	word := func(at uintptr) (v uintptr) {
		readMemory(h, at, unsafe.Pointer(&v), unsafe.Sizeof(v))
		return v
	}
	params := word(basic.peb + unsafe.Offsetof(windows.PEB{}.ProcessParameters))
	if params == 0 {
		return nil
	}
	at := word(params + unsafe.Offsetof(windows.RTL_USER_PROCESS_PARAMETERS{}.Environment))
	size := word(params + unsafe.Offsetof(windows.RTL_USER_PROCESS_PARAMETERS{}.EnvironmentSize))
	const most = 8 << 20 // the system sets no bound of its own
	block := make([]uint16, min(size, most)/2)
	if len(block) == 0 || !readMemory(h, at, unsafe.Pointer(&block[0]), uintptr(len(block))*2) {
		return nil
	}
	var list []string
	for len(block) > 0 {
		n := slices.Index(block, 0)
		if n <= 0 {
			break
		}
		list = append(list, string(utf16.Decode(block[:n])))
		block = block[n+1:]
	}
	return list
}

func readMemory(h windows.Handle, from uintptr, to unsafe.Pointer, size uintptr) bool {
	var n uintptr
	err := windows.ReadProcessMemory(h, from, (*byte)(to), size, &n)
	return err == nil && n == size
}
