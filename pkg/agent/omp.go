package agent

import (
	"fmt"
	"path/filepath"
	"time"
)

// omp is the omp coding agent. prun-dispatch runs its JSON mode; in a lane of agent-fanout it prints its answer, as
// its callers have always seen it there. Facts about the client are those of 18.2.3.
type omp struct{}

func init() { register(omp{}) }

func (omp) Name() string      { return "omp" }
func (omp) Summary() string   { return "omp -p, with all permissions of the user" }
func (omp) binaryVar() string { return "OMP_BIN" }

func (omp) Capabilities() Capabilities {
	return Capabilities{
		Streams:     true, // at prun-dispatch
		Resumes:     true,
		Doors:       []string{DoorDispatch, DoorFanout},
		FirstSignal: sigTerm,
		Grace:       5 * time.Second,
		IdleReaps:   true,
	}
}

// plainAt: in a lane it says nothing until its end, and then only its answer.
func (omp) plainAt(door string) bool { return door == DoorFanout }

func (omp) Command(t Turn) (Command, error) {
	if t.Access != "" && t.Access != AccessFull {
		return Command{}, fmt.Errorf("%w: omp has no confined mode: access %q cannot be had", ErrBadTurn, short(t.Access))
	}
	if t.Resume != "" && !sessionWord(t.Resume) {
		return Command{}, fmt.Errorf("%w: omp: %q is no session id", ErrBadResume, short(t.Resume))
	}
	args := []string{"-p", "--no-session", "--auto-approve"}
	if t.door() != DoorFanout {
		args = []string{"--mode", "json", "--auto-approve", "--session-dir", first(t.SessionDir, filepath.Join(t.StateDir, "omp-session"))}
	}
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	if t.Effort != "" {
		args = append(args, "--thinking", t.Effort)
	}
	args = append(args, t.BackendArgs...)
	if t.Resume != "" {
		if t.door() == DoorFanout {
			return Command{}, fmt.Errorf("%w: omp keeps no session in a lane", ErrBadResume)
		}
		args = append(args, "--resume", t.Resume)
	}
	return Command{Path: program(t, "omp"), Args: args}, nil
}

func (omp) Stdin(_ Turn, prompt []byte) ([]byte, error) { return prompt, nil }
func (omp) Probes(Turn) []Probe                         { return nil }

func (o omp) NewParser(t Turn) Parser {
	if o.plainAt(t.door()) {
		return ompPlain{}
	}
	return piEvents{}
}

func (o omp) Judge(t Turn, tr *Transcript, x Ending) Verdict {
	if o.plainAt(t.door()) {
		v := byExit(x, "omp", tr.LastErrorLine)
		v.BackendFailed = !v.OK
		if v.OK && tr.Events == 0 && !x.WorkerResult {
			// It does so for an empty prompt, and when its own time limit ended it.
			v.Notes = append(v.Notes, "omp exited 0 and printed no answer")
		}
		return v
	}
	v := judgeStream("omp", tr, x)
	if v.OK && tr.Status != "stop" {
		v.OK, v.ExitStatus = false, statusJudgedFailed
		v.Reason = "omp ended without a final answer"
		if tr.HasStatus {
			v.Reason = "omp's last message stopped for: " + first(tr.Status, "no reason")
		}
	}
	compareSession("omp", t, tr, &v)
	v.conclude(tr, x)
	return v
}

// ompPlain reads the text mode: an answer on standard output, remarks on standard error.
type ompPlain struct{}

func (ompPlain) Line(stream Stream, line []byte, tr *Transcript) bool {
	if stream == Stdout {
		if short(string(line[:min(len(line), maxPlain)])) != "" {
			tr.Events++
		}
		return false
	}
	lastWords(line, tr)
	return false
}

// Events reports whether a backend's standard output is a stream of events at a door, and not just its answer.
func Events(b Backend, door string) bool {
	if p, ok := b.(interface{ plainAt(door string) bool }); ok && p.plainAt(door) {
		return false
	}
	return b.Capabilities().Streams
}
