//go:build linux

// Command bench measures what the suite promises about time and memory and
// prints one table: the bound, what was measured here and now, and how much of
// the bound that is. It judges nothing by its exit status: a number on a busy
// machine is not a fault.
//
// It needs Linux and our programs on PATH (make bench sees to it).
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// row is one line of the table. A value and a bound share a unit.
type row struct {
	what  string
	bound float64
	value float64
	unit  string
	more  string
}

type bench struct {
	dir  string
	rows []row
	n    int
}

func main() {
	only := flag.String("run", "", "run only the groups whose name holds this text")
	n := flag.Int("n", 60, "how many single runs make a median")
	flag.Parse()
	if runtime.GOOS != "linux" {
		fmt.Fprintln(os.Stderr, "bench: needs Linux")
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "prun-bench-")
	if err != nil {
		fatal(err)
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, n: *n}
	groups := []struct {
		name string
		run  func(*bench)
	}{
		{"latency", latency}, {"idle", idle}, {"memory", memory}, {"reap", reap},
		{"monitor", monitor}, {"crowd", crowd}, {"report", report}, {"snapshot", snapshot}, {"orphans", orphans}, {"lanes", lanes},
	}
	for _, g := range groups {
		if strings.Contains(g.name, *only) {
			fmt.Fprintln(os.Stderr, "bench:", g.name)
			g.run(b)
		}
	}
	b.print(os.Stdout)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func (b *bench) add(what string, bound, value float64, unit, more string) {
	b.rows = append(b.rows, row{what, bound, value, unit, more})
}

func (b *bench) print(w *os.File) {
	fmt.Fprintf(w, "Measured %s on %d cores, load %s, kernel %s.\n\n", time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), load(), kernel())
	fmt.Fprintln(w, "| What | Bound | Measured | Part of the bound |")
	fmt.Fprintln(w, "|---|---|---|---|")
	for _, r := range b.rows {
		more := ""
		if r.more != "" {
			more = " (" + r.more + ")"
		}
		part := "-"
		if r.bound > 0 {
			part = fmt.Sprintf("%.2f", r.value/r.bound)
		}
		fmt.Fprintf(w, "| %s | %s %s | %s %s%s | %s |\n", r.what, number(r.bound), r.unit, number(r.value), r.unit, more, part)
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	word, _, _ := strings.Cut(string(b), " ")
	return word
}

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

// unit is one prun-dispatch.
type unit struct {
	dir    string
	result string
	cmd    *exec.Cmd
	out    bytes.Buffer
	err    bytes.Buffer
}

// dispatch prepares one unit in a directory of its own.
func (b *bench) dispatch(env, args []string, command ...string) *unit {
	dir, err := os.MkdirTemp(b.dir, "u")
	if err != nil {
		fatal(err)
	}
	u := &unit{dir: dir, result: filepath.Join(dir, "r")}
	prompt := filepath.Join(dir, "p")
	if err := os.WriteFile(prompt, []byte("go\n"), 0o600); err != nil {
		fatal(err)
	}
	words := append([]string{"--prompt-file", prompt, "--result-file", u.result, "--unit-id", "u"}, args...)
	if len(command) > 0 {
		words = append(append(append([]string{"--backend", "command"}, words...), "--"), command...)
	}
	u.cmd = exec.Command("prun-dispatch", words...)
	u.cmd.Env = append(append(os.Environ(), "TMPDIR="+dir), env...)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.err
	return u
}

func (u *unit) start() time.Time {
	at := time.Now()
	if err := u.cmd.Start(); err != nil {
		fatal(err)
	}
	return at
}

// wait returns when it ended, and its status.
func (u *unit) wait() (time.Time, int) {
	u.cmd.Wait()
	return time.Now(), u.cmd.ProcessState.ExitCode()
}

// state waits for the state directory.
func (u *unit) state() string {
	for range 5000 {
		if dirs, _ := filepath.Glob(filepath.Join(u.dir, "prun-task-*")); len(dirs) == 1 {
			return dirs[0]
		}
		time.Sleep(time.Millisecond)
	}
	fatal(fmt.Errorf("no state directory: %s", u.err.String()))
	return ""
}

// says waits for a text in the tail.
func (u *unit) says(text string) {
	tail := filepath.Join(u.state(), "tail")
	for range 60000 {
		if b, _ := os.ReadFile(tail); bytes.Contains(b, []byte(text)) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	fatal(fmt.Errorf("the worker never said %q: %s", text, u.err.String()))
}

// ours are the processes of the unit that belong to the suite.
func (u *unit) ours() map[string]int {
	found := map[string]int{"front": u.cmd.Process.Pid}
	for _, p := range processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p))
		if !bytes.Contains(env, []byte("TMPDIR="+u.dir)) {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		switch name, _, _ := strings.Cut(string(line), "\x00"); name {
		case "prun-keeper":
			found["keeper"] = p
		case "prun-supervisor":
			found["supervisor"] = p
		}
	}
	return found
}

func processes() []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if p, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// status reads a field of /proc/PID/status; sizes are in KiB.
func status(p int, field string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			v, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return v
		}
	}
	return 0
}

// switches is how often the threads of a process were woken.
func switches(p int) float64 {
	var n float64
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p))
	for _, t := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", p, t.Name()))
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				n += v
			}
		}
	}
	return n
}

// cpu is the time that a process has used, from its scheduler's own count.
func cpu(p int) time.Duration {
	var sum time.Duration
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p))
	for _, t := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", p, t.Name()))
		if words := strings.Fields(string(b)); len(words) > 0 {
			ns, _ := strconv.ParseInt(words[0], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

func median(d []time.Duration) time.Duration { return quantile(d, 0.5) }

func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// alive counts the living processes of this unit's worker.
func (u *unit) alive() int {
	n := 0
	for _, p := range processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p))
		if bytes.Contains(env, []byte("TMPDIR="+u.dir+"\x00")) {
			n++
		}
	}
	return n
}

func signal(p int, sig syscall.Signal) {
	if p > 1 {
		syscall.Kill(p, sig)
	}
}
