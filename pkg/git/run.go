package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/proc"
)

// kept bounds what is held of each output stream of a git call. Paths are at
// most 4 KiB; the rest is counting status entries, where more than this many
// bytes of them only matter as "many".
const kept = 1 << 20

// caller runs git with the hygiene of the package comment and one time limit
// over all its calls.
type caller struct {
	path     string   // of the git executable
	env      []string // hygienic; the user's configuration applies
	deadline time.Time
	neutral  string   // configuration file that stands in for the user's and the system's
	settings []string // beside always
}

// newCaller finds git and prepares the environment. env nil means this
// process's environment.
func newCaller(env []string, limit time.Duration) (*caller, error) {
	if env == nil {
		env = os.Environ()
	}
	path, err := lookup(env)
	if err != nil {
		return nil, err
	}
	return &caller{path: path, env: clean(env), deadline: time.Now().Add(limit)}, nil
}

// clean returns env as git may see it: environ.Git, and what only matters when
// git is called with a repository that it must not write to or fetch for.
func clean(env []string) []string {
	out := make([]string, 0, len(env)+8)
	for _, entry := range environ.Git(env) {
		switch environ.Name(entry) {
		case "GIT_QUARANTINE_PATH", // set inside pre-receive hooks: forbids writing any ref
			"GIT_ALLOW_PROTOCOL", "GIT_PROTOCOL_FROM_USER", "GIT_NO_LAZY_FETCH":
			continue
		}
		out = append(out, entry)
	}
	return append(out,
		"GIT_ALLOW_PROTOCOL=file", // no call of ours has any business on the network
		"GIT_NO_LAZY_FETCH=1")     // nor may a partial clone go there behind our back (git 2.44)
}

// lookup finds git on the PATH of env. Relative entries are skipped: commands
// run inside the user's repository, where "./git" is whatever lies there.
func lookup(env []string) (string, error) {
	if runtime.GOOS == "windows" {
		path, err := exec.LookPath("git")
		if err != nil {
			return "", fmt.Errorf("find git: %w", ErrMissing)
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(environ.Get(env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, "git")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("find git: %w", ErrMissing)
}

// nowhere is what git itself understands as "no file" on every system; NUL would
// be a file name to it when something is joined to it.
const nowhere = "/dev/null"

// always are the settings of every call; see the package comment. They are
// given on the command line, where they win over any file.
var always = []string{
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "core.fsmonitor=false",
	"-c", "core.hooksPath=" + nowhere,
	"-c", "safe.bareRepository=all", // the caller named the repository; that is as explicit as it gets
	"-c", "submodule.recurse=false",
}

// user runs git in dir under the user's configuration.
func (c *caller) user(ctx context.Context, dir string, args ...string) (proc.RunResult, error) {
	return c.run(ctx, dir, c.env, args)
}

// unfiltered is user with the given content filters switched off. The settings
// travel in the environment because the name of a filter may hold any byte that
// the command line would cut it at.
func (c *caller) unfiltered(ctx context.Context, dir string, filters []string, args ...string) (proc.RunResult, error) {
	env, count := c.env[:len(c.env):len(c.env)], 0
	for _, name := range filters {
		for _, setting := range []string{".clean=", ".process=", ".required=false"} {
			key, value, _ := strings.Cut(setting, "=")
			env = append(env,
				fmt.Sprintf("GIT_CONFIG_KEY_%d=filter.%s%s", count, name, key),
				fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", count, value))
			count++
		}
	}
	return c.run(ctx, dir, append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", count)), args)
}

// ours runs git in dir under our configuration file alone.
func (c *caller) ours(ctx context.Context, dir string, args ...string) (proc.RunResult, error) {
	env := make([]string, 0, len(c.env)+3)
	for _, entry := range c.env {
		switch environ.Name(entry) {
		case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM":
			continue
		}
		env = append(env, entry)
	}
	env = append(env, "GIT_CONFIG_GLOBAL="+c.neutral, "GIT_CONFIG_SYSTEM="+nowhere, "GIT_CONFIG_NOSYSTEM=1")
	return c.run(ctx, dir, env, args)
}

// run returns an error for a command that did not end with status 0. The
// directory is set for the process, never given with -C, so that no path can
// be read as an option.
func (c *caller) run(ctx context.Context, dir string, env, args []string) (proc.RunResult, error) {
	verb := args[0]
	left := time.Until(c.deadline)
	if left <= 0 {
		return proc.RunResult{}, fmt.Errorf("git %s: %w", verb, ErrTimeout)
	}
	result, err := proc.Run(ctx, proc.RunSpec{
		Path:      c.path,
		Args:      slices.Concat([]string{"git"}, always, c.settings, args),
		Env:       env,
		Dir:       dir,
		Limit:     left,
		MaxOutput: kept,
	})
	switch {
	case ctx.Err() != nil:
		return result, fmt.Errorf("git %s: %w", verb, context.Cause(ctx))
	case result.TimedOut:
		return result, fmt.Errorf("git %s: %w", verb, ErrTimeout)
	case err != nil:
		var start *proc.StartError
		if errors.As(err, &start) && start.NotFound {
			return result, fmt.Errorf("git %s: %w", verb, ErrMissing)
		}
		return result, fmt.Errorf("git %s: %w", verb, err)
	case result.Exit.Status() != 0:
		return result, &CommandError{Verb: verb, Status: result.Exit.Status(), Detail: detail(result.Stderr)}
	}
	return result, nil
}

// oneLine strips the newline git ends its answer with, and only that one: a
// path may end with a newline of its own.
func oneLine(out []byte) string {
	return string(bytes.TrimSuffix(bytes.TrimSuffix(out, []byte("\n")), []byte("\r")))
}
