// Command fakeagent stands in for every client that the suite runs. It speaks the dialect of the program whose name
// it is called by (agy, codex, claude, pi, omp, muse; anything else is a plain program) and does what its script says,
// faults included. It needs no network and no account.
//
// It owns the imitation of command lines, streams and process trees. It does not judge anything, and nothing that it
// starts outlives FAKEAGENT_LIFE (default 60s): every child ends by itself, so that a failed test cleans up after
// itself.
//
// # Where the script comes from
//
// The first of: FAKEAGENT_SCRIPT, whose lines are steps; for a plain program its arguments, one step each; the lines
// of the prompt that begin with "FAKE:"; else one step, "text the answer of the fake agent".
//
// # Steps
//
// Texts know the escapes \n \r \t \\ \0 and \xNN. Durations are Go's (1.5s), a bare number is seconds. Sizes may end
// in k or m.
//
//	out TEXT             a line on standard output; outn TEXT without the newline
//	err TEXT             a line on standard error; errn TEXT without the newline
//	flood N              N bytes and a newline on standard output; flood-err N on standard error
//	line N               one event of N bytes, such as a tool's output, in the dialect's form
//	drip D N [TEXT]      TEXT (default a dot) N times, D apart, without newlines; N 0 means for life
//	pause D              wait; hang waits for life
//	await PATH           wait until PATH exists
//	touch PATH           create a file
//
//	session ID           the session id that the dialect reports from here on
//	start                the dialect's opening, done by itself before the first answer
//	text TEXT            the answer, and the dialect's closing
//	say TEXT             a message before the answer
//	end                  the dialect's closing alone
//	fail TEXT            the dialect's failure, and exit with the status the client then has
//	fail0 TEXT           the same, but exit 0 in the end
//	quota                out of quota, as the dialect says it (agy: status 3); quota0 exits 0
//	retry N              N of codex's reconnect notices
//	partial TEXT         agy: cut short by its own limit
//	denied TEXT          agy: an action refused; the answer TEXT may be empty
//	agy-error TEXT       agy: an AGY_ERROR line on standard error
//	background           agy: the remark about background work, on standard error
//	no-usage             leave usage out of what follows
//	status WORD          agy: the status of the closing event
//
//	result [TEXT]        write the result file whole; result-empty writes nothing into it
//	result-slow D        write half of it, wait, write the rest
//	result-late D        leave a child that writes it after D
//	result-link TARGET   make it a link; result-dir and result-fifo make it those
//
//	child [D]            leave a child in the same process group, its output being ours
//	child-setsid [D]     ... in a session of its own
//	child-double [D]     ... in a session of its own, its parent gone
//	child-stubborn [D]   ... that ignores TERM, INT and HUP
//	child-talk [D]       ... that writes a line each second; child-quiet [D] has no output at all
//	children N [D]       N children
//	ignore SIG...        ignore signals; on SIG N exits with status N when it comes
//	sh COMMAND           run a shell command with our output
//
//	exit N               end now; kill SIG ends by a signal
//	log PATH             write what we were given as JSON (see report); FAKEAGENT_LOG does so at the start
//	env, argv, cwd       print it; umask prints the mask
//	tty                  ask a question on the terminal
//	rmcwd                remove the current directory
//	no-stdin             as the first step of FAKEAGENT_SCRIPT: close standard input without reading it
//
// # Environment
//
//	FAKEAGENT_AS         the dialect, instead of the program's name
//	FAKEAGENT_SCRIPT     the script
//	FAKEAGENT_LOG        where to write the report at the start
//	FAKEAGENT_PIDS       a file that gets the number of every child left behind, a line each
//	FAKEAGENT_LIFE       how long children and "hang" last
//	FAKEAGENT_RESULT     the result file, instead of PRUN_RESULT_FILE
//	FAKEAGENT_SESSION    the session id to report for a new session
//	FAKEAGENT_VERSION    what --version prints; FAKEAGENT_VERSION_SCRIPT are steps to do instead
//	FAKEAGENT_MODELS     agy models: names with commas between; FAKEAGENT_MODELS_FORM is tsv, plain, heading or joined;
//	                     FAKEAGENT_MODELS_SCRIPT are steps to do instead
//	FAKEAGENT_USAGE      a file with the answer to agy -p /usage; FAKEAGENT_USAGE_SCRIPT are steps to do instead
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultLife = 60 * time.Second

