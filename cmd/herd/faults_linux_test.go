package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/session"
)

// The faults of the original, one proof each: Fn is the row of that number in the contract.

// F1: an answered question is not seen again.
func TestF01AnsweredQuestion(t *testing.T) {
	b := newBed(t)
	b.spawn("q", "text QUESTION: left or right?")
	for range rounds(t, 3) {
		if a := b.run("result", "q", "--wait", "--exit-status"); a.code != 4 || !strings.Contains(a.out, "left or right") {
			t.Fatalf("exit %d, %q", a.code, a.out)
		}
		begun := time.Now()
		b.ok("send", "q", steps("start\npause 0.3\ntext left it is"))
		if a := b.run("result", "q", "--wait", "--exit-status"); a.code != 0 || a.out != "left it is\n" || time.Since(begun) < 300*time.Millisecond {
			t.Fatalf("after %v: exit %d, %q", time.Since(begun), a.code, a.out)
		}
		b.ok("send", "q", steps("text QUESTION: left or right?"))
	}
}

// F2, F24: every turn has its own report, and its limits are the task's.
func TestF02TurnsKeepTheirReports(t *testing.T) {
	b := newBed(t)
	b.spawn("r", "text QUESTION: which?", "--stall-after", "77", "--deadline", "88")
	b.settled("r", 5*time.Second)
	b.ok("send", "r", steps("fail no way"))
	p := b.settled("r", 5*time.Second)
	if a := b.run("result", "r"); a.out != "(no report yet; state=failed)\n" || p["state"] != "failed" || p["stall_reason"] != "exit-1" {
		t.Errorf("%q, %v", a.out, p)
	}
	if a := b.run("result", "r", "--turn", "1"); a.out != "QUESTION: which?\n" {
		t.Errorf("turn 1: %q", a.out)
	}
	b.ok("send", "r", steps("start\nend"))
	if p := b.settled("r", 5*time.Second); p["state"] == "awaiting_reply" {
		t.Errorf("a turn without a message: %v", p)
	}
	meta := b.decode(b.read("r", session.FileMeta))
	if meta["stall_after_s"] != 77.0 || meta["task_deadline_s"] != 88.0 || meta["deadline_utc"].(float64) < meta["created_utc"].(float64)+88 {
		t.Errorf("limits: %v", meta)
	}
	b.ok("send", "r", "--stall-after", "5", steps("text back"))
	b.settled("r", 5*time.Second)
	if meta := b.decode(b.read("r", session.FileMeta)); meta["stall_after_s"] != 5.0 || meta["turn"] != 4.0 {
		t.Errorf("limits: %v", meta)
	}
	b.ok("send", "r", steps("text and again"))
	b.settled("r", 5*time.Second)
	if meta := b.decode(b.read("r", session.FileMeta)); meta["stall_after_s"] != 77.0 {
		t.Errorf("a turn's own limit became the task's: %v", meta)
	}
	if b.read("r", "turns", "2", "prompt.md") != "[continue] Same rules as before; escalate with QUESTION: if blocked.\n\n"+steps("fail no way") {
		t.Errorf("prompt of turn 2: %q", b.read("r", "turns", "2", "prompt.md"))
	}
}

// F3, F26: what holds the worker's output, or has left its session, delays nothing and is gone.
func TestF03HeldOutput(t *testing.T) {
	modes(t, func(t *testing.T, env string) {
		for _, kind := range []string{"child", "child-setsid", "child-double", "child-stubborn", "child-talk"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, env)
				b.spawn("h", kind+" 50\ntext done")
				if p := b.settled("h", 2*time.Second); p["state"] != "done" {
					t.Errorf("%v", p)
				}
				b.empty(2 * time.Second)
			})
		}
		t.Run("stall", func(t *testing.T) {
			t.Parallel()
			b := newBed(t, env)
			b.spawn("h", "start\nchild-setsid 50\nhang", "--stall-after", "1")
			b.until(5*time.Second, "stalled", func() bool { return b.exists("h", session.FileDone) })
			if p := b.payload("h"); p["state"] != "stalled" || p["stall_reason"] != "no-output" {
				t.Errorf("%v", p)
			}
			b.empty(2 * time.Second)
		})
	})
}

