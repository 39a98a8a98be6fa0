package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// claude is `claude -p --output-format stream-json --verbose`.
type claude struct {
	*fake
	resume string
}

const claudeFresh = "22222222-2222-4222-8222-222222222222"

func (c *claude) options() (int, bool) {
	if len(c.args) > 0 && c.args[0] == "--version" {
		fmt.Println("2.1.332 (Claude Code)")
		return 0, true
	}
	for i := range c.args {
		if v, n := option(c.args, i, "--resume", "-r"); n > 0 {
			c.resume = v
		}
		if v, n := option(c.args, i, "--output-format"); n > 0 && v == "stream-json" && !slices.Contains(c.args, "--verbose") {
			return usageError(1, "When using --print, --output-format=stream-json requires --verbose")
		}
	}
	return 0, false
}

func (c *claude) input() (int, bool) { c.prompt = string(c.stdin); return 0, false }
func (c *claude) id() string         { return c.sessionOr(c.resume, claudeFresh) }

func (c *claude) start() {
	dir, err := os.Getwd()
	check(err)
	emit("type", "system", "subtype", "init", "session_id", c.id(), "cwd", dir, "tools", []string{"Bash"}, "model", "fake", "permissionMode", "default")
}

func (c *claude) message(t string) {
	emit("type", "assistant", "message", object{"role": "assistant", "content": []any{object{"type": "text", "text": t}}}, "session_id", c.id())
}

func (c *claude) toolOutput(n int) {
	fmt.Fprint(os.Stdout, `{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"`)
	spill(os.Stdout, n)
	fmt.Fprintf(os.Stdout, `"}]},"session_id":"%s"}`+"\n", c.id())
}

func (c *claude) retry(i, n int) {
	emit("type", "system", "subtype", "api_retry", "attempt", i, "max_retries", n, "error_status", 429, "session_id", c.id())
}

func (c *claude) finish(answer string) { c.emitResult(false, answer) }