func main() {
	if mode := os.Getenv("FAKEAGENT_CHILD"); mode != "" {
		beChild(mode)
		return
	}
	a := &fake{
		as:      os.Getenv("FAKEAGENT_AS"),
		args:    os.Args[1:],
		life:    duration(os.Getenv("FAKEAGENT_LIFE"), defaultLife),
		session: os.Getenv("FAKEAGENT_SESSION"),
		result:  os.Getenv("FAKEAGENT_RESULT"),
		usage:   true,
	}
	if a.as == "" {
		a.as = strings.TrimSuffix(strings.ToLower(filepath.Base(os.Args[0])), ".exe")
	}
	if a.result == "" {
		a.result = os.Getenv("PRUN_RESULT_FILE")
	}
	a.exit(a.run())
}

// fake is one run.
type fake struct {
	as      string
	args    []string
	life    time.Duration
	dialect dialect
	stdin   []byte
	prompt  string
	session string
	result  string
	status  string // agy: of the closing event
	usage   bool
	started bool
	ended   bool
}

func (a *fake) run() int {
	script := os.Getenv("FAKEAGENT_SCRIPT")
	a.dialect = newDialect(a)
	if code, done := a.dialect.options(); done {
		return code
	}
	if strings.HasPrefix(strings.TrimSpace(script), "no-stdin") {
		os.Stdin.Close()
	} else {
		in, err := io.ReadAll(os.Stdin)
		if err != nil {
			in = nil
		}
		a.stdin = in
	}
	if path := os.Getenv("FAKEAGENT_LOG"); path != "" {
		a.report(path)
	}
	if code, done := a.dialect.input(); done {
		return code
	}
	steps := lines(script)
	if len(steps) == 0 {
		if _, plain := a.dialect.(*program); plain {
			steps = a.args
		}
	}
	if len(steps) == 0 {
		for _, l := range lines(a.prompt) {
			if s, ok := strings.CutPrefix(strings.TrimSpace(l), "FAKE:"); ok {
				steps = append(steps, strings.TrimSpace(s))
			}
		}
	}
	if len(steps) == 0 {
		steps = []string{"text the answer of the fake agent"}
	}
	return a.do(steps)
}

// do performs the steps and returns the exit status.
func (a *fake) do(steps []string) int {
	for _, s := range steps {
		if code, done := a.step(strings.TrimSpace(s)); done {
			return code
		}
	}
	return 0
}

func (a *fake) exit(code int) { os.Exit(code) }

func lines(text string) []string {
	var out []string
	for l := range strings.SplitSeq(text, "\n") {
		if l = strings.TrimRight(l, "\r"); strings.TrimSpace(l) != "" {
			out = append(out, l)
		}
	}
	return out
}

// fatal ends with a status no client uses, so that a mistake in a script cannot pass for a fault.
func fatal(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "fakeagent: "+format+"\n", args...)
	os.Exit(99)
}

// check is for failures of the fake itself.
func check(err error) {
	if err != nil {
		fatal("%v", err)
	}
}

// text undoes the escapes.
func text(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			if i+2 >= len(s) {
				fatal("escape cut short in %q", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			check(err)
			b.WriteByte(byte(n))
			i += 2
		default:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func duration(s string, fallback time.Duration) time.Duration {
	s = strings.TrimSpace(s)
	if s == "" {
		return fallback
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(f * float64(time.Second))
	}
	d, err := time.ParseDuration(s)
	check(err)
	return d
}

func size(s string) int {
	unit := 1
	switch {
	case strings.HasSuffix(s, "k"):
		unit, s = 1<<10, s[:len(s)-1]
	case strings.HasSuffix(s, "m"):
		unit, s = 1<<20, s[:len(s)-1]
	}
	n, err := strconv.Atoi(s)
	check(err)
	return n * unit
}

// spill writes n bytes of one letter.
func spill(w io.Writer, n int) {
	chunk := bytes.Repeat([]byte("y"), 64<<10)
	for n > 0 {
		k := min(n, len(chunk))
		if _, err := w.Write(chunk[:k]); err != nil {
			return
		}
		n -= k
	}
}

// report writes what this process was given, for a test to read.
func (a *fake) report(path string) {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "error: " + err.Error()
	}
	env := os.Environ()
	slices.Sort(env)
	_, ttyErr := os.OpenFile(terminal, os.O_RDWR, 0)
	data, err := json.MarshalIndent(map[string]any{
		"as": a.as, "argv": os.Args, "env": env, "cwd": cwd, "stdin": string(a.stdin), "stdin_bytes": len(a.stdin),
		"pid": os.Getpid(), "ppid": os.Getppid(), "umask": umask(), "fds": openFiles(), "tty": ttyErr == nil,
		"session": sessionOf(), "group": groupOf(), "ignored": ignoredSignals(),
	}, "", " ")
	check(err)
	// Written beside and renamed: a test polls for the file and must not read half of it.
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	check(os.WriteFile(temp, append(data, '\n'), 0o600))
	check(os.Rename(temp, path))
}
