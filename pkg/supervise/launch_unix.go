//go:build unix

package supervise

import (
	"os"
	"runtime"

	"github.com/prun-suite/prun/pkg/proc"
)

// launch starts the keeper, which starts the supervisor, and returns the front
// door's end of the connection.
func launch(l *Launch) (*proc.Child, *link, error) {
	ours, theirs, err := pair("supervisor")
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	self, err := selfPath()
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	args := []string{"prun-keeper", KeeperCommand}
	if l.Detached && l.ParentUnit != "" {
		args = append(args, l.ParentUnit)
	}
	child, err := proc.Detach(proc.DetachSpec{
		Path: self, Args: args, Env: os.Environ(), Dir: "/",
		Files: []*os.File{nil, nil, nil, theirs}, NewSession: true,
	})
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return child, newLink(ours, ours, 0), nil
}

// selfPath is the program that is running, also after its file was replaced
// by an upgrade.
func selfPath() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
