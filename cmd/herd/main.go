// Command herd starts coding agents that go on when it has returned, and lets
// them be looked at, answered, steered, collected and ended later, from any
// shell. Each turn of a worker is supervised: it ends within its limits,
// nothing of it outlives it unseen, and its session can be continued.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
	"github.com/prun-suite/prun/pkg/supervise"
)

func main() {
	o := &options{}
	cli.Main(tool(o), o)
}

// options are those of the tool itself; every verb has its own.
type options struct{}

// Run is reached without a verb.
func (*options) Run(context.Context, *cli.Env) error {
	return cli.WithHint(cli.Usage("no verb"), "herd --help lists the verbs")
}

// Exit statuses of the original.
const (
	exitUsage   = 2
	exitDirty   = 3
	exitTree    = 4
	exitNoTask  = 6
	exitBinary  = 7
	exitRefused = 9
)

func tool(o *options) cli.Tool {
	return cli.Tool{
		Name:    "herd",
		Summary: "detached, resumable, steerable coding agents",
		Description: `Starts workers on codex, pi, claude or muse that keep running after the command has returned. A worker is a task with a name, a directory of its state and one or more turns. ` +
			`Each turn runs until the agent has answered, asked (a line that begins with QUESTION:), failed, been silent for longer than --stall-after, or reached its deadline. ` +
			`The conversation can be continued with herd send after any of these, because the session's id is recorded the moment the agent names it.

Every verb first settles the tasks whose supervisor has died; nothing is judged while a supervisor lives. What a turn leaves running is ended with it. The one exception is a turn with full access that ended by itself: what it leaves stays for the next turn and ends with kill, with a stall or deadline, with the task's last deadline, or before prune removes the task.

A task acts on one device only. list and prune show the tasks that were started from the current directory unless --any-owner is given.`,
		Exits: cli.Exits{
			0: "success; result exits 0 in every state unless --exit-status is given",
			1: "something could not be read, written or ended; --exit-status and wait: a task failed, stalled or was killed; doctor --strict: something is broken",
			2: "wrong usage, or a request that cannot be",
			3: "the checkout is dirty and --dirty-policy is fail; --exit-status and wait: not settled in time",
			4: "the worktree could not be made; --exit-status and wait: the task waits for a reply",
			6: "no such task on this device, or its metadata cannot be read",
			7: "the backend's program is missing or not executable",
			9: "send was refused: no session to continue, or a turn is running and --now is not given",
		},
		Files: []cli.File{
			{Path: "<state root>/sessions/<device>/<task>/", Text: "a task: meta.json, status.json, prompt.md, report.md, events.jsonl, stderr.log, .done, turns/"},
			{Path: "config/models.env", Text: "profiles; beside the program's directory, or where DELEGATE_MODELS_FILE says"},
			{Path: "~/.config/delekit/device.env", Text: "may set DELEKIT_DEVICE_ID"},
		},
		Environment: environment,
		Examples: []cli.Example{
			{Text: "Start a worker in a worktree of its own, come back later:", Command: "herd spawn workspace --worktree --name fix-42 -f order.md"},
			{Text: "Wait for it, and answer its question:", Command: "herd result fix-42 --wait && herd send fix-42 'Use the second one.'"},
			{Text: "Wait for the first of several:", Command: "herd wait a b c --any"},
		},
		Sections: []cli.Section{{Title: "CLEANING UP", Text: cleaning}, {Title: "DIFFERENCES", Text: differences}},
		SeeAlso:  []string{"prun-dispatch(1)", "prun-state(5)", "prun(7)"},
		Commands: commands(),
		Hidden: map[string]func(*cli.Env) int{
			supervise.KeeperCommand:     func(env *cli.Env) int { return supervise.Keep(session.Record{}, env.Args[1:]) },
			supervise.SupervisorCommand: func(*cli.Env) int { return supervise.Supervise(session.Record{}) },
		},
		Raw: raw,
	}
}

const cleaning = `herd prune --apply removes finished tasks that have been idle for half an hour; failed, stalled and unanswered ones stay, because they can be continued, until --include-unresolved is given. It is safe to run by a timer. A crontab line:

	17 4 * * * herd prune --apply --any-owner --idle-min 1440 >/dev/null

Or a timer of systemd, in ~/.config/systemd/user/herd-prune.service and herd-prune.timer, enabled with systemctl --user enable --now herd-prune.timer:

	[Service]
	Type=oneshot
	ExecStart=/usr/local/bin/herd prune --apply --any-owner --idle-min 1440

	[Timer]
	OnCalendar=daily
	Persistent=true

	[Install]
	WantedBy=timers.target

Worktrees and branches are never removed by prune.`

const differences = `Beside the original's interface: a task that has ended keeps its state when it is killed; a worker whose stream says that its turn failed is failed, whatever its exit status, and so is one that ends without a message; an answered question is not seen again; spawn looks for the program first; send keeps the task's own limits; commits of a worktree run no hooks and are not signed.`

