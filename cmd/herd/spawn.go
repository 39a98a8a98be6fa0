package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

type spawn struct {
	promptOptions
	Backend     string `long:"backend" value-name:"NAME" default:"codex" description:"the agent: codex, pi, claude or muse"`
	Profile     string `long:"profile" value-name:"NAME" default:"terra" choice:"terra" choice:"luna" choice:"sol" choice:"spark" description:"model and effort by name, from models.env"`
	Model       string `long:"model" value-name:"NAME" description:"model to run"`
	Effort      string `long:"effort" value-name:"LEVEL" description:"reasoning effort"`
	Access      string `long:"access" value-name:"LEVEL" description:"what the worker may do, instead of MODE: read-only, workspace-write or danger-full-access"`
	Sandbox     string `long:"sandbox" value-name:"LEVEL" description:"the same"`
	ProjectRoot string `long:"project-root" value-name:"DIR" description:"where the worker works (default: the repository, or project, around the current directory)"`
	Worktree    bool   `long:"worktree" description:"work in a new Git worktree on a branch of its own"`
	DirtyPolicy string `long:"dirty-policy" value-name:"POLICY" default:"fail" choice:"fail" choice:"ignore" description:"with --worktree, what uncommitted work in the checkout means"`
	NoCommit    bool   `long:"no-auto-commit" description:"leave the worktree's work uncommitted"`
	NoPreamble  bool   `long:"no-preamble" description:"give the prompt as it is"`
	Fast        bool   `long:"fast" description:"codex: the fast service tier"`
	Name        string `long:"name" value-name:"NAME" description:"the task's name"`
	Stall       *int   `long:"stall-after" value-name:"SECONDS" description:"end a turn without output for so long (default: DELEGATE_STALL_AFTER_S)"`
	Deadline    *int   `long:"deadline" value-name:"SECONDS" description:"end a turn after so long (default: DELEGATE_MAX_WALLCLOCK_S)"`
	JSON        bool   `long:"json" description:"print JSON"`
	Args        struct {
		Mode   string `positional-arg-name:"MODE" choice:"workspace" choice:"write" choice:"readonly" choice:"read" choice:"full" description:"what the worker may do: workspace or write, readonly or read, full" required:"true"`
		Prompt string `positional-arg-name:"PROMPT" description:"what to do; without one it is read from standard input"`
	} `positional-args:"true"`
}

var modeAccess = map[string]string{
	"workspace": agent.AccessWorkspace, "write": agent.AccessWorkspace,
	"readonly": agent.AccessReadOnly, "read": agent.AccessReadOnly,
	"full": agent.AccessFull,
}