// F4, F15: a number in an old record is not believed to be a process.
func TestF04ForeignProcess(t *testing.T) {
	b := newBed(t)
	victim := b.victim()
	for name, state := range map[string]string{"over": "done", "open": "working"} {
		b.write(fmt.Sprintf(`{"task":%q,"state":%q,"backend":"codex","owner":%q,"created_utc":1,"deadline_utc":99999999999,"stall_after_s":3600,"pid":null,"session_id":"s"}`, name, state, b.dir), name, session.FileMeta)
		b.write(fmt.Sprintf(`{"helper_pid":%d,"mode":"spawn","started_utc":1000}`, victim.PID), name, session.FileHelper)
		b.write(fmt.Sprintf(`{"helper_pid":%d,"backend_pid":%d,"started_utc":1000}`, victim.PID, victim.PID), name, session.FileChild)
	}
	b.write("", "over", session.FileDone)
	if out := b.ok("kill", "over"); out != "over done\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("kill", "open"); out != "open failed\n" {
		t.Errorf("%q", out)
	}
	if p := b.payload("open"); p["pid_alive"] != false || p["stall_reason"] != "process-exited-without-marker" {
		t.Errorf("%v", p)
	}
	if !lives(victim) {
		t.Error("an unrelated process was ended")
	}
	// Its own child, not yet taken, is dead as well.
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	b.until(5*time.Second, "zombie", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", zombie.Process.Pid))
		return strings.Contains(string(stat), ") Z ")
	})
	b.write(fmt.Sprintf(`{"state":"working","backend":"codex","owner":%q,"created_utc":1,"deadline_utc":99999999999,"stall_after_s":3600}`, b.dir), "zombie", session.FileMeta)
	b.write(fmt.Sprintf(`{"helper_pid":%d,"mode":"spawn","started_utc":%f}`, zombie.Process.Pid, session.Epoch(time.Now())), "zombie", session.FileHelper)
	if p := b.payload("zombie"); p["state"] != "failed" {
		t.Errorf("%v", p)
	}
}

// F5: a prompt that nobody reads blocks nothing.
func TestF05UnreadPrompt(t *testing.T) {
	b := newBed(t, "FAKEAGENT_SCRIPT=no-stdin\nstart\nhang")
	a := b.feed(strings.Repeat("a line of two hundred kilobytes\n", 7000), "spawn", "workspace", "--name", "big", "--stall-after", "1", "--prompt-stdin")
	if a.code != 0 {
		t.Fatal(a)
	}
	b.until(6*time.Second, "settled without another verb", func() bool { return b.exists("big", session.FileDone) })
	if p := b.payload("big"); p["state"] != "stalled" {
		t.Errorf("%v", p)
	}
}

// F6: whatever a stream holds, the turn settles and its last message is kept.
func TestF06AnyStream(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			deep := strings.Repeat("[", 3000)
			mode := "full"
			b.ok("spawn", mode, steps("start\nout 123\nout []\nout null\nout \"words\"\nout {\"type\":1e999,\"n\":123456789012345678901234567890}\nout {\"type\":\"assistant\",\"message\":\"text\"}\nout "+deep+
				"\nout {\"a\":\nout \\xff\\xfe\\0\\x01\nline 3m\ntext still here"), "--name", "n", "--backend", backend)
			if p := b.settled("n", 10*time.Second); p["state"] != "done" {
				t.Errorf("%v", p)
			}
			if out := b.ok("result", "n"); out != "still here\n" {
				t.Errorf("%q", out)
			}
		})
	}
}

