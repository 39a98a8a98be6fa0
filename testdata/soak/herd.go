//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tasks of herd are units too: the front door leaves at once, and the record of
// a turn lies in the task's directory.

// tasks are the kinds of herd's workers.
var tasks = []struct {
	name  string
	build func(u *unit, r *rand.Rand)
}{
	{"herd: answer", func(u *unit, r *rand.Rand) { u.mark(); u.wait(r); u.answer() }},
	{"herd: answer after a flood", func(u *unit, r *rand.Rand) {
		u.mark()
		u.script.add("line " + strconv.Itoa(1<<(8+r.IntN(13))))
		u.mark()
		u.wait(r)
		u.answer()
	}},
	{"herd: failure", func(u *unit, r *rand.Rand) {
		u.mark()
		u.wait(r)
		u.script.endMark, u.script.fails = u.mark(), true
		u.script.add("fail it broke")
	}},
	{"herd: silence", func(u *unit, r *rand.Rand) { u.mark(); u.hang(r) }},
	{"herd: answer, then silence", func(u *unit, r *rand.Rand) {
		u.mark()
		u.script.response = "the whole answer of " + u.id
		u.script.add("text " + u.script.response)
		u.script.add("child-stubborn")
		u.mark()
		u.hang(r)
	}},
	{"herd: escapees", func(u *unit, r *rand.Rand) {
		u.script.add("child-double")
		u.script.add("child-talk")
		u.script.noise = true
		u.mark()
		u.wait(r)
		u.answer()
	}},
	{"herd: early exit", func(u *unit, r *rand.Rand) {
		u.script.endMark, u.script.fails = u.mark(), true
		u.script.add("exit 1")
	}},
}

func (u *unit) answer() {
	u.script.response = "the whole answer of " + u.id
	u.script.endMark = u.mark()
	u.script.add("text " + u.script.response)
}

// planTask makes u a task of herd.
func (u *unit) planTask(r *rand.Rand, dir string) {
	k := tasks[r.IntN(len(tasks))]
	u.kind, u.door = k.name, "herd"
	u.backend = []string{"codex", "claude", "muse"}[r.IntN(3)]
	u.base = filepath.Join(dir, "h")
	u.detach = true
	k.build(u, r)
	if u.hard == 0 {
		u.hard = 12
	}
	u.delay = time.Duration(r.IntN(4000)) * time.Millisecond
	u.afflict(r)
	u.actions = slices.DeleteFunc(u.actions, func(a action) bool { return a.what == "remove" || slices.Contains(a.whom, "front") })
	if r.IntN(8) == 0 {
		u.actions = append(u.actions, action{after: time.Duration(r.IntN(3000)) * time.Millisecond, what: "herd kill"})
	}
}

// herd runs a verb on the task.
func (m *mill) herd(u *unit, words ...string) ([]byte, error) {
	cmd := exec.Command(m.program(u, "herd"), words...)
	cmd.Env, cmd.Dir = m.environment(u), filepath.Dir(u.result)
	return cmd.CombinedOutput()
}

func (u *unit) taskDir() string { return filepath.Join(u.base, "sessions", "dev", u.id) }

// answerers reads who answers for the turn.
func (u *unit) answerers() (supervisor, keeper int) {
	var id struct {
		Supervisor, Keeper struct {
			PID int `json:"pid"`
		}
	}
	dir := filepath.Join(u.taskDir(), "turns", "1")
	if u.door == "lane" {
		dir = filepath.Join(u.laneDir(), "unit-1")
	}
	b, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	if err != nil || json.Unmarshal(b, &id) != nil {
		return 0, 0
	}
	return id.Supervisor.PID, id.Keeper.PID
}

// finalStates are those of a task that has ended.
var finalStates = []string{"done", "failed", "stalled", "interrupted", "killed", "needs_input", "timeout", "cancelled"}

