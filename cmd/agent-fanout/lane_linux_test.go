package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// escapees is a script that leaves processes in every way that is known to
// escape, writes their numbers down and goes on with what follows.
const escapees = `
sleep 60 &
setsid sleep 61 &
( setsid sleep 62 & ) &
setsid sh -c 'trap "" TERM INT HUP; sleep 63; sleep 64' &
env -i setsid sleep 65 &
wait_for() { for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do pgrep -f "^sleep $1$" >/dev/null && return; sleep 0.1; done; }
touch ready
`

// A2: whatever a lane started is gone when it has ended, however it ended.
func TestNothingSurvives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script, status string
		end                  func(w *world)
	}{
		{"end", escapees + "exit 0", "succeeded", nil},
		{"failure", escapees + "exit 7", "failed", nil},
		{"cancel", escapees + "sleep 66", "cancelled", func(w *world) {
			if a := w.ok("cancel", "--run", "r", "--phase", "p", "--grace", "1"); a.out != "cancelled\n" {
				w.t.Errorf("cancel says %q", a.out)
			}
		}},
		{"interrupted", escapees + "sleep 66", "interrupted", func(w *world) {
			if err := w.identity("r", "p").Supervisor.Signal(syscall.SIGTERM); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"supervisor killed", escapees + "sleep 66", "interrupted", func(w *world) { w.kill9(w.identity("r", "p").Supervisor) }},
		{"limit", escapees + "sleep 66", "failed", nil},
	} {
		for _, mode := range []string{"cgroup", "subreaper"} {
			t.Run(c.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				if mode == "cgroup" && !cgroupUsable() {
					t.Skip("condition not met: a writable cgroup v2")
				}
				w := newWorld(t)
				trees := w.run("r", "p")
				args := []string{"start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command"}
				if c.name == "limit" {
					args = append(args, "--timeout", "2")
				}
				a := w.callIn(w.repo, []string{"PRUN_CONTAINMENT=" + mode}, append(args, "--", "sh", "-c", c.script)...)
				if a.code != 0 {
					t.Fatalf("%+v", a)
				}
				if c.end != nil {
					w.until(10*time.Second, "the worker's children", func() bool { return w.exists(trees["p"] + "/ready") })
					c.end(w)
				}
				if got := w.wait("r", "p"); got != c.status {
					t.Errorf("status %s, want %s\n%s", got, c.status, w.describe())
				}
				w.empty(5 * time.Second)
				o, err := w.unit("r", "p").ReadOutcome()
				if err != nil || o == nil || !o.ProvenEmpty || o.Containment != mode {
					t.Errorf("outcome %+v, %v", o, err)
				}
				if c.status == "interrupted" {
					if j := w.laneStatus("r", "p"); j.Gone == nil || !*j.Gone || len(j.Alive) > 0 {
						t.Errorf("status says %+v of an interrupted lane", j)
					}
				}
			})
		}
	}
}

// cgroupUsable tells whether leaves can be made here.
func cgroupUsable() bool {
	out, err := exec.Command("sh", "-c", `while IFS=: read -r n c d; do [ "$n" = 0 ] && break; done </proc/self/cgroup
		for r in /sys/fs/cgroup /sys/fs/cgroup/unified; do
		[ -w "$r$d/cgroup.procs" ] && while read -r p; do [ "$p" = $$ ] && exit 0; done <"$r$d/cgroup.procs"; done; exit 1`).CombinedOutput()
	_ = out
	return err == nil
}

func TestExitCodesAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "seven", "killed", "missing", "limit")
	w.sh("r", "seven", "echo no >&2; exit 7")
	w.sh("r", "killed", "kill -9 $$")
	w.ok("start", "--run", "r", "--phase", "missing", "--brief", w.path("brief.md"), "--runner", "command", "--", "no-such-program")
	w.sh("r", "limit", "sleep 60", "--timeout", "1")
	for phase, want := range map[string]string{"seven": "7", "killed": "137", "missing": "127", "limit": "124"} {
		if got := w.wait("r", phase); got != "failed" {
			t.Errorf("%s: status %s", phase, got)
		}
		if got := w.value("r", phase, "exit-code"); got != want {
			t.Errorf("%s: exit code %s, want %s", phase, got, want)
		}
	}
	// Also after everything is gone.
	w.ok("cleanup", "--run", "r", "--drop-worktrees", "--force")
	if j := w.laneStatus("r", "seven"); j.Status != "failed" || j.ExitCode != "7" {
		t.Errorf("after cleanup: %+v", j)
	}
	a := w.ok("collect", "--run", "r", "--phase", "seven")
	if !strings.HasPrefix(a.out, "status=failed\n") || a.value("exit_code") != "7" {
		t.Errorf("collect of a failed lane: %+v", a)
	}
	w.empty(5 * time.Second)
}

// A3: every runner has limits, and none when they are off.
func TestLimits(t *testing.T) {
	t.Parallel()
	const begin = `out {"type":"thread.started","thread_id":"11111111-1111-7111-8111-111111111111"}`
	const turn = `out {"type":"turn.started"}`
	for _, c := range []struct {
		name, runner, script string
		flags                []string
		status, code, reason string
	}{
		// thread.started is no progress, and neither is what codex says on
		// standard error before it has begun.
		{"dead start", "codex", begin + "\nerr 2026 WARN codex\nhang", []string{"--dead-start", "2", "--quiet", "0"}, "failed", "124", "dead-start"},
		{"quiet", "codex", begin + "\n" + turn + "\nhang", []string{"--dead-start", "1", "--quiet", "2"}, "failed", "124", "idle-stall"},
		// A worktree that changes is work, whatever the stream does.
		{"worktree", "codex", begin + "\nsh for i in 1 2 3; do sleep 2; date +%N >>a.txt; done\n" + turn + "\ntext done", []string{"--dead-start", "7", "--quiet", "7"}, "succeeded", "0", ""},
		{"ignored file", "command", `sh mkdir -p build; for i in 1 2 3; do sleep 2; date +%N >>build/out; done`, []string{"--quiet", "7"}, "succeeded", "0", ""},
		// Reconnecting for ever is no progress.
		{"reconnecting", "codex", begin + "\n" + turn + "\nretry 1\npause 1\nretry 1\npause 1\nretry 1\npause 1\nretry 1\npause 1\nretry 1\nhang", []string{"--quiet", "3"}, "failed", "124", "idle-stall"},
		{"early exit", "codex", begin + "\nexit 0", nil, "failed", "1", "without a final event"},
		{"no output at all", "codex", "exit 0", nil, "failed", "1", "without a final event"},
		{"hang is confirmed", "codex", begin + "\n" + turn + "\nsay thinking\nignore TERM INT HUP\nhang", []string{"--quiet", "2"}, "failed", "124", "idle-stall"},
		{"omp hangs", "omp", "err Working...\nhang", []string{"--quiet", "2"}, "failed", "124", "idle-stall"},
		{"omp is only silent", "omp", "pause 3\ntext done", []string{"--quiet", "0"}, "succeeded", "0", ""},
		{"omp dead start", "omp", "hang", []string{"--dead-start", "2"}, "failed", "124", "dead-start"},
		{"drips for ever", "command", "drip 0.2 0", []string{"--timeout", "2"}, "failed", "124", "hard-timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run("r", "p")
			args := append([]string{"start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", c.runner}, c.flags...)
			if c.runner == "command" {
				args = append(args, "--", filepath.Join(clients, "fake"))
			}
			if a := w.callIn(w.repo, []string{"FAKEAGENT_SCRIPT=" + c.script}, args...); a.code != 0 {
				t.Fatalf("%+v", a)
			}
			if got := w.wait("r", "p"); got != c.status {
				t.Errorf("status %s, want %s\n%s", got, c.status, w.describe())
			}
			if got := w.value("r", "p", "exit-code"); got != c.code {
				t.Errorf("exit code %s, want %s", got, c.code)
			}
			if j := w.laneStatus("r", "p"); !strings.Contains(j.Reason, c.reason) || c.reason == "" && j.Reason != "" {
				t.Errorf("reason %q, want %q", j.Reason, c.reason)
			}
			if c.status == "failed" {
				// Why it failed can be read where the result would be.
				a := w.ok("collect", "--run", "r", "--phase", "p")
				log := w.value("r", "p", "run.log")
				if !strings.Contains(a.out+log, c.reason) {
					t.Errorf("neither result nor log says %q:\n%s\n%s", c.reason, a.out, log)
				}
			}
			w.empty(5 * time.Second)
		})
	}
}

