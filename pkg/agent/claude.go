package agent

import (
	"fmt"
	"strings"
	"time"
)

// claude is Anthropic's claude CLI, run as `claude -p` with its stream of JSON events. Facts about the client are
// those of 2.1.197 and 2.1.332.
type claude struct{}

func init() { register(claude{}) }

func (claude) Name() string      { return "claude" }
func (claude) Summary() string   { return "Anthropic claude -p" }
func (claude) binaryVar() string { return "CLAUDE_BIN" }

func (claude) Capabilities() Capabilities {
	return Capabilities{
		Streams:     true,
		Resumes:     true,
		Doors:       []string{DoorDispatch, DoorHerd, DoorFanout},
		FirstSignal: sigTerm,
		Grace:       5 * time.Second,
		IdleReaps:   true,
	}
}

// herdStops: on INT claude ends its own tools and still writes its closing event.
func (claude) herdStops() []StopStep { return []StopStep{{sigInt, 5 * time.Second}} }

// claudeModes translates the degrees of access.
var claudeModes = map[string]string{
	AccessReadOnly:  "plan",
	AccessWorkspace: "acceptEdits",
	AccessFull:      "bypassPermissions",
}

func (claude) Command(t Turn) (Command, error) {
	mode, known := claudeModes[first(t.Access, AccessFull)]
	if !known {
		return Command{}, fmt.Errorf("%w: claude: access %q", ErrBadTurn, short(t.Access))
	}
	if t.Resume != "" && !sessionWord(t.Resume) {
		return Command{}, fmt.Errorf("%w: claude: %q is no session id", ErrBadResume, short(t.Resume))
	}
	args := []string{"-p", "--output-format", "stream-json", "--verbose", "--permission-mode", mode}
	// --add-dir takes every word that follows it, so none of them may be a plain word: the prompt is on standard
	// input.
	for _, dir := range append([]string{t.Dir}, t.AddDirs...) {
		if dir != "" {
			args = append(args, "--add-dir", dir)
		}
	}
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	if t.Effort != "" {
		args = append(args, "--effort", t.Effort)
	}
	args = append(args, t.BackendArgs...)
	if t.Resume != "" {
		args = append(args, "--resume", t.Resume)
	}
	return Command{Path: program(t, "claude"), Args: args}, nil
}

func (claude) Stdin(_ Turn, prompt []byte) ([]byte, error) { return prompt, nil }
func (claude) Probes(Turn) []Probe                         { return nil }
func (claude) NewParser(Turn) Parser                       { return &claudeEvents{} }

func (claude) Judge(t Turn, tr *Transcript, x Ending) Verdict {
	v := judgeStream("claude", tr, x)
	compareSession("claude", t, tr, &v)
	if v.OK && len(tr.Denied) > 0 {
		v.Notes = append(v.Notes, "claude was refused: "+strings.Join(tr.Denied, ", "))
	}
	v.conclude(tr, x)
	return v
}

// claudeEvents reads `--output-format stream-json`. A process may hold several rounds, each with a result of its own:
// a task in the background keeps it alive after the first, and its end begins another.
type claudeEvents struct {
	open map[string]bool // background tasks by id
}

// maxOpen bounds what a stream can make us remember.
const maxOpen = 256

func (*claudeEvents) answerPaths() []string {
	return []string{"result", "message.content.text", "message.content"}
}

func (p *claudeEvents) Line(stream Stream, line []byte, tr *Transcript) bool {
	e := parseObject(line)
	if e == nil || stream == Stderr {
		if stream != Stdout {
			lastWords(line, tr)
		}
		return false
	}
	tr.Events++
	if id := sessionID(e.text("session_id")); id != "" {
		if tr.Session == "" {
			tr.Session = id
		}
		tr.sawSession(id)
	}
	switch e.text("type") {
	case "system":
		return p.system(e, tr)
	case "assistant":
		if e.text("parent_tool_use_id") != "" {
			// A sub-agent's words are not the answer.
			return false
		}
		content := e.object("message")["content"]
		if text := contentText(content); strings.TrimSpace(text) != "" {
			tr.Response = text
		}
		if thought := contentThinking(content); thought != "" {
			tr.Thinking = thought
		}
	case "thinking":
		// An older shape.
		if thought := e.text("thinking"); thought != "" {
			tr.Thinking = thought
		}
	case "result":
		claudeResult(e, tr)
	}
	return false
}

func (p *claudeEvents) system(e fields, tr *Transcript) (quiet bool) {
	switch e.text("subtype") {
	case "init":
		tr.Terminal, tr.Failed, tr.Error = false, false, ""
	case "api_retry":
		return true
	case "task_started":
		p.task(e.text("task_id"), true)
	case "task_notification":
		p.task(e.text("task_id"), false)
	case "task_updated":
		switch first(e.text("status"), e.object("patch").text("status")) {
		case "completed", "failed", "killed", "stopped", "cancelled":
			p.task(e.text("task_id"), false)
		}
	case "background_tasks_changed":
		clear(p.open)
		for _, one := range e.list("tasks") {
			if m, ok := one.(map[string]any); ok {
				p.task(first(fields(m).text("task_id"), fields(m).text("id")), true)
			}
		}
	}
	tr.Open = len(p.open)
	return false
}

func (p *claudeEvents) task(id string, open bool) {
	switch {
	case id == "" || len(id) > maxID:
	case !open:
		delete(p.open, id)
	case len(p.open) < maxOpen:
		if p.open == nil {
			p.open = make(map[string]bool)
		}
		p.open[id] = true
	}
}

// claudeResult takes the event that closes a round. Its subtype is no guide: a failure of the service is "success"
// with is_error.
func claudeResult(e fields, tr *Transcript) {
	tr.Terminal, tr.Failed, tr.Error = true, false, ""
	tr.Status, tr.HasStatus = short(e.text("subtype")), e.has("subtype")
	text := e.text("result")
	if failed, _ := e["is_error"].(bool); failed {
		tr.Failed = true
		said := text
		if said == "" {
			for _, one := range e.list("errors") {
				if s, ok := one.(string); ok {
					said = first(said, s)
				}
			}
		}
		if word := e.text("subtype"); word != "" && word != "success" {
			said = strings.TrimSuffix(word+": "+said, ": ")
		}
		tr.Error = said
	}
	if strings.TrimSpace(text) != "" {
		tr.Response = text
	}
	for _, one := range e.list("permission_denials") {
		if m, ok := one.(map[string]any); ok {
			tr.deny(short(first(fields(m).text("tool_name"), "an action")))
		}
	}
	if u := e.object("usage"); u != nil {
		tr.Usage.Input, tr.Usage.Output = u.count("input_tokens"), u.count("output_tokens")
		tr.Usage.Cached = u.count("cache_read_input_tokens")
	}
	if cost, ok := e["total_cost_usd"].(float64); ok && cost >= 0 {
		tr.Usage.CostUSD = &cost
		// Newer versions count the cost of the whole session, and have this member.
		tr.Usage.CostOfSession = e.has("model_usage_since_last_result")
	}
}
