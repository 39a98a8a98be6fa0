package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// post sends a conversation and returns the status and the events by type.
func post(t *testing.T, ctx context.Context, url string, body any) (status int, text string, events map[string][]object) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	events = map[string][]object{}
	var all strings.Builder
	lines := bufio.NewScanner(io.TeeReader(resp.Body, &all))
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var e object
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			kind := e["type"].(string)
			events[kind] = append(events[kind], e)
		}
	}
	return resp.StatusCode, all.String(), events
}

func user(text string) object {
	return object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": text}}}
}

func TestResponses(t *testing.T) {
	s := &Server{}
	web := httptest.NewServer(s)
	defer web.Close()
	url := web.URL + "/v1/responses"
	call := object{"type": "function_call", "name": "exec_command", "call_id": "c", "arguments": "{}"}
	output := func(text string) object {
		return object{"type": "function_call_output", "call_id": "c", "output": text}
	}
	plain := []any{object{"type": "function", "name": "exec_command"}, object{"type": "function", "name": "write_stdin"}}
	for _, c := range []struct {
		name   string
		tools  []any
		input  []any
		status int
		want   string // in the body
		step   string
	}{
		{"text", nil, []any{user("x\nMOCK: text hello there")}, 200, `"text":"hello there"`, "text hello there"},
		{"no script", nil, []any{user("x")}, 200, "nothing more to say", outOfSteps},
		{"the newest script", nil, []any{user("MOCK: text old"), user("MOCK: text new"), user("no steps")}, 200, `"text":"new"`, "text new"},
		{"shell", plain, []any{user("MOCK: shell echo a\\nb")}, 200, `{\"cmd\":\"echo a\\nb\"}`, "shell echo a\\nb"},
		{"after a call", plain, []any{user("MOCK: shell x\nMOCK: text done"), call, output("exit")}, 200, `"text":"done"`, "text done"},
		{"still running", plain, []any{user("MOCK: shell x\nMOCK: text done"), call, output("Process running with session ID 7")}, 200, `\"session_id\":7`, "text done"},
		{"code mode", nil, []any{object{"type": "additional_tools", "tools": []any{object{"type": "custom", "name": "exec"}}}, user("MOCK: shell echo hi")}, 200, "tools.exec_command", "shell echo hi"},
		{"namespaced tools", []any{object{"type": "namespace", "name": "n", "tools": plain}}, []any{user("MOCK: shell echo hi")}, 200, `"name":"exec_command"`, "shell echo hi"},
		{"no tool", nil, []any{user("MOCK: shell echo hi")}, 200, "no shell tool", "shell echo hi"},
		{"status", nil, []any{user("MOCK: status 401")}, 401, "authentication_error", "status 401"},
		{"limit", nil, []any{user("MOCK: usage_limit")}, 429, "usage_limit_reached", "usage_limit"},
		{"slow", nil, []any{user("MOCK: slow 3 0.001")}, 200, `"text":"word0 word1 word2 "`, "slow 3 0.001"},
		{"empty", nil, []any{user("MOCK: empty")}, 200, `"output":[]`, "empty"},
		{"unknown", nil, []any{user("MOCK: dance")}, 200, "knows no step dance", "dance"},
	} {
		status, text, events := post(t, t.Context(), url, object{"model": "m", "stream": true, "tools": c.tools, "input": c.input})
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
		if status == 200 && (len(events["response.created"]) != 1 || len(events["response.completed"]) != 1) {
			t.Errorf("%s: events %v", c.name, events)
		}
		got := s.Requests()
		if last := got[len(got)-1]; last.Step != c.step || last.Model != "m" {
			t.Errorf("%s: recorded %+v", c.name, last)
		}
	}
	for _, step := range []string{"hang", "hang0"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		status, text, events := post(t, ctx, url, object{"input": []any{user("MOCK: " + step)}})
		cancel()
		if len(events["response.completed"]) != 0 || step == "hang" && status != 200 || step == "hang0" && status != 0 {
			t.Errorf("%s: %d %s", step, status, text)
		}
	}
}

func TestMessages(t *testing.T) {
	s := &Server{}
	web := httptest.NewServer(s)
	defer web.Close()
	url := web.URL + "/v1/messages"
	tools := []any{object{"name": "Bash"}}
	ask := object{"role": "user", "content": "MOCK: shell echo hi\nMOCK: text done"}
	use := object{"role": "assistant", "content": []any{object{"type": "tool_use", "id": "t", "name": "Bash", "input": object{}}}}
	answered := object{"role": "user", "content": []any{object{"type": "tool_result", "tool_use_id": "t", "content": "hi"}}}
	for _, c := range []struct {
		name     string
		stream   bool
		tools    []any
		messages []any
		status   int
		want     string
	}{
		{"tool", true, tools, []any{ask}, 200, `echo hi`},
		{"after a tool", true, tools, []any{ask, use, answered}, 200, `"text":"done"`},
		{"a side request", false, nil, []any{ask}, 200, "nothing more to say"},
		{"status", true, tools, []any{object{"role": "user", "content": "MOCK: status 529"}}, 529, "overloaded_error"},
		{"slow", true, tools, []any{object{"role": "user", "content": "MOCK: slow 2 0.001"}}, 200, "word1"},
		{"limit", true, tools, []any{object{"role": "user", "content": "MOCK: usage_limit"}}, 429, "rate_limit_error"},
	} {
		status, text, events := post(t, t.Context(), url, object{"model": "m", "stream": c.stream, "tools": c.tools, "messages": c.messages})
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
		if c.stream && status == 200 && (len(events["message_start"]) != 1 || len(events["message_stop"]) != 1) {
			t.Errorf("%s: events %v", c.name, events)
		}
	}
}

func TestOtherRequests(t *testing.T) {
	web := httptest.NewServer(&Server{})
	defer web.Close()
	for path, want := range map[string]int{"/v1/models": 200, "/v1/nosuch": 404} {
		resp, err := http.Get(web.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	resp, err := http.Post(web.URL+"/v1/responses", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("half a request: %d", resp.StatusCode)
	}
}
