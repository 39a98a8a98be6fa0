package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// bareWorktree is one git worktree add under a kernel lock: what add-lane is
// compared with. Arguments: lock file, repository, path, branch, base.
func bareWorktree(args []string) int {
	lock, err := atomicfile.WaitLock(context.Background(), args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Unlock()
	cmd := exec.Command("git", "worktree", "add", "-q", "--no-track", "-b", args[3], args[2], args[4])
	cmd.Dir = args[1]
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return 0
}
