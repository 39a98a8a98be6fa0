package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/state"
)

// ompVersion is the one that the facts in this repository were seen with; later ones could not be installed.
const ompVersion = "18.2.3"

// lanesCase is the name of the case for -run.
const lanesCase = "lanes"

// lanes runs a codex lane and an omp lane side by side in one repository: each edits a file, both are collected,
// applied and integrated in one commit, and everything is cleaned up.
func (b *bench) lanes(only string) (failed int) {
	if only != "" && only != lanesCase || runtime.GOOS == "windows" {
		return 0
	}
	start := time.Now()
	l := &lanes{bench: b, dir: filepath.Join(b.dir, lanesCase)}
	if err := l.all(); err != nil {
		fmt.Printf("FAIL %s (%.1f s)\n%v\nagent-fanout said:\n%s\n", lanesCase, time.Since(start).Seconds(), err, l.said.String())
		return 1
	}
	fmt.Printf("ok   %-19s %4.1f s, codex %s and omp %s\n", lanesCase, time.Since(start).Seconds(), codexVersion, ompVersion)
	return 0
}

type lanes struct {
	*bench
	dir, repo string
	env       []string
	said      bytes.Buffer
}

func (l *lanes) all() error {
	omp, err := installOmp(l.ctx)
	if err != nil {
		return err
	}
	if err := l.prepare(omp); err != nil {
		return err
	}
	if _, err := l.fanout("init", "--sid", "e2e"); err != nil {
		return err
	}
	provider := fmt.Sprintf(`model_providers.mock={name="mock",base_url=%q,wire_api="responses",env_key="MOCK_KEY"}`, l.base)
	flags := map[string][]string{
		"codex": {"--access", "danger-full-access", "--backend-arg", "-c", "--backend-arg", "model_provider=mock", "--backend-arg", "-c", "--backend-arg", provider,
			"--backend-arg", "--ignore-user-config"},
		"omp": {"--model", "mock/mock-1", "--thinking", "low"},
	}
	for runner, more := range flags {
		if _, err := l.fanout("add-lane", "--run", "e2e", "--phase", runner); err != nil {
			return err
		}
		// A helper that leaves its session must not outlive the lane.
		brief := "Do what the script says.\nMOCK: shell echo by " + runner + " >>shared-" + runner + ".txt; setsid sleep 300 >/dev/null 2>&1 & echo $! >../pids-" + runner +
			"\nMOCK: text the " + runner + " lane is done\n"
		file := filepath.Join(l.dir, runner+".md")
		if err := os.WriteFile(file, []byte(brief), 0o600); err != nil {
			return fmt.Errorf("write the brief: %w", err)
		}
		if _, err := l.fanout(append([]string{"start", "--run", "e2e", "--phase", runner, "--brief", file, "--runner", runner}, more...)...); err != nil {
			return err
		}
	}
	out, err := l.fanout("wait", "--run", "e2e", "--all", "--timeout", "100")
	if err != nil {
		return err
	}
	if err := equal("the lanes", out, "codex\tsucceeded\nomp\tsucceeded\n"); err != nil {
		return err
	}
	for _, runner := range []string{"codex", "omp"} {
		if err := l.review(runner); err != nil {
			return fmt.Errorf("%s: %w", runner, err)
		}
	}
	return l.land()
}

