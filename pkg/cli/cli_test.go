package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// watchOptions is an options struct with one option of every kind.
type watchOptions struct {
	StallAfter Seconds  `long:"stall-after" env:"T_STALL" default:"600" description:"Seconds without growth."`
	Poll       Fraction `long:"poll" env:"T_POLL" default:"15" min:"0.01" description:"Seconds between looks."`
	Count      int      `long:"count" short:"n" env:"T_COUNT" default:"3" min:"0" description:"A number."`
	Mode       string   `long:"mode" short:"m" env:"T_MODE" choice:"plan" choice:"accept-edits" default:"plan" description:"How."`
	Model      string   `long:"model" description:"Which."`
	AddDir     []string `long:"add-dir" description:"A directory."`
	JSON       bool     `long:"json" short:"j" description:"As JSON."`
	Balance    bool     `long:"balance" env:"T_BALANCE" description:"Balance."`
	Thinking   int      `long:"thinking" optional:"yes" optional-value:"50" default:"-1" description:"Lines."`
	Dialect    string   `long:"dialect" hidden:"yes" default:"native" description:"Hidden."`
	Positional struct {
		Files []string `positional-arg-name:"FILE" description:"Files."`
	} `positional-args:"yes"`

	ran bool
	env *Env
	run func(*Env) error
}

func (o *watchOptions) show() string {
	return fmt.Sprintf("%s %s %d %s %s %v %t %d %v", o.StallAfter, o.Poll, o.Count, o.Mode, o.Model, o.AddDir, o.JSON, o.Thinking,
		o.Positional.Files)
}

func (o *watchOptions) Run(_ context.Context, env *Env) error {
	o.ran, o.env = true, env
	if o.run != nil {
		return o.run(env)
	}
	return nil
}

var watchTool = Tool{
	Name: "watch", Summary: "look at things",
	Exits:    Exits{0: "all well", 3: "something failed"},
	Prefixes: map[string]string{"m": "mode"},
}

type answer struct {
	status      int
	out, errors string
}

func execute(tool Tool, options Runner, environ []string, args ...string) answer {
	var out, diag bytes.Buffer
	status := Execute(tool, options, &Env{Args: args, Stdout: &out, Stderr: &diag, Environ: environ})
	return answer{status, out.String(), diag.String()}
}