// A result that is there is never overwritten by a diagnosis.
func TestResultIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.sh("r", "p", "echo partial answer; sleep 60", "--timeout", "2")
	if got := w.wait("r", "p"); got != "failed" {
		t.Errorf("status %s", got)
	}
	if got := w.value("r", "p", "result.md"); got != "partial answer" {
		t.Errorf("result %q", got)
	}
	if got := w.value("r", "p", "run.log"); !strings.Contains(got, "hard-timeout") {
		t.Errorf("log %q", got)
	}
}

// A codex of the caller's that writes its own session file at the same time is
// nothing that the lane does.
func TestParentRolloutIsNoProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	home := w.path("codex-home")
	w.mkdir("codex-home/sessions")
	env := []string{"CODEX_HOME=" + home, "FAKEAGENT_SCRIPT=out {\"type\":\"thread.started\",\"thread_id\":\"x\"}\nhang"}
	if a := w.callIn(w.repo, env, "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--dead-start", "2"); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				os.WriteFile(filepath.Join(home, "sessions", "rollout.jsonl"), []byte(strings.Repeat("x", i)), 0o644)
			}
		}
	})
	if got := w.wait("r", "p"); got != "failed" {
		t.Errorf("status %s", got)
	}
	close(stop)
	wait.Wait()
	if got := w.value("r", "p", "exit-code"); got != "124" {
		t.Errorf("exit code %s", got)
	}
}

// The runners: what they are given, and where what they say goes.
func TestRunners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		runner string
		flags  []string
		argv   []string
		events bool
	}{
		{"codex", []string{"--model", "m", "--reasoning-effort", "high"}, []string{"exec", "--json", "--sandbox", "workspace-write", "-c", "sandbox_workspace_write.network_access=true",
			"-c", "features.default_mode_request_user_input=false", "-m", "m", "-c", `model_reasoning_effort="high"`, "-o", "RESULT", "-"}, true},
		{"codex", []string{"--no-network"}, []string{"exec", "--json", "--sandbox", "workspace-write", "-c", "features.default_mode_request_user_input=false", "-o", "RESULT", "-"}, true},
		{"omp", []string{"--model", "gemini-3.5-flash", "--thinking", "low"}, []string{"-p", "--no-session", "--auto-approve", "--model", "gemini-3.5-flash", "--thinking", "low"}, false},
		{"claude", nil, nil, true},
		{"pi", nil, nil, true},
		{"agy", nil, nil, true},
	} {
		t.Run(c.runner+" "+strings.Join(c.flags, " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run("r", "p")
			w.write("brief.md", "FAKE: err remark\nFAKE: sh echo x >made.txt\nFAKE: text the answer that it gave\nSECRETWORD\n")
			args := append([]string{"start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", c.runner}, c.flags...)
			if a := w.callIn(w.repo, []string{"FAKEAGENT_LOG=" + w.path("log")}, args...); a.code != 0 {
				t.Fatalf("%+v", a)
			}
			if got := w.wait("r", "p"); got != "succeeded" {
				t.Fatalf("status %s\n%s", got, w.describe())
			}
			if got := w.value("r", "p", "result.md"); got != "the answer that it gave" {
				t.Errorf("result %q", got)
			}
			if got := w.value("r", "p", "run.log"); !strings.Contains(got, "remark") {
				t.Errorf("log %q", got)
			}
			a := w.call("logs", "--run", "r", "--phase", "p", "--events")
			if c.events != (a.code == 0 && strings.Contains(a.out, "the answer that it gave")) {
				t.Errorf("events: %+v", a)
			}
			log := w.read("log")
			if got := argv(t, log); c.argv != nil {
				want := strings.ReplaceAll(strings.Join(c.argv, "\n"), "RESULT", filepath.Join(w.lane("r", "p"), "result.md"))
				if got := strings.Join(got, "\n"); got != want {
					t.Errorf("argv\n%s\nwant\n%s", got, want)
				}
			} else if strings.Contains(strings.Join(got, " "), "SECRETWORD") {
				t.Errorf("the brief is in %q", got)
			}
			w.empty(5 * time.Second)
		})
	}
}

