//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The checker: it reads the disk and /proc, knows the manual prun-state(5) and
// what was done to each unit, and none of the suite's own code.

// outcome is outcome.json.
type outcome struct {
	Unit        string   `json:"unit"`
	Cause       string   `json:"cause"`
	ExitCode    *int     `json:"exit_code"`
	Signal      int      `json:"signal"`
	Reason      string   `json:"reason"`
	DurationMS  int64    `json:"duration_ms"`
	Result      string   `json:"result"`
	SessionID   string   `json:"session_id"`
	TailBytes   int64    `json:"tail_bytes"`
	ProvenEmpty *bool    `json:"proven_empty"`
	Notes       []string `json:"notes"`
	ExitStatus  int      `json:"exit_status"`
}

var fallbackLine = regexp.MustCompile(`^# [A-Za-z0-9_-]+ result \(FALLBACK, [^\n]*\)\n`)

func (m *mill) check(dir string, units []*unit, v *verdicts) {
	for _, u := range units {
		if u.door == "herd" {
			// Whoever looks at a task settles one that nobody answers for.
			out, err := m.herd(u, "status", u.id)
			m.inspect("herd status", out, err, v, 0, 1, 2, 3, 6)
		}
	}
	for _, u := range units {
		if u.door == "lane" && u.was("kill supervisor") && u.was("kill keeper") {
			// It is named as interrupted, with what is alive; a person ends it.
			out, err := m.lane(u, "cancel", "--run", u.farm.run, "--phase", u.id, "--grace", "1")
			m.inspect("agent-fanout cancel", out, err, v, 0, 1, 2, 3)
		}
	}
	alive := m.survivors(dir, units)
	ledger := readLedger(filepath.Join(dir, "ledger.jsonl"), v)
	seen := map[string]bool{}
	for _, u := range units {
		m.started++
		m.kinds[u.kind]++
		for what, n := range u.run.did {
			switch verb, _, _ := strings.Cut(what, " "); verb {
			case "kill", "TERM", "INT", "HUP":
				m.kills += n
			case "stop":
				m.stops += n
			case "remove":
				m.removals += n
			case "clock":
				m.clocks += min(n, 1)
			}
		}
		switch u.door {
		case "herd":
			m.checkTask(u, alive[u.n], v)
			continue
		case "lane":
			m.checkLane(u, alive[u.n], v)
			continue
		}
		m.checkUnit(u, alive[u.n], ledger, v)
		if d := u.find(); d != "" {
			seen[d] = true
		}
	}
	for _, base := range []string{filepath.Join(dir, "s"), filepath.Join(m.smallDir, filepath.Base(dir))} {
		entries, err := os.ReadDir(base)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := filepath.Join(base, e.Name())
			switch {
			case strings.HasPrefix(e.Name(), ".new-"):
				v.add("a directory that was never announced is left: %s", name)
			case strings.HasPrefix(e.Name(), ".prun-claim-"):
				if locked(name) {
					v.add("a claim is still locked: %s", name)
				}
				v.add("a claim's file is left: %s", name)
			case strings.HasPrefix(e.Name(), "prun-task-"):
				if !seen[name] {
					v.add("a state directory of nobody: %s", name)
				}
			default:
				v.add("something else lies beside the state directories: %s", name)
			}
		}
	}
}

// survivors are the living processes of each unit, by the environment, by the
// command line of those that cleared it, and by the numbers they left.
func (m *mill) survivors(dir string, units []*unit) map[int][]int {
	mark := []byte("SOAK=" + filepath.Base(dir) + "-")
	byDigit := map[string]int{}
	for _, u := range units {
		byDigit[u.digit] = u.n
	}
	look := func() map[int][]int {
		found := map[int][]int{}
		for _, p := range processes() {
			if s := state(p); s == 'Z' || s == 'X' {
				continue
			}
			env := read(p, "environ")
			if i := bytes.Index(env, mark); i >= 0 {
				n, err := strconv.Atoi(string(env[i+len(mark) : i+len(mark)+3]))
				if err == nil {
					found[n] = append(found[n], p)
				}
				continue
			}
			if args := bytes.Split(read(p, "cmdline"), []byte{0}); len(args) > 1 && string(args[0]) == "sleep" {
				if n, ok := byDigit[string(args[1])]; ok {
					found[n] = append(found[n], p)
				}
			}
		}
		return found
	}
	found := look()
	if len(found) > 0 {
		// A process that was killed a moment ago may still be going.
		<-time.After(200 * time.Millisecond)
		found = look()
	}
	return found
}