// F7: a sweep never takes a newborn for a dead one.
func TestF07SweepDuringSpawns(t *testing.T) {
	b := newBed(t)
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	for range 3 {
		sweeps.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					b.command("list", "--any-owner", "--all").Run()
				}
			}
		})
	}
	n := rounds(t, 5)
	var all sync.WaitGroup
	for w := range 3 {
		all.Go(func() {
			for i := range n {
				name := fmt.Sprintf("s%d-%d", w, i)
				if out, err := b.command("spawn", "workspace", steps("start\ntext one"), "--name", name).CombinedOutput(); err != nil {
					t.Errorf("spawn: %v %s", err, out)
					return
				}
				out, err := b.command("result", name, "--wait", "--exit-status").CombinedOutput()
				if err != nil || string(out) != "one\n" {
					t.Errorf("%s: %v %s", name, err, out)
				}
				if out, err := b.command("send", name, steps("text two")).CombinedOutput(); err != nil {
					t.Errorf("send: %v %s", err, out)
				}
				out, err = b.command("result", name, "--wait", "--exit-status").CombinedOutput()
				if err != nil || string(out) != "two\n" {
					t.Errorf("%s: %v %s", name, err, out)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	sweeps.Wait()
}

// F8: the supervisor is killed: within two seconds nothing of the worker is left, what it said is reported, and its
// session can be continued.
func TestF08SupervisorKilled(t *testing.T) {
	modes(t, func(t *testing.T, env string) {
		b := newBed(t, env)
		b.spawn("v", "start\nsay half an answer\nchild-setsid 50\nhang")
		b.says("v", "half an answer")
		id := b.supervisor("v", 1)
		if err := id.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		b.empty(2 * time.Second)
		p := b.settled("v", 2*time.Second)
		if p["state"] != "failed" || p["stall_reason"] != "process-exited-without-marker" || p["detail"] != "supervisor-lost" {
			t.Errorf("%v", p)
		}
		if out := b.ok("result", "v"); out != "half an answer\n" {
			t.Errorf("%q", out)
		}
		b.ok("send", "v", steps("text whole"))
		if out := b.ok("result", "v", "--wait"); out != "whole\n" {
			t.Errorf("%q", out)
		}
	})
}

// F8: supervisor and keeper are killed: the next verb ends and settles what is left.
func TestF08BothKilled(t *testing.T) {
	modes(t, func(t *testing.T, env string) {
		b := newBed(t, env)
		b.spawn("v", "start\nsay half an answer\nchild-setsid 50\nhang")
		b.says("v", "half an answer")
		id, err := b.unit("v", 1).Unit().ReadIdentity()
		if err != nil {
			t.Fatal(err)
		}
		id.Keeper.Signal(syscall.SIGKILL)
		id.Supervisor.Signal(syscall.SIGKILL)
		b.until(5*time.Second, "both dead", func() bool { return !lives(id.Keeper) && !lives(id.Supervisor) })
		b.ok("list")
		p := b.payload("v")
		if p["state"] != "failed" || p["detail"] != "supervisor-lost" {
			t.Errorf("%v", p)
		}
		if out := b.ok("result", "v"); out != "half an answer\n" {
			t.Errorf("%q", out)
		}
		b.empty(2 * time.Second)
	})
}

// F9, F10: what went wrong can be seen, and a missing program leaves nothing.
func TestF09Failures(t *testing.T) {
	b := newBed(t)
	b.spawn("f", "err cannot reach the moon\nfail the service said no")
	b.settled("f", 5*time.Second)
	a := b.run("result", "f", "--exit-status")
	if a.code != 1 || !strings.Contains(a.stderr, "exit-1: the service said no") || !strings.Contains(a.stderr, "cannot reach the moon") {
		t.Errorf("%+v", a)
	}
	if a := b.run("result", "f"); a.code != 0 {
		t.Errorf("%+v", a)
	}
	if a := b.run("result", "f", "--json"); !strings.Contains(b.decode(a.out)["stderr"].(string), "cannot reach the moon") {
		t.Errorf("%+v", a)
	}
	if out := b.ok("peek", "f", "--stderr"); out != "cannot reach the moon\n" {
		t.Errorf("%q", out)
	}
	b.spawn("slow", "start\nhang")
	if a := b.run("result", "slow", "--wait", "--timeout", "1", "--exit-status"); a.code != 3 || a.out != "(no report yet; state=working)\n" {
		t.Errorf("%+v", a)
	}
	b.ok("kill", "slow")

	b.env = append(b.env, "DELEGATE_CODEX_BIN=/nowhere/codex")
	b.fails(7, "herd: DELEGATE_CODEX_BIN=/nowhere/codex is not executable\n", "spawn", "workspace", "x", "--name", "none")
	b.env = append(b.env, "DELEGATE_CODEX_BIN=", "PATH=/nowhere")
	b.fails(7, "herd: codex CLI not found on PATH (or set DELEGATE_CODEX_BIN)\n", "spawn", "workspace", "x", "--name", "none")
	if b.exists("none") {
		t.Error("a task without a program")
	}
}

// F11, F12, F34: prune takes what is over and idle by its last output, never what lives.
func TestF11Prune(t *testing.T) {
	b := newBed(t)
	b.spawn("over", "text done")
	b.spawn("asks", "text QUESTION: what?")
	b.spawn("bad", "fail oh")
	b.settled("over", 5*time.Second)
	b.settled("asks", 5*time.Second)
	b.settled("bad", 5*time.Second)
	b.spawn("lives", "start\nhang")
	b.until(10*time.Second, "a session", func() bool { return strings.Contains(b.read("lives", session.FileMeta), `"session_id": "1`) })
	b.write("{not json", "broken", session.FileMeta)
	if err := os.MkdirAll(b.path("empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A terminal state in the record of a turn that is running.
	if err := os.WriteFile(b.path("lives", session.FileMeta), []byte(strings.Replace(b.read("lives", session.FileMeta), `"working"`, `"done"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := b.ok("prune")
	for _, want := range []string{
		"keep    asks                       idle<30m\n", "keep    over                       idle<30m\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	hour := time.Now().Add(-time.Hour)
	for _, name := range []string{"over", "asks", "bad"} {
		for _, f := range []string{session.FileEvents, session.FileReport} {
			os.Chtimes(b.path(name, f), hour, hour)
		}
	}
	out = b.ok("prune")
	for _, want := range []string{
		"keep    asks                       awaiting_reply (resumable; --include-unresolved to reclaim)\n",
		"keep    bad                        failed (resumable; --include-unresolved to reclaim)\n", "would  over\n", "keep    lives                      live/done\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !b.exists("over") {
		t.Fatal("removed without --apply")
	}
	out = b.ok("prune", "--apply", "--any-owner", "--include-unresolved", "--json")
	var got struct {
		Reclaim []string
		Kept    [][2]string
		Applied bool
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || !got.Applied {
		t.Fatal(out, err)
	}
	for _, name := range []string{"over", "asks", "bad"} {
		if b.exists(name) {
			t.Errorf("%s stays: %s", name, out)
		}
	}
	if !b.exists("lives", session.FileMeta) {
		t.Error("a living task was removed")
	}
	// The damaged ones are too young; then they go, too.
	b.ok("prune", "--apply", "--any-owner", "--include-unresolved", "--idle-min", "0")
	if b.exists("broken") || b.exists("empty") || !b.exists("lives") {
		t.Errorf("broken %v, empty %v, lives %v", b.exists("broken"), b.exists("empty"), b.exists("lives"))
	}
	b.spawn("empty", "text the name is free again")
	b.settled("empty", 5*time.Second)
}

// F13: of several sends at once one is accepted; of several spawns of one name one wins.
func TestF13OneAtATime(t *testing.T) {
	b := newBed(t)
	b.spawn("c", "text ready")
	b.settled("c", 5*time.Second)
	for round := range rounds(t, 2) {
		codes := together(6, func(int) int {
			cmd := b.command("send", "c", steps("start\nhang"))
			cmd.Run()
			return cmd.ProcessState.ExitCode()
		})
		if codes[0] != 1 || codes[9] != 5 {
			t.Fatalf("sends: %v\n%s", codes, b.describe())
		}
		b.ok("kill", "c")
		name := fmt.Sprintf("same%d", round)
		codes = together(6, func(int) int {
			cmd := b.command("spawn", "workspace", steps("text mine"), "--name", name)
			cmd.Run()
			return cmd.ProcessState.ExitCode()
		})
		if codes[0] != 1 || codes[2] != 5 {
			t.Fatalf("spawns: %v", codes)
		}
		if p := b.settled(name, 5*time.Second); p["state"] != "done" {
			t.Errorf("%v", p)
		}
	}
}

func together(n int, fn func(i int) int) map[int]int {
	var mu sync.Mutex
	codes := map[int]int{}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			code := fn(i)
			mu.Lock()
			codes[code]++
			mu.Unlock()
		})
	}
	all.Wait()
	return codes
}

// F14, F35: a session's id that arrives while the task is killed is kept; no late writer changes a killed state.
func TestF14SessionDuringKill(t *testing.T) {
	b := newBed(t)
	rnd := rand.New(rand.NewSource(1))
	var all sync.WaitGroup
	for i := range rounds(t, 12) {
		delay := time.Duration(rnd.Intn(40)) * time.Millisecond
		all.Go(func() {
			name := fmt.Sprintf("k%d", i)
			if err := b.command("spawn", "workspace", steps("start\nsay partial\npause 0.01\ntext done"), "--name", name).Run(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(delay)
			out, err := b.command("kill", name).Output()
			if err != nil {
				t.Errorf("kill: %v", err)
			}
			state := strings.Fields(string(out))[1]
			meta, err := os.ReadFile(b.path(name, session.FileMeta))
			if err != nil || !strings.Contains(string(meta), `"state": "`+state+`"`) {
				t.Errorf("%s: printed %s, the record says\n%s", name, state, meta)
			}
			if strings.Contains(b.read(name, session.FileEvents), "thread.started") && !strings.Contains(string(meta), "11111111-1111-7111-8111-111111111111") {
				t.Errorf("%s: the session's id was lost\n%s", name, meta)
			}
		})
		if i%4 == 3 {
			all.Wait()
		}
	}
	all.Wait()
	b.empty(2 * time.Second)
}

// F16: no name leads out of the directory.
func TestF16Names(t *testing.T) {
	b := newBed(t)
	for _, verb := range []string{"status", "result", "kill", "peek", "logs"} {
		b.fails(2, "herd: invalid task name: '.'", verb, ".")
		b.fails(2, "herd: invalid task name: '..'", verb, "..")
	}
	b.fails(2, "herd: invalid task name: '..'", "send", "..", "x")
	b.fails(2, "herd: invalid task name: '///'", "spawn", "workspace", "x", "--name", "///")
	b.fails(2, "herd: invalid task name: ''", "status", "")
	b.fails(6, "herd: no such task on this device: ../x", "status", "../x")
	b.fails(2, "invalid task name", "spawn", "workspace", "x", "--name", strings.Repeat("n", 250))
	if entries, _ := os.ReadDir(filepath.Join(b.state, "sessions", "dev")); len(entries) != 0 {
		t.Errorf("made %v", entries)
	}
}

// F17: one damaged task stops nobody.
func TestF17DamagedRecords(t *testing.T) {
	b := newBed(t)
	b.spawn("good", "text fine")
	b.settled("good", 5*time.Second)
	corpus := map[string]string{
		"torn": `{"state": "wor`, "list": "[]", "null": "null", "empty": "", "number": "12", "bytes": "\xff\xfe", "deep": strings.Repeat(`{"a":`, 5000),
		"huge": `{"stall_after_s": 1` + strings.Repeat("0", 5000) + `}`,
	}
	for name, text := range corpus {
		b.write(text, name, session.FileMeta)
	}
	b.write(`{"state":"working","stall_after_s":"abc","deadline_utc":[],"created_utc":{},"owner":7,"session_id":5,"turn":"x"}`, "odd", session.FileMeta)
	if err := os.MkdirAll(b.path("dir", session.FileMeta), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.path("fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(b.path("fifo", session.FileMeta), 0o644); err != nil {
		t.Fatal(err)
	}
	out := b.ok("list", "--all", "--any-owner")
	if !strings.Contains(out, "good                       done           codex") || !strings.Contains(out, "torn                       unreadable") {
		t.Errorf("%s", out)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(b.ok("list", "--all", "--any-owner", "--json")), &rows); err != nil || len(rows) != 12 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	for name := range corpus {
		if name == "huge" {
			b.ok("status", name)
			continue
		}
		b.fails(6, "herd: task metadata missing: "+name, "status", name)
		b.fails(6, "herd: task metadata missing: "+name, "result", name)
		b.fails(6, "herd: task metadata missing: "+name, "send", name, "x")
		b.fails(6, "herd: task metadata missing: "+name, "kill", name)
	}
	for _, name := range []string{"dir", "fifo"} {
		b.fails(6, "herd: task metadata missing: "+name, "status", name)
	}
	if p := b.payload("odd"); p["state"] != "failed" && p["state"] != "working" {
		t.Errorf("%v", p)
	}
	b.ok("prune")
	b.ok("doctor")
}

// F20: what a task says is nobody else's, whatever the mask.
func TestF20Modes(t *testing.T) {
	b := newBed(t)
	cmd := exec.Command("sh", "-c", `umask 0; exec "$0" spawn workspace "$1" --name m`, filepath.Join(built, "herd"), steps("umask\ntext mine"))
	cmd.Env, cmd.Dir = b.env, b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	b.settled("m", 5*time.Second)
	err := filepath.WalkDir(filepath.Join(b.state, "sessions"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(b.read("m", session.FileEvents), "0000") {
		t.Errorf("the worker's mask: %s", b.read("m", session.FileEvents))
	}
}

// F21: what the stream says counts, whatever the exit status.
func TestF21Verdicts(t *testing.T) {
	for _, c := range []struct{ backend, script, state, reason string }{
		{"claude", "fail API Error: 500", "failed", "exit-1"},
		{"claude", "fail0 API Error: 500", "failed", "turn-failed"},
		{"claude", "text fine", "done", ""},
		{"pi", "fail the service said no", "failed", "turn-failed"},
		{"pi", "quota", "failed", "turn-failed"},
		{"pi", "text fine", "done", ""},
		{"muse", "fail no", "failed", "exit-1"},
		{"muse", "fail0 no", "failed", "turn-failed"},
		{"muse", "text fine", "done", ""},
		{"codex", "start\nsay words\nexit 0", "failed", "turn-failed"},
		{"codex", "start\nend", "failed", "turn-failed"},
		{"codex", "start\nkill KILL", "failed", "exit--9"},
		{"codex", "start\nsay words\nexit 3", "failed", "exit-3"},
		{"codex", "text Question: none.", "done", ""},
		{"codex", "text all good\\n\\n  question: which one?", "awaiting_reply", ""},
	} {
		t.Run(c.backend+" "+strings.ReplaceAll(c.script, "\n", ";"), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.ok("spawn", "full", steps(c.script), "--name", "v", "--backend", c.backend)
			p := b.settled("v", 10*time.Second)
			if reason, _ := p["stall_reason"].(string); p["state"] != c.state || reason != c.reason {
				t.Errorf("%v", p)
			}
		})
	}
}

// F22: a reader never sees half a file, and the marker comes last.
func TestF22Readers(t *testing.T) {
	b := newBed(t)
	b.spawn("w", "text first")
	b.settled("w", 5*time.Second)
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, name := range []string{session.FileMeta, session.FileStatus, session.FileHelper, session.FileChild} {
				text, err := os.ReadFile(b.path("w", name))
				if err == nil && !json.Valid(text) {
					t.Errorf("%s: %q", name, text)
					return
				}
			}
			if report := b.read("w", session.FileReport); report != "" && !strings.HasSuffix(report, "end") && report != "first" {
				t.Errorf("report %q", report)
				return
			}
			if b.exists("w", session.FileDone) {
				var status struct{ State string }
				if json.Unmarshal([]byte(b.read("w", session.FileStatus)), &status); status.State == "working" && b.exists("w", session.FileDone) {
					t.Error("a marker beside a working status")
					return
				}
			}
		}
	})
	for range rounds(t, 4) {
		b.ok("send", "w", steps("text "+strings.Repeat("many words ", 2000)+"end"))
		b.settled("w", 5*time.Second)
	}
	close(stop)
	reading.Wait()
}

// F25: a message that cannot be read stops nothing.
func TestF25BadMessageStopsNothing(t *testing.T) {
	b := newBed(t)
	b.spawn("n", "start\nhang")
	b.says("n", "thread.started")
	// What it says is seen before what its supervisor makes of it.
	b.until(5*time.Second, "n has a session", func() bool { return b.payload("n")["session_id"] != nil })
	id := b.supervisor("n", 1)
	b.fails(9, "herd: task is working; pass --now to interrupt the current turn\n", "send", "n", "x")
	b.fails(1, "no such file", "send", "n", "--now", "-f", "/nowhere/p")
	if a := b.feed("\xff\xfe", "send", "n", "--now"); a.code != 1 {
		t.Errorf("%+v", a)
	}
	b.fails(2, "herd: message is empty\n", "send", "n", "--now", "  ")
	b.fails(2, "herd: choose exactly one prompt source\n", "send", "n", "--now", "x", "-f", "y")
	if !lives(id) {
		t.Error("the turn was stopped")
	}
	// In the order that the original refused, too.
	if out := b.ok("send", "n", "--now", steps("text steered")); !strings.HasSuffix(out, " (resumed)\n") {
		t.Errorf("%q", out)
	}
	if out := b.ok("result", "n", "--wait"); out != "steered\n" {
		t.Errorf("%q", out)
	}
	if turn := b.decode(b.read("n", "turns", "1", session.FileTurn)); turn["state"] != "killed" || turn["stall_reason"] != "interrupted" {
		t.Errorf("%v", turn)
	}
}

// F30: turns can be followed and waited for.
func TestF30FollowAndWait(t *testing.T) {
	b := newBed(t)
	b.spawn("a", "start\nsay one\npause 0.4\nsay two\ntext three")
	b.spawn("b", "start\nhang")
	cmd := b.command("logs", "-f", "a", "--tail", "0")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for in := bufio.NewScanner(pipe); in.Scan(); {
		lines = append(lines, in.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if text := strings.Join(lines, "\n") + "\n"; text != b.read("a", session.FileEvents) {
		t.Errorf("followed %q", text)
	}
	if a := b.run("wait", "a", "b", "--any"); a.code != 0 || a.out != "a done\n" {
		t.Errorf("%+v", a)
	}
	if a := b.run("wait", "a", "b", "--timeout", "0"); a.code != 3 || a.out != "a done\nb working\n" {
		t.Errorf("%+v", a)
	}
	done := make(chan answer, 1)
	go func() { done <- b.run("wait", "a", "b") }()
	b.ok("kill", "b")
	if a := <-done; a.code != 1 || a.out != "a done\nb killed\n" {
		t.Errorf("%+v", a)
	}
	b.ok("send", "b", steps("text QUESTION: now what?"))
	if a := b.run("wait", "a", "b", "--json"); a.code != 4 || !strings.HasPrefix(a.out, `[{"task": "a"`) {
		t.Errorf("%+v", a)
	}
}

// F31: a line ends at \n only; the last thoughts of the whole file are shown.
func TestF31Peek(t *testing.T) {
	b := newBed(t)
	script := "start\nout {\"type\":\"x\",\"text\":\"a\\xe2\\x80\\xa8b\\xc2\\x85c\"}"
	for i := range 60 {
		script += fmt.Sprintf("\nout {\"type\":\"item.completed\",\"item\":{\"type\":\"reasoning\",\"text\":\"thought %d\"}}", i)
	}
	for i := range 30 {
		script += fmt.Sprintf("\nout {\"type\":\"noise\",\"n\":%d}", i)
	}
	b.spawn("p", script+"\ntext done")
	b.settled("p", 5*time.Second)
	events := b.read("p", session.FileEvents)
	if n := strings.Count(b.ok("peek", "p"), "\n"); n != 15 {
		t.Errorf("%d lines", n)
	}
	if got := b.ok("peek", "p", "--tail", "0"); got != events {
		t.Errorf("all: %q", got)
	}
	if got := b.ok("peek", "p", "--tail", "-2"); got != strings.Join(strings.SplitAfter(events, "\n")[2:], "") {
		t.Errorf("all but two: %q", got)
	}
	if got := b.ok("peek", "p", "--tail", "93"); !strings.HasPrefix(got, "{\"type\":\"x\",\"text\":\"a\u2028b\u0085c\"}\n") {
		t.Errorf("%.100q", got)
	}
	if got := b.ok("peek", "p", "--thinking", "2"); got != "thought 58\nthought 59\n" {
		t.Errorf("%q", got)
	}
	if got := b.ok("peek", "p", "--thinking"); strings.Count(got, "\n") != 50 || !strings.HasPrefix(got, "thought 10\n") {
		t.Errorf("%q", got)
	}
}

// F32: a reader that leaves early is no news.
func TestF32ClosedPipe(t *testing.T) {
	b := newBed(t)
	for i := range 3 {
		b.write(`{"state":"done","owner":"x"}`, fmt.Sprintf("t%d", i), session.FileMeta)
		b.write("", fmt.Sprintf("t%d", i), session.FileDone)
	}
	cmd := exec.Command("bash", "-c", `"$0" list --all --any-owner | true; exit "${PIPESTATUS[0]}"`, filepath.Join(built, "herd"))
	cmd.Env, cmd.Dir = b.env, b.dir
	out, err := cmd.CombinedOutput()
	if len(out) != 0 {
		t.Errorf("%q %v", out, err)
	}
}

// F34: looking does not keep a hung task alive.
func TestF34PollingDoesNotHelp(t *testing.T) {
	b := newBed(t)
	b.spawn("h", "text QUESTION: and?")
	b.settled("h", 5*time.Second)
	b.ok("send", "h", "--stall-after", "2", steps("start\nhang"))
	// Each look that counted as life would start the two seconds anew, and there is
	// one every few milliseconds.
	b.until(5*time.Second, "stalled", func() bool { return b.payload("h")["state"] == "stalled" })
}

// Decision 6.5: what a full-access turn leaves running is there for the next one and ends with a kill; in the other
// modes it ends with the turn.
func TestLeftoversOfFullAccess(t *testing.T) {
	modes(t, func(t *testing.T, env string) {
		b := newBed(t, env)
		pids := filepath.Join(b.dir, "pids")
		b.env = append(b.env, "FAKEAGENT_PIDS="+pids)
		b.ok("spawn", "full", steps("child-setsid 50\ntext the window is open"), "--name", "g")
		if p := b.settled("g", 5*time.Second); p["state"] != "done" || p["leftovers"] != 1.0 {
			t.Errorf("%v", p)
		}
		alive := func() bool { return len(b.marked()) > 0 }
		if !alive() {
			t.Fatal("it is gone")
		}
		b.ok("send", "g", steps("text it is still there"))
		b.settled("g", 5*time.Second)
		if !alive() {
			t.Fatal("it is gone in the next turn")
		}
		if out := b.ok("kill", "g"); out != "g done\n" {
			t.Errorf("%q", out)
		}
		b.empty(2 * time.Second)
		if p := b.payload("g"); p["leftovers"] != nil || p["state"] != "done" {
			t.Errorf("%v", p)
		}

		b.ok("send", "g", steps("child-setsid 50\ntext QUESTION: shall I close it?"))
		b.settled("g", 5*time.Second)
		if out := b.ok("kill", "g"); out != "g killed\n" {
			t.Errorf("%q", out)
		}
		b.empty(2 * time.Second)

		b.ok("send", "g", steps("child-setsid 50\ntext open"))
		b.settled("g", 5*time.Second)
		b.ok("send", "g", "--stall-after", "1", steps("start\nhang"))
		if p := b.settled("g", 5*time.Second); p["state"] != "stalled" {
			t.Errorf("%v", p)
		}
		b.empty(2 * time.Second)

		b.spawn("w", "child-setsid 50\ntext closed")
		b.settled("w", 5*time.Second)
		b.empty(2 * time.Second)
	})
}
