// Command agent-fanout runs coding agents side by side, each in a git worktree
// of its own and under supervision, and helps to review, apply and clean up
// what they did.
package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/lane"
	"github.com/prun-suite/prun/pkg/supervise"
)

// root is the tool without a verb.
type root struct{}

// Run is only reached when a verb is missing, which Raw has answered.
func (*root) Run(context.Context, *cli.Env) error { return cli.Status(2) }

func main() { cli.Main(tool(), &root{}) }

func tool() cli.Tool {
	t := cli.Tool{
		Name:        "agent-fanout",
		Summary:     "parallel coding agents in git worktrees, supervised and durable",
		Description: manualText,
		Exits: cli.Exits{
			0: "done, or as the command says below",
			1: "as the command says below",
			2: "wrong usage, or refused before anything was changed",
			3: "wait: the time is up and the lane has not ended",
		},
		Commands: commands(),
		Files: []cli.File{
			{Path: "~/.local/state/agent-fanout", Text: "claims, runs and lanes, one value per file; kept after cleanup"},
			{Path: "<main>/.worktrees/_int-<run>", Text: "the integration worktree of a run"},
			{Path: "<integration>/.worktrees/<run>-<phase>", Text: "the worktree of a lane"},
			{Path: ".worktreeinclude", Text: "names ignored files of the main checkout that every new worktree gets copies of"},
		},
		Environment: []cli.EnvVar{
			{Name: "AGENT_FANOUT_STATE_HOME", Default: "$XDG_STATE_HOME/agent-fanout", Text: "where runs and lanes are recorded"},
			{Name: "CODEX_BIN", Default: "codex", Text: "the codex program"},
			{Name: "OMP_BIN", Default: "omp", Text: "the omp program"},
			{Name: "PRUN_CONTAINMENT", Default: "auto", Text: "how a worker's processes are held together: auto, cgroup or subreaper"},
			{Name: "PRUN_WITHHOLD_ENV", Text: "variables that no worker is given: names, or the word secrets"},
		},
		Sections: []cli.Section{{Title: "LANE STATES", Text: statesText}, {Title: "LIMITS", Text: limitsText}, {Title: "PATCHES", Text: patchesText}},
		Examples: []cli.Example{
			{Text: "Begin a run; R is the id that it prints:", Command: "agent-fanout init --repo ."},
			{Text: "Make a lane and start codex on a brief in it:", Command: "agent-fanout add-lane --run R --phase api --setup 'npm ci'\nagent-fanout start --run R --phase api --brief api.md --runner codex"},
			{Text: "Wait for all lanes, then review one and apply it:", Command: "agent-fanout wait --run R --all --timeout 600\nagent-fanout collect --run R --phase api --patch api.patch\nagent-fanout apply --run R --phase api"},
			{Text: "When everything has landed:", Command: "agent-fanout cleanup --run R --drop-worktrees --force"},
		},
		SeeAlso: []string{"herd(1)", "prun-dispatch(1)", "prun-state(5)", "prun(7)", "git-worktree(1)"},
		Choices: map[string][]string{"runner": runners()},
		Hidden: map[string]func(*cli.Env) int{
			supervise.KeeperCommand:     func(env *cli.Env) int { return supervise.Keep(lane.NewRecord(), env.Args[1:]) },
			supervise.SupervisorCommand: func(*cli.Env) int { return supervise.Supervise(lane.NewRecord()) },
		},
	}
	t.Raw = func(_ context.Context, env *cli.Env) (bool, error) { return usage(t, env) }
	return t
}

func commands() []cli.Command {
	return []cli.Command{
		{Name: "init", Summary: "claim a run and make its integration worktree", Options: &initOptions{}, Description: initText},
		{Name: "add-lane", Summary: "make a worktree for one phase", Options: &addLaneOptions{}, Description: addLaneText},
		{Name: "start", Summary: "start a runner in a lane and return", Options: &startOptions{}, Remainder: "COMMAND", Description: startText},
		{Name: "status", Summary: "the lanes of a run", Options: &statusOptions{}},
		{Name: "wait", Summary: "wait until lanes have ended", Options: &waitOptions{}, Description: waitText},
		{Name: "logs", Summary: "the last lines of a lane's log", Options: &logsOptions{}},
		{Name: "collect", Summary: "a lane's report, and its work as a patch", Options: &collectOptions{}, Description: collectText},
		{Name: "apply", Summary: "apply a lane's work to the integration worktree", Options: &applyOptions{}, Description: applyText},
		{Name: "cancel", Summary: "end a lane and everything it started", Options: &cancelOptions{}, Description: cancelText},
		{Name: "cleanup", Summary: "close a run and drop its worktrees", Options: &cleanupOptions{}, Description: cleanupText},
		{Name: "list", Summary: "the runs on this machine", Options: &listOptions{}},
		{Name: "debug", Summary: "everything recorded about a lane, and its processes", Options: &debugOptions{}},
		{Name: "attach", Summary: "follow a lane's output until it ends", Options: &attachOptions{}, Description: attachText},
	}
}

// runners are the backends that this door serves.
func runners() []string {
	var names []string
	for _, b := range agent.All() {
		if agent.Serves(b, agent.DoorFanout) {
			names = append(names, b.Name())
		}
	}
	return names
}

// usage answers a call without words as the original did: on standard output.
func usage(t cli.Tool, env *cli.Env) (bool, error) {
	if len(env.Args) > 0 {
		return false, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s COMMAND [options]\n\n", t.Name)
	for _, c := range t.Commands {
		fmt.Fprintf(&b, "  %-9s %s\n", c.Name, c.Summary)
	}
	fmt.Fprintf(&b, "\n%s COMMAND --help lists the options of a command.\n", t.Name)
	if _, err := io.WriteString(env.Stdout, b.String()); err != nil {
		return true, err
	}
	return true, cli.Status(2)
}
