package main

import (
	"strings"

	"github.com/prun-suite/prun/pkg/cli"
)

// parseShell reads the three options of the shell fronts as those did: any
// order, the last one wins, the next word is the value whatever it looks like,
// and nothing else is understood.
func parseShell(d dialect, args []string) (*options, error) {
	o := &options{Backend: d.backend, dialect: d}
	usage := "\nUsage: " + d.usage + " --prompt-file <path> --result-file <path> --unit-id <id>"
	for len(args) > 0 {
		name := args[0]
		if d.foldOptions {
			name = strings.ToLower(name)
		}
		var target *string
		switch name {
		case "--prompt-file":
			target = &o.PromptFile
		case "--result-file":
			target = &o.ResultFile
		case "--unit-id":
			target = &o.UnitID
		default:
			return nil, cli.Quoted(2, d.prefix+": unknown argument: "+visible(args[0])+usage)
		}
		if len(args) == 1 {
			if d.foldOptions {
				return nil, cli.Quoted(2, d.prefix+": missing required argument"+usage)
			}
			return nil, cli.Quoted(2, d.prefix+": "+visible(args[0])+" needs a value")
		}
		*target, args = args[1], args[2:]
	}
	if o.PromptFile == "" || o.ResultFile == "" || o.UnitID == "" {
		return nil, cli.Quoted(2, d.prefix+": missing required argument"+usage)
	}
	return o, nil
}