// checkTask checks one task of herd after everybody had time to settle it.
func (m *mill) checkTask(u *unit, alive []int, v *verdicts) {
	bad := func(format string, args ...any) { v.of(u, format, args...) }
	m.tasks++
	guardsKilled := u.was("kill supervisor") && u.was("kill keeper")
	said, _ := os.ReadFile(filepath.Join(u.witness, "stdout"))
	errs, _ := os.ReadFile(filepath.Join(u.witness, "stderr"))
	dir := u.taskDir()
	out, err := m.herd(u, "status", u.id, "--json")
	m.inspect("herd status", out, err, v, 0, 1, 2, 3, 6)
	alive = slices.DeleteFunc(alive, func(p int) bool { s := state(p); return s == 'Z' || s == 'X' })
	if _, serr := os.Stat(dir); serr != nil {
		if u.run.status == 0 {
			bad("spawned, and gone: %s%s", said, errs)
		}
		return
	}
	var status struct {
		Task, State string
		ExitCode    *int `json:"exit_code"`
	}
	if jerr := json.Unmarshal(out, &status); jerr != nil {
		if u.run.status == 0 {
			bad("status (%v): %s", err, out)
		}
		return
	}
	if !slices.Contains(finalStates, status.State) {
		bad("state %q after everything: %s\n\tspawn said %s%s", status.State, out, said, errs)
	}
	turn := filepath.Join(dir, "turns", "1")
	for _, d := range []string{dir, turn} {
		for _, e := range entriesOf(d) {
			name := filepath.Join(d, e.Name())
			fi, err := os.Lstat(name)
			if err != nil {
				continue
			}
			if fi.Mode().Perm()&0o077 != 0 {
				bad("%s has mode %v", name, fi.Mode())
			}
			if strings.HasPrefix(e.Name(), ".") && !slices.Contains([]string{".done", ".meta.lock"}, e.Name()) && (e.Name() != ".outcome" || u.settledOutcome(turn)) {
				bad("a temporary name is left: %s", name)
			}
			if strings.HasSuffix(e.Name(), "lock") && locked(name) {
				bad("%s is still locked", name)
			}
		}
	}
	if len(alive) > 0 {
		// Without a cgroup, and with all guards killed, nothing is proven.
		if guardsKilled && u.mode == "subreaper" {
			m.unproven++
		} else {
			bad("alive:%s", describe(alive))
		}
	}
	var all []byte
	segments, _ := filepath.Glob(filepath.Join(dir, "events.jsonl*"))
	for _, s := range segments {
		b, err := os.ReadFile(s)
		if err != nil {
			bad("read events: %v", err)
		}
		all = append(all, b...)
	}
	for n := range u.last() {
		// What lies in a pipe goes with its only reader.
		if line := u.script.marks[n].line; !bytes.Contains(all, []byte(line+"\n")) && !u.was("kill supervisor") {
			bad("the events lack %q (%d bytes)", line, len(all))
		}
	}
	b, err := os.ReadFile(filepath.Join(turn, "outcome.json"))
	if err != nil {
		if !guardsKilled && u.run.status == 0 {
			bad("no outcome: %v; %s", err, out)
		}
		return
	}
	var o outcome
	if err := json.Unmarshal(b, &o); err != nil || o.Cause == "" {
		bad("torn outcome: %q", b)
		return
	}
	m.causes[o.Cause]++
	m.settled++
	m.checkEnd(u, &o, status.State, v)
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err == nil && u.script.response != "" && strings.TrimSpace(string(report)) != u.script.response {
		bad("report %q", report)
	}
	if err != nil && status.State == "done" {
		bad("done without a report")
	}
}

func (u *unit) settledOutcome(turn string) bool {
	_, err := os.Lstat(filepath.Join(turn, "outcome.json"))
	return err == nil
}

// checkEnd: the state of the task is one that was caused.
func (m *mill) checkEnd(u *unit, o *outcome, state string, v *verdicts) {
	bad := func(format string, args ...any) {
		v.of(u, "state %s: %s\n\toutcome %s", state, fmt.Sprintf(format, args...), asJSON(o))
	}
	s := &u.script
	finished := s.endMark > 0 && u.marked(s.endMark)
	stopped := u.was("TERM supervisor") || u.was("INT supervisor") || u.was("HUP supervisor")
	switch o.Cause {
	case "exited":
		if (!finished || s.fails) && s.response == "" {
			bad("it did not answer")
		}
	case "failed":
		if !(finished && s.fails) && !u.was("kill worker") {
			bad("it did not fail")
		}
	case "idle-stall":
		if u.stall == 0 {
			bad("no stall limit")
		}
	case "hard-timeout":
		if u.hard == 0 || float64(o.DurationMS) < 1000*float64(int(u.hard)) {
			bad("limit %v", u.hard)
		}
	case "killed":
		if !u.was("herd kill") {
			bad("nobody killed it")
		}
	case "interrupted":
		if !stopped && !u.was("herd kill") {
			bad("nobody stopped it")
		}
	case "lost":
		if !u.was("kill supervisor") {
			bad("nobody killed the supervisor")
		}
	case "launch-failed":
		if !u.was("kill keeper") && !u.was("kill supervisor") && !stopped {
			bad("nothing kept it from starting")
		}
	}
	if state == "done" && o.Cause != "exited" {
		bad("done is false")
	}
	if o.Cause == "exited" && state != "done" && state != "needs_input" {
		bad("an answer is not done")
	}
}