// A4: a brief of three megabytes runs, byte for byte, and no process listing
// shows any of it.
func TestLargeBrief(t *testing.T) {
	t.Parallel()
	for _, runner := range []string{"command", "codex", "omp"} {
		t.Run(runner, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			trees := w.run("r", "p")
			brief := []byte("FAKE: touch running\nFAKE: await go\nFAKE: text done\n-starts with a dash \x01 é\r\n" + strings.Repeat("MARKOFTHEBRIEF 0123456789\n", 3<<20/26))
			w.write("brief.md", string(brief))
			args := []string{"start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", runner}
			if runner == "command" {
				args = append(args, "--", "sh", "-c", `cat >got; touch running; while [ ! -e go ]; do sleep 0.05; done`)
			}
			if a := w.call(args...); a.code != 0 {
				t.Fatalf("%+v", a)
			}
			w.until(20*time.Second, "the worker runs", func() bool { return w.exists(trees["p"] + "/running") })
			for _, p := range w.marked() {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
				if bytes.Contains(line, []byte("MARKOFTHEBRIEF")) {
					t.Errorf("process %d shows the brief", p)
				}
			}
			w.write(trees["p"]+"/go", "")
			if got := w.wait("r", "p"); got != "succeeded" {
				t.Fatalf("status %s\n%s", got, w.value("r", "p", "run.log"))
			}
			if runner == "command" && w.read(trees["p"]+"/got") != string(brief) {
				t.Error("the worker got other bytes")
			}
			if w.value("r", "p", "brief.md")+"\n" != string(brief) {
				t.Error("brief.md is not the brief")
			}
		})
	}
}

// Two starts at once: one worker. A start of a lane that runs is refused.
func TestOneWorkerPerLane(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p")
	const n = 6
	answers := make([]answer, n)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() {
			answers[i] = w.call("start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--",
				"sh", "-c", "echo $$ >>started; sleep 60")
		})
	}
	wait.Wait()
	won := 0
	for _, a := range answers {
		if a.code == 0 {
			won++
		} else if a.code != 2 || !strings.Contains(a.err, "lane cannot start from state: ") {
			t.Errorf("%+v", a)
		}
	}
	if won != 1 {
		t.Errorf("%d starts succeeded", won)
	}
	w.until(5*time.Second, "the worker", func() bool { return w.exists(trees["p"] + "/started") })
	if got := strings.Count(w.read(trees["p"]+"/started"), "\n"); got != 1 {
		t.Errorf("%d workers ran", got)
	}
	w.fails(2, "lane cannot start from state: running", "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--", "true")
	w.ok("cancel", "--run", "r", "--phase", "p", "--grace", "1")
}

// A lane that has not succeeded is started again in the same worktree; what the
// last worker said is kept.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p")
	w.sh("r", "p", "echo first; echo kept > kept; exit 3")
	w.wait("r", "p")
	w.sh("r", "p", "echo second; sleep 60")
	w.until(5*time.Second, "the second result", func() bool { return w.value("r", "p", "result.md") == "second" })
	if a := w.ok("cancel", "--run", "r", "--phase", "p", "--grace", "1"); a.out != "cancelled\n" {
		t.Errorf("cancel says %q", a.out)
	}
	if got := w.value("r", "p", "exit-code"); got != "125" {
		t.Errorf("exit code %s", got)
	}
	// A lane that has ended is left alone.
	if a := w.ok("cancel", "--run", "r", "--phase", "p"); a.out != "cancelled\n" {
		t.Errorf("a second cancel says %q", a.out)
	}
	w.sh("r", "p", "cat kept; exit 0")
	if got := w.wait("r", "p"); got != "succeeded" {
		t.Errorf("status %s", got)
	}
	if got := w.value("r", "p", "result.md"); got != "kept" {
		t.Errorf("result %q", got)
	}
	for n, want := range map[int]string{1: "first\n", 2: "second\n"} {
		if got := w.read(filepath.Join(w.lane("r", "p"), "unit-"+strconv.Itoa(n), "result.md")); got != want {
			t.Errorf("result of unit %d: %q", n, got)
		}
	}
	w.fails(2, "lane cannot start from state: succeeded", "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--", "true")
	_ = trees
}

