// Package cli is the front of every tool: it turns argv and the environment into
// an options struct, runs the tool, and turns what came back into one exit status.
//
// It owns option syntax (decisions 1.4 to 1.6), messages to people, colour,
// --help, --version, --man, the completion files and the manual pages, all from
// one description (Tool and the tags of the options struct). It is the only
// importer of go-flags and go-isatty and the only caller of os.Exit. It knows
// nothing of units, and it prints no line of the stdout grammar.
//
// Invariant: a tool leaves with a status that its manual declares, or says on
// stderr that it does not.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/prun-suite/prun/pkg/line"
)

// Tool describes one binary. Help, manual, completion and the check of exit
// statuses are made from it, so that they cannot disagree.
type Tool struct {
	Name    string // of the binary
	Summary string // one line, no full stop, as in NAME of the manual
	// Description is the text of the manual: paragraphs separated by blank lines.
	// A paragraph whose lines begin with a tab is printed as it stands.
	Description string
	// Exits are the statuses that the tool may end with. 0 needs a text too. 2
	// (usage), 74 (stdout cannot be written) and 141 (stdout closed early) are
	// added when missing.
	Exits Exits
	// ExitOther, when not empty, allows every other status and says what it means.
	ExitOther   string
	Files       []File
	Environment []EnvVar // beside those that options carry in their env tag
	Examples    []Example
	Sections    []Section // further manual sections, after EXAMPLES
	SeeAlso     []string  // "prun-monitor(1)"
	// Commands are the verbs of a tool that has some. The options of the tool
	// itself are accepted before and after the verb.
	Commands []Command
	// Prefixes binds shortened options to the option that they meant in the
	// original script, where a new option would make them ambiguous. Key and value
	// are names without dashes; a key binds every longer prefix of its value too.
	Prefixes map[string]string
	// Remainder names what follows "--" ("COMMAND"). When it is empty, the words
	// after "--" are ordinary arguments; otherwise they go to Env.Rest.
	Remainder string
	// Synopsis replaces the generated synopsis lines (without the name) if given.
	Synopsis []string
	// Choices gives, by long option name, the values of options whose list is
	// known only at run time (a registry). It is checked, shown and completed.
	Choices map[string][]string
	// Hidden are first words that are commands of the suite's own processes
	// (__supervise). They run before anything else is looked at, and their number
	// is the exit status, unchecked.
	Hidden map[string]func(*Env) int
	// Raw, if not nil, sees the arguments before options are looked at. When it
	// reports true the error is the answer of the tool; otherwise parsing goes on
	// with env.Args and env.Name, which it may have changed. It is how an old
	// dialect checks its arguments in its own order and words.
	Raw func(ctx context.Context, env *Env) (handled bool, err error)
}

// Command is one verb of a tool.
type Command struct {
	Name        string
	Summary     string
	Description string // as Tool.Description; Summary when empty
	Options     Runner
	Aliases     []string
	Hidden      bool   // runs, but help, manual and completion do not name it
	Exits       Exits  // beside those of the tool
	ExitOther   string // as Tool.ExitOther
	Prefixes    map[string]string
	Remainder   string
	Synopsis    []string
}

// Runner is a struct of options (tags of go-flags: long, short, env, default,
// description, value-name, choice, required, optional, optional-value, hidden,
// positional-args; of this package: min, max) and what to do with them. A struct
// pointer; every option needs a long name.
type Runner interface {
	Run(ctx context.Context, env *Env) error
}

// File is an entry of FILES in the manual.
type File struct{ Path, Text string }

// EnvVar is an entry of ENVIRONMENT that belongs to no option.
type EnvVar struct{ Name, Default, Text string }

// Example is a command and what it does.
type Example struct{ Text, Command string }

// Section is a further section of the manual. Text is written as Description is.
type Section struct{ Title, Text string }

// Env is all that a tool sees of the world. A tool reads and writes through it
// and never through package os, so that a test can run it without a process.
type Env struct {
	Name   string   // begins every message; the tool's name unless Raw changed it
	Args   []string // as given, without the program's name
	Rest   []string // what followed "--", when the tool declares a Remainder; nil without "--"
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Getenv returns "" for a variable that is unset or holds blanks only.
	Getenv  func(name string) string
	Environ []string // NAME=value, for the programs we start

	tool   *Tool
	given  map[string]bool
	color  string
	width  int
	mu     sync.Mutex
	warned map[string]bool
	exits  []Exits
	other  []string
}

// Main runs the tool as this process and does not return.
func Main(tool Tool, options Runner) {
	settle()
	os.Exit(Execute(tool, options, &Env{
		Args:    os.Args[1:],
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Environ: os.Environ(),
	}))
}

