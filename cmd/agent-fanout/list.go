package main

import (
	"context"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
)

type listOptions struct {
	Sizes bool `long:"sizes" description:"two more columns: the number of lanes, and the bytes of the run's worktrees"`
}

// Run is the verb.
func (o *listOptions) Run(_ context.Context, env *cli.Env) error {
	home, err := lane.HomeOf(env.Getenv)
	if err != nil {
		return refuse("%v", err)
	}
	runs, err := home.Runs()
	if err != nil {
		return refuse("%v", err)
	}
	p := printer{w: env.Stdout}
	head := []string{"RUN", "STATUS", "REPO", "STATE_DIR"}
	if o.Sizes {
		head = append(head, "LANES", "BYTES")
	}
	p.row(head...)
	for _, r := range runs {
		row := []string{r.ID, r.Status(), r.Get(lane.FileMain), r.Dir}
		if o.Sizes {
			lanes, _ := r.Lanes()
			row = append(row, strconv.Itoa(len(lanes)), strconv.FormatInt(bytesBelow(r.Get(lane.FileIntegration)), 10))
		}
		p.row(row...)
	}
	return p.err
}

// bytesBelow adds up the files of a tree, lanes' worktrees included; what
// cannot be read is not counted.
func bytesBelow(dir string) int64 {
	if dir == "" {
		return 0
	}
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				total += fi.Size()
			}
		}
		return nil
	})
	return total
}
