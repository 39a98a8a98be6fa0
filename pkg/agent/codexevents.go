package agent

import (
	"bytes"
	"strings"
)

// codexEvents reads `codex exec --json`: one event a line on standard output, log lines on standard error.
type codexEvents struct{}

// answerPaths: of an oversized line only an agent message's text (or reasoning, which shares its place) is kept at
// length; the output of commands stands elsewhere.
func (codexEvents) answerPaths() []string { return []string{"item.text", "msg.message", "message"} }

func (codexEvents) Line(stream Stream, line []byte, tr *Transcript) bool {
	e := parseObject(line)
	if e == nil {
		if text := bytes.TrimSpace(line); stream != Stdout && bytes.HasPrefix(text, []byte("Error: ")) {
			tr.LastErrorLine = short(string(text[:min(len(text), maxPlain)]))
		}
		return false
	}
	tr.Events++
	kind := e.text("type")
	codexThread(e, kind, tr)
	switch kind {
	case "turn.started":
		// A stream may hold several turns; the last one's end counts.
		tr.Terminal, tr.Failed = false, false
	case "turn.completed":
		tr.Terminal, tr.Failed, tr.Error = true, false, ""
		if u := e.object("usage"); u != nil {
			// Cumulative over the thread's life: the newest report replaces the older one.
			tr.Usage.Input, tr.Usage.Output = u.count("input_tokens"), u.count("output_tokens")
			tr.Usage.Cached, tr.Usage.Total = u.count("cached_input_tokens"), u.count("total_tokens")
		}
	case "turn.failed":
		tr.Terminal, tr.Failed = true, true
		if m := strings.TrimSpace(e.message("error")); m != "" {
			tr.Error = m
		}
	case "error":
		m := e.message("message")
		if retryNotice(m) {
			return true
		}
		if m != "" {
			tr.Error = m
		}
	case "item.completed", "item.updated":
		codexItem(e.object("item"), tr)
	default:
		codexOldForm(e, tr)
	}
	return false
}

// codexThread takes a session id from wherever this and older versions put it.
func codexThread(e fields, kind string, tr *Transcript) {
	var id string
	for _, key := range []string{"session_id", "sessionId", "thread_id", "conversation_id"} {
		if s := sessionID(e.text(key)); s != "" {
			id = s
		}
	}
	if s := sessionID(e.object("session").text("id")); s != "" {
		id = s
	}
	if id == "" {
		return
	}
	if tr.Session == "" {
		tr.Session = id
	}
	tr.sawSession(id)
}

func codexItem(item fields, tr *Transcript) {
	kind := first(item.text("item_type"), item.text("type"))
	text := item.text("text")
	switch kind {
	case "agent_message":
		if strings.TrimSpace(text) != "" {
			tr.Response = text
		}
	case "reasoning":
		if text != "" {
			tr.Thinking = text
		}
	case "error":
		if m := item.message("message"); m != "" {
			tr.Note("codex: %s", m)
		}
	}
}

// codexOldForm reads the events of versions before 0.44.
func codexOldForm(e fields, tr *Transcript) {
	msg := e
	if m := e.object("msg"); m != nil {
		msg = m
	}
	switch msg.text("type") {
	case "agent_message", "assistant_message":
		if m := msg.text("message"); strings.TrimSpace(m) != "" {
			tr.Response = m
		}
		return
	case "agent_reasoning", "reasoning":
		if m := msg.text("text"); m != "" {
			tr.Thinking = m
		}
		return
	}
	if m := e.text("agent_message"); strings.TrimSpace(m) != "" {
		tr.Response = m
	}
}

const codexRetryEvent = `{"type":"error","message":"Reconnecting...`

func (codexEvents) quietSoFar(partial []byte) bool {
	n := min(len(partial), len(codexRetryEvent))
	return string(partial[:n]) == codexRetryEvent[:n]
}
