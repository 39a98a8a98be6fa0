package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// A dialect is one client's command line and stream.
type dialect interface {
	// options reads the arguments before anything else happens; done ends the run.
	options() (code int, done bool)
	// input takes the prompt out of standard input; done ends the run.
	input() (code int, done bool)
	start()
	message(text string)
	// toolOutput writes an event of about n bytes.
	toolOutput(n int)
	retry(i, n int)
	finish(answer string)
	// failure writes the client's words for a failed turn and returns its exit status.
	failure(text string) int
	quota() int
}

func newDialect(a *fake) dialect {
	switch a.as {
	case "agy":
		return &agy{fake: a}
	case "codex":
		return &codex{fake: a}
	case "claude":
		return &claude{fake: a}
	case "pi", "omp":
		return &pi{fake: a}
	case "muse":
		return &muse{fake: a}
	}
	return &program{fake: a}
}

// emit writes one line of JSON with its keys in the order given: name, value, name, value.
func emit(pairs ...any) {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encode(pairs[i]))
		b.WriteByte(':')
		b.Write(encode(pairs[i+1]))
	}
	b.WriteString("}\n")
	fmt.Fprint(os.Stdout, b.String())
}

func encode(v any) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	check(enc.Encode(v))
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

type object = map[string]any

// usageError is how a client complains about its command line.
func usageError(code int, format string, args ...any) (int, bool) {
	fmt.Fprintf(os.Stderr, "error: "+format+"\n", args...)
	return code, true
}

// option reads "--name value" and "--name=value" at args[i] and returns how many words it took.
func option(args []string, i int, names ...string) (value string, n int) {
	for _, name := range names {
		if args[i] == name && i+1 < len(args) {
			return args[i+1], 2
		}
		if v, ok := strings.CutPrefix(args[i], name+"="); ok && strings.HasPrefix(name, "--") {
			return v, 1
		}
	}
	return "", 0
}

// fallback returns the session to report.
func (a *fake) sessionOr(resumed, fresh string) string {
	switch {
	case a.session != "":
		return a.session
	case resumed != "":
		return resumed
	}
	return fresh
}

// program is any program: its output is text, its exit status is all it says.
type program struct{ *fake }

func (p *program) options() (int, bool) { return 0, false }
func (p *program) input() (int, bool)   { p.prompt = string(p.stdin); return 0, false }
func (p *program) start()               {}
func (p *program) message(t string)     { fmt.Println(t) }
func (p *program) toolOutput(n int)     { spill(os.Stdout, n); fmt.Println() }
func (p *program) retry(i, n int)       { fmt.Printf("retry %d/%d\n", i, n) }
func (p *program) finish(string)        {}
func (p *program) failure(t string) int { fmt.Fprintln(os.Stderr, t); return 1 }
func (p *program) quota() int {
	fmt.Println("You've hit your limit \u00b7 resets 1pm (Europe/Lisbon)")
	return 1
}
