package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/session"
)

type doctor struct {
	Strict bool `long:"strict" description:"end with status 1 when something is broken"`
	JSON   bool `long:"json" description:"print JSON"`
}

// authLimit bounds a question about a login.
const authLimit = 15 * time.Second

// Run prints the original's facts in its order, then ours. What is broken is said again at the end.
func (o *doctor) Run(ctx context.Context, env *cli.Env) error {
	p, _, err := start(env)
	if err != nil {
		return err
	}
	onPath := map[string]bool{}
	bins := map[string]string{}
	for _, name := range backends() {
		onPath[name] = lookPath(env, name) != ""
		if bin, err := findBinary(env, name); err == nil {
			bins[name] = bin
		}
	}
	ready, auth := piAuth(ctx, env, lookPath(env, "pi"))
	fi, statErr := os.Stat(p.root.Sessions())
	models := modelsFile(env)
	facts := session.Pairs{
		{Key: "device_id", Value: p.root.Device}, {Key: "state_root", Value: p.root.Dir},
		{Key: "sessions_dir", Value: p.root.Sessions()}, {Key: "sessions_dir_exists", Value: statErr == nil && fi.IsDir()},
		{Key: "owner", Value: p.owner}, {Key: "python", Value: runtime.Version()},
		{Key: "codex_on_path", Value: onPath["codex"]}, {Key: "pi_on_path", Value: onPath["pi"]},
		{Key: "pi_chatgpt_auth_ready", Value: ready}, {Key: "pi_chatgpt_auth_status", Value: auth},
		{Key: "claude_on_path", Value: onPath["claude"]}, {Key: "muse_on_path", Value: onPath["muse"]},
		{Key: "models_env", Value: orNull(models)},
		{Key: "default_stall_after_s", Value: envStall(env)}, {Key: "default_deadline_s", Value: envDeadline(env)},
	}
	var broken []string
	for _, c := range o.backendChecks(ctx, env, bins) {
		facts = append(facts, c.facts...)
		if c.broken != "" {
			broken = append(broken, c.broken)
		}
	}
	if len(bins) == 0 {
		broken = append(broken, "no backend's program was found")
	}
	mode, why := stateMode(p.root)
	facts = append(facts, session.Pair{Key: "state_dir_mode", Value: mode})
	if why != "" {
		broken = append(broken, why)
	}
	facts = append(facts, session.Pair{Key: "linger", Value: lingering(env)}, session.Pair{Key: "containment", Value: containment()})
	values := make([]any, len(broken))
	for i, b := range broken {
		values[i] = b
	}
	facts = append(facts, session.Pair{Key: "broken", Value: values})
	if o.JSON {
		err = printLine(env, facts.Line())
	} else {
		for _, f := range facts[:len(facts)-1] {
			if err = printLine(env, f.Key+": "+word(f.Value)); err != nil {
				break
			}
		}
		for _, b := range broken {
			if err == nil {
				err = printLine(env, "broken: "+b)
			}
		}
	}
	if err == nil && o.Strict && len(broken) > 0 {
		return cli.Status(1)
	}
	return err
}

// word is a value as the original printed it for people.
func word(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return truth(v)
	}
	return fmt.Sprint(v)
}

func lookPath(env *cli.Env, name string) string {
	for _, dir := range filepath.SplitList(env.Getenv("PATH")) {
		for _, suffix := range suffixes() {
			if path := filepath.Join(dir, name+suffix); executable(path) {
				return path
			}
		}
	}
	return ""
}

// piAuth asks pi whether it is logged in. It proves configured, not usable.
func piAuth(ctx context.Context, env *cli.Env, bin string) (ready bool, status string) {
	if bin == "" {
		return false, "pi-not-found"
	}
	r, err := proc.Run(ctx, proc.RunSpec{
		Path: bin, Args: []string{bin, "auth", "check", "--provider", "openai-codex", "--json", "--no-refresh"},
		Env: environ.Probe(env.Environ), Limit: authLimit, MaxOutput: 64 << 10,
	})
	switch {
	case err != nil:
		return false, "OSError"
	case r.TimedOut:
		return false, "TimeoutExpired"
	}
	o, perr := session.ParseObject(r.Stdout)
	if perr == nil {
		status = o.Text("status")
	}
	if status == "" {
		status = fmt.Sprintf("exit-%d", r.Exit.Code)
	}
	return r.Exit.Code == 0 && status == "ready", status
}

