package cmd

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/rogpeppe/go-internal/testscript"
)

// The stories in ../testdata/script are run over the real binaries, built once.
// Beside the verbs of testscript they have:
//
//	exit N PROGRAM [ARG...]         run it; its status must be N (128+n for a signal)
//	start NAME PROGRAM [ARG...]     run it in the background; NAME.out, NAME.err and NAME.pid are files in $WORK
//	finish NAME N                   wait for it (30 s); its status must be N
//	until [!] VERB ...              repeat a question every 20 ms until it holds, 30 s at most; VERB is one of exists, grep,
//	                                alive, dead, json, lines, or any program (exit status 0)
//	[!] alive FILE [KEY]            every process that FILE names lives; FILE holds numbers, one a line, or is JSON, then KEY
//	                                is the dotted way to a number or an identity
//	[!] dead FILE [KEY]             every one is gone; a zombie is gone
//	kill9 FILE [KEY]                SIGKILL to each that is alive
//	sig NAME FILE [KEY]             that signal (TERM INT HUP QUIT KILL USR1 USR2 STOP CONT)
//	[!] tree NAME DIR               the first time: remember every name, mode, size, time and content below DIR; then: all
//	                                of it is as it was
//	[!] json FILE KEY VALUE         the value at the dotted way KEY is VALUE (strings as they are, others as JSON; "absent")
//	[!] lines FILE N                FILE has N lines
//	[!] below TEXT DIR              a file somewhere below DIR holds TEXT
//	edit FILE PATTERN TEXT [OTHER]  put TEXT, and what OTHER holds, in the place of PATTERN's first match, within the same file
//	statedir VAR FILE               set VAR to the path of the one STATE-DIR line of FILE ("stdout" too; waits 30 s for it)
//
// Variables: BIN (the binaries, first on PATH), SYSPATH (PATH without them), SHIMS, ROOT (of the tree), HOME and
// TMPDIR below $WORK. A program that a story makes is copied with `exec cp`, not `cp`: a test process that has just
// written it may still hold it open in a child of another story (text file busy).
//
// Conditions beside GOOS and testscript's own: root, python3, mandoc, git, bash,
// pwsh, strace, cgroup (a cgroup v2 that we may make leaves in). One that does not
// hold is named at the end of the run, and fails it where CI=true.

var update = flag.Bool("update", false, "rewrite the golden files of the stories")

// dumpEnvironment makes the test binary print its environment: testscript does not
// lend that of a script, but what it executes has it.
const dumpEnvironment = "__environment"

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == dumpEnvironment {
		fmt.Print(strings.Join(os.Environ(), "\x00"))
		return
	}
	flag.Parse()
	status := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	if names := unmet.names(); len(names) > 0 {
		text := "stories left something out for want of: " + strings.Join(names, ", ") + "\n"
		fmt.Fprint(os.Stderr, text)
		if file := os.Getenv("PRUN_TEST_UNMET"); file != "" {
			if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
				fmt.Fprintln(os.Stderr, err)
				status = 1
			}
		}
		if os.Getenv("CI") == "true" && status == 0 {
			status = 1
		}
	}
	os.Exit(status)
}

// built is the directory of the binaries.
var built struct{ dir string }

// binaries builds every tool and the fake agent into one directory.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "prun-bin-")
	if err != nil {
		return "", err
	}
	built.dir = dir
	targets := []string{"build", "-tags", "forceposix", "-trimpath", "-o", dir + string(os.PathSeparator)}
	mains, err := filepath.Glob(filepath.Join("*", "main.go"))
	if err != nil {
		return "", err
	}
	for _, name := range mains {
		targets = append(targets, "./cmd/"+filepath.Base(filepath.Dir(name)))
	}
	if _, err := os.Stat(filepath.Join("..", "testdata", "fakeagent", "main.go")); err == nil {
		targets = append(targets, "./testdata/fakeagent")
	}
	c := exec.Command("go", targets...)
	c.Dir = ".."
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tools: %w\n%s", err, out)
	}
	return dir, nil
})

