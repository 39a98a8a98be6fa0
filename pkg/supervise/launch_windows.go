package supervise

import (
	"fmt"
	"os"

	"github.com/prun-suite/prun/pkg/proc"
)

// launch starts the supervisor, which stands under no keeper, and returns the
// front door's end of the connection: two pipes, since a Windows process is
// born with three handles and no sockets.
func launch(l *Launch) (*proc.Child, *link, error) {
	downR, downW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	defer downR.Close()
	upR, upW, err := os.Pipe()
	if err != nil {
		downW.Close()
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	defer upW.Close()
	self, err := os.Executable()
	if err != nil {
		downW.Close()
		upR.Close()
		return nil, nil, err
	}
	child, err := proc.Detach(proc.DetachSpec{
		Path: self, Args: []string{"prun-supervisor", SupervisorCommand}, Env: os.Environ(), Dir: os.TempDir(),
		Files: []*os.File{downR, upW, nil}, NewSession: true, BreakAway: true,
	})
	if err != nil {
		downW.Close()
		upR.Close()
		return nil, nil, err
	}
	return child, newLink(upR, downW, 0), nil
}
