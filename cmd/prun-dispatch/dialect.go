package main

import (
	"fmt"
	"strings"

	"github.com/prun-suite/prun/pkg/result"
)

// A dialect is the voice of the front that a caller used. The old fronts name
// theirs with a hidden first argument; what they promise is in this table and,
// made from it, in the manual.
type dialect struct {
	name string
	// prefix begins every message; usage is the name in the Usage line, empty
	// where option errors are worded by the option parser.
	prefix, usage string
	// tool is the name that texts on disk carry.
	tool string
	// backend is fixed by the old fronts; empty lets the caller choose.
	backend string
	// quoted: messages are printed as `prefix: text`, as the old scripts did;
	// otherwise as `prefix: error: text`.
	quoted bool
	// foldOptions: option names match in any case.
	foldOptions bool
	// about is the manual's line.
	about string
}

const dialectOption = "--dialect="

var dialects = []dialect{
	{
		name: "native", prefix: "prun-dispatch", tool: "prun-dispatch",
		about: "this command line",
	},
	{
		name: "codex-sh", prefix: "dispatch-task", usage: "dispatch-task.sh", tool: "dispatch-task", backend: "codex", quoted: true,
		about: "dispatch-task.sh: exactly its three options and its checks in their order; an existing result is allowed",
	},
	{
		name: "codex-ps1", prefix: "dispatch-task", usage: "dispatch-task.ps1", tool: "dispatch-task", backend: "codex", quoted: true, foldOptions: true,
		about: "dispatch-task.ps1: as codex-sh, option names in any case",
	},
	{
		name: "agy", prefix: "dispatch-task-agy", tool: "dispatch-task-agy", backend: "agy", quoted: true,
		about: "dispatch-task-agy.py: its checks in their order; the result path must be fresh",
	},
}

func findDialect(name string) (dialect, error) {
	names := make([]string, 0, len(dialects))
	for _, d := range dialects {
		if d.name == name {
			return d, nil
		}
		names = append(names, d.name)
	}
	return dialect{}, fmt.Errorf("unknown dialect %q (one of %s)", name, strings.Join(names, ", "))
}

// A temper is how a backend's units behave at this door, whatever the dialect:
// codex and command keep the rules of the shell front, every other backend
// those of the Agy front.
type temper struct {
	form result.Form
	// freshResult: anything at the result path refuses the unit.
	freshResult bool
	// salvageAlways: a FALLBACK is written after every run without a result,
	// whatever the exit code.
	salvageAlways bool
	// explicitMode: a directory that we did not make needs an explicit --mode
	// (agy) or --access.
	explicitMode bool
	// utf8Prompt: the prompt travels inside JSON.
	utf8Prompt bool
}

func temperOf(backend string) temper {
	switch backend {
	case "codex", "command":
		return temper{form: result.FormCodex, salvageAlways: true}
	case "agy":
		return temper{form: result.FormAgy, freshResult: true, explicitMode: true, utf8Prompt: true}
	}
	return temper{form: result.FormNamed, freshResult: true, explicitMode: true}
}

// dialectSection is the table as the manual shows it.
func dialectSection() string {
	var b strings.Builder
	b.WriteString("The old script names in shims/ call this program with a hidden first argument, " +
		"which chooses the prefix of its messages, the order of its checks and its defaults:\n\n")
	for _, d := range dialects {
		fmt.Fprintf(&b, "\t%-10s %s\n", d.name, d.about)
	}
	b.WriteString("\nFor the backends codex and command an existing result file is allowed and a missing result becomes a " +
		"FALLBACK without changing the exit status. Every other backend needs a fresh result path, has its final " +
		"message published there, and writes a FALLBACK when the unit failed.")
	return b.String()
}