func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("..", "testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) == 0 {
		t.Skip("no stories in testdata/script")
	}
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition:           condition,
		Setup: func(e *testscript.Env) error {
			// testscript hands on PATH and little else: no variable of ours, or of the
			// session that runs the tests, reaches a story.
			home := filepath.Join(e.WorkDir, ".home")
			if err := os.MkdirAll(home, 0o700); err != nil {
				return err
			}
			for _, name := range []string{"HOME", "USERPROFILE"} {
				if e.Getenv(name) != "" {
					e.Setenv(name, home)
				}
			}
			e.Setenv("SYSPATH", withoutSuite(e.Getenv("PATH")))
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("SYSPATH"))
			e.Setenv("BIN", bin)
			// What the user's programs share across directories (slots): one place a story.
			e.Setenv("PRUN_USER_DIR", filepath.Join(e.WorkDir, ".user"))
			// A program built with the race detector sleeps a second at its end.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv("ROOT", root)
			e.Setenv("SHIMS", filepath.Join(root, "shims"))
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			e.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, "gitconfig"))
			identity := "[user]\n\tname = Story\n\temail = story@example.invalid\n[init]\n\tdefaultBranch = main\n"
			if err := os.WriteFile(filepath.Join(home, "gitconfig"), []byte(identity), 0o600); err != nil {
				return err
			}
			s := &story{started: make(map[string]*process), trees: make(map[string]map[string]string)}
			e.Values[storyKey{}] = s
			e.Defer(s.end)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": cmdExit, "start": cmdStart, "finish": cmdFinish, "until": cmdUntil, "alive": asked("alive"), "dead": asked("dead"), "json": asked("json"),
			"lines": asked("lines"), "kill9": cmdKill9, "sig": cmdSig, "tree": cmdTree, "statedir": cmdStateDir,
			"below": cmdBelow, "edit": cmdEdit,
		},
	})
}

// withoutSuite takes the directories of an installed suite off a search path.
func withoutSuite(path string) string {
	var kept []string
	for _, dir := range filepath.SplitList(path) {
		if found, _ := filepath.Glob(filepath.Join(dir, "prun-*")); len(found) == 0 {
			kept = append(kept, dir)
		}
	}
	return strings.Join(kept, string(os.PathListSeparator))
}

// story is what one script keeps between its lines.
type story struct {
	mu      sync.Mutex
	started map[string]*process
	trees   map[string]map[string]string
}

type storyKey struct{}

// process is one background program of a script.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

func storyOf(ts *testscript.TestScript) *story { return ts.Value(storyKey{}).(*story) }

// end stops what a script has left running: first politely, so that a tool can
// end its own tree.
func (s *story) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Kill} {
		for _, p := range s.started {
			select {
			case <-p.ended:
			default:
				p.cmd.Process.Signal(signal)
			}
		}
		deadline := time.After(10 * time.Second)
		for _, p := range s.started {
			select {
			case <-p.ended:
			case <-deadline:
			}
		}
	}
}

// cmdExit runs a program and compares its status.
func cmdExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit N PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	if got := status(err); got != want {
		ts.Fatalf("%s: exit status %d (%v), want %d", args[1], got, err, want)
	}
}

// status is what a shell would say; -1 for a program that did not start.
func status(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	if w, ok := exit.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	}); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return exit.ExitCode()
}

// cmdStart runs a program in the background, its output in files, which a worker
// that outlives it cannot keep anybody waiting with.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME PROGRAM [ARG...]")
	}
	name, s := args[0], storyOf(ts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started[name] != nil {
		ts.Fatalf("%s is started already", name)
	}
	self, err := os.Executable()
	ts.Check(err)
	ts.Check(ts.Exec(self, dumpEnvironment))
	c := exec.Command(lookPath(ts, args[1]), args[2:]...)
	c.Env = strings.Split(ts.ReadFile("stdout"), "\x00")
	c.Dir = ts.MkAbs(".")
	for suffix, stream := range map[string]*io.Writer{".out": &c.Stdout, ".err": &c.Stderr} {
		f, err := os.Create(filepath.Join(ts.Getenv("WORK"), name+suffix))
		ts.Check(err)
		defer f.Close()
		*stream = f
	}
	ts.Check(c.Start())
	p := &process{cmd: c, ended: make(chan struct{})}
	s.started[name] = p
	go func() {
		p.err = c.Wait()
		close(p.ended)
	}()
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), name+".pid"), fmt.Appendln(nil, c.Process.Pid), 0o600))
}