func describe(pids []int) string {
	var b strings.Builder
	for _, p := range pids {
		fmt.Fprintf(&b, " %d (%s, state %c, parent %d)", p, bytes.ReplaceAll(read(p, "cmdline"), []byte{0}, []byte{' '}), state(p), parent(p))
	}
	return b.String()
}

func (m *mill) checkUnit(u *unit, alive []int, ledger map[string][]entry, v *verdicts) {
	bad := func(format string, args ...any) { v.of(u, format, args...) }
	guardsKilled := u.was("kill supervisor") && u.was("kill keeper")
	dir := u.find()
	// What a person at the front door saw.
	errs, _ := os.ReadFile(filepath.Join(u.witness, "stderr"))
	said, _ := os.ReadFile(filepath.Join(u.witness, "stdout"))
	if bytes.Contains(errs, []byte("goroutine ")) || bytes.Contains(errs, []byte("panic:")) || bytes.Contains(errs, []byte("fatal error:")) {
		if u.storm && bytes.Contains(errs, []byte("failed to create new OS thread")) || u.files > 0 && (bytes.Contains(errs, []byte("too many open files")) || bytes.Contains(errs, []byte("netpollinit"))) {
			// The machine refused the program itself.
		} else {
			bad("the front door crashed: %.500s", errs)
		}
	}
	announced := strings.HasPrefix(string(said), "STATE-DIR: ") || strings.HasPrefix(string(said), "STATE-DIR ")
	if len(said) > 0 && (!announced || strings.Count(string(said), "\n") != 1) {
		bad("standard output is not one line: %q", said)
	}
	if announced {
		m.announced++
	}

	var o *outcome
	if dir != "" {
		o = m.checkDir(u, dir, announced, v)
	} else if announced && !u.was("remove") {
		bad("announced, and its directory is gone: %s", said)
	}
	if len(alive) > 0 {
		switch {
		case u.was("remove") && guardsKilled:
			// Nobody can know of them any more.
			m.unproven++
		case o != nil && o.ProvenEmpty != nil && !*o.ProvenEmpty && guardsKilled && u.script.escapes:
			m.unproven++
		default:
			bad("alive:%s", describe(alive))
		}
		for _, p := range alive {
			_ = unix.Kill(p, unix.SIGKILL)
		}
	}
	if o == nil {
		m.checkNoOutcome(u, dir, errs, v)
	} else {
		m.settled++
		m.causes[o.Cause]++
		m.checkOutcome(u, o, v)
	}
	m.checkResult(u, dir, o, v)
	for _, e := range entriesOf(filepath.Dir(u.result)) {
		// Without a proof a file that was moved aside stays, and is named.
		named := o != nil && o.ProvenEmpty != nil && !*o.ProvenEmpty && strings.Contains(strings.Join(o.Notes, "\n"), e.Name())
		if strings.HasPrefix(e.Name(), ".") && !named {
			bad("a temporary name is left beside the result: %s", e.Name())
		}
	}
	m.checkLedger(u, dir, o, ledger, v)
}

func (m *mill) reaping(u *unit) string {
	b, err := os.ReadFile(filepath.Join(m.root, filepath.Base(filepath.Dir(filepath.Dir(u.witness))), "reap"))
	if err != nil {
		return ""
	}
	var all strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "-"+u.id+"-") {
			all.WriteString(line)
		}
	}
	return all.String()
}

