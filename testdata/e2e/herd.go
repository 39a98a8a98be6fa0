package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// Versions that the facts in this repository were seen with. pi needs a newer Node than many systems have, so one is
// installed beside it.
const (
	claudeVersion = "2.1.332"
	piVersion     = "1.6.0"
	piOldVersion  = "0.73.1"
	nodeVersion   = "22"
)

// A flock is herd with one real client.
type flock struct {
	*bench
	name    string // of the case
	backend string
	model   string
	dir     string
	env     []string
	said    bytes.Buffer
	task    string
	// talkOnly: no tool calls, for a client that reads them from events that our server does not write.
	talkOnly bool
}

// herd runs every client through a task's life: answer, context kept, question, kill in the middle of a tool call,
// resume, a lost supervisor, a refusal by the provider, a model that hangs.
func (b *bench) herd(only string) (failed int) {
	if runtime.GOOS == "windows" {
		return 0
	}
	for _, c := range []struct {
		name    string
		prepare func(*flock) error
	}{
		{"herd-codex", (*flock).codexClient}, {"herd-claude", (*flock).claudeClient}, {"herd-pi", (*flock).piClient}, {"herd-pi-old", (*flock).piOldClient},
	} {
		if only != "" && only != c.name && only != "herd" {
			continue
		}
		start := time.Now()
		f := &flock{bench: b, name: c.name, dir: filepath.Join(b.dir, c.name), task: "t"}
		err := f.base()
		if err == nil {
			err = c.prepare(f)
		}
		if err == nil {
			err = f.life()
		}
		if err != nil {
			failed++
			fmt.Printf("FAIL %s (%.1f s)\n%v\nherd said:\n%s\n", c.name, time.Since(start).Seconds(), err, f.said.String())
			continue
		}
		fmt.Printf("ok   %-19s %4.1f s\n", c.name, time.Since(start).Seconds())
	}
	return failed
}

func (f *flock) base() error {
	home := filepath.Join(f.dir, "home")
	for _, d := range []string{home, filepath.Join(f.dir, "work"), filepath.Join(f.dir, "codex-home")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", d, err)
		}
	}
	f.env = append(withoutOurs(os.Environ()), "HOME="+home, "TMPDIR="+f.bench.dir, "DELEGATE_STATE_DIR="+filepath.Join(f.dir, "state"),
		"DELEKIT_DEVICE_ID=e2e", "MOCK_KEY=no-secret")
	return nil
}

func (f *flock) codexClient() error {
	f.backend, f.model = "codex", "gpt-5.5"
	config := fmt.Sprintf("model_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\nbase_url = %q\nwire_api = \"responses\"\nenv_key = \"MOCK_KEY\"\n", f.bench.base)
	dir := filepath.Join(f.dir, "codex-home")
	f.env = append(f.env, "CODEX_HOME="+dir, "DELEGATE_CODEX_BIN="+f.codex)
	return os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600)
}

func (f *flock) claudeClient() error {
	f.backend = "claude"
	dir, err := installPackages(f.ctx, "claude-"+claudeVersion, "@anthropic-ai/claude-code@"+claudeVersion)
	// IS_SANDBOX: the full mode is refused to root without it.
	f.env = append(f.env, "DELEGATE_CLAUDE_BIN="+filepath.Join(dir, "claude"), "ANTHROPIC_BASE_URL="+strings.TrimSuffix(f.bench.base, "/v1"),
		"ANTHROPIC_API_KEY=no-secret", "IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1")
	return err
}

func (f *flock) piClient() error {
	dir, err := installPackages(f.ctx, "pi-"+piVersion, "node@"+nodeVersion, "@earendil-works/pi-coding-agent@"+piVersion)
	return errors.Join(err, f.piHome(dir))
}

func (f *flock) piOldClient() error {
	f.talkOnly = true
	dir, err := installPackages(f.ctx, "pi-"+piOldVersion, "@mariozechner/pi-coding-agent@"+piOldVersion)
	return errors.Join(err, f.piHome(dir))
}

