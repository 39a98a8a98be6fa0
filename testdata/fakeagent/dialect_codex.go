package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// codex is `codex exec` as 0.171 behaves.
type codex struct {
	*fake
	json    bool
	resume  string
	sandbox string
	model   string
	effort  string
	last    string // -o
	item    int
}

const codexFresh = "11111111-1111-7111-8111-111111111111"

func (c *codex) options() (int, bool) {
	args := c.args
	if len(args) > 0 && args[0] == "--version" {
		fmt.Println("codex-cli 0.171.0")
		return 0, true
	}
	if len(args) == 0 || args[0] != "exec" {
		return usageError(2, "unrecognized subcommand")
	}
	c.sandbox, c.model, c.effort = "read-only", "gpt-6.2-sol", "low"
	resuming, words := false, []string{}
	for i := 1; i < len(args); i++ {
		if v, n := option(args, i, "-c", "--config", "-m", "--model", "--enable", "--disable", "-o", "--output-last-message",
			"--output-schema", "-i", "--image"); n > 0 {
			switch args[i] {
			case "-m", "--model":
				c.model = v
			case "-o", "--output-last-message":
				c.last = v
			}
			if e, ok := strings.CutPrefix(v, "model_reasoning_effort="); ok {
				c.effort = strings.Trim(e, `"`)
			}
			i += n - 1
			continue
		}
		if v, n := option(args, i, "-s", "--sandbox", "-C", "--cd", "--color", "--add-dir", "-p", "--profile", "--thread-source"); n > 0 {
			if resuming {
				return usageError(2, "unexpected argument '%s' found", args[i])
			}
			if args[i] == "-s" || strings.HasPrefix(args[i], "--sandbox") {
				if !slices.Contains([]string{"read-only", "workspace-write", "danger-full-access"}, v) {
					return usageError(2, "invalid value '%s' for '--sandbox <SANDBOX_MODE>'", v)
				}
				c.sandbox = v
			}
			if args[i] == "-C" || args[i] == "--cd" {
				if err := os.Chdir(v); err != nil {
					fmt.Fprintln(os.Stderr, "Error: No such file or directory (os error 2)")
					return 1, true
				}
			}
			i += n - 1
			continue
		}
		switch arg := args[i]; {
		case arg == "--json":
			c.json = true
		case arg == "--dangerously-bypass-approvals-and-sandbox" || arg == "--yolo":
			c.sandbox = "danger-full-access"
		case slices.Contains([]string{"--skip-git-repo-check", "--ignore-user-config", "--ignore-rules", "--ephemeral", "--strict-config", "--all"}, arg):
		case arg == "resume" && !resuming:
			resuming = true
		case strings.HasPrefix(arg, "-") && arg != "-":
			return usageError(2, "unexpected argument '%s' found", arg)
		default:
			words = append(words, arg)
		}
	}
	if resuming {
		if len(words) == 0 {
			return usageError(2, "the following required arguments were not provided")
		}
		c.resume, words = words[0], words[1:]
	}
	if len(words) > 1 {
		return usageError(2, "unexpected argument '%s' found", words[1])
	}
	if len(words) == 1 && words[0] != "-" {
		c.prompt = words[0]
	}
	return 0, false
}

func (c *codex) input() (int, bool) {
	if c.prompt == "" {
		c.prompt = strings.TrimPrefix(string(c.stdin), "\ufeff")
	}
	switch {
	case os.Getenv("FAKEAGENT_SCRIPT") != "" && len(c.stdin) == 0:
	case strings.TrimSpace(c.prompt) == "":
		fmt.Fprintln(os.Stderr, "No prompt provided via stdin.")
		return 1, true
	case !utf8.ValidString(c.prompt):
		fmt.Fprintln(os.Stderr, "Failed to read prompt from stdin: input is not valid UTF-8")
		return 1, true
	}
	if c.resume == "00000000-0000-0000-0000-000000000000" {
		fmt.Fprintln(os.Stderr, "Error: thread/resume: thread/resume failed: no rollout found for thread id "+c.resume+" (code -32600)")
		return 1, true
	}
	return 0, false
}

func (c *codex) start() {
	resumed := c.resume
	if len(resumed) != 36 { // a word that is no id starts a new thread
		resumed = ""
	}
	id := c.sessionOr(resumed, codexFresh)
	if c.json {
		emit("type", "thread.started", "thread_id", id)
		emit("type", "turn.started")
		return
	}
	dir, err := os.Getwd()
	check(err)
	fmt.Fprintf(os.Stderr, "OpenAI Codex v0.171.0\n--------\nworkdir: %s\nmodel: %s\nprovider: fake\napproval: never\nsandbox: %s\n"+
		"reasoning effort: %s\nreasoning summaries: none\nsession id: %s\n--------\nuser\n%s\n", dir, c.model, c.sandbox, c.effort, id, c.prompt)
}

func (c *codex) message(t string) {
	if c.json {
		c.emitItem("type", "agent_message", "text", t)
		return
	}
	fmt.Fprintf(os.Stderr, "codex\n%s\n", t)
}

func (c *codex) emitItem(pairs ...any) {
	item := object{"id": fmt.Sprintf("item_%d", c.item)}
	c.item++
	for i := 0; i+1 < len(pairs); i += 2 {
		item[pairs[i].(string)] = pairs[i+1]
	}
	emit("type", "item.completed", "item", item)
}

func (c *codex) toolOutput(n int) {
	if !c.json {
		spill(os.Stderr, n)
		fmt.Fprintln(os.Stderr)
		return
	}
	fmt.Fprintf(os.Stdout, `{"type":"item.completed","item":{"id":"item_%d","type":"command_execution","command":"x","aggregated_output":"`, c.item)
	c.item++
	spill(os.Stdout, n)
	fmt.Fprint(os.Stdout, `","exit_code":0,"status":"completed"}}`+"\n")
}

func (c *codex) retry(i, n int) { c.say(fmt.Sprintf("Reconnecting... %d/%d", i, n)) }

// say writes a line of type error, which decides nothing.
func (c *codex) say(t string) {
	if c.json {
		emit("type", "error", "message", t)
		return
	}
	fmt.Fprintln(os.Stderr, "ERROR: "+t)
}

func (c *codex) finish(answer string) {
	if c.json {
		usage := object{"input_tokens": 1003, "cached_input_tokens": 100, "cache_write_input_tokens": 0, "output_tokens": 20, "reasoning_output_tokens": 7}
		if c.usage {
			emit("type", "turn.completed", "usage", usage)
		} else {
			emit("type", "turn.completed")
		}
	} else {
		if c.usage {
			fmt.Fprint(os.Stderr, "tokens used\n1,234\n")
		}
		if answer != "" {
			fmt.Println(answer)
		}
	}
	if c.last != "" {
		check(os.WriteFile(c.last, []byte(answer), 0o666))
	}
}

func (c *codex) failure(t string) int {
	c.say(t)
	if c.json {
		emit("type", "turn.failed", "error", object{"message": t})
	}
	return 1
}

func (c *codex) quota() int {
	return c.failure("You\u2019ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or try again at 4:33 PM.")
}
