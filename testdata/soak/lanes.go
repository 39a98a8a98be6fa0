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

// Lanes of agent-fanout are units too, in worktrees of one repository.

// farm is the repository of a round and the run in it.
type farm struct {
	dir, run string
	ready    bool
}

// plant makes the repository and the run. Without git there are no lanes.
func (m *mill) plant(dir string) *farm {
	f := &farm{dir: filepath.Join(dir, "f")}
	if m.bin["agent-fanout"] == "" {
		return f
	}
	if _, err := exec.LookPath("git"); err != nil {
		return f
	}
	repo := filepath.Join(f.dir, "repo")
	must(os.MkdirAll(filepath.Join(f.dir, "home"), 0o755))
	must(os.MkdirAll(repo, 0o755))
	must(os.WriteFile(filepath.Join(f.dir, "home", ".gitconfig"), []byte("[user]\n name = n\n email = n@example.com\n"), 0o644))
	must(os.WriteFile(filepath.Join(repo, "a"), []byte("one\n"), 0o644))
	must(os.WriteFile(filepath.Join(f.dir, "brief"), []byte("please\n"), 0o644))
	for _, words := range [][]string{{"init", "-q"}, {"add", "a"}, {"commit", "-q", "-m", "first"}} {
		cmd := exec.Command("git", words...)
		cmd.Dir, cmd.Env = repo, append(os.Environ(), "HOME="+filepath.Join(f.dir, "home"))
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("soak: without lanes: git %v: %v: %s\n", words, err, out)
			return f
		}
	}
	cmd := exec.Command(m.bin["agent-fanout"], "init", "--repo", repo, "--no-fetch")
	cmd.Env = append(os.Environ(), f.env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		fmt.Printf("soak: without lanes: agent-fanout init: %v: %s\n", err, out)
		return f
	}
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutPrefix(line, "run="); ok {
			f.run, f.ready = strings.TrimSpace(id), true
		}
	}
	return f
}

func (f *farm) env() []string {
	return []string{"HOME=" + filepath.Join(f.dir, "home"), "AGENT_FANOUT_STATE_HOME=" + filepath.Join(f.dir, "state"), "GIT_CONFIG_NOSYSTEM=1"}
}

// planLane makes u a lane.
func (u *unit) planLane(r *rand.Rand, f *farm) {
	u.kind, u.door, u.backend, u.farm = "lane", "lane", "command", f
	u.base, u.detach = filepath.Join(f.dir, "state"), true
	u.out("begin")
	u.mark()
	switch r.IntN(6) {
	case 0:
		u.hang(r)
		// A lane's limit is one of silence.
		u.stall, u.hard = 2+2*r.Float64(), 0
	case 1:
		u.flood(1 << (10 + r.IntN(11)))
		u.mark()
		u.exit(0)
	case 2:
		u.script.add("child-double")
		u.script.add("child-stubborn")
		u.mark()
		u.wait(r)
		u.exit(r.IntN(2))
	default:
		u.wait(r)
		u.exit([]int{0, 0, 1, 7}[r.IntN(4)])
	}
	if u.stall == 0 {
		u.stall = 9
	}
	u.delay = time.Duration(r.IntN(4000)) * time.Millisecond
	u.afflict(r)
	u.actions = slices.DeleteFunc(u.actions, func(a action) bool { return a.what == "remove" || slices.Contains(a.whom, "front") })
	if r.IntN(6) == 0 {
		u.actions = append(u.actions, action{after: time.Duration(r.IntN(4000)) * time.Millisecond, what: "cancel"})
	}
}

// lane runs a verb on the unit's lane.
func (m *mill) lane(u *unit, words ...string) ([]byte, error) {
	cmd := exec.Command(m.program(u, "agent-fanout"), words...)
	cmd.Env, cmd.Dir = m.environment(u), u.farm.dir
	return cmd.CombinedOutput()
}

