package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// A tool as the Responses API lists it; a namespace holds more of them.
type tool struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Tools []tool `json:"tools"`
}

func names(tools []tool) []string {
	var out []string
	for _, t := range tools {
		switch {
		case t.Type == "namespace":
			out = append(out, names(t.Tools)...)
		case t.Name != "":
			out = append(out, t.Name)
		default:
			out = append(out, t.Type)
		}
	}
	return out
}

// responses is POST /v1/responses with stream: true.
func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model string `json:"model"`
		Tools []tool `json:"tools"`
		Input []struct {
			Type    string          `json:"type"`
			Role    string          `json:"role"`
			Name    string          `json:"name"`
			Content json.RawMessage `json:"content"`
			Output  json.RawMessage `json:"output"`
			Tools   []tool          `json:"tools"`
		} `json:"input"`
	}
	if !readJSON(w, r, &req) {
		return
	}
	var t turn
	tools := names(req.Tools)
	poll := ""
	for _, item := range req.Input {
		poll = ""
		switch item.Type {
		case "additional_tools": // the default model gets its tools this way
			tools = append(tools, names(item.Tools)...)
		case "", "message":
			if item.Role == "user" {
				t.user(contentText(item.Content))
			}
		case "function_call", "custom_tool_call", "local_shell_call":
			if item.Name != "write_stdin" && item.Name != "wait" {
				t.calls++
			}
		case "function_call_output", "custom_tool_call_output":
			poll = string(item.Output)
		}
	}
	step := t.step()
	verb, rest, _ := strings.Cut(step, " ")
	n := s.record(Request{Path: r.URL.Path, Model: req.Model, Step: step, Tools: tools, Items: len(req.Input), Auth: r.Header.Get("Authorization") != ""})
	if refuse(w, r, verb, rest, false) {
		return
	}
	a := &answer{stream: openStream(w, r), id: fmt.Sprintf("resp_mock_%04d", n), tools: tools}
	a.send("response.created", object{"response": object{"id": a.id, "object": "response", "status": "in_progress", "output": []any{}}})
	// A command that is still running is asked after until it ends, as a model would.
	if m := stillRunning.FindStringSubmatch(poll); m != nil {
		a.call("write_stdin", object{"session_id": json.Number(m[1]), "chars": "", "yield_time_ms": 30000})
	} else if m := stillInCell.FindStringSubmatch(poll); m != nil {
		a.call("wait", object{"cell_id": m[1], "yield_time_ms": 30000})
	} else if !a.perform(verb, rest) {
		return
	}
	a.send("response.completed", object{"response": object{"id": a.id, "object": "response", "status": "completed", "output": a.output,
		"usage": object{"input_tokens": 1000 + n, "input_tokens_details": object{"cached_tokens": 100}, "output_tokens": 20,
			"output_tokens_details": object{"reasoning_tokens": 7}, "total_tokens": 1020 + n}}})
}

var (
	stillRunning = regexp.MustCompile(`running with session ID (\d+)`)
	stillInCell  = regexp.MustCompile(`running with cell ID ([^\s\\"]+)`)
)

// contentText joins the texts of a message, whose content is a text or a list of parts.
func contentText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n")
}

// An answer is one response being streamed.
type answer struct {
	stream
	id     string
	tools  []string
	output []any
}

// perform streams a step; false means that the client has gone away.
func (a *answer) perform(verb, rest string) bool {
	switch verb {
	case "hang":
		<-a.r.Context().Done()
		return false
	case "slow":
		texts, gap := pieces(rest)
		return a.message(texts, gap)
	case "shell":
		a.shell(strings.ReplaceAll(rest, `\n`, "\n"))
		return true
	case "empty":
		return true
	case "text":
		return a.message([]string{rest}, 0)
	}
	return a.message([]string{"the mock knows no step " + verb}, 0)
}

func (a *answer) message(texts []string, gap time.Duration) bool {
	index := len(a.output)
	id := fmt.Sprintf("msg_%s_%d", a.id, index)
	a.send("response.output_item.added", object{"output_index": index,
		"item": object{"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []any{}}})
	for _, t := range texts {
		if gap > 0 && !a.wait(gap) {
			return false
		}
		a.send("response.output_text.delta", object{"item_id": id, "output_index": index, "content_index": 0, "delta": t})
	}
	a.item(object{"type": "message", "id": id, "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": strings.Join(texts, ""), "annotations": []any{}}}})
	return true
}

// item streams a finished item.
func (a *answer) item(item object) {
	a.send("response.output_item.done", object{"output_index": len(a.output), "item": item})
	a.output = append(a.output, item)
}

func (a *answer) call(name string, arguments object) {
	data, err := json.Marshal(arguments)
	if err != nil {
		panic(err) // only values made here come here
	}
	k := len(a.output)
	a.item(object{"type": "function_call", "id": fmt.Sprintf("fc_%s_%d", a.id, k), "call_id": fmt.Sprintf("call_%s_%d", a.id, k),
		"name": name, "arguments": string(data), "status": "completed"})
}

// shell calls whatever tool this model has for commands.
func (a *answer) shell(command string) {
	has := func(name string) bool {
		for _, t := range a.tools {
			if t == name {
				return true
			}
		}
		return false
	}
	switch {
	case has("exec"): // JavaScript that calls the tools
		quoted, err := json.Marshal(command)
		if err != nil {
			panic(err) // a string always encodes
		}
		k := len(a.output)
		a.item(object{"type": "custom_tool_call", "id": fmt.Sprintf("ctc_%s_%d", a.id, k), "call_id": fmt.Sprintf("call_%s_%d", a.id, k),
			"name": "exec", "status": "completed", "input": "// @exec: {\"yield_time_ms\": 600000}\n" +
				"let r = await tools.exec_command({cmd: " + string(quoted) + ", yield_time_ms: 30000});\n" +
				"while (r.exit_code === undefined && r.session_id !== undefined) {\n" +
				"  r = await tools.write_stdin({session_id: r.session_id, chars: \"\", yield_time_ms: 30000});\n}\n" +
				"text(r.output);\n"})
	case has("exec_command"):
		a.call("exec_command", object{"cmd": command})
	case has("shell_command"):
		a.call("shell_command", object{"command": command, "timeout_ms": 600000})
	case has("shell"):
		a.call("shell", object{"command": []string{"bash", "-c", command}, "timeout_ms": 600000})
	case has("bash"): // pi and omp
		a.call("bash", object{"command": command})
	default:
		a.message([]string{"the mock found no shell tool"}, 0)
	}
}