func entriesOf(dir string) []fs.DirEntry {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	return entries
}

// checkDir checks the state directory itself and returns its outcome.
func (m *mill) checkDir(u *unit, dir string, announced bool, v *verdicts) *outcome {
	bad := func(format string, args ...any) { v.of(u, format, args...) }
	fi, err := os.Lstat(dir)
	if err != nil {
		bad("look at the state directory: %v", err)
		return nil
	}
	if fi.Mode().Perm() != 0o700 {
		bad("state directory has mode %v", fi.Mode())
	}
	for _, e := range entriesOf(dir) {
		name := filepath.Join(dir, e.Name())
		fi, err := os.Lstat(name)
		if err != nil {
			continue
		}
		switch {
		case fi.IsDir() && fi.Mode().Perm() != 0o700, fi.Mode().IsRegular() && fi.Mode().Perm() != 0o600:
			bad("%s has mode %v", e.Name(), fi.Mode())
		case !fi.IsDir() && !fi.Mode().IsRegular():
			bad("%s is a %v", e.Name(), fi.Mode())
		}
		// A unit without an outcome is not done with; why it has none is judged
		// elsewhere.
		if _, err := os.Lstat(filepath.Join(dir, "outcome.json")); strings.HasPrefix(e.Name(), ".") && err == nil {
			bad("a temporary name is left in the state directory: %s", e.Name())
		}
	}
	if locked(filepath.Join(dir, "lock")) {
		bad("its lock is still held")
	}
	b, err := os.ReadFile(filepath.Join(dir, "outcome.json"))
	if err != nil {
		return nil
	}
	var o outcome
	if err := json.Unmarshal(b, &o); err != nil || !bytes.HasSuffix(b, []byte("}\n")) || o.Cause == "" {
		bad("torn outcome (%v): %q", err, b)
		return nil
	}
	if o.Unit != u.id {
		bad("outcome of %q", o.Unit)
	}
	m.checkTail(u, dir, &o, v)
	return &o
}

// checkNoOutcome: only what was refused, was killed before it was born, was
// removed, or cannot be proven, may have none.
func (m *mill) checkNoOutcome(u *unit, dir string, errs []byte, v *verdicts) {
	bad := func(format string, args ...any) { v.of(u, format, args...) }
	switch {
	case u.was("remove"):
		// Unless it was settled before.
		fi, err := os.Lstat(filepath.Join(u.witness, strconv.Itoa(u.script.endMark)))
		if u.run.status == 0 && !u.detach && !u.was("kill front") && (err != nil || fi.ModTime().After(u.run.removed)) {
			bad("the state directory was removed, and the front door exits 0: %.300s", errs)
		}
		return
	case dir == "":
		m.refused++
		scarce := u.small || u.files > 0 || u.storm
		killed := u.was("kill front") || u.was("kill keeper") || u.was("kill supervisor") ||
			u.was("TERM front") || u.was("INT front") || u.was("HUP front") || u.was("TERM supervisor") || u.was("INT supervisor") || u.was("HUP supervisor")
		if scarce {
			m.starved++
		}
		if !scarce && !killed {
			bad("never came to be: exit %d: %.300s", u.run.status, errs)
		}
		if u.run.status == 0 {
			bad("never came to be, and the front door exits 0")
		}
	default:
		bad("no outcome; reaping said %q", m.reaping(u))
	}
}

