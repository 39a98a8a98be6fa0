package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// pi is the pi coding agent in its JSON mode. Facts about the client are those of 1.6.0 and 0.73.1.
type pi struct{}

func init() { register(pi{}) }

func (pi) Name() string      { return "pi" }
func (pi) Summary() string   { return "pi --mode json" }
func (pi) binaryVar() string { return "PI_BIN" }

func (pi) Capabilities() Capabilities {
	return Capabilities{
		Streams:     true,
		Resumes:     true,
		Doors:       []string{DoorDispatch, DoorHerd, DoorFanout},
		FirstSignal: sigTerm,
		Grace:       5 * time.Second,
		IdleReaps:   true,
	}
}

// herdStops: pi ends its tools on TERM and not on INT, which a tool of the user's may still want to hear first.
func (pi) herdStops() []StopStep {
	return []StopStep{{sigInt, time.Second}, {sigTerm, 4 * time.Second}}
}

// PiConfined is why pi cannot have workspace-write.
const PiConfined = "pi has no confined workspace-write mode; use readonly, or full for explicit unrestricted access"

func (pi) Command(t Turn) (Command, error) {
	access := first(t.Access, AccessFull)
	if access != AccessReadOnly && access != AccessFull {
		return Command{}, fmt.Errorf("%w: %s", ErrBadTurn, PiConfined)
	}
	if t.Resume != "" && !sessionWord(t.Resume) {
		return Command{}, fmt.Errorf("%w: pi: %q is no session id", ErrBadResume, short(t.Resume))
	}
	old := piOld(t.ClientVersion)
	args := []string{"--mode", "json", "--provider", "openai-codex"}
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	if t.Effort != "" {
		args = append(args, "--thinking", t.Effort)
	}
	args = append(args, "--session-dir", first(t.SessionDir, filepath.Join(t.StateDir, "pi-session")))
	if !old {
		args = append(args, "--no-approve")
	}
	args = append(args, "--no-extensions", "--no-skills", "--no-prompt-templates")
	if access == AccessReadOnly {
		args = append(args, "--tools", "read,grep,find,ls")
	}
	args = append(args, t.BackendArgs...)
	switch {
	case t.Resume != "" && old:
		args = append(args, "--session", t.Resume)
	case t.Resume != "":
		args = append(args, "--session-id", t.Resume)
	}
	return Command{Path: program(t, "pi"), Args: args}, nil
}

// piOld reports a version before 1.0, which knows neither --no-approve nor --session-id and ends with status 1 when
// it meets them.
func piOld(version string) bool { return strings.HasPrefix(version, "0.") }

func (pi) Stdin(_ Turn, prompt []byte) ([]byte, error) { return prompt, nil }
func (pi) Probes(Turn) []Probe                         { return nil }
func (pi) NewParser(Turn) Parser                       { return piEvents{} }

func (pi) Judge(t Turn, tr *Transcript, x Ending) Verdict {
	v := judgeStream("pi", tr, x)
	if v.OK && tr.Status != "stop" {
		// The header and a status of 0 come without any turn, too, and so does an answer that was cut.
		v.OK, v.ExitStatus = false, statusJudgedFailed
		v.Reason = "pi ended without a final answer"
		if tr.HasStatus {
			v.Reason = "pi's last message stopped for: " + first(tr.Status, "no reason")
		}
	}
	compareSession("pi", t, tr, &v)
	v.conclude(tr, x)
	return v
}

// piEvents reads `--mode json`. The status is 0 whatever happened; the last assistant message says how it went, and
// agent_settled (before 1.0 agent_end) that nothing more comes.
type piEvents struct{}

func (piEvents) answerPaths() []string {
	return []string{"message.content.text", "message.content"}
}

func (piEvents) Line(stream Stream, line []byte, tr *Transcript) bool {
	e := parseObject(line)
	if e == nil || stream == Stderr {
		if stream != Stdout {
			lastWords(line, tr)
		}
		return false
	}
	tr.Events++
	switch e.text("type") {
	case "session":
		if id := sessionID(e.text("id")); id != "" {
			if tr.Session == "" {
				tr.Session = id
			}
			tr.sawSession(id)
		}
	case "agent_start":
		tr.Terminal = false
	case "message_end":
		if m := e.object("message"); m.text("role") == "assistant" {
			piMessage(m, tr)
		}
	case "agent_end":
		again, _ := e["willRetry"].(bool)
		tr.Terminal = !again
	case "agent_settled":
		tr.Terminal = true
		if aborted, _ := e["aborted"].(bool); aborted {
			tr.Failed, tr.Error = true, first(tr.Error, "pi was aborted")
		}
	case "auto_retry_start":
		return true
	}
	return false
}

func piMessage(m fields, tr *Transcript) {
	if text := strings.TrimSpace(contentText(m["content"])); text != "" {
		tr.Response = text
	}
	if thought := contentThinking(m["content"]); thought != "" {
		tr.Thinking = thought
	}
	if u := m.object("usage"); u != nil {
		add(&tr.Usage.Input, u.count("input"))
		add(&tr.Usage.Output, u.count("output"))
		add(&tr.Usage.Cached, u.count("cacheRead"))
		add(&tr.Usage.Total, u.count("totalTokens"))
		if cost, ok := u.object("cost")["total"].(float64); ok && cost >= 0 {
			if tr.Usage.CostUSD != nil {
				cost += *tr.Usage.CostUSD
			}
			tr.Usage.CostUSD = &cost
		}
	}
	tr.Status, tr.HasStatus = short(m.text("stopReason")), true
	tr.Failed, tr.Error = false, ""
	if tr.Status == "error" || tr.Status == "aborted" {
		tr.Failed, tr.Error = true, first(m.text("errorMessage"), "pi's last message stopped for: "+tr.Status)
	}
}

// add sums what each message reports.
func add(sum **int64, n *int64) {
	if n == nil {
		return
	}
	total := *n
	if *sum != nil {
		total += **sum
	}
	*sum = &total
}
