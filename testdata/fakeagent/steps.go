package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// step performs one step; done means that the run ends with code.
func (a *fake) step(s string) (code int, done bool) {
	verb, rest, _ := strings.Cut(s, " ")
	switch verb {
	case "no-stdin", "#":
	case "out":
		fmt.Fprintln(os.Stdout, text(rest))
	case "outn":
		fmt.Fprint(os.Stdout, text(rest))
	case "err":
		fmt.Fprintln(os.Stderr, text(rest))
	case "errn":
		fmt.Fprint(os.Stderr, text(rest))
	case "flood":
		spill(os.Stdout, size(rest))
		fmt.Fprintln(os.Stdout)
	case "flood-err":
		spill(os.Stderr, size(rest))
		fmt.Fprintln(os.Stderr)
	case "line":
		a.open()
		a.dialect.toolOutput(size(rest))
	case "drip":
		a.drip(rest)
	case "pause":
		time.Sleep(duration(rest, time.Second))
	case "hang":
		time.Sleep(a.life)
	case "await":
		for end := time.Now().Add(a.life); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Lstat(rest); err == nil {
				return 0, false
			}
		}
		fatal("%s did not appear", rest)
	case "touch":
		f, err := os.OpenFile(rest, os.O_CREATE|os.O_WRONLY, 0o666)
		check(err)
		check(f.Close())

	case "session":
		a.session = rest
	case "start":
		a.open()
	case "say":
		a.open()
		a.dialect.message(text(rest))
	case "text":
		a.open()
		a.dialect.message(text(rest))
		a.close(text(rest))
	case "end":
		a.open()
		a.close("")
	case "fail", "fail0":
		a.open()
		code = a.dialect.failure(text(rest))
		if verb == "fail0" {
			return 0, true
		}
		return code, true
	case "quota", "quota0":
		a.open()
		code = a.dialect.quota()
		if verb == "quota0" {
			return 0, true
		}
		return code, true
	case "retry":
		a.open()
		n, err := strconv.Atoi(rest)
		check(err)
		for i := range n {
			a.dialect.retry(i+1, n)
		}
	case "no-usage":
		a.usage = false
	case "status":
		a.status = rest
	case "partial", "denied", "agy-error", "background":
		a.agyOnly(verb, text(rest))

	case "result", "result-empty", "result-slow", "result-late", "result-link", "result-dir", "result-fifo":
		a.writeResult(verb, rest)
	case "child", "child-setsid", "child-double", "child-stubborn", "child-talk", "child-quiet":
		a.leave(strings.TrimPrefix(strings.TrimPrefix(verb, "child"), "-"), duration(rest, a.life))
	case "children":
		n, d, _ := strings.Cut(rest, " ")
		count, err := strconv.Atoi(n)
		check(err)
		for range count {
			a.leave("", duration(d, a.life))
		}
	case "ignore":
		for _, name := range strings.Fields(rest) {
			signal.Ignore(signalNamed(name))
		}
	case "on":
		name, status, _ := strings.Cut(rest, " ")
		code, err := strconv.Atoi(status)
		check(err)
		c := make(chan os.Signal, 1)
		signal.Notify(c, signalNamed(name))
		go func() {
			<-c
			os.Exit(code)
		}()
	case "sh":
		a.shell(text(rest))

	case "exit":
		code, err := strconv.Atoi(rest)
		check(err)
		return code, true
	case "kill":
		dieBy(signalNamed(rest))
	case "log":
		a.report(rest)
	case "env":
		env := os.Environ()
		slices.Sort(env)
		fmt.Println(strings.Join(env, "\n"))
	case "argv":
		for i, arg := range os.Args {
			fmt.Printf("argv[%d]=<%s>\n", i, arg)
		}
		fmt.Printf("stdin bytes=%d\n", len(a.stdin))
	case "cwd":
		dir, err := os.Getwd()
		check(err)
		fmt.Println(dir)
	case "umask":
		fmt.Printf("%04o\n", umask())
	case "tty":
		fmt.Fprintln(os.Stderr, "Password for https://example.invalid: ")
		f, err := os.OpenFile(terminal, os.O_RDWR, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1, true
		}
		var answer [80]byte
		n, err := f.Read(answer[:])
		fmt.Printf("got %q, %v\n", answer[:n], err)
	case "rmcwd":
		dir, err := os.Getwd()
		check(err)
		check(os.Chdir(os.TempDir()))
		check(os.RemoveAll(dir))
	default:
		fatal("no such step: %s", s)
	}
	return 0, false
}

