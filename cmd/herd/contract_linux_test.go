package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/session"
)

// Texts and statuses of the original, in its order of checks.
func TestRefusals(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		code int
		text string
		args string
	}{
		{2, "herd: unsupported backend: grok (codex, pi, claude, muse)\n", "spawn workspace --backend grok"},
		{2, "herd: invalid access: all\n", "spawn workspace x --access all"},
		{2, "herd: pi has no confined workspace-write mode; use readonly, or full for explicit unrestricted access\n", "spawn workspace x --backend pi"},
		{2, "herd: --fast is a Codex backend option and is not supported by pi\n", "spawn full x --backend pi --fast"},
		{2, "herd: choose exactly one prompt source\n", "spawn workspace x --prompt-stdin"},
		{2, "herd: task prompt is empty\n", "spawn workspace --prompt-stdin"},
		{2, "herd: codex profile must be one of terra, luna, sol\n", "spawn workspace x --profile spark --model m"},
		{2, "herd: pi profile must be one of terra, luna, sol\n", "spawn full x --backend pi --profile spark"},
		{2, "herd: muse profile must be one of spark\n", "spawn full x --backend muse --profile sol"},
		{2, "herd: --profile resolves a model only for codex and muse; pass --model for --backend claude\n", "spawn full x --backend claude --profile sol"},
		{2, "herd: project root does not exist: /nowhere\n", "spawn workspace x --project-root /nowhere"},
		{2, "herd: invalid task name: '/'\n", "spawn workspace x --name /"},
		{6, "herd: no such task on this device: gone\n", "status gone"},
		{6, "herd: no such task on this device: gone\n", "send gone x"},
		{6, "herd: no such task on this device: gone\n", "wait gone"},
		{2, "", "spawn some x"},
		{2, "", "spawn workspace x --stall-after 60m"},
		{2, "", "frobnicate"},
		{2, "", ""},
	} {
		b.fails(c.code, c.text, strings.Fields(c.args)...)
	}
	if entries, _ := os.ReadDir(filepath.Join(b.state, "sessions", "dev")); len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
	models := filepath.Join(b.dir, "models.env")
	b.file("models.env", "# nothing\n")
	b.env = append(b.env, "DELEGATE_MODELS_FILE="+models)
	b.fails(2, "herd: no model configured for profile luna\n", "spawn", "workspace", "x", "--profile", "luna")
	b.fails(2, "herd: no muse model configured for profile spark\n", "spawn", "full", "x", "--backend", "muse")
	b.file("models.env", "DELEGATE_MODEL_LUNA = x\nDELEGATE_MODEL_LUNA=\"moon-1\"\nDELEGATE_EFFORT_LUNA='low'\n")
	b.spawn("m", "text done", "--profile", "luna", "--name", "Some name / here")
	b.settled("Some-name-here", 5*time.Second)
	if meta := b.decode(b.read("Some-name-here", session.FileMeta)); meta["model"] != "moon-1" || meta["effort"] != "low" {
		t.Errorf("%v", meta)
	}
	b.fails(2, "herd: task already exists: Some-name-here\n", "spawn", "workspace", "x", "--name", "Some name here", "--profile", "luna")
}