func TestOptionForms(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string // what show says
	}{
		{"defaults", nil, "600 15 3 plan  [] false -1 []"},
		{"joined", []string{"--stall-after=5", "--mode=accept-edits"}, "5 15 3 accept-edits  [] false -1 []"},
		{"separate", []string{"--stall-after", "5", "--count", "7"}, "5 15 7 plan  [] false -1 []"},
		{"prefix", []string{"--st", "5", "--add", "a", "--j"}, "5 15 3 plan  [a] true -1 []"},
		{"bound prefix", []string{"--m", "accept-edits"}, "600 15 3 accept-edits  [] false -1 []"},
		{"longer than the bound prefix", []string{"--mod=plan"}, "600 15 3 plan  [] false -1 []"},
		{"exact beats prefix", []string{"--model", "x"}, "600 15 3 plan x [] false -1 []"},
		{"value begins with dashes", []string{"--model", "--json"}, "600 15 3 plan --json [] false -1 []"},
		{"value is the double dash", []string{"--model", "--", "f"}, "600 15 3 plan -- [] false -1 [f]"},
		{"empty value", []string{"--model="}, "600 15 3 plan  [] false -1 []"},
		{"quotes stay", []string{"--model", `"x"`, `--add-dir="`}, `600 15 3 plan "x" ["] false -1 []`},
		{"bytes stay", []string{"--model", "\"\xff\x01"}, "600 15 3 plan \"\xff\x01 [] false -1 []"},
		{"last wins", []string{"--count", "1", "--count=2", "--model", "a", "--model", "b"}, "600 15 2 plan b [] false -1 []"},
		{"repeatable", []string{"--add-dir", "a", "--add-dir=b"}, "600 15 3 plan  [a b] false -1 []"},
		{"order is free", []string{"f", "--json", "g"}, "600 15 3 plan  [] true -1 [f g]"},
		{"double dash", []string{"--json", "--", "--json", "-x"}, "600 15 3 plan  [] true -1 [--json -x]"},
		{"double dash first", []string{"--", "f"}, "600 15 3 plan  [] false -1 [f]"},
		{"lone dash", []string{"-"}, "600 15 3 plan  [] false -1 [-]"},
		{"negative number is an argument", []string{"-5"}, "600 15 3 plan  [] false -1 [-5]"},
		{"sentence with a dash is an argument", []string{"- list all"}, "600 15 3 plan  [] false -1 [- list all]"},
		{"short", []string{"-jn4", "-m", "plan"}, "600 15 4 plan  [] true -1 []"},
		{"short joined", []string{"-n=4"}, "600 15 4 plan  [] false -1 []"},
		{"decimal, not octal", []string{"--count", "010", "--stall-after=010"}, "010 15 10 plan  [] false -1 []"},
		{"optional bare", []string{"--thinking", "f"}, "600 15 3 plan  [] false 50 [f]"},
		{"optional with a number", []string{"--thinking", "7"}, "600 15 3 plan  [] false 7 []"},
		{"optional negative", []string{"--thinking", "-7"}, "600 15 3 plan  [] false -7 []"},
		{"fraction", []string{"--poll=.25"}, "600 .25 3 plan  [] false -1 []"},
		{"slash is no option", []string{"/x"}, "600 15 3 plan  [] false -1 [/x]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &watchOptions{}
			got := execute(watchTool, o, nil, c.args...)
			if got.status != 0 || o.show() != c.want || got.errors != "" {
				t.Errorf("%q:\n got %d %s %s\nwant 0 %s", c.args, got.status, o.show(), got.errors, c.want)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // first line
	}{
		{[]string{"--nope"}, "watch: error: unknown option --nope"},
		{[]string{"--jso=1"}, "watch: error: option --json takes no value"},
		{[]string{"--model"}, "watch: error: option --model needs a value"},
		{[]string{"-n"}, "watch: error: option -n needs a value"},
		{[]string{"-q"}, "watch: error: unknown option -q"},
		{[]string{"--a", "x", "--co", "x"}, `watch: error: option --count: "x": not a whole number`},
		{[]string{"--stall-after", "5m"}, `watch: error: option --stall-after: "5m": not a number of whole seconds`},
		{[]string{"--stall-after="}, `watch: error: option --stall-after: "": not a number of whole seconds`},
		{[]string{"--count", "0x10"}, `watch: error: option --count: "0x10": not a whole number`},
		{[]string{"--count", "-1"}, `watch: error: option --count: "-1": must be at least 0`},
		{[]string{"--count", "99999999999999999999"}, `watch: error: option --count: "99999999999999999999": number out of range`},
		{[]string{"--poll", "0"}, `watch: error: option --poll: "0": must be at least 0.01`},
		{[]string{"--mode", "x"}, `watch: error: option --mode: "x": must be plan or accept-edits`},
		{[]string{"--mode=\x1b[31m\n"}, `watch: error: option --mode: "\x1b[31m\x0a": must be plan or accept-edits`},
		{[]string{"--b=1"}, "watch: error: option --balance takes no value"},
		{[]string{"--"}, ""},
		{[]string{"--dialec", "x"}, "watch: error: unknown option --dialec"},
	} {
		o := &watchOptions{}
		got := execute(watchTool, o, nil, c.args...)
		first, _, _ := strings.Cut(got.errors, "\n")
		if first != c.want || got.out != "" || (c.want != "") != (got.status == 2) || (c.want != "") == o.ran {
			t.Errorf("%q: %+v, want %q", c.args, got, c.want)
		}
	}
	if got := execute(watchTool, &watchOptions{}, nil, "--stall-aftr"); !strings.Contains(got.errors, "watch: hint: did you mean --stall-after?\n") {
		t.Errorf("no suggestion: %q", got.errors)
	}
	if got := execute(watchTool, &watchOptions{}, nil, "--nope"); !strings.Contains(got.errors, "watch: hint: watch --help lists the options\n") {
		t.Errorf("no hint: %q", got.errors)
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		want    string
		status  int
		errors  string
	}{
		{"set", []string{"T_STALL=5", "T_POLL=0.5", "T_COUNT=010", "T_MODE=accept-edits"}, nil, "5 0.5 10 accept-edits", 0, ""},
		{"blank is unset", []string{"T_STALL=", "T_POLL=  ", "T_COUNT=\t", "T_MODE="}, nil, "600 15 3 plan", 0, ""},
		{"bad number", []string{"T_STALL=abc"}, nil, "600 15 3 plan", 0,
			"watch: warning: T_STALL=\"abc\": not a number of whole seconds; using the default 600\n"},
		{"below the least", []string{"T_POLL=0"}, nil, "600 15 3 plan", 0,
			"watch: warning: T_POLL=\"0\": must be at least 0.01; using the default 15\n"},
		{"bad count", []string{"T_COUNT=-4"}, nil, "600 15 3 plan", 0,
			"watch: warning: T_COUNT=\"-4\": must be at least 0; using the default 3\n"},
		{"the option hides a bad variable", []string{"T_STALL=abc"}, []string{"--stall-after=7"}, "7 15 3 plan", 0, ""},
		{"bad choice", []string{"T_MODE=x"}, nil, "", 2, "watch: error: T_MODE=\"x\": must be plan or accept-edits\n" +
			"watch: hint: watch --help lists the options\n"},
		{"the last entry counts", []string{"T_COUNT=1", "T_COUNT=2"}, nil, "600 15 2 plan", 0, ""},
		{"huge", []string{"T_STALL=" + strings.Repeat("9", 40)}, nil, strings.Repeat("9", 40) + " 15 3 plan", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &watchOptions{}
			got := execute(watchTool, o, c.environ, c.args...)
			show := ""
			if o.ran {
				show = fmt.Sprintf("%s %s %d %s", o.StallAfter, o.Poll, o.Count, o.Mode)
			}
			if got.status != c.status || show != c.want || got.errors != c.errors {
				t.Errorf("got %d %q %q", got.status, show, got.errors)
			}
		})
	}
	o := &watchOptions{}
	execute(watchTool, o, []string{"T_BALANCE=on", "T_COUNT=5"}, "--mod", "plan")
	if !o.Balance || !o.env.Given("mode") || o.env.Given("count") || o.env.Given("balance") {
		t.Errorf("balance %v, given mode %v, count %v", o.Balance, o.env.Given("mode"), o.env.Given("count"))
	}
	// The process's own variables are not read by way of go-flags.
	t.Setenv("T_COUNT", "9")
	t.Setenv("GO_FLAGS_COMPLETION", "1")
	o = &watchOptions{}
	if got := execute(watchTool, o, nil); got.status != 0 || o.Count != 3 {
		t.Errorf("count %d, %+v", o.Count, got)
	}
}