// prepare makes a repository and homes for the clients.
func (l *lanes) prepare(omp string) error {
	l.repo = filepath.Join(l.dir, "repo")
	home, codexHome := filepath.Join(l.dir, "home"), filepath.Join(l.dir, "codex-home")
	for _, d := range []string{l.repo, codexHome, filepath.Join(home, ".omp", "agent")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", d, err)
		}
	}
	models := "providers:\n  mock:\n    baseUrl: " + l.base + "\n    apiKey: no-secret\n    api: openai-responses\n" +
		"    models:\n      - id: mock-1\n        name: mock\n        contextWindow: 100000\n        maxTokens: 4096\n"
	if err := os.WriteFile(filepath.Join(home, ".omp", "agent", "models.yml"), []byte(models), 0o600); err != nil {
		return fmt.Errorf("configure omp: %w", err)
	}
	l.env = append(withoutOurs(os.Environ()), "CODEX_BIN="+l.codex, "CODEX_HOME="+codexHome, "OMP_BIN="+omp, "HOME="+home, "MOCK_KEY=no-secret", "TMPDIR="+l.bench.dir,
		"AGENT_FANOUT_STATE_HOME="+filepath.Join(l.dir, "state"), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=e2e", "GIT_AUTHOR_EMAIL=e2e@example.com",
		"GIT_COMMITTER_NAME=e2e", "GIT_COMMITTER_EMAIL=e2e@example.com")
	if err := os.WriteFile(filepath.Join(l.repo, "readme"), []byte("text\n"), 0o600); err != nil {
		return fmt.Errorf("make the repository: %w", err)
	}
	for _, args := range [][]string{{"-c", "init.defaultBranch=main", "init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		if _, err := l.do(l.repo, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// review collects one lane and applies it.
func (l *lanes) review(runner string) error {
	patch := filepath.Join(l.dir, runner+".patch")
	out, err := l.fanout("collect", "--run", "e2e", "--phase", runner, "--patch", patch)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(patch)
	if err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	status, err := l.fanout("status", "--run", "e2e", "--json")
	if err != nil {
		return err
	}
	var s struct {
		StateDir string `json:"state_dir"`
	}
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		return fmt.Errorf("read the status: %w", err)
	}
	o, err := state.Unit{Dir: filepath.Join(s.StateDir, "lanes", runner, "unit-1")}.ReadOutcome()
	if err != nil || o == nil {
		return fmt.Errorf("read the outcome: %w", errors.Join(err, holds("an outcome", o != nil)))
	}
	if _, err := l.fanout("apply", "--run", "e2e", "--phase", runner); err != nil {
		return err
	}
	return all(contains("the patch", string(data), "+by "+runner+"\n"), contains("the report", out, "\n\nthe "+runner+" lane is done"),
		holds("a tree proven empty", o.ProvenEmpty))
}

// land commits, merges and cleans up.
func (l *lanes) land() error {
	integration := filepath.Join(l.repo, ".worktrees", "_int-e2e")
	if _, err := l.do(integration, "git", "commit", "-q", "-m", "both lanes"); err != nil {
		return err
	}
	if _, err := l.do(l.repo, "git", "merge", "-q", "--ff-only", "int-e2e"); err != nil {
		return err
	}
	files, err := l.do(l.repo, "git", "ls-files")
	if err != nil {
		return err
	}
	if _, err := l.fanout("cleanup", "--run", "e2e", "--drop-worktrees", "--force"); err != nil {
		return err
	}
	left, err := l.do(l.repo, "git", "branch", "--format=%(refname:short)")
	if err != nil {
		return err
	}
	_, gone := os.Stat(integration)
	return all(equal("the tree", files, "readme\nshared-codex.txt\nshared-omp.txt\n"), equal("the branches", left, "main\n"),
		holds("no worktree", errors.Is(gone, os.ErrNotExist)))
}

func (l *lanes) fanout(args ...string) (string, error) { return l.do(l.repo, "agent-fanout", args...) }

// do runs a command and returns its standard output.
func (l *lanes) do(dir, name string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(l.ctx, caseLimit)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, l.env, 5*time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	fmt.Fprintf(&l.said, "$ %s %s\n%s%s", name, strings.Join(args, " "), out.String(), errs.String())
	if err != nil {
		return out.String(), fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return out.String(), nil
}

// installOmp returns a program that runs omp, installing it into the cache the first time.
func installOmp(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "build"
	}
	dir, err := filepath.Abs(filepath.Join(cache, "prun-e2e", "omp-"+ompVersion))
	if err != nil {
		return "", fmt.Errorf("find the cache: %w", err)
	}
	program := filepath.Join(dir, "omp")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("install omp: npm is needed: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".installing-")
	if err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	defer os.RemoveAll(temp)
	fmt.Printf("e2e: installing @oh-my-pi/pi-coding-agent@%s into %s\n", ompVersion, dir)
	limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	run := func(dir, name string, args ...string) error {
		c := exec.CommandContext(limited, name, args...)
		c.Dir, c.WaitDelay = dir, 5*time.Second
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("install omp: %w\n%s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := run(temp, npm, "install", "--no-audit", "--no-fund", "--prefix", temp, "bun", "@oh-my-pi/pi-coding-agent@"+ompVersion); err != nil {
		return "", err
	}
	// Its installation script does not run everywhere by itself.
	if err := run(filepath.Join(temp, "node_modules", "bun"), "node", "install.js"); err != nil {
		return "", err
	}
	script := "#!/bin/sh\nhere=" + quoted(filepath.Join(dir, "node_modules")) + "\nexec \"$here/bun/bin/bun.exe\" \"$here/@oh-my-pi/pi-coding-agent/dist/cli.js\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(temp, "omp"), []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("install omp: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return "", fmt.Errorf("install omp: %w", err)
	}
	return program, nil
}

// quoted is a word for sh.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
