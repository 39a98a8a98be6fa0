package supervise

import (
	"fmt"
	"os"
)

// openName is a name under which an open file can be opened again: its own
// while that still leads to it.
func openName(f *os.File, name string) string {
	if named, err := os.Stat(name); err == nil {
		if mine, err := f.Stat(); err == nil && os.SameFile(named, mine) {
			return name
		}
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
}