func TestVariablesWithoutOption(t *testing.T) {
	var diag bytes.Buffer
	env := &Env{Stderr: &diag, Environ: []string{"A=07", "B=x\x1b", "C= ", "D=0", "E=0.5"}}
	Execute(Tool{Name: "t"}, nil, env)
	diag.Reset()
	if s := env.Seconds("A", "9"); s.Duration() != 7*time.Second || s.Raw() != "07" {
		t.Error(s)
	}
	if s := env.Seconds("B", "9"); s.Duration() != 9*time.Second || s.Raw() != "9" {
		t.Error(s)
	}
	env.Seconds("B", "9")
	if s := env.Seconds("C", "9"); s.Raw() != "9" {
		t.Error(s)
	}
	if f := env.Fraction("D", "5"); f.Duration() != 5*time.Second {
		t.Error(f)
	}
	if f := env.Fraction("E", "5"); f.Duration() != 500*time.Millisecond {
		t.Error(f)
	}
	want := "t: warning: B=\"x\\x1b\": not a number of whole seconds; using the default 9\n" +
		"t: warning: D=\"0\": must be more than 0; using the default 5\n"
	if diag.String() != want {
		t.Errorf("got %q", diag.String())
	}
	if v, ok := env.LookupEnv("C"); v != " " || !ok || env.Getenv("C") != "" {
		t.Errorf("%q %v %q", v, ok, env.Getenv("C"))
	}
}