// Run checks in the original's order, then makes the worktree, the task and its first turn. After a failure nothing of
// them is left.
func (o *spawn) Run(ctx context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	if !slices.Contains(backends(), o.Backend) {
		return say(exitUsage, "unsupported backend: %s (%s)", o.Backend, strings.Join(backends(), ", "))
	}
	access, ok := modeAccess[o.Args.Mode]
	if !ok {
		return cli.Usage("argument MODE: invalid choice: %q (choose from workspace, write, readonly, read, full)", o.Args.Mode)
	}
	for _, given := range []string{o.Sandbox, o.Access} {
		if given != "" {
			access = given
		}
	}
	if !slices.Contains([]string{agent.AccessReadOnly, agent.AccessWorkspace, agent.AccessFull}, access) {
		return say(exitUsage, "invalid access: %s", access)
	}
	if o.Backend == "pi" && access == agent.AccessWorkspace {
		return say(exitUsage, "%s", agent.PiConfined)
	}
	if o.Backend == "pi" && o.Fast {
		return say(exitUsage, "--fast is a Codex backend option and is not supported by pi")
	}
	request, err := o.read(env, o.Args.Prompt, "task prompt is empty")
	if err != nil {
		return err
	}
	model, effort, err := resolve(env, o.Backend, o.Profile, o.Model, o.Effort)
	if err != nil {
		return err
	}
	root := projectRoot(p.cwd)
	if o.ProjectRoot != "" {
		root = o.ProjectRoot
	}
	root = realPath(root)
	if fi, err := os.Stat(root); err != nil || !fi.IsDir() {
		return say(exitUsage, "project root does not exist: %s", root)
	}
	now := time.Now()
	typed := o.Name
	if typed == "" {
		typed = fmt.Sprintf("herd-%s-%d", now.Format("20060102T150405"), os.Getpid())
	}
	name := session.Sanitize(typed)
	if !session.ValidName(name) {
		return say(exitUsage, "invalid task name: '%s'", typed)
	}
	if p.root.Task(name).Exists() {
		return say(exitUsage, "task already exists: %s", name)
	}
	bin, err := findBinary(env, o.Backend)
	if err != nil {
		return err
	}
	version := clientVersion(env, o.Backend, bin)

	var made *tree
	if o.Worktree && access != agent.AccessReadOnly {
		repo, err := openRepository(ctx, root, env.Environ, o.DirtyPolicy == "ignore")
		if err != nil {
			return err
		}
		if made, err = makeTree(ctx, repo, name); err != nil {
			return err
		}
	}
	undo := func(err error) error {
		if rerr := made.remove(); rerr != nil {
			env.Warnf("the worktree stays: %v", rerr)
		}
		return err
	}
	dir, branch := root, any(nil)
	if made != nil {
		dir, branch = made.path, made.branch
	}
	prompt := request
	if !o.NoPreamble {
		prompt = preamble(o.Backend, access, made != nil) + "\n\n" + request
	}
	stall, deadline := envStall(env), envDeadline(env)
	if o.Stall != nil {
		stall = *o.Stall
	}
	if o.Deadline != nil {
		deadline = *o.Deadline
	}
	meta := session.Pairs{
		{Key: "task", Value: name}, {Key: "state", Value: session.Working}, {Key: "backend", Value: o.Backend},
		{Key: "model", Value: orNull(model)}, {Key: "effort", Value: orNull(effort)}, {Key: "access", Value: access},
		{Key: "repo", Value: root}, {Key: "exec_root", Value: dir}, {Key: "worktree", Value: made != nil},
		{Key: "branch", Value: branch}, {Key: "auto_commit", Value: !o.NoCommit}, {Key: "prompt", Value: prompt},
		{Key: "fast", Value: o.Fast}, {Key: "pid", Value: nil}, {Key: "session_id", Value: nil}, {Key: "owner", Value: p.owner},
		{Key: "created_utc", Value: session.Epoch(now)}, {Key: "deadline_utc", Value: session.Epoch(now) + float64(deadline)},
		{Key: "stall_after_s", Value: stall}, {Key: "turn", Value: 1},
		// What later turns begin with, whatever one of them was given.
		{Key: "task_stall_after_s", Value: stall}, {Key: "task_deadline_s", Value: deadline},
	}
	task, lock, err := p.root.Create(name, meta.Object())
	if errors.Is(err, session.ErrExists) {
		return undo(say(exitUsage, "task already exists: %s", name))
	}
	if err != nil {
		return undo(cli.Fail(1, "%w", err))
	}
	defer lock.Unlock()
	err = p.begin(env, turnSpec{
		turn: task.Turn(1), mode: "spawn", backend: o.Backend, bin: bin, version: version, dir: dir, model: model, effort: effort,
		access: access, fast: o.Fast, commit: made != nil && !o.NoCommit, stall: stall, deadline: deadline, prompt: prompt,
	})
	if err != nil {
		if derr := task.Discard(lock); derr != nil {
			env.Warnf("%v", derr)
		}
		return undo(err)
	}
	return printBegun(env, task, o.JSON, fmt.Sprintf(" backend=%s repo=%s", o.Backend, root))
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// preamble is the head of a spawn's prompt.
func preamble(backend, access string, isolated bool) string {
	lines := []string{map[string]string{
		agent.AccessReadOnly: accessRead, agent.AccessWorkspace: accessWorkspace, agent.AccessFull: accessFull,
	}[access]}
	if backend == "pi" && access == agent.AccessReadOnly {
		lines = append(lines, piLimitation)
	}
	if isolated {
		lines = append(lines, isolation)
	}
	return strings.Join(append(lines, escalation), "\n\n")
}

// projectRoot is the repository around a directory, else the nearest project, else the directory.
func projectRoot(cwd string) string {
	if dir := above(cwd, ".git"); dir != "" {
		return dir
	}
	if dir := above(cwd, "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "pom.xml"); dir != "" {
		return dir
	}
	return cwd
}

// above is the nearest directory, from dir on up, that holds one of the names.
func above(dir string, names ...string) string {
	for {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return dir
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}