// checkOutcome: the cause must be one that was caused.
func (m *mill) checkOutcome(u *unit, o *outcome, v *verdicts) {
	bad := func(format string, args ...any) {
		v.of(u, "%s\n\toutcome %s", fmt.Sprintf(format, args...), asJSON(o))
	}
	s := &u.script
	stopped := func(sig string) bool { return u.was(sig+" front") || u.was(sig+" supervisor") }
	scarce := u.small || u.files > 0 || u.storm
	finished := s.endMark > 0 && u.marked(s.endMark)
	seconds := float64(o.DurationMS) / 1000
	switch o.Cause {
	case "exited", "failed":
		code := -1
		if o.ExitCode != nil {
			code = *o.ExitCode
		}
		switch {
		case scarce && !finished, u.was("remove"):
			// The worker met what we put in its way.
		case o.Signal == 9 && u.was("kill worker") && code == -1:
		case o.Signal != 0 && (s.signal != o.Signal || !finished):
			bad("it did not die of signal %d", o.Signal)
		case o.Signal != 0:
		case !finished:
			bad("it did not end by itself")
		case u.backend == "command" && code != s.exit:
			bad("exit code %d, want %d", code, s.exit)
		case u.backend == "command" && (o.Cause == "exited") != (s.exit == 0):
			bad("exit code %d and cause %s", code, o.Cause)
		case u.backend != "command" && scarce && o.Cause == "failed":
			// Its events found no room.
		case u.backend != "command" && (o.Cause == "failed") != s.fails:
			bad("the stream's failure is %v", s.fails)
		}
	case "idle-stall":
		if u.stall == 0 || seconds < float64(int(u.stall)) {
			bad("stall limit %v", u.stall)
		}
	case "hard-timeout":
		if u.hard == 0 || seconds < float64(int(u.hard)) {
			bad("hard limit %v", u.hard)
		}
	case "interrupted":
		if name := map[int]string{15: "TERM", 2: "INT", 1: "HUP"}[o.Signal]; !stopped(name) {
			bad("nobody sent signal %d", o.Signal)
		}
	case "lost":
		m.lost++
		if !u.was("kill supervisor") && !scarce {
			bad("nobody killed the supervisor")
		}
	case "launch-failed":
		if !u.was("kill front") && !scarce && !u.was("remove") && !(u.was("kill keeper") && u.detach) {
			bad("nothing kept it from starting")
		}
		if len(s.marks) > 0 && u.marked(1) {
			bad("it ran")
		}
	default:
		bad("cause %q", o.Cause)
	}
	if o.ProvenEmpty == nil || !*o.ProvenEmpty {
		if !(u.was("kill supervisor") && u.was("kill keeper")) {
			bad("not proven empty")
		}
	}
	frontKilled := u.was("kill front") || u.detach || u.run.status >= 128 && !finished
	if !frontKilled && u.run.status != o.ExitStatus && o.ExitStatus != 0 {
		bad("the front door exits %d", u.run.status)
	}
	if !frontKilled && o.Cause == "exited" && o.ExitStatus == 0 && u.run.status != 0 {
		bad("a success, and the front door exits %d", u.run.status)
	}
	if u.run.status == 0 && o.Cause != "exited" && !u.detach && !frontKilled {
		bad("exit 0")
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// marked reports whether the worker came as far as a mark.
func (u *unit) marked(n int) bool {
	_, err := os.Lstat(filepath.Join(u.witness, strconv.Itoa(n)))
	return err == nil
}

// last is the last mark that the worker made.
func (u *unit) last() int {
	for n := len(u.script.marks); n > 0; n-- {
		if u.marked(n) {
			return n
		}
	}
	return 0
}

// checkTail: every byte that was written before the last mark is in the tail,
// in order, and nothing is there that nobody wrote.
func (m *mill) checkTail(u *unit, dir string, o *outcome, v *verdicts) {
	bad := func(format string, args ...any) { v.of(u, format, args...) }
	b, err := os.ReadFile(filepath.Join(dir, "tail"))
	if err != nil && !os.IsNotExist(err) {
		bad("read tail: %v", err)
		return
	}
	extra, _ := os.ReadFile(filepath.Join(dir, "stderr"))
	if len(extra) == 0 {
		// The name is in prun-state(5); only some backends have it.
		for _, e := range entriesOf(dir) {
			if strings.Contains(e.Name(), "stderr") {
				extra, _ = os.ReadFile(filepath.Join(dir, e.Name()))
			}
		}
	}
	if total := int64(len(b) + len(extra)); o.TailBytes != total && o.Cause != "launch-failed" {
		bad("the outcome counts %d bytes of output, there are %d", o.TailBytes, total)
	}
	if u.small || u.storm || u.files > 0 {
		return // its writes may have failed
	}
	last := u.last()
	if u.backend != "command" {
		for n := range last {
			if line := u.script.marks[n].line + "\n"; !bytes.Contains(b, []byte(line)) {
				bad("the tail lacks %q", line)
			}
		}
		return
	}
	if reaping := regexp.MustCompile(`\n[a-z-]+: worker reaped \([a-z-]+\); exit code 124\.\n$`).FindIndex(b); reaping != nil {
		b = b[:reaping[0]]
	}
	if u.script.noise {
		b = bytes.ReplaceAll(b, []byte("noise\n"), nil)
	}
	var atLeast int64
	if last > 0 {
		atLeast = u.script.marks[last-1].written
	}
	n := int64(0)
	rest := b
	for _, p := range u.script.out {
		want := p.text
		if p.ys > 0 {
			want = bytes.Repeat([]byte("y"), p.ys)
		}
		k := min(len(want), len(rest))
		if !bytes.Equal(rest[:k], want[:k]) {
			at := 0
			for at < k && rest[at] == want[at] {
				at++
			}
			bad("the tail differs at byte %d: %.80q, want %.80q", n+int64(at), rest[at:], want[at:])
			return
		}
		n += int64(k)
		rest = rest[k:]
	}
	if u.script.endless {
		rest = bytes.TrimLeft(rest, "x")
	}
	if n < atLeast {
		bad("the tail holds %d bytes of %d that were written before mark %d", n, atLeast, last)
	}
	if len(rest) > 0 && !complaint(rest) && !u.was("remove") {
		bad("the tail holds what nobody wrote: %.200q", rest)
	}
}

// complaint: the shell and fakeagent say on standard error what went wrong.
func complaint(b []byte) bool {
	return bytes.HasPrefix(b, []byte("fakeagent: ")) || bytes.HasPrefix(b, []byte("exit status")) || bytes.HasPrefix(b, []byte("sh: ")) || bytes.HasPrefix(b, []byte("signal: "))
}

// checkResult: a worker's result is as it wrote it; a FALLBACK is whole; what
// is no file was neither replaced nor written through.
func (m *mill) checkResult(u *unit, dir string, o *outcome, v *verdicts) {
	bad := func(format string, args ...any) {
		v.of(u, "%s\n\toutcome %s", fmt.Sprintf(format, args...), asJSON(o))
	}
	s := &u.script
	fi, err := os.Lstat(u.result)
	done := s.resultDone > 0 && u.marked(s.resultDone)
	begun := s.resultFrom > 0 && u.marked(s.resultFrom)
	if err == nil && begun {
		kind, isKind := map[string]fs.FileMode{"link": fs.ModeSymlink, "dir": fs.ModeDir, "fifo": fs.ModeNamedPipe}[s.result]
		switch {
		case isKind && fi.Mode().Type() == kind:
			if o != nil && o.Result != "none" {
				bad("result %s while a %v stands there", o.Result, kind)
			}
			if s.result == "link" {
				if _, err := os.Lstat(u.result + ".target"); err == nil {
					bad("somebody wrote through the link")
				}
			}
			return
		case isKind && done:
			bad("the worker's %s became a %v", s.result, fi.Mode())
			return
		}
	}
	if err != nil {
		if done && s.result != "late" {
			bad("the worker's result is gone: %v", err)
		}
		if o != nil && o.Result != "none" {
			bad("no result: %v", err)
		}
		return
	}
	if !fi.Mode().IsRegular() {
		bad("the result is a %v", fi.Mode())
		return
	}
	b, err := os.ReadFile(u.result)
	if err != nil {
		bad("read result: %v", err)
		return
	}
	text := string(b)
	if u.before != nil {
		if !bytes.Equal(b, u.before) {
			bad("the older result was touched: %.200q", b)
		}
		return
	}
	header := fallbackLine.FindString(text)
	switch {
	case s.resultText != "" && text == s.resultText && begun && s.result != "empty":
		if o != nil && o.Result != "worker" && s.result != "late" {
			bad("the worker's result stands")
		}
	case done && (s.result == "text" || s.result == "slow"):
		bad("the worker's result was %.200q", b)
	case text == "":
		if s.result != "empty" && !begun {
			bad("the result is empty")
		}
		if o != nil && o.Result != "none" {
			bad("the result is empty")
		}
		if o != nil && s.result == "empty" && *o.ProvenEmpty && !u.small {
			bad("an empty result was left standing")
		}
	case s.result == "slow" && begun && strings.HasPrefix(s.resultText, text):
		// Its own half; its writer was killed.
	case header != "":
		if o != nil && o.Result != "fallback" {
			bad("a FALLBACK stands")
		}
		m.checkFallback(u, dir, text, bad)
	case s.response != "" && strings.TrimSpace(text) == s.response:
		if o != nil && o.Result != "response" {
			bad("the response stands")
		}
	default:
		bad("torn or foreign result: %.300q", b)
	}
}

func (m *mill) checkFallback(u *unit, dir, text string, bad func(string, ...any)) {
	head, body, whole := strings.Cut(text, "\n\n")
	if !whole || !strings.Contains(head, "\nVerification: ") {
		bad("torn FALLBACK: %.300q", text)
		return
	}
	if u.backend == "command" && dir != "" && !u.small {
		tail, err := os.ReadFile(filepath.Join(dir, "tail"))
		if err != nil && !os.IsNotExist(err) {
			bad("read tail: %v", err)
		}
		if len(tail) <= 4<<20 && body != string(tail) {
			bad("the FALLBACK holds %d bytes, the tail %d", len(body), len(tail))
		}
		if len(tail) > 4<<20 && (len(body) > 4<<20+4096 || !strings.HasSuffix(body, string(tail[len(tail)-1<<20:]))) {
			bad("the FALLBACK of a long tail is not its two ends")
		}
	}
}

// entry is a line of the ledger.
type entry struct {
	StateDir string  `json:"state_dir"`
	ID       string  `json:"id"`
	Status   string  `json:"status"`
	Cause    *string `json:"cause"`
}

func readLedger(name string, v *verdicts) map[string][]entry {
	out := map[string][]entry{}
	b, err := os.ReadFile(name)
	if err != nil {
		return out
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		v.add("the ledger ends in the middle of a line")
	}
	for line := range bytes.Lines(b) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			v.add("torn ledger line: %.200q", line)
			continue
		}
		out[e.StateDir] = append(out[e.StateDir], e)
	}
	if fi, err := os.Lstat(name); err == nil && fi.Mode().Perm() != 0o600 {
		v.add("the ledger has mode %v", fi.Mode())
	}
	if locked(name) {
		v.add("the ledger is locked")
	}
	return out
}

func (m *mill) checkLedger(u *unit, dir string, o *outcome, ledger map[string][]entry, v *verdicts) {
	if u.ledger == "" || dir == "" || o == nil {
		return
	}
	lines := ledger[dir]
	if len(lines) == 0 {
		if o.Cause != "lost" && o.Cause != "launch-failed" && u.files == 0 {
			v.of(u, "the ledger does not know it")
		}
		return
	}
	last := lines[len(lines)-1]
	if !slices.Contains([]string{"done", "failed"}, last.Status) || last.Cause == nil || *last.Cause != o.Cause {
		v.of(u, "the ledger's last line of it is %s, the outcome %s", asJSON(last), asJSON(o))
	}
}

// locked asks the kernel whether anybody holds a lock on the file.
func locked(name string) bool {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	const ofdGetLock = 36 // F_OFD_GETLK
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), ofdGetLock, &lk); err != nil {
		return false
	}
	if lk.Type != unix.F_UNLCK {
		return true
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return true
	}
	return false
}
