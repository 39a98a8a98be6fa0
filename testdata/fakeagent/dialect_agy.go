package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// agy is the Antigravity CLI in its streaming form, its probes and its usage command.
type agy struct {
	*fake
	resume string
	denied []any
	step   int
}

const agyFresh = "5f0c9a4e-77b1-4a55-9d6e-0c2f6f3b8a11"

func (g *agy) options() (int, bool) {
	args := g.args
	if len(args) > 0 {
		switch args[0] {
		case "--version":
			return g.probe("FAKEAGENT_VERSION_SCRIPT", func() { fmt.Println(env("FAKEAGENT_VERSION", "1.2.17")) })
		case "models":
			return g.probe("FAKEAGENT_MODELS_SCRIPT", printModels)
		}
	}
	got := map[string]string{}
	for i := 0; i < len(args); i++ {
		v, n := option(args, i, "-p", "--print", "--input-format", "--output-format", "--model", "--effort", "--mode", "--print-timeout",
			"--add-dir", "--conversation", "--log-file")
		switch {
		case n > 0:
			name, _, _ := strings.Cut(args[i], "=")
			got[strings.TrimLeft(name, "-")] = v
			i += n - 1
		case args[i] == "--sandbox" || args[i] == "--dangerously-skip-permissions":
		default:
			return usageError(2, "unknown argument %s", args[i])
		}
	}
	prompt, print := got["p"], got["p"] != ""
	switch {
	case print && prompt == "/usage":
		return g.probe("FAKEAGENT_USAGE_SCRIPT", printUsage)
	case print && got["input-format"] != "":
		return usageError(2, "-p and --input-format exclude each other")
	case got["input-format"] == "stream-json" && got["output-format"] != "stream-json":
		return usageError(2, "--input-format stream-json requires --output-format stream-json")
	case got["mode"] != "" && got["mode"] != "plan" && got["mode"] != "accept-edits":
		return usageError(2, "invalid mode %s", got["mode"])
	}
	model, effort := got["model"], got["effort"]
	if effort != "" && (strings.HasPrefix(model, "claude-") || strings.HasPrefix(model, "gpt-")) {
		return g.refuse("--effort is not supported for model " + model)
	}
	for _, tier := range []string{"low", "medium", "high", "max"} {
		if effort != "" && effort != tier && strings.HasSuffix(model, "-"+tier) {
			return g.refuse("invalid model selection: " + model + " conflicts with --effort=" + effort)
		}
	}
	g.resume = got["conversation"]
	return 0, false
}

// refuse is the lone closing event of a turn that never began.
func (g *agy) refuse(why string) (int, bool) {
	emit("event", "result", "result", object{"conversation_id": "", "status": "ERROR", "response": "", "error": why, "usage": noUsage})
	return 1, true
}

// probe does the steps of a variable, or what the real command does.
func (g *agy) probe(variable string, usual func()) (int, bool) {
	if steps := lines(os.Getenv(variable)); len(steps) > 0 {
		return g.do(steps), true
	}
	usual()
	return 0, true
}

