package proc

import (
	"fmt"
	"unsafe"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/windows"
)

// census lists every process. A parent's number is the one it had, also when
// the parent is dead and another has the number now.
func census() ([]kin, error) {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer windows.CloseHandle(snap)
	var list []kin
	var e windows.ProcessEntry32
	e.Size = uint32(unsafe.Sizeof(e))
	for err = windows.Process32First(snap, &e); err == nil; err = windows.Process32Next(snap, &e) {
		list = append(list, kin{pid: int(e.ProcessID), parent: int(e.ParentProcessID)})
	}
	return list, nil
}

// leads: there are no sessions of that kind.
func leads(int) bool { return false }

// hold: a process cannot be stopped here. It must not be ended either before
// everything below it is known, which its number alone says.
func (k *treeKill) hold(pid.ID) {}