// A10, A11: several lanes at once, and no poll between their end and the answer.
func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "a", "b", "c", "never")
	const held = "while [ ! -s go ]; do sleep 0.01; done; exit $(cat go)"
	for _, p := range []string{"a", "b", "c"} {
		w.sh("r", p, held)
	}
	if a := w.call("wait", "--run", "r", "--phase", "a", "--timeout", "0"); a.code != 3 || a.out != "running\n" && a.out != "dispatching\n" {
		t.Errorf("wait for no time: %+v", a)
	}
	if a := w.call("wait", "--run", "r", "--phase", "a", "--phase", "b", "--timeout", "1"); a.code != 3 || a.out != "a\trunning\nb\trunning\n" {
		t.Errorf("wait for two: %+v", a)
	}
	done := make(chan answer, 1)
	go func() { done <- w.call("wait", "--run", "r", "--phase", "a", "--phase", "b", "--any") }()
	w.write(trees["a"]+"/go", "0")
	if a := <-done; a.code != 0 || a.out != "a\tsucceeded\nb\trunning\n" {
		t.Errorf("wait --any: %+v", a)
	}
	go func() { done <- w.call("wait", "--run", "r", "--all", "--timeout", "20") }()
	w.write(trees["b"]+"/go", "0")
	w.write(trees["c"]+"/go", "4")
	if a := <-done; a.code != 1 || a.out != "a\tsucceeded\nb\tsucceeded\nc\tfailed\n" || !strings.Contains(a.err, "never") {
		t.Errorf("wait --all: %+v", a)
	}
	if a := w.call("wait", "--run", "r", "--phase", "a", "--phase", "b"); a.code != 0 {
		t.Errorf("all succeeded: %+v", a)
	}
	if a := w.call("wait", "--run", "r", "--phase", "c"); a.code != 1 || a.out != "failed\n" {
		t.Errorf("failed: %+v", a)
	}
	w.fails(2, "name a lane", "wait", "--run", "r")
}

// The moment of the end reaches a waiter within 100 ms, by the clock of the
// status file; a loaded machine is allowed more here, the bench is not.
func TestWaitWakesAtOnce(t *testing.T) {
	w := newWorld(t)
	names := []string{"p1", "p2", "p3", "p4", "p5"}
	trees := w.run("r", names...)
	best := time.Hour
	for _, p := range names {
		w.sh("r", p, "while [ ! -e go ]; do sleep 0.01; done")
		done := make(chan time.Time, 1)
		go func() { w.call("wait", "--run", "r", "--phase", p); done <- time.Now() }()
		w.until(5*time.Second, "the lane runs", func() bool { return w.value("r", p, "status") == "running" })
		w.write(trees[p]+"/go", "")
		at := <-done
		fi, err := os.Stat(filepath.Join(w.lane("r", p), "status"))
		if err != nil {
			t.Fatal(err)
		}
		if best = min(best, at.Sub(fi.ModTime())); best < 500*time.Millisecond {
			break
		}
	}
	t.Logf("answer %v after the status was written", best)
	// The poll is a second: five in a row that late were not woken.
	if best >= 500*time.Millisecond {
		t.Errorf("no answer sooner than %v after the end", best)
	}
}