// open writes the dialect's opening once.
func (a *fake) open() {
	if !a.started {
		a.started = true
		a.dialect.start()
	}
}

// close writes the dialect's closing once.
func (a *fake) close(answer string) {
	if !a.ended {
		a.ended = true
		a.dialect.finish(answer)
	}
}

func (a *fake) agyOnly(verb, rest string) {
	g, ok := a.dialect.(*agy)
	if !ok {
		fatal("%s is a step of agy", verb)
	}
	switch verb {
	case "partial":
		a.open()
		a.usage = false
		fmt.Fprintln(os.Stderr, "[agy] print timeout after 25s with turn in progress; returning partial output")
		g.message(rest)
		a.close(rest)
	case "denied":
		a.open()
		g.denied = []any{map[string]any{"action": "run_command", "display_name": "Run command"}}
		a.close(rest)
	case "agy-error":
		fmt.Fprintln(os.Stderr, "AGY_ERROR: "+rest)
	case "background":
		fmt.Fprintln(os.Stderr, "root agent idle; waiting up to 5s for 1 background task(s)")
		fmt.Fprintln(os.Stderr, "terminating 1 background task(s) on exit")
	}
}

func (a *fake) drip(rest string) {
	f := strings.SplitN(rest, " ", 3)
	if len(f) < 2 {
		fatal("drip D N [TEXT]")
	}
	word := "."
	if len(f) == 3 {
		word = text(f[2])
	}
	n, err := strconv.Atoi(f[1])
	check(err)
	end := time.Now().Add(a.life)
	for i := 0; (n == 0 || i < n) && time.Now().Before(end); i++ {
		fmt.Fprint(os.Stdout, word)
		time.Sleep(duration(f[0], time.Second))
	}
}

func (a *fake) shell(command string) {
	argv := []string{"sh", "-c", command}
	if runtime.GOOS == "windows" {
		argv = []string{"cmd", "/c", command}
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// resultText is a result in the shape that workers are asked for.
func (a *fake) resultText() string {
	unit := os.Getenv("PRUN_UNIT")
	if unit == "" {
		unit = "u"
	}
	return "# " + unit + " result\nConclusion: done\nFiles: none (read-only)\nOpen items: none\nVerification: none\n\nbody\n"
}

func (a *fake) writeResult(verb, rest string) {
	if a.result == "" {
		fatal("%s: no result file is named by FAKEAGENT_RESULT or PRUN_RESULT_FILE", verb)
	}
	body := a.resultText()
	if rest != "" && verb == "result" {
		body = text(rest)
	}
	switch verb {
	case "result":
		check(os.WriteFile(a.result, []byte(body), 0o666))
	case "result-empty":
		check(os.WriteFile(a.result, nil, 0o666))
	case "result-slow":
		f, err := os.OpenFile(a.result, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
		check(err)
		_, err = f.WriteString(body[:len(body)/2])
		check(err)
		time.Sleep(duration(rest, time.Second))
		_, err = f.WriteString(body[len(body)/2:])
		check(err)
		check(f.Close())
	case "result-late":
		a.leave("result", duration(rest, time.Second))
	case "result-link":
		check(os.Symlink(rest, a.result))
	case "result-dir":
		check(os.MkdirAll(a.result, 0o777))
	case "result-fifo":
		check(makeFIFO(a.result))
	}
}
