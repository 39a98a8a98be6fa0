package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// muse is Meta's Muse Code, run as `muse exec --json`. Facts about the client are those of public reports about 0.1
// to 1.4.
type muse struct{}

func init() { register(muse{}) }

func (muse) Name() string      { return "muse" }
func (muse) Summary() string   { return "Meta muse exec" }
func (muse) binaryVar() string { return "MUSE_BIN" }

func (muse) Capabilities() Capabilities {
	return Capabilities{
		Streams:     true,
		Resumes:     true,
		Doors:       []string{DoorDispatch, DoorHerd, DoorFanout},
		FirstSignal: sigTerm,
		Grace:       5 * time.Second,
		IdleReaps:   true,
	}
}

func (muse) herdStops() []StopStep {
	return []StopStep{{sigInt, time.Second}, {sigTerm, 4 * time.Second}}
}

func (muse) Command(t Turn) (Command, error) {
	if t.Resume != "" && !sessionWord(t.Resume) {
		return Command{}, fmt.Errorf("%w: muse: %q is no session id", ErrBadResume, short(t.Resume))
	}
	args := []string{"exec", "--json", "--workspace", t.Dir}
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	if t.Effort != "" {
		args = append(args, "--reasoning-effort", t.Effort)
	}
	switch first(t.Access, AccessFull) {
	case AccessReadOnly:
		args = append(args, "--disable-approval", "--disable-write", "--disable-shell")
	case AccessWorkspace:
		args = append(args, "--disable-approval")
	case AccessFull:
		args = append(args, "--yolo")
	default:
		return Command{}, fmt.Errorf("%w: muse: access %q", ErrBadTurn, short(t.Access))
	}
	args = append(args, t.BackendArgs...)
	args = append(args, "--prompt-file", first(t.PromptFile, filepath.Join(t.StateDir, "prompt-relay")))
	if t.Resume != "" {
		args = append(args, "--session-id", t.Resume)
	}
	return Command{Path: program(t, "muse"), Args: args}, nil
}

// Stdin is empty: muse reads its prompt from a file.
func (muse) Stdin(Turn, []byte) ([]byte, error) { return nil, nil }

// Relay is the prompt as it is: the file that keeps it is the one that muse reads.
func (muse) Relay(_ Turn, prompt []byte) string { return string(prompt) }

func (muse) Probes(Turn) []Probe   { return nil }
func (muse) NewParser(Turn) Parser { return museEvents{} }

func (muse) Judge(t Turn, tr *Transcript, x Ending) Verdict {
	v := judgeStream("muse", tr, x)
	compareSession("muse", t, tr, &v)
	v.conclude(tr, x)
	return v
}

// museEvents reads `--json`: records in an envelope. A failed tool is no failed run; run.terminal.* decides.
type museEvents struct{}

func (museEvents) answerPaths() []string { return []string{"payload.text"} }

const museTerminal = "run.terminal."

func (museEvents) Line(stream Stream, line []byte, tr *Transcript) bool {
	e := parseObject(line)
	if e == nil || stream == Stderr {
		if stream != Stdout {
			lastWords(line, tr)
		}
		return false
	}
	tr.Events++
	if s := e.object("stream"); s.text("kind") == "session" {
		if id := sessionID(s.text("id")); id != "" {
			if tr.Session == "" {
				tr.Session = id
			}
			tr.sawSession(id)
		}
	}
	kind := e.text("payload_type")
	switch {
	case kind == "run.lifecycle.started":
		// A process may hold two runs; the last one's end counts.
		tr.Terminal, tr.Failed, tr.Error = false, false, ""
	case strings.HasPrefix(kind, museTerminal):
		body := e.object("payload")
		tr.Terminal = true
		tr.Status, tr.HasStatus = short(first(body.text("terminal"), kind[len(museTerminal):])), true
		if text := body.text("text"); strings.TrimSpace(text) != "" {
			tr.Response = text
		}
		tr.Failed, tr.Error = tr.Status != "completed" || kind != museTerminal+"completed", ""
		if tr.Failed {
			said := first(body.text("reason"), body.text("error_kind"))
			tr.Error = strings.TrimSuffix("muse "+tr.Status+": "+said, ": ")
		}
	}
	return false
}