// A lane told to end by a cancel gets its grace, and no more.
func TestCancelGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "polite", "stubborn", "idle")
	w.sh("r", "polite", `trap 'sleep 1; echo tidied > tidied; exit 0' TERM; touch ready; while :; do sleep 0.05; done`)
	w.sh("r", "stubborn", `trap '' TERM INT HUP; touch ready; while :; do sleep 0.05; done`)
	for _, p := range []string{"polite", "stubborn"} {
		w.until(5*time.Second, "the worker is ready", func() bool { return w.exists(trees[p] + "/ready") })
	}
	if a := w.ok("cancel", "--run", "r", "--phase", "polite"); a.out != "cancelled\n" || a.took > 9*time.Second {
		t.Errorf("polite: %+v", a)
	}
	if !w.exists(trees["polite"] + "/tidied") {
		t.Error("the worker had no time to tidy up")
	}
	if a := w.ok("cancel", "--run", "r", "--phase", "stubborn", "--grace", "1"); a.out != "cancelled\n" || a.took > 9*time.Second {
		t.Errorf("stubborn: %+v", a)
	}
	if a := w.ok("cancel", "--run", "r", "--phase", "idle"); a.out != "cancelled\n" {
		t.Errorf("a lane that was never started: %+v", a)
	}
	w.sh("r", "idle", "exit 0")
	if got := w.wait("r", "idle"); got != "succeeded" {
		t.Errorf("started after a cancel: %s", got)
	}
	w.empty(5 * time.Second)
}

// A9: after both guards were killed status names what lives on, by identity,
// and cancel ends it; a start is refused until then.
func TestOrphansAreNamed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cgroup", "subreaper"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode == "cgroup" && !cgroupUsable() {
				t.Skip("condition not met: a writable cgroup v2")
			}
			w := newWorld(t)
			trees := w.run("r", "p")
			args := []string{"start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--", "sh", "-c",
				"setsid sleep 60 & echo $! >pids; echo $$ >>pids; echo said; touch ready; sleep 60; :"}
			if a := w.callIn(w.repo, []string{"PRUN_CONTAINMENT=" + mode}, args...); a.code != 0 {
				t.Fatalf("%+v", a)
			}
			w.until(5*time.Second, "the worker is ready", func() bool { return w.exists(trees["p"] + "/ready") })
			id := w.identity("r", "p")
			// The keeper first: it would end the tree.
			w.kill9(id.Keeper)
			w.kill9(id.Supervisor)
			w.until(5*time.Second, "the guards are gone", func() bool {
				a, _ := id.Supervisor.Alive()
				b, _ := id.Keeper.Alive()
				return !a && !b
			})
			j := w.laneStatus("r", "p")
			if j.Status != "interrupted" || j.Gone == nil || *j.Gone {
				t.Errorf("status says %+v", j)
			}
			for _, n := range strings.Fields(w.read(trees["p"] + "/pids")) {
				found := false
				for _, one := range j.Alive {
					found = found || strconv.Itoa(one.PID) == n && one.Start != 0
				}
				if !found {
					t.Errorf("process %s is not named: %+v", n, j.Alive)
				}
			}
			a := w.ok("status", "--run", "r")
			if !strings.Contains(a.err, "still alive: ") || !strings.Contains(a.out, "\tinterrupted\t") {
				t.Errorf("status says %+v", a)
			}
			w.fails(2, "processes of its last worker", "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--", "true")
			// A wait does not go on for ever.
			if a := w.call("wait", "--run", "r", "--phase", "p"); a.code != 1 || a.out != "interrupted\n" {
				t.Errorf("wait says %+v", a)
			}
			if a := w.ok("cancel", "--run", "r", "--phase", "p"); a.out != "interrupted\n" {
				t.Errorf("cancel says %+v", a)
			}
			w.empty(5 * time.Second)
			if got := w.value("r", "p", "result.md"); got != "said" {
				t.Errorf("what it said is %q", got)
			}
			w.sh("r", "p", "exit 0")
			if got := w.wait("r", "p"); got != "succeeded" {
				t.Errorf("after a restart: %s", got)
			}
		})
	}
}