// The exact argv, environment and prompt that a backend gets, in spawn and in resume.
func TestWorkersView(t *testing.T) {
	for backend, want := range map[string][2]string{
		"codex": {
			`exec --json --cd DIR --model gpt-5.6-terra -c model_reasoning_effort=high --skip-git-repo-check --color never --disable fast_mode --dangerously-bypass-approvals-and-sandbox -`,
			`exec resume --json --model gpt-5.6-terra -c model_reasoning_effort=high --skip-git-repo-check --disable fast_mode --dangerously-bypass-approvals-and-sandbox SID -`,
		},
		"claude": {
			`-p --output-format stream-json --verbose --permission-mode bypassPermissions --add-dir DIR`,
			`-p --output-format stream-json --verbose --permission-mode bypassPermissions --add-dir DIR --resume SID`,
		},
		"pi": {
			`--mode json --provider openai-codex --model gpt-5.6-terra --thinking high --session-dir TASK/pi-session --no-approve --no-extensions --no-skills --no-prompt-templates`,
			`--mode json --provider openai-codex --model gpt-5.6-terra --thinking high --session-dir TASK/pi-session --no-approve --no-extensions --no-skills --no-prompt-templates --session-id SID`,
		},
		"muse": {
			`exec --json --workspace DIR --model muse-spark-1.2-contributor --reasoning-effort high --yolo --prompt-file TASK/prompt.md`,
			`exec --json --workspace DIR --model muse-spark-1.2-contributor --reasoning-effort high --yolo --prompt-file TASK/prompt.md --session-id SID`,
		},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "CLAUDECODE=1", "GIT_DIR=/nowhere", "CI=maybe")
			log := filepath.Join(b.dir, "log")
			b.ok("spawn", "full", steps("log "+log+"\ntext done"), "--name", "v", "--backend", backend)
			b.settled("v", 5*time.Second)
			for turn, line := range want {
				if turn == 1 {
					b.ok("send", "v", steps("log "+log+"\ntext done"))
					b.settled("v", 5*time.Second)
				}
				text, err := os.ReadFile(log)
				if err != nil {
					t.Fatal(err)
				}
				report := b.decode(string(text))
				var args []string
				for _, a := range report["argv"].([]any)[1:] {
					args = append(args, a.(string))
				}
				sid, _ := b.payload("v")["session_id"].(string)
				line = strings.NewReplacer("DIR", realPath(b.dir), "TASK", b.path("v"), "SID", sid).Replace(line)
				if got := strings.Join(args, " "); got != line {
					t.Errorf("turn %d: got\n%s\nwant\n%s", turn+1, got, line)
				}
				env := fmt.Sprint(report["env"])
				for _, have := range []string{"CI=1", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "PAGER=cat", "NO_COLOR=1", "DELEGATE_STATE_DIR=" + b.state, "DELEKIT_DEVICE_ID=dev"} {
					if !strings.Contains(env, have) {
						t.Errorf("no %s in %s", have, env)
					}
				}
				for _, gone := range []string{"CLAUDECODE", "GIT_DIR"} {
					if strings.Contains(env, gone) {
						t.Errorf("%s in %s", gone, env)
					}
				}
			}
			prompt := b.read("v", "turns", "1", "prompt.md")
			if !strings.HasPrefix(prompt, accessFull+"\n\n") || !strings.HasSuffix(prompt, "\n\n"+steps("log "+log+"\ntext done")) {
				t.Errorf("%q", prompt)
			}
		})
	}
}

// pi before 1.0 is told from its package, or asked.
func TestOldPi(t *testing.T) {
	b := newBed(t, "FAKEAGENT_VERSION=0.73.1")
	log := filepath.Join(b.dir, "log")
	b.ok("spawn", "readonly", steps("log "+log+"\ntext done"), "--name", "p", "--backend", "pi")
	b.settled("p", 5*time.Second)
	b.ok("send", "p", steps("log "+log+"\ntext done"))
	b.settled("p", 5*time.Second)
	text, _ := os.ReadFile(log)
	if !strings.Contains(string(text), `"--session"`) || strings.Contains(string(text), `--no-approve`) {
		t.Errorf("%s", text)
	}
}

var (
	numbers = regexp.MustCompile(`\b[0-9]{2,}\b`)
	stamps  = regexp.MustCompile(`[0-9]{10}\.[0-9]+`)
)