// Execute is Main for tests: the status is returned. Missing fields of env are
// filled in: empty streams, no environment.
func Execute(tool Tool, options Runner, env *Env) (status int) {
	env.fill(&tool)
	// First of all and without a look at any option: these are started for every
	// unit, and a supervisor must not pay for a parser that it does not use.
	if len(env.Args) > 0 && strings.HasPrefix(env.Args[0], "__") {
		if run, ok := tool.Hidden[env.Args[0]]; ok {
			return run(env)
		}
	}
	out := &output{w: env.Stdout}
	env.Stdout = out
	defer func() {
		if cause := recover(); cause != nil {
			fmt.Fprintf(env.Stderr, "%s: internal error: %v\n%s", env.Name, cause, debug.Stack())
			status = statusInternal
		}
	}()
	env.exits, env.other = []Exits{tool.Exits}, []string{tool.ExitOther}
	return env.finish(run(context.Background(), &tool, options, env), out)
}

func run(ctx context.Context, tool *Tool, options Runner, env *Env) error {
	if len(env.Args) > 0 {
		switch env.Args[0] {
		case "__man":
			return writeManual(env.Stdout, tool, options)
		case "__completion":
			return writeCompletion(env.Stdout, tool, options, env.Args[1:])
		}
	}
	if tool.Raw != nil {
		if handled, err := tool.Raw(ctx, env); handled || err != nil {
			return err
		}
	}
	runner, err := parse(tool, options, env)
	if err != nil || runner == nil {
		return err
	}
	return runner.Run(ctx, env)
}

func (e *Env) fill(tool *Tool) {
	e.tool = tool
	if e.Name == "" {
		e.Name = tool.Name
	}
	if e.Stdin == nil {
		e.Stdin = strings.NewReader("")
	}
	if e.Stdout == nil {
		e.Stdout = io.Discard
	}
	if e.Stderr == nil {
		e.Stderr = io.Discard
	}
	if e.Getenv == nil {
		e.Getenv = func(name string) string {
			value, _ := e.LookupEnv(name)
			return blankUnset(value)
		}
	} else {
		get := e.Getenv
		e.Getenv = func(name string) string { return blankUnset(get(name)) }
	}
}

func blankUnset(value string) string {
	if strings.TrimSpace(value) == "" {
		return ""
	}
	return value
}

// LookupEnv returns a variable as it stands in Environ, blanks included, for the
// few whose blank value has a meaning of its own.
func (e *Env) LookupEnv(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		entry := e.Environ[i]
		if len(entry) > len(name) && entry[len(name)] == '=' && sameName(entry[:len(name)], name) {
			return entry[len(name)+1:], true
		}
	}
	return "", false
}

// Given reports whether the option of this long name stood on the command line.
// A value from the environment or a default is not given.
func (e *Env) Given(option string) bool { return e.given[option] }

// Seconds reads whole seconds from a variable that belongs to no option. A bad
// value means def and one warning; def is trusted.
func (e *Env) Seconds(variable, def string) Seconds {
	s, err := ParseSeconds(def)
	if err != nil {
		panic(err)
	}
	if value := e.Getenv(variable); value != "" {
		got, err := ParseSeconds(value)
		if err == nil {
			return got
		}
		e.warnDefault(variable, value, def, err)
	}
	return s
}

// Fraction is Seconds for values with a decimal fraction. Zero is refused like
// any bad value: a poll or a window of nothing is a busy loop.
func (e *Env) Fraction(variable, def string) Fraction {
	f, err := ParseFraction(def)
	if err != nil {
		panic(err)
	}
	if value := e.Getenv(variable); value != "" {
		got, err := ParseFraction(value)
		if err == nil && got.Duration() == 0 {
			err = errors.New("must be more than 0")
		}
		if err == nil {
			return got
		}
		e.warnDefault(variable, value, def, err)
	}
	return f
}

// warnDefault says once for each variable that the default stands.
func (e *Env) warnDefault(variable, value, def string, why error) {
	e.mu.Lock()
	seen := e.warned[variable]
	if e.warned == nil {
		e.warned = make(map[string]bool)
	}
	e.warned[variable] = true
	e.mu.Unlock()
	if seen {
		return
	}
	if def == "" {
		def = "unset"
	}
	e.Warnf("%s=%s: %v; using the default %s", variable, quote(value), why, def)
}

// Warnf prints `name: warning: …` on stderr: something is not as asked, the work goes on.
func (e *Env) Warnf(format string, args ...any) { e.say("warning", fmt.Sprintf(format, args...)) }

// Hintf prints `name: hint: …` on stderr: what to try next.
func (e *Env) Hintf(format string, args ...any) { e.say("hint", fmt.Sprintf(format, args...)) }

// Notef prints `name: …` on stderr.
func (e *Env) Notef(format string, args ...any) { e.say("", fmt.Sprintf(format, args...)) }

// say writes one message with one Write; control bytes of foreign text are escaped.
func (e *Env) say(kind, text string) {
	prefix := e.Name + ": "
	if kind != "" {
		prefix += kind + ": "
	}
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString(prefix + line.Escape(part) + "\n")
	}
	io.WriteString(e.Stderr, b.String())
}

// quote makes a foreign value readable in a message, whatever its bytes and size.
func quote(value string) string {
	const most = 120
	if len(value) > most {
		value = value[:most] + "…"
	}
	return `"` + line.Escape(value) + `"`
}