// E30: whatever is killed and when, status is right in the end, and nothing
// lives on that it does not name.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p")
	for n := range rounds(t, 4) {
		os.Remove(trees["p"] + "/ready")
		w.sh("r", "p", "touch ready; sleep 0.2; exit 1")
		id := w.identity("r", "p")
		victim := map[int]pid.ID{0: id.Supervisor, 1: id.Keeper}[n%2]
		time.Sleep(time.Duration(n*37%300) * time.Millisecond)
		_ = victim.Signal(syscall.SIGKILL)
		got := w.wait("r", "p")
		if got != "failed" && got != "interrupted" {
			t.Errorf("round %d: status %s", n, got)
		}
		w.empty(5 * time.Second)
		if j := w.laneStatus("r", "p"); got == "interrupted" && (j.Gone == nil || !*j.Gone) {
			t.Errorf("round %d: %+v", n, j)
		}
	}
}

// start killed half way: the lane is not left as running, and can be started.
func TestStarterKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"F1", "F2", "F6", "S2", "S5", "S7", "S8a", "S8", "S.C3", "S.C7a", "S.C7", "K1"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run("r", "p")
			w.callIn(w.repo, []string{"PRUN_CRASH_AT=" + point}, "start", "--run", "r", "--phase", "p", "--brief", w.path("brief.md"), "--runner", "command", "--", "sh", "-c", "echo said; exit 0")
			w.until(10*time.Second, "an end", func() bool {
				s := w.laneStatus("r", "p").Status
				return s == "succeeded" || s == "failed" || s == "interrupted"
			})
			w.empty(5 * time.Second)
			j := w.laneStatus("r", "p")
			if j.Status == "succeeded" {
				if got := w.value("r", "p", "result.md"); got != "said" {
					t.Errorf("result %q", got)
				}
				return
			}
			w.sh("r", "p", "exit 0")
			if got := w.wait("r", "p"); got != "succeeded" {
				t.Errorf("after a restart: %s", got)
			}
		})
	}
}

// A stopped supervisor is woken by a cancel.
func TestCancelWakesAStoppedSupervisor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.sh("r", "p", "sleep 60")
	id := w.identity("r", "p")
	if err := id.Supervisor.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if a := w.ok("cancel", "--run", "r", "--phase", "p", "--grace", "1"); a.out != "cancelled\n" {
		t.Errorf("%+v", a)
	}
	w.empty(5 * time.Second)
}

// E28: the terminal or session of the caller ends and the lane goes on; its
// pipes are not held.
func TestCallerIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "p")
	// callIn waits for the end of its pipes: a worker that held one would hang it.
	began := time.Now()
	cmd := exec.Command("sh", "-c", `"$0" start --run r --phase p --brief "$1" --runner command -- sh -c 'while [ ! -e go ]; do sleep 0.02; done; echo on' ; kill -s HUP 0`, binary, w.path("brief.md"))
	cmd.Dir, cmd.Env = w.repo, w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, _ := cmd.CombinedOutput()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("start held its caller for %v: %s", took, out)
	}
	w.write(trees["p"]+"/go", "")
	if got := w.wait("r", "p"); got != "succeeded" {
		t.Errorf("status %s", got)
	}
}

// A lane that is started from inside a unit outlives that unit (decision 3.6).
func TestStartedInsideAUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trees := w.run("r", "outer", "inner")
	w.sh("r", "outer", fmt.Sprintf("%s start --run r --phase inner --brief %s --runner command -- sh -c 'while [ ! -e go ]; do sleep 0.02; done'", binary, w.path("brief.md")))
	if got := w.wait("r", "outer"); got != "succeeded" {
		t.Fatalf("outer: %s\n%s", got, w.describe())
	}
	if got := w.laneStatus("r", "inner").Status; got != "running" {
		t.Fatalf("inner: %s", got)
	}
	w.write(trees["inner"]+"/go", "")
	if got := w.wait("r", "inner"); got != "succeeded" {
		t.Errorf("inner: %s", got)
	}
	o, err := w.unit("r", "inner").ReadOutcome()
	if err != nil || o.ParentUnit != w.unit("r", "outer").Dir {
		t.Errorf("outcome %+v, %v", o, err)
	}
}