func lookPath(ts *testscript.TestScript, name string) string {
	if strings.ContainsAny(name, `/\`) {
		return name
	}
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	ts.Fatalf("%s is not on PATH", name)
	return ""
}

// cmdFinish waits for a program of start and compares its status.
func cmdFinish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: finish NAME N")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	s := storyOf(ts)
	s.mu.Lock()
	p := s.started[args[0]]
	delete(s.started, args[0])
	s.mu.Unlock()
	if p == nil {
		ts.Fatalf("%s was not started", args[0])
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.cmd.Process.Kill()
		ts.Fatalf("%s has not ended within %v", args[0], patience)
	}
	for _, suffix := range []string{".out", ".err"} {
		ts.Logf("[%s%s]\n%s", args[0], suffix, ts.ReadFile(filepath.Join(ts.Getenv("WORK"), args[0]+suffix)))
	}
	if got := status(p.err); got != want {
		ts.Fatalf("%s: exit status %d (%v), want %d", args[0], got, p.err, want)
	}
}

// cmdUntil repeats a question.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: until [!] VERB ...")
	}
	want, question := true, args
	if question[0] == "!" {
		want, question = false, question[1:]
	}
	if len(question) > 0 && question[0] == "exec" {
		question = question[1:]
	}
	if len(question) == 0 {
		ts.Fatalf("usage: until [!] VERB ...")
	}
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		holds, why := ask(ts, question)
		if holds == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("until %s: not within %v: %s", strings.Join(args, " "), patience, why)
		}
	}
}

// asked is the command of a question that is asked once.
func asked(name string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		holds, why := ask(ts, append([]string{name}, args...))
		if holds == neg {
			ts.Fatalf("%s %s: %t: %s", name, strings.Join(args, " "), holds, why)
		}
	}
}

// ask answers one question of until, and says what it saw.
func ask(ts *testscript.TestScript, question []string) (holds bool, why string) {
	args := question[1:]
	need := func(least, most int) {
		if len(args) < least || len(args) > most {
			ts.Fatalf("%s: wrong number of words", question[0])
		}
	}
	switch question[0] {
	case "exists":
		need(1, 1)
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil, fmt.Sprint(err)
	case "grep":
		need(2, 2)
		pattern, err := regexp.Compile("(?m)" + args[0])
		ts.Check(err)
		data, err := os.ReadFile(ts.MkAbs(args[1]))
		return err == nil && pattern.Match(data), fmt.Sprintf("%v: %q", err, tail(data))
	case "lines":
		need(2, 2)
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		n := strings.Count(string(data), "\n")
		return err == nil && strconv.Itoa(n) == args[1], fmt.Sprintf("%d lines, %v", n, err)
	case "json":
		need(3, 3)
		got, err := value(ts.MkAbs(args[0]), args[1])
		if err != nil {
			return false, err.Error()
		}
		return got == args[2], fmt.Sprintf("is %s", got)
	case "alive", "dead":
		need(1, 2)
		ids, err := identities(ts, args)
		if err != nil {
			return false, err.Error()
		}
		for _, n := range ids {
			alive, err := n.alive()
			if err != nil {
				return false, err.Error()
			}
			if alive != (question[0] == "alive") {
				return false, fmt.Sprintf("process %d: alive is %t", n.PID, alive)
			}
		}
		return len(ids) > 0, fmt.Sprintf("%d processes", len(ids))
	}
	err := ts.Exec(question[0], args...)
	return err == nil, fmt.Sprint(err)
}

func tail(data []byte) []byte { return data[max(0, len(data)-400):] }

// target is a process that a file names. A number alone is looked up now, so that
// the answer is as good as a number can be.
type target struct {
	pid.ID
	bare bool
}

func (n target) alive() (bool, error) {
	if !n.bare {
		return n.Alive()
	}
	id, err := pid.Of(n.PID)
	if errors.Is(err, pid.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return id.Alive()
}

func (n target) signal(s syscall.Signal) error {
	id := n.ID
	if n.bare {
		var err error
		if id, err = pid.Of(n.PID); err != nil {
			return err
		}
	}
	return id.Signal(s)
}

// identities reads the processes of a file. One that is not there yet, or empty,
// is an error, never "all are gone".
func identities(ts *testscript.TestScript, args []string) (ids []target, err error) {
	name := ts.MkAbs(args[0])
	if len(args) == 2 {
		text, err := value(name, args[1])
		if err != nil {
			return nil, err
		}
		if n, err := pid.Parse(text); err == nil {
			return []target{{ID: pid.ID{PID: n}, bare: true}}, nil
		}
		var id pid.ID
		if err := json.Unmarshal([]byte(text), &id); err != nil || id.PID == 0 {
			return nil, fmt.Errorf("%s of %s is no process: %s", args[1], args[0], text)
		}
		return []target{{ID: id}}, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(data)) {
		fields := strings.Fields(l)
		if len(fields) == 0 {
			continue
		}
		n, err := pid.Parse(fields[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
		ids = append(ids, target{ID: pid.ID{PID: n}, bare: true})
	}
	return ids, nil
}

// value returns what stands at a dotted way in a JSON file: a string as it is, all
// else as JSON, "absent" where there is nothing.
func value(name, way string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var at any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&at); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	for key := range strings.SplitSeq(way, ".") {
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[key]
			if !ok {
				return "absent", nil
			}
			at = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return "absent", nil
			}
			at = v[i]
		default:
			return "absent", nil
		}
	}
	if s, ok := at.(string); ok {
		return s, nil
	}
	out, err := json.Marshal(at)
	return string(out), err
}

// cmdKill9 kills, and waits until the kernel has done it: what follows is told of
// a process that is dead, not of one that is dying.
func cmdKill9(ts *testscript.TestScript, neg bool, args []string) {
	cmdSig(ts, neg, append([]string{"KILL"}, args...))
	deadline := time.Now().Add(patience)
	for {
		ids, err := identities(ts, args)
		if err != nil {
			// The file went with its process.
			return
		}
		if !slices.ContainsFunc(ids, func(n target) bool { alive, err := n.alive(); return err != nil || alive }) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still alive %v after SIGKILL: %v", patience, ids)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// cmdSig signals the living processes of a file.
func cmdSig(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: sig NAME FILE [KEY]")
	}
	s, ok := signals[args[0]]
	if !ok {
		ts.Fatalf("no signal %s here", args[0])
	}
	ids, err := identities(ts, args[1:])
	ts.Check(err)
	if len(ids) == 0 {
		ts.Fatalf("%s names no process", args[1])
	}
	for _, n := range ids {
		if err := n.signal(s); err != nil && !errors.Is(err, pid.ErrGone) {
			ts.Fatalf("signal %d: %v", n.PID, err)
		}
	}
}

// cmdTree remembers a tree, or compares it with what is remembered.
func cmdTree(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: tree NAME DIR")
	}
	s, now := storyOf(ts), make(map[string]string)
	root := ts.MkAbs(args[1])
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " -> " + link
		}
		now[name] = text
		return nil
	})
	ts.Check(err)
	before, known := s.trees[args[0]]
	if !known {
		if neg {
			ts.Fatalf("nothing is remembered as %s", args[0])
		}
		s.trees[args[0]] = now
		return
	}
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			changes = append(changes, fmt.Sprintf("%s: %s, now %s", name, before[name], now[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if before[name] == "" {
			changes = append(changes, name+" is new")
		}
	}
	if (len(changes) > 0) != neg {
		ts.Fatalf("tree %s: %d changes\n%s", args[0], len(changes), strings.Join(changes, "\n"))
	}
}

func cmdBelow(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] below TEXT DIR")
	}
	var holders []string
	ts.Check(filepath.WalkDir(ts.MkAbs(args[1]), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		if strings.Contains(string(data), args[0]) {
			holders = append(holders, name)
		}
		return err
	}))
	if neg == (len(holders) > 0) {
		ts.Fatalf("%q is in %d files below %s: %q", args[0], len(holders), args[1], holders)
	}
}

// cmdEdit does what sed does elsewhere; not every system that has sh has sed.
func cmdEdit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: edit FILE PATTERN TEXT [OTHER]")
	}
	text := args[2]
	if len(args) == 4 {
		text += strings.TrimSpace(ts.ReadFile(args[3]))
	}
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	data := ts.ReadFile(args[0])
	at := pattern.FindStringIndex(data)
	if at == nil {
		ts.Fatalf("edit: %s does not hold %s", args[0], args[1])
	}
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY|os.O_TRUNC, 0)
	ts.Check(err)
	_, err = f.WriteString(data[:at[0]] + text + data[at[1]:])
	ts.Check(err)
	ts.Check(f.Close())
}

// cmdStateDir takes the path of a dispatcher's one line.
func cmdStateDir(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: statedir VAR FILE")
	}
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var text string
		if args[1] == "stdout" {
			text = ts.ReadFile("stdout")
		} else if data, err := os.ReadFile(ts.MkAbs(args[1])); err == nil {
			text = string(data)
		}
		if l, err := line.Parse(text); err == nil && l.Word == line.WordStateDir && strings.HasSuffix(text, "\n") {
			ts.Setenv(args[0], l.Field("path"))
			return
		}
		if args[1] == "stdout" || strings.Count(text, "\n") > 1 {
			ts.Fatalf("%s is not one STATE-DIR line: %q", args[1], text)
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("no STATE-DIR line in %s within %v: %q", args[1], patience, text)
		}
	}
}

// wants are the conditions that did not hold where a story asked for them.
type wants struct {
	mu  sync.Mutex
	set map[string]bool
}

var unmet = &wants{set: make(map[string]bool)}

func (w *wants) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.set))
}

// condition answers [name] in a story.
func condition(name string) (bool, error) {
	var holds bool
	switch name {
	case "root":
		holds = os.Geteuid() == 0
	case "python3", "mandoc", "git", "bash", "pwsh", "strace", "unshare":
		_, err := exec.LookPath(name)
		holds = err == nil
	case "cgroup":
		holds = leaves()
	default:
		return false, fmt.Errorf("unknown condition %s", name)
	}
	if !holds {
		unmet.mu.Lock()
		unmet.set[name] = true
		unmet.mu.Unlock()
	}
	return holds, nil
}

// leaves reports whether a cgroup leaf can be made here.
var leaves = sync.OnceValue(func() bool {
	leaf, err := proc.NewLeaf(fmt.Sprintf("prun-story-%d", os.Getpid()))
	if err != nil {
		return false
	}
	defer leaf.Close()
	return leaf.Remove() == nil
})
