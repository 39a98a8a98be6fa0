//go:build linux

// Command wine runs the suite's tests as Windows programs under Wine (make test-windows). It builds every tool and the
// fake agent for windows/amd64, compiles the test binaries of the packages whose promises differ there, runs each with
// a time limit, and prints a line for each suite, the reason of every skip, and the sum.
//
// It owns build/windows and, through run.sh, a Wine prefix in the user's cache. It installs nothing except through
// run.sh, which does so as root only. Exit status: 0, 1 when a test failed, 77 when Wine cannot be had here.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A suite is one test binary.
type suite struct {
	pkg   string
	limit time.Duration
}

var suites = []suite{
	{pkg: "pkg/atomicfile"},
	{pkg: "pkg/pid"},
	{pkg: "pkg/proc"},
	{pkg: "pkg/state"},
	{pkg: "pkg/result"},
	{pkg: "pkg/watch"},
	{pkg: "pkg/wake"},
	{pkg: "pkg/line"},
	{pkg: "pkg/environ"},
	{pkg: "pkg/cli"},
	{pkg: "pkg/agent"},
	{pkg: "pkg/supervise"},
	{pkg: "pkg/eventlog"},
	{pkg: "pkg/copytree"},
	{pkg: "pkg/slots"},
	{pkg: "pkg/userdir"},
	{pkg: "pkg/preflight"},
	{pkg: "pkg/quota"},
	{pkg: "pkg/snapshot"},
	{pkg: "pkg/session"},
	{pkg: "pkg/lane"},
	{pkg: "cmd/prun-report"},
	{pkg: "cmd/prun-snapshot"},
	{pkg: "cmd/agent-quota"},
	{pkg: "cmd/prun-dispatch", limit: 10 * time.Minute},
	{pkg: "cmd/herd", limit: 10 * time.Minute},
}

const (
	defaultLimit = 3 * time.Minute
	exitNoWine   = 77
)

func main() {
	only := flag.String("run", "", "only the suites whose name holds this text")
	tests := flag.String("tests", "", "only the tests that match this pattern")
	verbose := flag.Bool("v", false, "show what every test printed")
	flag.Parse()
	if err := drive(*only, *tests, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "test-windows:", err)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitNoWine {
			os.Exit(exitNoWine)
		}
		os.Exit(1)
	}
}

func drive(only, tests string, verbose bool) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return fmt.Errorf("run this from the repository's top directory: %w", err)
	}
	runner := filepath.Join(root, "testdata", "wine", "run.sh")
	if out, err := exec.Command(runner).CombinedOutput(); err != nil {
		return fmt.Errorf("prepare Wine: %w\n%s", err, out)
	}
	out := filepath.Join(root, "build", "windows")
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	var picked []suite
	for _, s := range suites {
		if strings.Contains(s.pkg, only) {
			picked = append(picked, s)
		}
	}
	start := time.Now()
	// An old binary must not pass for a new one.
	if err := clear(out); err != nil {
		return err
	}
	broken, err := build(root, out, picked)
	if err != nil {
		return err
	}
	fmt.Printf("test-windows: built in %v\n", time.Since(start).Round(time.Second))
	sum := tally{failed: broken}
	for _, s := range picked {
		t := run(root, out, runner, s, tests, verbose)
		sum.passed += t.passed
		sum.failed += t.failed
		sum.skipped += t.skipped
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped)
	if sum.failed > 0 {
		return errors.New("not everything passed")
	}
	return nil
}