// States of the original: an ended lane reads as it was left, a live one whose
// wrapper is gone becomes interrupted, and a number that is another process's by
// now is not believed.
func TestStatesOfTheOriginal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := "state/runs/0123456789ab/20260101000000-0a0b0c0d"
	put := func(base string, files map[string]string) {
		for name, text := range files {
			w.write(filepath.Join(base, name), text+"\n")
		}
	}
	put("state/claims/20260101000000-0a0b0c0d", map[string]string{"repo-id": "0123456789ab", "run-dir": w.path(dir)})
	put(dir, map[string]string{"sid": "20260101000000-0a0b0c0d", "repo-id": "0123456789ab", "main": w.repo, "invoking-worktree": w.repo,
		"tmux-socket": "af-0123456789ab-x", "integration-worktree": w.path("gone"), "integration-branch": "int-x", "base-ref": "main", "status": "active"})
	self := strconv.Itoa(os.Getpid())
	for phase, files := range map[string]map[string]string{
		"created": {"status": "created"},
		"done":    {"status": "succeeded", "exit-code": "0", "result": w.path(dir + "/lanes/done/result.md"), "result.md": "old words"},
		"dead":    {"status": "running", "wrapper.pid": "4194300", "wrapper.start": "Thu Jan  1 00:00:00 2026"},
		"reused":  {"status": "running", "wrapper.pid": self, "wrapper.start": "Thu Jan  1 00:00:00 2026"},
		"odd":     {"status": "dispatching", "wrapper.pid": "-1", "wrapper.start": ""},
		"none":    {"status": "running"},
	} {
		files["phase"], files["worktree"], files["branch"] = phase, w.path("gone/"+phase), "wt-x-"+phase
		put(dir+"/lanes/"+phase, files)
	}
	live := exec.Command("sleep", "60")
	if err := live.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { live.Process.Kill(); live.Wait() }()
	lstart, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(live.Process.Pid)).Output()
	if err == nil {
		put(dir+"/lanes/live", map[string]string{"phase": "live", "status": "running", "worktree": w.path("gone/live"), "branch": "wt-x-live",
			"wrapper.pid": strconv.Itoa(live.Process.Pid), "wrapper.start": strings.TrimSpace(string(lstart))})
	}
	want := map[string]string{"created": "created", "done": "succeeded", "dead": "interrupted", "reused": "interrupted", "odd": "interrupted", "none": "interrupted", "live": "running"}
	s := w.status("20260101000000-0a0b0c0d")
	for _, l := range s.Lanes {
		if l.Status != want[l.Phase] {
			t.Errorf("%s is %s, want %s", l.Phase, l.Status, want[l.Phase])
		}
	}
	if len(s.Lanes) < 6 {
		t.Errorf("lanes %+v", s.Lanes)
	}
	a := w.ok("collect", "--run", "20260101000000-0a0b0c0d", "--phase", "done")
	if !strings.HasSuffix(a.out, "\n\nold words\n") {
		t.Errorf("collect says\n%s", a.out)
	}
	// None of those processes was touched.
	if alive, _ := mustID(t, live.Process.Pid).Alive(); !alive {
		t.Error("a process that is not ours was ended")
	}
}

func mustID(t *testing.T, n int) pid.ID {
	t.Helper()
	id, err := pid.Of(n)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// E02: numbers that are not a worker's are never signalled.
func TestSpoiltRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("r", "p")
	w.sh("r", "p", "sleep 60")
	id := w.identity("r", "p")
	u := w.unit("r", "p")
	w.kill9(id.Keeper)
	w.kill9(id.Supervisor)
	w.until(5*time.Second, "the guards are gone", func() bool { a, _ := id.Supervisor.Alive(); return !a })
	for _, spoilt := range []string{"{}", "{", `{"supervisor":{"pid":1}}`, `{"worker":{"pid":-1}}`, strings.Repeat("x", 2<<20), ""} {
		if err := os.WriteFile(u.Path(state.FileIdentity), []byte(spoilt), 0o600); err != nil {
			t.Fatal(err)
		}
		a := w.call("status", "--run", "r", "--json")
		if a.code != 0 {
			t.Errorf("identity %.20q: %+v", spoilt, a)
		}
		w.call("cancel", "--run", "r", "--phase", "p", "--grace", "0")
	}
}
