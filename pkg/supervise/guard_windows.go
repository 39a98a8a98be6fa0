package supervise

import (
	"os"

	"github.com/prun-suite/prun/pkg/pid"
)

// guardLink does not exist on Windows: the worker's job closes with the
// supervisor, whatever ended it. A nil guardLink answers for none.
type guardLink struct{}

func (g *guardLink) keeper() pid.ID         { return pid.ID{} }
func (g *guardLink) lost() <-chan struct{}  { return nil }
func (g *guardLink) tell(birthNames) error  { return nil }
func (g *guardLink) lend(...*os.File) error { return nil }

// supervisorLinks takes over the two pipes that the front door handed down as
// standard input and output.
func supervisorLinks() (*link, *guardLink, error) {
	return newLink(os.Stdin, os.Stdout, notePatience), nil, nil
}

// Keep is never started here.
func Keep(Record, []string) int { return exitTrouble }