func TestSecondsText(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "010": 10 * time.Second, "3153600000": longest, "3153600001": longest,
		"9223372036854775808": longest, strings.Repeat("9", 1000): longest,
	} {
		if s, err := ParseSeconds(text); err != nil || s.Duration() != want || s.Raw() != text {
			t.Errorf("%q: %v %v", text, s.Duration(), err)
		}
	}
	for _, text := range []string{"", " 5", "5 ", "+5", "-5", "5.0", "0x5", "1e3", "5s", "1_0", "٣"} {
		if _, err := ParseSeconds(text); err == nil {
			t.Errorf("%q accepted", text)
		}
	}
	for text, want := range map[string]time.Duration{
		"2": 2 * time.Second, "0.25": 250 * time.Millisecond, ".5": 500 * time.Millisecond, "0.0000000019": 1,
		strings.Repeat("9", 30) + ".9": longest, "00.1": 100 * time.Millisecond,
	} {
		if f, err := ParseFraction(text); err != nil || f.Duration() != want || f.Raw() != text {
			t.Errorf("%q: %v %v", text, f.Duration(), err)
		}
	}
	for _, text := range []string{"", ".", "5.", "-1", "1.2.3", "1e3", "NaN", "inf", "1,5", "+.5"} {
		if _, err := ParseFraction(text); err == nil {
			t.Errorf("%q accepted", text)
		}
	}
	if s := SecondsOf(1500 * time.Millisecond); s.Raw() != "1" || FractionOf(1500*time.Millisecond).Raw() != "1.5" {
		t.Error(s)
	}
}

func FuzzSeconds(f *testing.F) {
	for _, s := range []string{"0", "010", "9.5", ".", "99999999999999999999999", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSeconds(text); err == nil && (s.Duration() < 0 || s.Duration() > longest) {
			t.Errorf("%q: %v", text, s.Duration())
		}
		if s, err := ParseFraction(text); err == nil && (s.Duration() < 0 || s.Duration() > longest) {
			t.Errorf("%q: %v", text, s.Duration())
		}
	})
}

// FuzzArguments: no words make a tool crash, and what it accepts it accepts again
// in the canonical form, with the same meaning.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"--st|5|f", "--|--json", "-jn4|-m|plan", "--thinking|-7", "-- a|--m=plan", "--model|--", "--=x|-|-é", "--color=never|-5", "--model=\"x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "|")
		got := execute(watchTool, &watchOptions{}, nil, args...)
		if got.status != 0 && got.status != 2 {
			t.Fatalf("%q: %+v", args, got)
		}
		execute(herdTool(&verbOptions{}), &rootOptions{}, nil, args...)
		first, second := &watchOptions{}, &watchOptions{}
		w, err := newModel(&watchTool, first).rewrite(args)
		if err != nil || w.action != "" {
			return
		}
		again := w.argv()
		for _, o := range again {
			if strings.Contains(o, `="`) {
				return // quotes that are for go-flags alone
			}
		}
		execute(watchTool, first, nil, args...)
		execute(watchTool, second, nil, again...)
		if first.show() != second.show() {
			t.Fatalf("%q: %s\n%q: %s", args, first.show(), again, second.show())
		}
	})
}

// pointerOptions tell "not given" from "given as zero".
type pointerOptions struct {
	Stall *Seconds `long:"stall" description:"x"`
	Count *int     `long:"count" description:"x"`
}

func (*pointerOptions) Run(context.Context, *Env) error { return nil }

func TestPointers(t *testing.T) {
	o := &pointerOptions{}
	if got := execute(Tool{Name: "p"}, o, nil); got != (answer{}) || o.Stall != nil || o.Count != nil {
		t.Errorf("%+v %+v", got, o)
	}
	if got := execute(Tool{Name: "p"}, o, nil, "--stall=0", "--count", "010"); got != (answer{}) || o.Stall.Raw() != "0" || *o.Count != 10 {
		t.Errorf("%+v %+v", got, o)
	}
	if got := execute(Tool{Name: "p"}, o, nil, "--stall=x"); got.status != 2 {
		t.Errorf("%+v", got)
	}
	if got := execute(Tool{Name: "p"}, o, nil, "--help"); !strings.Contains(got.out, "--stall SECONDS") || !strings.Contains(got.out, "--count N") {
		t.Errorf("%s", got.out)
	}
}

// verbOptions belong to one verb of herdTool.
type verbOptions struct {
	Name       string `long:"name" description:"A name."`
	Wait       bool   `long:"wait" description:"Wait."`
	Required   string `long:"must" required:"yes" description:"Needed."`
	Positional struct {
		Mode   string `positional-arg-name:"MODE" required:"yes" description:"How."`
		Prompt string `positional-arg-name:"PROMPT" description:"What."`
	} `positional-args:"yes"`
	env *Env
}

func (o *verbOptions) Run(_ context.Context, env *Env) error { o.env = env; return Status(9) }

