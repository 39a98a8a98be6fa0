package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// messages is POST /v1/messages, streamed or not.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if !readJSON(w, r, &req) {
		return
	}
	var t turn
	for _, m := range req.Messages {
		if m.Role == "user" {
			t.user(contentText(m.Content))
			continue
		}
		var blocks []struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue
		}
		for _, b := range blocks {
			if b.Type == "tool_use" {
				t.calls++
			}
		}
	}
	tools := make([]string, len(req.Tools))
	for i, tool := range req.Tools {
		tools[i] = tool.Name
	}
	step := t.step()
	if len(tools) == 0 {
		step = outOfSteps // a side request, such as one for a title
	}
	verb, rest, _ := strings.Cut(step, " ")
	auth := r.Header.Get("X-Api-Key") != "" || r.Header.Get("Authorization") != ""
	n := s.record(Request{Path: r.URL.Path, Model: req.Model, Step: step, Tools: tools, Items: len(req.Messages), Auth: auth})
	if refuse(w, r, verb, rest, true) {
		return
	}
	head := object{"id": fmt.Sprintf("msg_mock_%04d", n), "type": "message", "role": "assistant", "model": req.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 1000 + n, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 100, "output_tokens": 1}}
	if !req.Stream {
		head["content"], head["stop_reason"] = []any{object{"type": "text", "text": rest}}, "end_turn"
		writeJSON(w, http.StatusOK, head)
		return
	}
	b := &blocks{stream: openStream(w, r), stop: "end_turn"}
	b.send("message_start", object{"message": head})
	if !b.perform(verb, rest) {
		return
	}
	b.send("message_delta", object{"delta": object{"stop_reason": b.stop, "stop_sequence": nil}, "usage": object{"output_tokens": 20}})
	b.send("message_stop", object{})
}

// blocks is one message being streamed.
type blocks struct {
	stream
	n    int
	stop string
}

// perform streams a step; false means that the client has gone away.
func (b *blocks) perform(verb, rest string) bool {
	switch verb {
	case "hang":
		<-b.r.Context().Done()
		return false
	case "slow":
		texts, gap := pieces(rest)
		return b.text(texts, gap)
	case "shell":
		b.stop = "tool_use"
		input, err := json.Marshal(object{"command": strings.ReplaceAll(rest, `\n`, "\n"), "description": "a command"})
		if err != nil {
			panic(err) // only values made here come here
		}
		start := object{"type": "tool_use", "id": fmt.Sprintf("toolu_mock_%d", b.n), "name": "Bash", "input": object{}}
		return b.block(start, []object{{"type": "input_json_delta", "partial_json": string(input)}}, 0)
	case "empty":
		return true
	case "text":
		return b.text([]string{rest}, 0)
	}
	return b.text([]string{"the mock knows no step " + verb}, 0)
}

func (b *blocks) text(texts []string, gap time.Duration) bool {
	deltas := make([]object, len(texts))
	for i, t := range texts {
		deltas[i] = object{"type": "text_delta", "text": t}
	}
	return b.block(object{"type": "text", "text": ""}, deltas, gap)
}

func (b *blocks) block(start object, deltas []object, gap time.Duration) bool {
	b.send("content_block_start", object{"index": b.n, "content_block": start})
	for _, d := range deltas {
		if gap > 0 && !b.wait(gap) {
			return false
		}
		b.send("content_block_delta", object{"index": b.n, "delta": d})
	}
	b.send("content_block_stop", object{"index": b.n})
	b.n++
	return true
}
