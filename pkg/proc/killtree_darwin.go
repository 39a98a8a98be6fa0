package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// census lists every process. The list has no sessions; a process group ties as
// well.
func census() ([]kin, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	list := make([]kin, 0, len(all))
	for _, k := range all {
		list = append(list, kin{pid: int(k.Proc.P_pid), parent: int(k.Eproc.Ppid), session: int(k.Eproc.Pgid)})
	}
	return list, nil
}

// leads reports whether p leads its process group.
func leads(p int) bool {
	g, err := unix.Getpgid(p)
	return err == nil && g == p
}