type check struct {
	facts  session.Pairs
	broken string
}

// backendChecks starts each program that was found and asks it for its version; a login is only looked for where that
// reads nothing but files.
func (o *doctor) backendChecks(ctx context.Context, env *cli.Env, bins map[string]string) []check {
	names := backends()
	list := make([]check, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			c := &list[i]
			bin, found := bins[name]
			if !found {
				c.facts = session.Pairs{{Key: name + "_bin", Value: nil}}
				if _, set := env.LookupEnv("DELEGATE_" + strings.ToUpper(name) + "_BIN"); set {
					_, err := findBinary(env, name)
					if err != nil {
						c.broken = strings.TrimPrefix(err.Error(), "herd: ")
					}
				}
				return
			}
			version, err := version(ctx, env, bin)
			c.facts = session.Pairs{{Key: name + "_bin", Value: bin}, {Key: name + "_version", Value: orNull(version)}}
			if err != nil {
				c.broken = fmt.Sprintf("%s --version: %v", bin, err)
			}
			if login, known := loggedIn(env, name); known {
				c.facts = append(c.facts, session.Pair{Key: name + "_login", Value: login})
			}
		})
	}
	all.Wait()
	return list
}

func version(ctx context.Context, env *cli.Env, bin string) (string, error) {
	r, err := proc.Run(ctx, proc.RunSpec{
		Path: bin, Args: []string{bin, "--version"}, Env: environ.Probe(env.Environ), Limit: versionLimit, MaxOutput: 64 << 10,
	})
	switch {
	case err != nil:
		return "", err
	case r.TimedOut:
		return "", errors.New("no answer in time")
	case r.Exit.Code != 0:
		return "", fmt.Errorf("exit status %d", r.Exit.Code)
	}
	if m := versionWord.FindSubmatch(append(append(r.Stdout, '\n'), r.Stderr...)); m != nil {
		return string(m[1]), nil
	}
	return "", nil
}

// loggedIn looks for the files and variables in which a client keeps its login; it opens none.
func loggedIn(env *cli.Env, name string) (login, known bool) {
	home := env.Getenv("HOME")
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	switch name {
	case "codex":
		dir := env.Getenv("CODEX_HOME")
		if dir == "" {
			dir = filepath.Join(home, ".codex")
		}
		return env.Getenv("CODEX_API_KEY") != "" || env.Getenv("OPENAI_API_KEY") != "" || exists(filepath.Join(dir, "auth.json")), true
	case "claude":
		return env.Getenv("ANTHROPIC_API_KEY") != "" || env.Getenv("CLAUDE_CODE_OAUTH_TOKEN") != "" ||
			exists(filepath.Join(home, ".claude", ".credentials.json")), runtime.GOOS != "darwin"
	}
	return false, false
}

// stateMode says whether others can read what prompts and answers hold.
func stateMode(root session.Root) (mode any, broken string) {
	fi, err := os.Stat(root.Sessions())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ""
	case err != nil:
		return nil, err.Error()
	}
	mode = fmt.Sprintf("%04o", fi.Mode().Perm())
	probe := filepath.Join(root.Sessions(), fmt.Sprintf(".herd-gone-doctor-%d", os.Getpid()))
	if err := os.Mkdir(probe, 0o700); err != nil {
		return mode, "state directory cannot be written: " + err.Error()
	}
	if err := os.Remove(probe); err != nil {
		return mode, err.Error()
	}
	return mode, ""
}

// lingering says whether a logout ends this user's processes; nil where nobody says.
func lingering(env *cli.Env) any {
	if runtime.GOOS != "linux" {
		return nil
	}
	if _, err := os.Stat("/var/lib/systemd"); err != nil {
		return nil
	}
	user := env.Getenv("USER")
	if user == "" || strings.ContainsRune(user, '/') {
		return nil
	}
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", user))
	return err == nil
}

// containment is the strongest means that a worker can be held with here.
func containment() string {
	switch runtime.GOOS {
	case "windows":
		return string(proc.Job)
	case "linux":
		leaf, err := proc.NewLeaf(fmt.Sprintf("prun-doctor-%d", os.Getpid()))
		if err != nil {
			return string(proc.Subreaper)
		}
		_ = leaf.Remove()
		leaf.Close()
		return string(proc.Cgroup)
	}
	return string(proc.GroupOnly)
}