var environment = []cli.EnvVar{
	{Name: "DELEGATE_STATE_DIR", Default: "$XDG_STATE_HOME/delekit", Text: "the state root"},
	{Name: "DELEKIT_DEVICE_ID", Text: "this device's id, instead of a hash of the host's name"},
	{Name: "DELEGATE_STALL_AFTER_S", Default: "3600", Text: "seconds without output after which a turn is ended"},
	{Name: "DELEGATE_MAX_WALLCLOCK_S", Default: "21600", Text: "seconds a turn may take"},
	{Name: "DELEGATE_EVENTS_MAX_MB", Default: "32", Text: "cap of events.jsonl; older events take at most as much again, compressed"},
	{Name: "RUNNER_LOG_TTL_DAYS", Default: "7", Text: "days after which the events of a finished task are removed"},
	{Name: "DELEGATE_MODELS_FILE", Text: "file of profiles"},
	{Name: "DELEGATE_CODEX_BIN", Text: "program of codex; DELEGATE_PI_BIN, DELEGATE_CLAUDE_BIN and DELEGATE_MUSE_BIN likewise"},
	{Name: "PRUN_CONTAINMENT", Default: "auto", Text: "how a worker's processes are held together: auto, cgroup or subreaper"},
	{Name: "PRUN_WITHHOLD_ENV", Text: "variables a worker does not get: names, or the word secrets"},
}

func commands() []cli.Command {
	return []cli.Command{
		{Name: "spawn", Summary: "start a worker; print its name and return at once", Options: &spawn{}},
		{Name: "send", Summary: "continue a task: answer, steer, or go on after a failure", Options: &send{}},
		{Name: "result", Summary: "print the last message of a task", Options: &fetch{}, Prefixes: map[string]string{"t": "timeout"}},
		{Name: "peek", Summary: "show recent events, thoughts or error output", Options: &peek{}},
		{Name: "logs", Summary: "show a turn's events, with -f until it ends", Options: &logs{}},
		{Name: "wait", Summary: "wait for tasks to end or ask", Options: &wait{}},
		{Name: "list", Summary: "list tasks", Options: &list{}},
		{Name: "status", Summary: "show the state of a task", Options: &status{}},
		{Name: "kill", Summary: "end a task and everything of it", Options: &kill{}},
		{Name: "prune", Summary: "remove finished tasks (without --apply: say which)", Options: &prune{}},
		{Name: "doctor", Summary: "check the environment and the backends", Options: &doctor{}},
	}
}

// raw lets the program stand in for the interpreter of the original's script: the script's path is taken off, and its
// kit is where profiles are looked for.
func raw(_ context.Context, env *cli.Env) (bool, error) {
	if len(env.Args) == 0 || filepath.Base(strings.ReplaceAll(env.Args[0], `\`, "/")) != "delegate_supervisor.py" {
		return false, nil
	}
	script := env.Args[0]
	env.Args = env.Args[1:]
	if abs, err := filepath.Abs(script); err == nil && env.Getenv(varModels) == "" {
		models := filepath.Join(filepath.Dir(filepath.Dir(abs)), "config", "models.env")
		if fi, err := os.Stat(models); err == nil && fi.Mode().IsRegular() {
			env.Environ = append(env.Environ, varModels+"="+models)
		}
	}
	return false, nil
}

// say ends with one of the original's messages.
func say(code int, format string, args ...any) error {
	return cli.Quoted(code, "herd: "+fmt.Sprintf(format, args...))
}

// place is where a verb works.
type place struct {
	root  session.Root
	owner string
	cwd   string
}

func findPlace(env *cli.Env) (place, error) {
	var p place
	dir, err := session.StateRoot(env.Getenv)
	if err != nil {
		return p, cli.Fail(1, "%w", err)
	}
	p.root = session.Root{Dir: dir, Device: session.Device(env.Getenv)}
	if p.cwd, err = os.Getwd(); err != nil {
		// A directory that is gone still has tasks, and other verbs still work.
		p.cwd = env.Getenv("PWD")
	}
	p.owner = realPath(p.cwd)
	return p, nil
}

// start is what every verb does first: it finds its place and settles what nobody answers for.
func start(env *cli.Env) (place, []session.Task, error) {
	p, err := findPlace(env)
	if err != nil {
		return p, nil, err
	}
	return p, p.root.Sweep(), nil
}

// task finds the task that a word on the command line names.
func (p place) task(typed string) (session.Task, error) {
	name := session.Sanitize(typed)
	if !session.ValidName(name) {
		return session.Task{}, say(exitUsage, "invalid task name: '%s'", typed)
	}
	t := p.root.Task(name)
	if !t.Exists() {
		return t, say(exitNoTask, "no such task on this device: %s", typed)
	}
	return t, nil
}

// look is task for verbs that read: its record must be readable.
func (p place) look(typed string) (session.Snapshot, error) {
	t, err := p.task(typed)
	if err != nil {
		return session.Snapshot{}, err
	}
	s := t.Reconcile()
	if s.Err != nil {
		return s, broken(typed, s.Err)
	}
	s.Fill()
	return s, nil
}

func broken(typed string, err error) error {
	if errors.Is(err, session.ErrNoMeta) {
		return say(exitNoTask, "task metadata missing: %s", typed)
	}
	return cli.Fail(1, "%w", err)
}

// realPath is a path without links, or the path itself where it cannot be resolved.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// backends are those that can be detached: they stream and resume.
func backends() []string {
	order := []string{"codex", "pi", "claude", "muse"}
	var names []string
	for _, name := range order {
		if b, ok := agent.Lookup(name); ok && agent.Serves(b, agent.DoorHerd) {
			names = append(names, name)
		}
	}
	return names
}
