package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/cli"
)

// maxPrompt bounds what is read as a prompt; a larger one is a mistake.
const maxPrompt = 32 << 20

// promptOptions are the three ways to give a prompt.
type promptOptions struct {
	File  string `long:"prompt-file" short:"f" value-name:"PATH" description:"read the prompt from a file"`
	Stdin bool   `long:"prompt-stdin" description:"read the prompt from standard input"`
}

// read returns the prompt. Nothing is started or stopped before it has been found good.
func (o promptOptions) read(env *cli.Env, positional, empty string) (string, error) {
	sources := 0
	for _, given := range []bool{positional != "", o.File != "", o.Stdin} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return "", say(exitUsage, "choose exactly one prompt source")
	}
	text := positional
	switch {
	case o.File != "":
		f, err := os.Open(o.File)
		if err != nil {
			return "", cli.Fail(1, "read prompt: %w", err)
		}
		defer f.Close()
		if text, err = readPrompt(f); err != nil {
			return "", err
		}
	case o.Stdin || positional == "":
		if !o.Stdin && env.Terminal(env.Stdin) {
			return "", say(exitUsage, "no prompt provided")
		}
		var err error
		if text, err = readPrompt(env.Stdin); err != nil {
			return "", err
		}
	}
	if strings.TrimSpace(text) == "" {
		return "", say(exitUsage, "%s", empty)
	}
	return text, nil
}

func readPrompt(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPrompt+1))
	switch {
	case err != nil:
		return "", cli.Fail(1, "read prompt: %w", err)
	case len(b) > maxPrompt:
		return "", cli.Fail(1, "read prompt: %w", errors.New("more than 32 MiB"))
	case !utf8.Valid(b):
		return "", cli.Fail(1, "read prompt: %w", errors.New("not UTF-8"))
	}
	return string(b), nil
}

// Lines of a composed prompt. The first ones are the original's, word for word.
const (
	accessRead      = "**Access: read-only.** Do not create, edit, or delete files. Return the complete result in the final message."
	accessWorkspace = "**Access: workspace-write.** Work only inside the current project or worktree. Return outcome, changed files, validation, and blockers in the final message."
	accessFull      = "**Access: unrestricted and explicitly authorized for this run.** Minimize changes outside the project and report every external effect."
	piLimitation    = "**Pi limitation:** Read-only Pi has file/search tools but no shell or test execution. Do not narrow scope; mark command-dependent claims unverified and return NO-GO when they are decisive."
	isolation       = "**Isolation: Git worktree.** Stay in the current worktree; do not switch branches, touch the main checkout, push, merge, or remove the worktree."
	escalation      = "**Blocked?** End your final message with a line that begins with QUESTION: and says what you need; the answer comes as the next message."
	goOn            = "[continue] Same rules as before; escalate with QUESTION: if blocked."
)