// Output forms, byte for byte but for numbers.
func TestForms(t *testing.T) {
	b := newBed(t)
	if out := b.ok("list"); out != "no tasks\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("list", "--json"); out != "[]\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("prune", "--json"); out != "{\"reclaim\": [], \"kept\": [], \"applied\": false}\n" {
		t.Errorf("%q", out)
	}
	mask := func(s string) string {
		return numbers.ReplaceAllString(stamps.ReplaceAllString(strings.ReplaceAll(s, realPath(b.dir), "DIR"), "T"), "N")
	}
	if out := mask(b.ok("spawn", "--stall", "99", "workspace", "--nam", "f", steps("text d\\xc3\\xa9j\\xc3\\xa0"))); out != "f working pid=N backend=codex repo=DIR\n" {
		t.Errorf("%q", out)
	}
	b.settled("f", 5*time.Second)
	// Its supervisor has said the last word and is about to end.
	b.until(5*time.Second, "f has no process", func() bool { return b.payload("f")["pid_alive"] == false })
	if out := mask(b.ok("status", "f")); out != "f done pid_alive=False DIR\n" {
		t.Errorf("%q", out)
	}
	want := `{"task": "f", "state": "done", "backend": "codex", "model": "gpt-5.6-terra", "access": "workspace-write", "repo": "DIR", "owner": "DIR", "pid": N, "pid_alive": false, "session_id": "N-N-N-N-N", "backend_pid": N, "backend_pid_alive": false, "created_utc": T, "last_output_age_s": 0, "turn": 1, "usage": {"input": N, "output": N, "cached": N, "total": null, "cost_usd": null}, "exit_code": 0}` + "\n"
	if out := mask(strings.Replace(b.ok("status", "f", "--json"), `"last_output_age_s": 1,`, `"last_output_age_s": 0,`, 1)); out != want {
		t.Errorf("got  %s\nwant %s", out, want)
	}
	if out := b.ok("result", "f"); out != "déjà\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("result", "f", "--json"); !strings.HasPrefix(out, `{"status": {"task": "f", `) || !strings.HasSuffix(out, `, "report": "d\u00e9j\u00e0"}`+"\n") {
		t.Errorf("%q", out)
	}
	if out := b.ok("list", "--all"); !strings.HasPrefix(out, "f                          done           codex   age=") || !strings.HasSuffix(out, "s      "+realPath(b.dir)+"\n") {
		t.Errorf("%q", out)
	}
	if out := mask(b.ok("send", "f", steps("start\nhang"))); out != "f working pid=N (resumed)\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("kill", "f"); out != "f killed\n" {
		t.Errorf("%q", out)
	}
	out := b.ok("doctor")
	at := 0
	for _, key := range strings.Fields("device_id state_root sessions_dir sessions_dir_exists owner python codex_on_path pi_on_path pi_chatgpt_auth_ready pi_chatgpt_auth_status claude_on_path muse_on_path models_env default_stall_after_s default_deadline_s codex_bin") {
		i := strings.Index(out, key+": ")
		if i < at {
			t.Errorf("%s is out of order in\n%s", key, out)
		}
		at = i
	}
	if a := b.run("doctor", "--strict"); a.code != 0 && !strings.Contains(a.out, "broken: ") {
		t.Errorf("%+v", a)
	}
	b.env = append(b.env, "DELEGATE_PI_BIN=/nowhere/pi")
	if a := b.run("doctor", "--strict"); a.code != 1 || !strings.Contains(a.out, "broken: DELEGATE_PI_BIN=/nowhere/pi is not executable\n") {
		t.Errorf("%+v", a)
	}
	b.env = append(b.env, "DELEGATE_STALL_AFTER_S=junk")
	if a := b.run("list"); a.code != 0 {
		t.Errorf("%+v", a)
	}
}

