package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// call runs a tool that needs no unit, in a directory and with an environment of its own.
func call(t *testing.T, status int, env []string, name string, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	c := exec.Command(built(t, name), args...)
	c.Dir = t.TempDir()
	c.Env = append(winEnv(), env...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != status {
		t.Errorf("%s %q: exit status %d, want %d\n%s%s", name, args, got, status, &out, &errs)
	}
	return out.String(), errs.String()
}

func TestWineQuota(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a dir with späces")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(dir, "quota.json")
	env := []string{"ANTIGRAVITY_BIN=" + client(t, "agy"), "AGY_QUOTA_CACHE=" + snapshot, "USERPROFILE=" + dir, "FAKEAGENT_SCRIPT="}
	call(t, 3, env, "agent-quota", "--check", "claude")
	call(t, 0, env, "agent-quota", "--refresh-agy", "--force")
	if _, err := os.Stat(snapshot); err != nil {
		t.Error(err)
	}
	out, _ := call(t, 0, env, "agent-quota")
	for _, row := range []string{"Claude", "Codex", "Agy", "60%"} {
		if !strings.Contains(out, row) {
			t.Errorf("no %s in\n%s", row, out)
		}
	}
	call(t, 0, env, "agent-quota", "--check", "agy-gemini")
}

// Without git there is one line, and nothing is left.
func TestWineFanoutWithoutGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err == nil {
		t.Skip("git is on PATH")
	}
	home := filepath.Join(t.TempDir(), "fan out")
	env := []string{"AGENT_FANOUT_STATE_HOME=" + home}
	call(t, 0, env, "agent-fanout", "list")
	_, stderr := call(t, 2, env, "agent-fanout", "init", "--repo", ".")
	if !strings.Contains(stderr, "git") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("standard error: %q", stderr)
	}
	if left, err := filepath.Glob(filepath.Join(home, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// Every tool knows its version and its manual.
func TestWineEveryToolStarts(t *testing.T) {
	for _, name := range []string{
		"prun-dispatch", "prun-monitor", "prun-gather", "prun-report", "prun-snapshot", "prun-reap", "herd", "agent-fanout", "agent-quota",
	} {
		if out, _ := call(t, 0, nil, name, "--version"); !strings.HasPrefix(out, name) || strings.Contains(out, "\r") {
			t.Errorf("%s --version: %q", name, out)
		}
		if out, _ := call(t, 0, nil, name, "--help"); !strings.Contains(out, name) || strings.Contains(out, "\r") {
			t.Errorf("%s --help: %q", name, out)
		}
	}
}