type rootOptions struct {
	JSON bool `long:"json" description:"As JSON."`
}

func (*rootOptions) Run(context.Context, *Env) error { return nil }

func herdTool(o *verbOptions) Tool {
	return Tool{
		Name: "herd", Summary: "keep workers", Exits: Exits{0: "well"},
		Choices: map[string][]string{"MODE": {"read", "write"}},
		Commands: []Command{
			{Name: "spawn", Summary: "start a worker", Options: o, Exits: Exits{9: "refused"}, Remainder: "COMMAND"},
			{Name: "list", Summary: "list workers", Options: &rootless{}, Aliases: []string{"ls"}},
		},
	}
}

type rootless struct{}

func (*rootless) Run(context.Context, *Env) error { return nil }

func TestVerbs(t *testing.T) {
	o, root := &verbOptions{}, &rootOptions{}
	got := execute(herdTool(o), root, nil, "--json", "spawn", "--must", "-x", "read", "--wait", "-- a prompt", "--name=n", "--", "--json", "y")
	if got.status != 9 || got.errors != "" || !root.JSON || !o.Wait || o.Name != "n" || o.Required != "-x" ||
		o.Positional.Mode != "read" || o.Positional.Prompt != "-- a prompt" || strings.Join(o.env.Rest, " ") != "--json y" {
		t.Errorf("%+v %+v %+v", got, o, root)
	}
	for _, c := range []struct{ args, want string }{
		{"spaw", "herd: error: unknown command \"spaw\"\nherd: hint: did you mean spawn?\n"},
		{"spawn read", "herd: error: option --must is required\nherd: hint: herd spawn --help lists the options\n"},
		{"spawn --must x", "herd: error: argument MODE is missing\nherd: hint: herd spawn --help lists the options\n"},
		{"spawn --must x full", "herd: error: argument MODE: \"full\": must be read or write\nherd: hint: herd spawn --help lists the options\n"},
		{"spawn --must x read a b", "herd: error: unexpected argument \"b\"\nherd: hint: herd spawn --help lists the options\n"},
		{"list x", "herd: error: unexpected argument \"x\"\nherd: hint: herd list --help lists the options\n"},
		{"--wait spawn", "herd: error: unknown option --wait\nherd: hint: herd --help lists the options\n"},
	} {
		if got := execute(herdTool(&verbOptions{}), nil, nil, strings.Fields(c.args)...); got.status != 2 || got.errors != c.want {
			t.Errorf("%s: %d %q", c.args, got.status, got.errors)
		}
	}
	if got := execute(herdTool(o), nil, nil, "ls"); got != (answer{}) {
		t.Errorf("alias: %+v", got)
	}
	if got := execute(herdTool(o), nil, nil); got.status != 2 || got.out != "" || !strings.HasPrefix(got.errors, "Usage: herd COMMAND") {
		t.Errorf("no verb: %+v", got)
	}
	if got := execute(herdTool(o), nil, nil, "spawn", "--nonsense", "--help"); got.status != 2 {
		t.Errorf("a fault before --help: %+v", got)
	}
	if got := execute(herdTool(o), nil, nil, "spawn", "-h", "--nonsense"); got.status != 0 || !strings.HasPrefix(got.out, "Usage: herd spawn --must MUST [options] MODE [PROMPT] [-- COMMAND]\n") {
		t.Errorf("verb help: %+v", got)
	}
}

func TestHiddenAndRaw(t *testing.T) {
	tool := watchTool
	tool.Hidden = map[string]func(*Env) int{"__supervise": func(e *Env) int { return 100 + len(e.Args) }}
	if got := execute(tool, &watchOptions{}, nil, "__supervise", "--help"); got != (answer{status: 102}) {
		t.Errorf("%+v", got)
	}
	tool.Raw = func(_ context.Context, env *Env) (bool, error) {
		if len(env.Args) > 0 && env.Args[0] == "--dialect=old" {
			return true, Quoted(2, "old: unknown argument: X\nUsage: old\n")
		}
		env.Name = "new"
		return false, nil
	}
	if got := execute(tool, &watchOptions{}, nil, "--dialect=old", "--help"); got != (answer{2, "", "old: unknown argument: X\nUsage: old\n"}) {
		t.Errorf("%+v", got)
	}
	if got := execute(tool, &watchOptions{}, nil, "--nope"); !strings.HasPrefix(got.errors, "new: error: unknown option") {
		t.Errorf("%+v", got)
	}
}