// Directories that the original wrote, or may have left.
func TestOldTrees(t *testing.T) {
	b := newBed(t)
	owner := realPath(b.dir)
	meta := func(state, more string) string {
		return fmt.Sprintf(`{"access": "workspace-write", "auto_commit": true, "backend": "codex", "created_utc": 1790000000.5, "exec_root": %q, "kept": {"by": ["us"]}, "model": "m", "effort": "high", "owner": %q, "pid": null, "prompt": "p", "repo": %q, "session_id": "11111111-1111-7111-8111-111111111111", "state": %q, "task": "x", "fast": false, "worktree": false, "branch": null%s}`, owner, owner, owner, state, more)
	}
	far := `, "deadline_utc": 99999999999.5, "stall_after_s": 3600`
	b.write(meta("done", far), "old-done", session.FileMeta)
	b.write("the old report\n", "old-done", session.FileReport)
	b.write("the old prompt", "old-done", session.FilePrompt)
	b.write("", "old-done", session.FileDone)
	b.write("{\"type\":\"thread.started\",\"thread_id\":\"11111111-1111-7111-8111-111111111111\"}\n", "old-done", session.FileEvents)
	b.write(meta("working", far), "old-dead", session.FileMeta)
	b.write(`{"helper_pid": 999999999, "mode": "spawn", "started_utc": 1790000000.1}`, "old-dead", session.FileHelper)
	b.write(meta("working", `, "deadline_utc": 1790000001.0, "stall_after_s": 3600`), "old-late", session.FileMeta)
	b.write(`{"helper_pid": 4194303, "mode": "spawn", "started_utc": 1790000000.1}`, "old-late", session.FileHelper)
	b.write(meta("working", far), "old-quiet", session.FileMeta)
	b.write(`{"helper_pid": 4194303, "mode": "spawn", "started_utc": 1790000000.1}`, "old-quiet", session.FileHelper)
	past := time.Now().Add(-2 * time.Hour)
	os.Chtimes(b.path("old-quiet", session.FileMeta), past, past)
	b.write(`{"state": "killed"}`, "old-two-keys", session.FileMeta)
	b.write("", "old-two-keys", session.FileDone)

	b.ok("list")
	for name, want := range map[string][2]string{
		"old-done": {"done", ""}, "old-dead": {"failed", "process-exited-without-marker"}, "old-late": {"failed", "deadline"},
		"old-quiet": {"stalled", "no-output"}, "old-two-keys": {"killed", ""},
	} {
		p := b.payload(name)
		if reason, _ := p["stall_reason"].(string); p["state"] != want[0] || reason != want[1] || !b.exists(name, session.FileDone) {
			t.Errorf("%s: %v", name, p)
		}
	}
	if out := b.ok("result", "old-done"); out != "the old report\n\n" {
		t.Errorf("%q", out)
	}
	b.ok("send", "old-done", "--no-preamble", steps("text the new report"))
	if out := b.ok("result", "old-done", "--wait"); out != "the new report\n" {
		t.Errorf("%q", out)
	}
	if out := b.ok("result", "old-done", "--turn", "1"); out != "the old report\n\n" {
		t.Errorf("%q", out)
	}
	text := b.read("old-done", session.FileMeta)
	if !strings.Contains(text, "  \"kept\": {\n    \"by\": [\n      \"us\"\n    ]\n  },\n") || !strings.Contains(text, `"created_utc": 1790000000.5,`) {
		t.Errorf("an unknown key was lost or changed:\n%s", text)
	}
	if events := b.ok("peek", "old-done", "--tail", "0"); strings.Count(events, "thread.started") != 2 {
		t.Errorf("%s", events)
	}
	if events := b.ok("peek", "old-done", "--turn", "2", "--tail", "0"); strings.Count(events, "thread.started") != 1 {
		t.Errorf("%s", events)
	}
}

// The program stands in for the interpreter of the original's script.
func TestInterpreterTrick(t *testing.T) {
	b := newBed(t)
	kit := t.TempDir()
	for name, text := range map[string]string{"tools/delegate_supervisor.py": "", "config/models.env": "DELEGATE_MODEL_SOL=from-the-kit\n"} {
		path := filepath.Join(kit, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		os.WriteFile(path, []byte(text), 0o644)
	}
	b.ok(filepath.Join(kit, "tools", "delegate_supervisor.py"), "spawn", "workspace", steps("text done"), "--name", "k", "--profile", "sol")
	b.settled("k", 5*time.Second)
	if meta := b.decode(b.read("k", session.FileMeta)); meta["model"] != "from-the-kit" {
		t.Errorf("%v", meta)
	}
}

// The profiles in the program and in the file that comes with it are the same.
func TestShippedProfiles(t *testing.T) {
	text, err := os.ReadFile("../../config/models.env")
	if err != nil {
		t.Fatal(err)
	}
	file, program := session.Assignments(text), session.Assignments([]byte(shipped))
	if fmt.Sprint(file) != fmt.Sprint(program) {
		t.Errorf("%v\n%v", file, program)
	}
}
