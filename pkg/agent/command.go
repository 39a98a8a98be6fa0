package agent

import (
	"fmt"
	"time"
)

// command runs any program: what follows `--`, the prompt on standard input.
type command struct{}

func init() { register(command{}) }

func (command) Name() string { return "command" }
func (command) Summary() string {
	return "any program: the words after --, the prompt on standard input"
}

func (command) Capabilities() Capabilities {
	return Capabilities{
		MergeStderr:      true,
		Doors:            []string{DoorDispatch, DoorFanout},
		FirstSignal:      sigTerm,
		Grace:            2 * time.Second,
		JudgedByExitOnly: true,
		IdleReaps:        true,
	}
}

func (command) Command(t Turn) (Command, error) {
	if len(t.Argv) == 0 || t.Argv[0] == "" {
		return Command{}, fmt.Errorf("%w: command: no program after --", ErrBadTurn)
	}
	if t.Resume != "" {
		return Command{}, fmt.Errorf("%w: command: a program has no sessions", ErrBadResume)
	}
	args := append([]string{}, t.Argv[1:]...)
	return Command{Path: t.Argv[0], Args: append(args, t.BackendArgs...)}, nil
}

func (command) Stdin(_ Turn, prompt []byte) ([]byte, error) { return prompt, nil }
func (command) Probes(Turn) []Probe                         { return nil }
func (command) NewParser(Turn) Parser                       { return unread{} }

func (command) Judge(_ Turn, _ *Transcript, x Ending) Verdict {
	return byExit(x, "the worker", "")
}

// unread is the parser of a program whose output means nothing to us.
type unread struct{}

func (unread) Line(Stream, []byte, *Transcript) bool { return false }

// byExit judges by the exit status alone; said, when not empty, is the reason the worker gave.
func byExit(x Ending, who, said string) Verdict {
	v := Verdict{OK: x.clean(), ExitStatus: x.exitStatus()}
	switch {
	case v.OK:
	case said != "" && x.Signal == 0:
		v.Reason = said
	default:
		v.Reason = x.describe(who)
	}
	return v
}