func (u *unit) laneDir() string {
	found, _ := filepath.Glob(filepath.Join(u.base, "runs", "*", u.farm.run, "lanes", u.id))
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// checkLane checks one lane after everybody had time to settle it.
func (m *mill) checkLane(u *unit, alive []int, v *verdicts) {
	bad := func(format string, args ...any) { v.of(u, format, args...) }
	m.lanes++
	guardsKilled := u.was("kill supervisor") && u.was("kill keeper")
	dir := u.laneDir()
	said, _ := os.ReadFile(filepath.Join(u.witness, "stdout"))
	errs, _ := os.ReadFile(filepath.Join(u.witness, "stderr"))
	out, err := m.lane(u, "status", "--run", u.farm.run, "--json")
	m.inspect("agent-fanout status", out, err, v, 0)
	var status struct {
		Lanes []struct{ Phase, Status string }
	}
	if json.Unmarshal(out, &status) != nil {
		bad("status: %s", out)
		return
	}
	state := ""
	for _, l := range status.Lanes {
		if l.Phase == u.id {
			state = l.Status
		}
	}
	started := u.run.status == 0
	if started && !slices.Contains([]string{"succeeded", "failed", "cancelled", "stalled", "interrupted", "lost", "dead-start", "quiet"}, state) {
		bad("status %q after everything: %s%s", state, said, errs)
	}
	if len(alive) > 0 {
		if guardsKilled && u.mode == "subreaper" {
			m.unproven++
		} else {
			bad("status %s, alive:%s", state, describe(alive))
		}
	}
	if dir == "" {
		if started {
			bad("started, and its directory is gone")
		}
		return
	}
	turn := filepath.Join(dir, "unit-1")
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
			if strings.HasPrefix(e.Name(), ".new-unit-") && guardsKilled {
				continue // a unit that was never born, which the lane keeps
			}
			if strings.HasPrefix(e.Name(), ".") && (e.Name() != ".outcome" || u.settledOutcome(turn)) {
				bad("a temporary name is left: %s", name)
			}
			if e.Name() == "lock" && locked(name) {
				bad("%s is still locked", name)
			}
		}
	}
	// What the command runner prints is its result.
	log, _ := os.ReadFile(filepath.Join(dir, "result.md"))
	if last := u.last(); last > 0 && int64(len(log)) < u.script.marks[last-1].written {
		bad("the log holds %d bytes of %d that were written", len(log), u.script.marks[last-1].written)
	}
	if last := u.last(); last > 0 && !bytes.HasPrefix(log, []byte("begin\n")) {
		bad("the log begins with %.60q", log)
	}
	b, err := os.ReadFile(filepath.Join(turn, "outcome.json"))
	if err != nil {
		if started && !guardsKilled {
			bad("no outcome: %v", err)
		}
		return
	}
	var o outcome
	if err := json.Unmarshal(b, &o); err != nil || o.Cause == "" {
		bad("torn outcome %q", b)
		return
	}
	m.settled++
	m.causes[o.Cause]++
	finished := u.script.endMark > 0 && u.marked(u.script.endMark)
	stopped := u.was("TERM supervisor") || u.was("INT supervisor") || u.was("HUP supervisor") || u.was("cancel")
	code := -1
	if o.ExitCode != nil {
		code = *o.ExitCode
	}
	fits := map[string]bool{
		"exited":      finished && u.script.exit == 0 && code == 0,
		"failed":      finished && u.script.exit == code || u.was("kill worker"),
		"idle-stall":  u.stall > 0,
		"killed":      u.was("cancel") || guardsKilled,
		"interrupted": stopped,
		"lost":        u.was("kill supervisor"),
	}
	if ok, known := fits[o.Cause]; known && !ok || !known && o.Cause != "launch-failed" {
		bad("status %s, false end: %s", state, asJSON(o))
	}
	if (state == "succeeded") != (o.Cause == "exited") {
		bad("status %s of %s", state, asJSON(o))
	}
}

// startLane is the command line of the unit's front door.
func (m *mill) startLane(u *unit, v *verdicts) []string {
	if out, err := m.lane(u, "add-lane", "--run", u.farm.run, "--phase", u.id); err != nil {
		v.of(u, "add-lane: %v: %s", err, out)
	}
	words := []string{
		m.program(u, "agent-fanout"), "start", "--run", u.farm.run, "--phase", u.id, "--brief", filepath.Join(u.farm.dir, "brief"),
		"--runner", "command", "--quiet", strconv.Itoa(int(u.stall)), "--", filepath.Join(m.root, "bin", "fakeagent"),
	}
	return append(words, u.script.steps...)
}