// piHome gives pi a login that it takes for one, and a provider at our address.
func (f *flock) piHome(bin string) error {
	f.backend = "pi"
	claims := fmt.Sprintf(`{"https://api.openai.com/auth":{"chatgpt_account_id":"acct"},"exp":%d}`, time.Now().Add(24*time.Hour).Unix())
	part := base64.RawURLEncoding.EncodeToString
	token := part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + "." + part([]byte("none"))
	auth := map[string]any{"openai-codex": map[string]any{"type": "oauth", "access": token, "refresh": "no-secret",
		"expires": time.Now().Add(24 * time.Hour).UnixMilli(), "accountId": "acct"}}
	models := map[string]any{"providers": map[string]any{"openai-codex": map[string]any{"baseUrl": strings.TrimSuffix(f.bench.base, "/v1") + "/backend-api"}}}
	dir := filepath.Join(f.dir, "home", ".pi", "agent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("configure pi: %w", err)
	}
	for name, v := range map[string]any{"auth.json": auth, "models.json": models} {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			return fmt.Errorf("configure pi: %w", err)
		}
	}
	f.env = append(f.env, "DELEGATE_PI_BIN="+filepath.Join(bin, "pi"), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "PI_OFFLINE=1")
	return nil
}

// life is what happens to one task after the other.
func (f *flock) life() error {
	args := []string{"spawn", "full", f.script("text The first answer."), "--backend", f.backend, "--name", f.task}
	if f.model != "" {
		args = append(args, "--model", f.model)
	}
	if err := f.turn("The first answer.", 0, args...); err != nil {
		return err
	}
	first := f.lastRequest()
	session := f.text("session_id")
	if session == "" {
		return errors.New("no session id")
	}
	if err := f.turn("The second answer.", 0, "send", f.task, f.script("text The second answer.")); err != nil {
		return err
	}
	if err := all(equal("the session", f.text("session_id"), session), holds("a longer conversation", f.lastRequest() > first)); err != nil {
		return err
	}
	if err := f.turn("QUESTION: left or right?", 4, "send", f.task, f.script("text QUESTION: left or right?")); err != nil {
		return err
	}
	if err := f.turn("Left it is.", 0, "send", f.task, f.script("text Left it is.")); err != nil {
		return err
	}
	if f.talkOnly {
		return f.unmarked()
	}

	// In the middle of a tool call, with a process that has left its session.
	listed, err := f.tool("one")
	if err != nil {
		return err
	}
	if out, err := f.run(0, "kill", f.task); err != nil || out != f.task+" killed\n" {
		return errors.Join(err, fmt.Errorf("kill: %q", out))
	}
	if err := f.gone(listed, 0); err != nil {
		return err
	}
	if err := f.turn("Back after the kill.", 0, "send", f.task, f.script("text Back after the kill.")); err != nil {
		return err
	}

	// The supervisor is killed at the same point.
	if listed, err = f.tool("two"); err != nil {
		return err
	}
	p, err := f.payload()
	if err != nil {
		return err
	}
	n, _ := p["pid"].(float64)
	id, err := pid.Of(int(n))
	if err != nil {
		return fmt.Errorf("find the supervisor: %w", err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the supervisor: %w", err)
	}
	if err := f.gone(listed, 3*time.Second); err != nil {
		return err
	}
	if _, err := f.run(1, "result", f.task, "--wait", "--exit-status"); err != nil {
		return err
	}
	if err := all(equal("state", f.text("state"), "failed"), equal("detail", f.text("detail"), "supervisor-lost")); err != nil {
		return err
	}
	if err := f.turn("Back after the crash.", 0, "send", f.task, f.script("text Back after the crash.")); err != nil {
		return err
	}
	if err := equal("the session", f.text("session_id"), session); err != nil {
		return err
	}

	// The provider refuses; the model hangs.
	if _, err := f.run(0, "send", f.task, f.script("status 400")); err != nil {
		return err
	}
	if _, err := f.run(1, "result", f.task, "--wait", "--timeout", "60", "--exit-status"); err != nil {
		return err
	}
	if err := all(equal("state", f.text("state"), "failed"), holds("a reason", f.text("detail") != "")); err != nil {
		return err
	}
	if _, err := f.run(0, "send", f.task, f.script("hang"), "--stall-after", "4"); err != nil {
		return err
	}
	if _, err := f.run(1, "result", f.task, "--wait", "--timeout", "60", "--exit-status"); err != nil {
		return err
	}
	if err := equal("state", f.text("state"), "stalled"); err != nil {
		return err
	}
	if err := f.turn("Back after the stall.", 0, "send", f.task, f.script("text Back after the stall.")); err != nil {
		return err
	}
	return f.unmarked()
}

func (f *flock) script(steps ...string) string {
	text := "Do what the script says.\n"
	for _, s := range steps {
		text += "MOCK: " + s + "\n"
	}
	return text
}

// turn begins a turn and wants its message and status.
func (f *flock) turn(message string, status int, args ...string) error {
	if _, err := f.run(0, args...); err != nil {
		return err
	}
	out, err := f.run(status, "result", f.task, "--wait", "--timeout", "60", "--exit-status")
	return errors.Join(err, equal("the message", out, message+"\n"))
}

// tool begins a turn whose tool call goes on, and returns the numbers of its processes.
func (f *flock) tool(name string) ([]int, error) {
	pids := filepath.Join(f.dir, "pids-"+name)
	// claude refuses long sleeps in its shell.
	command := "setsid tail -f /dev/null >/dev/null 2>&1 & echo $! >" + pids + ".part; echo $$ >>" + pids + ".part; mv " + pids + ".part " + pids + "; tail -f /dev/null"
	if _, err := f.run(0, "send", f.task, f.script("shell "+command, "text never said")); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(60 * time.Second); ; {
		data, err := os.ReadFile(pids)
		if err == nil {
			var list []int
			for _, word := range strings.Fields(string(data)) {
				n, err := strconv.Atoi(word)
				if err != nil {
					return nil, fmt.Errorf("read process numbers: %w", err)
				}
				list = append(list, n)
			}
			return list, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the tool call never ran: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// gone wants processes to end within a time.
func (f *flock) gone(list []int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		var left []error
		for _, n := range list {
			if id, err := pid.Of(n); err == nil {
				if alive, err := id.Alive(); alive || err != nil {
					left = append(left, fmt.Errorf("process %d is still there", n))
				}
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return all(left...)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// unmarked wants no process that carries one of the task's turns in its environment.
func (f *flock) unmarked() error {
	dir := filepath.Join(f.dir, "state", "sessions", "e2e", f.task, "turns")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the turns: %w", err)
	}
	for _, e := range entries {
		if err := f.nothingLeft(outcome{dir: filepath.Join(dir, e.Name()), Outcome: state.Outcome{}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *flock) payload() (map[string]any, error) {
	out, err := f.run(0, "status", f.task, "--json")
	var p map[string]any
	return p, errors.Join(err, json.Unmarshal([]byte(out), &p))
}

func (f *flock) text(key string) string {
	p, err := f.payload()
	if err != nil {
		return err.Error()
	}
	s, _ := p[key].(string)
	return s
}

// lastRequest is how long the conversation was that the model saw last.
func (f *flock) lastRequest() int {
	list := f.server.Requests()
	for i := len(list) - 1; i >= 0; i-- {
		if len(list[i].Tools) > 0 {
			return list[i].Items
		}
	}
	return 0
}

// run runs herd and wants a status.
func (f *flock) run(status int, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(f.ctx, caseLimit)
	defer cancel()
	cmd := exec.CommandContext(limited, "herd", args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = filepath.Join(f.dir, "work"), f.env, 5*time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	fmt.Fprintf(&f.said, "$ herd %s\n%s%s", strings.Join(args, " "), out.String(), errs.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run herd: %w", err)
	}
	return out.String(), equal("herd "+args[0]+"'s exit status", cmd.ProcessState.ExitCode(), status)
}

// installPackages returns the directory of the programs of npm packages, installing them into the cache the first
// time.
func installPackages(ctx context.Context, name string, packages ...string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "build"
	}
	dir, err := filepath.Abs(filepath.Join(cache, "prun-e2e", name))
	if err != nil {
		return "", fmt.Errorf("find the cache: %w", err)
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("install %s: npm is needed: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".installing-")
	if err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	defer os.RemoveAll(temp)
	fmt.Printf("e2e: installing %s into %s\n", strings.Join(packages, " "), dir)
	limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(limited, npm, append([]string{"install", "--no-audit", "--no-fund", "--prefix", temp}, packages...)...)
	c.WaitDelay = 5 * time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install %s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(temp, dir); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return bin, nil
}