// emitResult: newer versions do not begin with "type".
func (c *claude) emitResult(isError bool, text string) {
	emit("duration_api_ms", 12, "type", "result", "subtype", "success", "is_error", isError, "result", text, "session_id", c.id(),
		"total_cost_usd", 0.0123, "usage", object{"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 20}, "num_turns", 1)
}

func (c *claude) failure(t string) int { c.emitResult(true, t); return 1 }
func (c *claude) quota() int {
	return c.failure("You've hit your limit \u00b7 resets 1pm (Europe/Lisbon)")
}

// pi is `pi --mode json` and `omp --mode json`, whose events are nearly the same, and omp's text form.
type pi struct {
	*fake
	resume string
	json   bool
}

const piFresh = "01900000-0000-7000-8000-000000000001"

func (p *pi) options() (int, bool) {
	if len(p.args) > 0 {
		switch {
		case p.args[0] == "--version" && p.as == "omp":
			fmt.Println("omp/18.2.3")
			return 0, true
		case p.args[0] == "--version":
			fmt.Println(env("FAKEAGENT_VERSION", "1.6.0"))
			return 0, true
		case p.args[0] == "auth":
			emit("status", "ready", "provider", "openai-codex", "authType", "oauth")
			return 0, true
		}
	}
	for i := range p.args {
		if v, n := option(p.args, i, "--mode"); n > 0 {
			p.json = v == "json"
		}
		if v, n := option(p.args, i, "--session-id", "--session", "--resume", "-r"); n > 0 {
			p.resume = v
		}
		if name, ok := strings.CutPrefix(p.args[i], "@"); ok {
			data, err := os.ReadFile(name)
			check(err)
			p.prompt = string(data)
		}
	}
	return 0, false
}

func (p *pi) input() (int, bool) { p.prompt = string(p.stdin) + p.prompt; return 0, false }

func (p *pi) start() {
	if !p.json {
		fmt.Fprintln(os.Stderr, "Working...")
		return
	}
	dir, err := os.Getwd()
	check(err)
	emit("type", "session", "version", 3, "id", p.sessionOr(p.resume, piFresh), "timestamp", "2026-01-01T00:00:00.000Z", "cwd", dir)
	emit("type", "agent_start")
	emit("type", "turn_start")
}

func (p *pi) emitMessage(stop, text, failure string) {
	m := object{"role": "assistant", "content": []any{object{"type": "text", "text": text}}, "stopReason": stop,
		"usage": object{"input": 10, "output": 20, "cacheRead": 100, "cacheWrite": 0, "totalTokens": 130, "cost": object{"total": 0.0123}}}
	if failure != "" {
		m["errorMessage"] = failure
	}
	emit("type", "message_end", "message", m)
}

func (p *pi) message(t string) {
	if p.json {
		p.emitMessage("toolUse", t, "")
	}
}

func (p *pi) toolOutput(n int) {
	fmt.Fprint(os.Stdout, `{"type":"tool_execution_end","toolCallId":"call_1|fc_1","toolName":"bash","result":{"content":[{"type":"text","text":"`)
	spill(os.Stdout, n)
	fmt.Fprint(os.Stdout, `"}]},"isError":false}`+"\n")
}

func (p *pi) retry(i, n int) {
	if p.json {
		emit("type", "auto_retry_start", "attempt", i, "maxAttempts", n, "delayMs", 2000, "errorMessage", "500")
	}
}

func (p *pi) finish(answer string) {
	if !p.json {
		fmt.Println(answer)
		return
	}
	p.emitMessage("stop", answer, "")
	p.closing()
}

func (p *pi) closing() {
	emit("type", "turn_end", "toolResults", []any{})
	emit("type", "agent_end", "messages", []any{}, "willRetry", false)
	if p.as == "pi" {
		emit("type", "agent_settled", "aborted", false)
	}
}

// failure: pi exits 0 in its JSON form whatever happened; omp exits 1.
func (p *pi) failure(t string) int {
	if !p.json {
		fmt.Fprintln(os.Stderr, t)
		return 1
	}
	p.emitMessage("error", "", t)
	p.closing()
	if p.as == "omp" {
		return 1
	}
	return 0
}

func (p *pi) quota() int {
	return p.failure("You have hit your ChatGPT usage limit (plus plan). Try again in ~34 min.")
}

// muse is `muse exec --json`.
type muse struct {
	*fake
	resume string
	number int
}

const museFresh = "33333333-3333-4333-8333-333333333333"

func (m *muse) options() (int, bool) {
	for i := range m.args {
		if v, n := option(m.args, i, "--session-id"); n > 0 {
			m.resume = v
		}
		if v, n := option(m.args, i, "--prompt-file"); n > 0 {
			data, err := os.ReadFile(v)
			check(err)
			m.prompt = string(data)
		}
	}
	return 0, false
}

func (m *muse) input() (int, bool) { return 0, false }

func (m *muse) record(kind string, payload object) {
	m.number++
	emit("schema_version", 1, "stream", object{"kind": "session", "id": m.sessionOr(m.resume, museFresh)}, "sequence", m.number,
		"record_type", "event", "payload_type", kind, "payload", payload)
}

func (m *muse) start()           { m.record("run.lifecycle.started", object{"kind": "run_started"}) }
func (m *muse) message(t string) { m.record("run.output.delta", object{"text": t}) }
func (m *muse) toolOutput(n int) {
	fmt.Fprint(os.Stdout, `{"schema_version":1,"stream":{"kind":"run","id":"r-1"},"record_type":"event","payload_type":"tool.result","payload":{"output":"`)
	spill(os.Stdout, n)
	fmt.Fprint(os.Stdout, `"}}`+"\n")
}
func (m *muse) retry(i, n int) { m.record("run.lifecycle.retry", object{"attempt": i, "of": n}) }
func (m *muse) finish(answer string) {
	m.record("run.terminal.completed", object{"kind": "run_terminal", "terminal": "completed", "text": answer, "reason": nil})
}
func (m *muse) failure(t string) int {
	m.record("run.terminal.failed", object{"kind": "run_terminal", "terminal": "failed", "text": "", "error_kind": "provider", "status": 402, "reason": t})
	return 1
}
func (m *muse) quota() int { return m.failure("billing_not_configured") }