// clear removes the programs of an earlier run.
func clear(out string) error {
	old, err := filepath.Glob(filepath.Join(out, "*.exe"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// build compiles the programs and the test binaries into out, and returns how many would not compile.
func build(root, out string, picked []suite) (failed int, err error) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil {
		return 0, err
	}
	overlay, err := removal(out)
	if err != nil {
		return 0, err
	}
	programs := []string{"./testdata/fakeagent"}
	for _, m := range mains {
		programs = append(programs, "./cmd/"+filepath.Base(filepath.Dir(m)))
	}
	var tests []string
	for _, s := range picked {
		tests = append(tests, "./"+s.pkg)
	}
	failed += compile(root, []string{"build", overlay, "-tags", "forceposix", "-trimpath", "-o", out + "/"}, programs)
	failed += compile(root, []string{"test", "-c", overlay, "-tags", "forceposix", "-o", out + "/"}, tests)
	return failed, nil
}

// removal returns the build option that teaches os.RemoveAll about Wine before version 10, which has not implemented
// what Go asks for first, and says so with a status that Go takes for a failure instead of falling back. With a Go
// that no longer reads like this the option changes nothing.
func removal(out string) (string, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find Go's own source: %w", err)
	}
	name := filepath.Join(strings.TrimSpace(string(goroot)), "src", "internal", "syscall", "windows", "at_windows.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	const notImplemented = "NTStatus(0xC0000002)"
	changed := filepath.Join(out, "at_windows.go.txt")
	text = []byte(strings.Replace(string(text), "case STATUS_INVALID_INFO_CLASS,", "case "+notImplemented+", STATUS_INVALID_INFO_CLASS,", 1))
	if err := os.WriteFile(changed, text, 0o666); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {name: changed}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(out, "overlay.json")
	return "-overlay=" + file, os.WriteFile(file, list, 0o666)
}

// compile makes all of them at once or, when that fails, those that it can.
func compile(root string, args, packages []string) (failed int) {
	run := func(packages ...string) error {
		c := exec.Command("go", append(slices.Clone(args), packages...)...)
		c.Dir = root
		c.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	if len(packages) == 0 || run(packages...) == nil {
		return 0
	}
	for _, p := range packages {
		if err := run(p); err != nil {
			failed++
			fmt.Printf("%-20s FAILED to compile: %v\n", p, err)
		}
	}
	return failed
}

// A tally counts top level tests.
type tally struct{ passed, failed, skipped int }

var (
	verdictLine = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)
	indented    = regexp.MustCompile(`^    (\S+\.go:\d+: .*)`)
)

// run runs one test binary and prints what it said about itself.
func run(root, out, runner string, s suite, pattern string, verbose bool) tally {
	limit := s.limit
	if limit == 0 {
		limit = defaultLimit
	}
	// The binary's own limit comes first: it says where it hangs.
	ctx, cancel := context.WithTimeout(context.Background(), limit+30*time.Second)
	defer cancel()
	binary := filepath.Join(out, filepath.Base(s.pkg)+".test.exe")
	if _, err := os.Stat(binary); err != nil {
		fmt.Printf("%-20s ok     no tests for Windows\n", s.pkg)
		return tally{}
	}
	args := []string{binary, "-test.v", "-test.timeout=" + limit.String()}
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	c := exec.CommandContext(ctx, runner, args...)
	c.Dir = filepath.Join(root, s.pkg)
	c.Env = environment(out)
	// A file, not a pipe: Wine's own processes outlive the program and would keep a pipe open.
	name := filepath.Join(out, filepath.Base(s.pkg)+".log")
	log, err := os.Create(name)
	if err != nil {
		fmt.Printf("%-20s FAILED: %v\n", s.pkg, err)
		return tally{failed: 1}
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	start := time.Now()
	ended := c.Run()
	took := time.Since(start).Round(100 * time.Millisecond)

	t, failures, skips := read(name)
	if ended != nil && t.failed == 0 {
		t.failed++
		failures = append(failures, fmt.Sprintf("%v after %v", ended, took))
	}
	word := "ok"
	if t.failed > 0 {
		word = "FAILED"
	}
	fmt.Printf("%-20s %-6s %3d passed, %d failed, %d skipped  %v\n", s.pkg, word, t.passed, t.failed, t.skipped, took)
	for _, skip := range skips {
		fmt.Printf("    skipped %s\n", skip)
	}
	for _, f := range failures {
		fmt.Printf("    failed  %s\n", f)
	}
	if t.failed > 0 || verbose {
		show(name, verbose)
	}
	return t
}

// noise are the lines of a log that say nothing about a failure.
var noise = regexp.MustCompile(`^\s*(=== |--- PASS|--- SKIP)`)

// show prints a log, without its noise unless all of it is wanted.
func show(name string, all bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		fmt.Println(err)
		return
	}
	for l := range strings.Lines(string(b)) {
		if all || !noise.MatchString(l) {
			fmt.Print(strings.TrimRight(l, "\r\n"), "\n")
		}
	}
}

// read counts the verdicts of a log and collects the names of failed tests and, with their reasons, of skipped ones.
func read(name string) (t tally, failures, skips []string) {
	f, err := os.Open(name)
	if err != nil {
		return tally{failed: 1}, []string{err.Error()}, nil
	}
	defer f.Close()
	last := ""
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		text := strings.TrimRight(sc.Text(), "\r")
		if m := indented.FindStringSubmatch(text); m != nil {
			last = m[1]
		}
		m := verdictLine.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		switch m[1] {
		case "PASS":
			t.passed++
		case "FAIL":
			t.failed++
			failures = append(failures, m[2])
		case "SKIP":
			t.skipped++
			skips = append(skips, m[2]+": "+last)
		}
	}
	if err := sc.Err(); err != nil {
		t.failed++
		failures = append(failures, err.Error())
	}
	return t, failures, skips
}

// environment is small on purpose: what this machine has in its own must not decide a test.
func environment(out string) []string {
	// Wine shows the whole file system as drive Z.
	env := []string{"PRUN_TEST_BIN=Z:" + strings.ReplaceAll(out, "/", `\`), "PRUN_TEST_WINE=1"}
	keep := []string{"PATH", "HOME", "USER", "XDG_CACHE_HOME", "PRUN_WINE_PREFIX", "WINEDEBUG", "LANG", "LC_ALL"}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains(keep, name) {
			env = append(env, e)
		}
	}
	return env
}