func env(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

func printModels() {
	form := env("FAKEAGENT_MODELS_FORM", "tsv")
	if form == "heading" {
		fmt.Println("Available models:")
	}
	for slug := range strings.SplitSeq(env("FAKEAGENT_MODELS", "gemini-3.8-flash-high,gemini-3.8-flash-low,claude-sonnet-4-6,gpt-oss-120b-medium"), ",") {
		name := strings.ToUpper(slug[:1]) + strings.ReplaceAll(slug[1:], "-", " ")
		switch form {
		case "plain":
			fmt.Println(slug)
		case "heading":
			fmt.Printf("  %s - %s\n", slug, name)
		case "joined":
			fmt.Println(slug + name)
		default:
			fmt.Printf("%s\t%s\n", slug, name)
		}
	}
}

func printUsage() {
	if path := os.Getenv("FAKEAGENT_USAGE"); path != "" {
		data, err := os.ReadFile(path)
		check(err)
		_, err = os.Stdout.Write(data)
		check(err)
		return
	}
	bucket := func(id, window string, left float64) object {
		return object{"id": id, "window": window, "remaining_fraction": left, "reset_time": "2099-01-01T00:00:00Z"}
	}
	emit("status", "SUCCESS", "num_turns", 0, "command", object{"name": "usage", "data": object{"groups": []any{
		object{"name": "Gemini Models", "buckets": []any{bucket("gemini-weekly", "weekly", 0.8), bucket("gemini-5h", "5h", 0.6)}},
		object{"name": "Claude and GPT models", "buckets": []any{bucket("3p-weekly", "weekly", 0.5), bucket("3p-5h", "5h", 0.9)}},
	}}}, "plan_tier", "ULTRA")
}

func (g *agy) input() (int, bool) {
	line, _, _ := strings.Cut(string(g.stdin), "\n")
	var in struct {
		Event   string `json:"event"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
	}
	if strings.TrimSpace(line) == "" {
		return 0, false
	}
	if err := json.Unmarshal([]byte(line), &in); err != nil || in.Event != "user" {
		return usageError(2, "invalid input event")
	}
	g.prompt = in.Message.Content
	return 0, false
}

func (g *agy) id() string { return g.sessionOr(g.resume, agyFresh) }

func (g *agy) start() {
	dir, err := os.Getwd()
	check(err)
	permission := "request-review"
	if slices.Contains(g.args, "--dangerously-skip-permissions") {
		permission = "always-proceed"
	}
	emit("event", "init", "conversation_id", g.id(), "init", object{"cwd": dir, "tools": []string{"run_command"}, "permission_mode": permission})
	g.update("DONE", "user_input", nil)
}

func (g *agy) update(state, kind string, more object) {
	u := object{"conversation_id": g.id(), "step_index": g.step, "state": state, "step_type": kind}
	g.step++
	for k, v := range more {
		u[k] = v
	}
	emit("event", "step_update", "step_update", u)
}

func (g *agy) message(t string) { g.update("ACTIVE", "agent_response", object{"text_delta": t}) }

func (g *agy) toolOutput(n int) {
	fmt.Fprint(os.Stdout, `{"event":"step_update","step_update":{"state":"DONE","step_type":"tool","tool_name":"run_command","tool_info":{"output":"`)
	spill(os.Stdout, n)
	fmt.Fprint(os.Stdout, `"}}}`+"\n")
}

func (g *agy) retry(i, n int) { g.update("ACTIVE", "thinking", nil) }

var noUsage = object{"input_tokens": 0, "output_tokens": 0, "thinking_tokens": 0, "cache_read_tokens": 0, "total_tokens": 0}

func (g *agy) finish(answer string) {
	status := g.status
	if status == "" {
		status = "SUCCESS"
	}
	g.emitResult(status, answer, "")
}

func (g *agy) emitResult(status, response, failure string) {
	r := object{"conversation_id": g.id(), "status": status, "response": response, "duration_seconds": 0.1, "num_turns": 1, "usage": noUsage}
	if g.usage {
		r["usage"] = object{"input_tokens": 1200, "output_tokens": 40, "thinking_tokens": 12, "cache_read_tokens": 300, "total_tokens": 1252}
	}
	if failure != "" {
		r["error"] = failure
	}
	if g.denied != nil {
		r["denied_actions"] = g.denied
	}
	emit("event", "result", "result", r)
}

func (g *agy) failure(t string) int {
	g.emitResult("ERROR", "", t)
	fmt.Fprintf(os.Stderr, "AGY_ERROR: %s\n", encode(object{"status": "ERROR", "error_code": "FAILED", "retryable": true, "short_error": t, "error_id": "e-1"}))
	return 3
}

func (g *agy) quota() int {
	g.emitResult("ERROR", "I will start by reading the repository", "Individual quota reached. Please upgrade your plan. Resets in 34m13s")
	return 3
}