func TestExits(t *testing.T) {
	pipe := fmt.Errorf("write: %w", syscall.EPIPE)
	for _, c := range []struct {
		name string
		err  error
		want answer
	}{
		{"declared", Status(3), answer{status: 3}},
		{"zero", Status(0), answer{}},
		{"undeclared", Status(9), answer{9, "", "watch: internal error: exit status 9 is not declared\n"}},
		{"plain", errors.New("open x: gone"), answer{1, "", "watch: error: open x: gone\nwatch: internal error: exit status 1 is not declared\n"}},
		{"wrapped", fmt.Errorf("outer: %w", Fail(3, "inner")), answer{3, "", "watch: error: inner\n"}},
		{"escaped", Fail(3, "bad\x1b\nname"), answer{3, "", "watch: error: bad\\x1b\nwatch: error: name\n"}},
		{"hint", WithHint(Fail(3, "no"), "try %d", 2), answer{3, "", "watch: error: no\nwatch: hint: try 2\n"}},
		{"closed pipe", pipe, answer{status: 141}},
		{"closed pipe with a status", &Exit{Code: 74, Err: pipe}, answer{74, "", "watch: error: write: broken pipe\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := execute(watchTool, &watchOptions{run: func(*Env) error { return c.err }}, nil); got != c.want {
				t.Errorf("got %+v", got)
			}
		})
	}
	got := execute(watchTool, &watchOptions{run: func(*Env) error { panic("boom") }}, nil)
	if got.status != 70 || !strings.HasPrefix(got.errors, "watch: internal error: boom\n") {
		t.Errorf("panic: %+v", got)
	}
	tool := watchTool
	tool.ExitOther = "the worker's own"
	if got := execute(tool, &watchOptions{run: func(*Env) error { return Status(57) }}, nil); got != (answer{status: 57}) {
		t.Errorf("other: %+v", got)
	}
}

// failing is a stdout that cannot be written.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestStdoutFails(t *testing.T) {
	say := func(env *Env) error { fmt.Fprintln(env.Stdout, "hello"); return nil }
	for _, c := range []struct {
		err    error
		args   []string
		status int
		errors string
	}{
		{syscall.EPIPE, nil, 141, ""},
		{syscall.EPIPE, []string{"--help"}, 141, ""},
		{syscall.ENOSPC, nil, 74, "watch: error: write standard output: no space left on device\n"},
		{syscall.ENOSPC, []string{"--version"}, 74, "watch: error: write standard output: no space left on device\n"},
	} {
		var diag bytes.Buffer
		env := &Env{Args: c.args, Stdout: failing{c.err}, Stderr: &diag}
		status := Execute(watchTool, &watchOptions{run: say}, env)
		if status != c.status || diag.String() != c.errors {
			t.Errorf("%v: %d %q", c, status, diag.String())
		}
	}
}

func TestColour(t *testing.T) {
	for _, c := range []struct {
		environ []string
		args    []string
		want    bool
	}{
		{nil, nil, false}, // a buffer is no terminal
		{nil, []string{"--color=always"}, true},
		{[]string{"NO_COLOR=1"}, []string{"--color", "always"}, true},
		{nil, []string{"--color=never"}, false},
	} {
		o := &watchOptions{}
		execute(watchTool, o, c.environ, c.args...)
		painted := o.env.Paint(o.env.Stdout, Red, "x")
		if (painted != "x") != c.want {
			t.Errorf("%v %v: %q", c.environ, c.args, painted)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	got := execute(watchTool, &watchOptions{}, nil, "--help")
	for _, want := range []string{
		"Usage: watch [options] [FILE...]\n", "\nLook at things.\n", "  -m, --mode MODE", "One of plan or accept-edits.",
		"Default: 600. Variable:", "Common options:\n", "--thinking [N]",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if got.status != 0 || got.errors != "" || strings.Contains(got.out, "dialect") {
		t.Errorf("%+v", got)
	}
	for l := range strings.Lines(got.out) {
		if len(l) > 80 || strings.HasSuffix(l, " \n") {
			t.Errorf("line %q", l)
		}
	}
	got = execute(watchTool, &watchOptions{}, nil, "--version")
	if got.status != 0 || !strings.HasPrefix(got.out, "watch ") || got.errors != "" {
		t.Errorf("%+v", got)
	}
}
