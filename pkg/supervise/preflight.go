package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/preflight"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/quota"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/userdir"
)

// preflightDir is the room of the user's directory where answers of probes are
// remembered.
const preflightDir = "preflight"

// chooseModel settles which model runs: the meters first, then the probes, and
// the meters again when the probes moved the unit to the other group.
func (s *supervisor) chooseModel(ctx context.Context, nb *newborn) *failure {
	meters, f := s.gate(ctx, nb)
	if f != nil {
		return f
	}
	// What was asked for, and again what is going to run.
	if err := s.writeModel(nb.unit); err != nil {
		return failed(exitTrouble, "%v", err)
	}
	if !s.launch.Preflight {
		return nil
	}
	asked := s.launch.Turn.Model
	if f := s.preflight(ctx, nb); f != nil {
		return f
	}
	model := s.launch.Turn.Model
	if model == asked {
		return nil
	}
	if err := s.writeModel(nb.unit); err != nil {
		return failed(exitTrouble, "%v", err)
	}
	if meters == nil {
		return nil
	}
	return blocked(meters.Regate(asked, model, time.Now()))
}

// gate asks the meters. Whatever is not known stops nothing.
func (s *supervisor) gate(ctx context.Context, nb *newborn) (*quota.Snapshot, *failure) {
	if !s.launch.Gate {
		return nil, nil
	}
	meters, err := s.quotaKeeper().Snapshot(ctx)
	if err != nil {
		s.notes = append(s.notes, "no quota gate: "+err.Error())
		return nil, nil
	}
	t := &s.launch.Turn
	r := meters.Route(quota.Ask{
		Model: t.Model, Named: t.ModelNamed, Default: agent.AgyModel, Balance: s.launch.Balance,
	}, time.Now())
	s.noteRoute(nb, r.Notes)
	if f := blocked(r); f != nil {
		return meters, f
	}
	if r.Model != t.Model {
		t.Model, t.ModelNamed = r.Model, false
	}
	return meters, nil
}

// noteRoute tells the caller, and keeps beside the unit, what routing changed.
func (s *supervisor) noteRoute(nb *newborn, notes []string) {
	for _, n := range notes {
		s.note(n)
		if err := atomicfile.Append(nb.unit.Path(state.FileQuotaNote), []byte(n+"\n"), 0o600); err != nil {
			s.note(err.Error())
		}
	}
}

func blocked(r quota.Route) *failure {
	if !r.Blocked {
		return nil
	}
	return &failure{cause: state.Blocked, status: exitBlocked, reason: r.Reason, resets: r.Resets}
}

func (s *supervisor) quotaKeeper() *quota.Keeper {
	// The warnings are the front door's to print, once.
	c, _ := quota.Standard(s.callersEnv)
	c.Agy = func() (string, error) { return s.launch.Bin, nil }
	c.Env = environ.Probe(os.Environ())
	return quota.NewKeeper(c)
}

// callersEnv is the environment for whoever takes a path out of it: a relative
// one counts from the caller's directory, not from ours.
func (s *supervisor) callersEnv(name string) string {
	value := os.Getenv(name)
	switch name {
	case "AGY_QUOTA_CACHE", "HOME", "USERPROFILE":
		if strings.TrimSpace(value) != "" && !filepath.IsAbs(value) {
			return filepath.Join(s.launch.Cwd, value)
		}
	}
	return value
}

// renewPatience bounds the refresh after a failed run: the unit is settled, and
// only its caller still waits.
const renewPatience = 45 * time.Second

// renewQuota reads the meters anew after a run that failed at the backend.
func (s *supervisor) renewQuota() {
	if !s.launch.Gate {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), renewPatience)
	defer cancel()
	go func() {
		select {
		case <-s.stops:
			cancel()
		case <-ctx.Done():
		}
	}()
	if _, err := s.quotaKeeper().Renew(ctx, time.Now()); err != nil {
		s.note("quota snapshot not refreshed: " + err.Error())
	}
}

// preflight runs the backend's probes from the caller's directory, or takes
// what the same program answered a moment ago.
func (s *supervisor) preflight(ctx context.Context, nb *newborn) *failure {
	cmd, err := s.backend.Command(s.launch.Turn)
	if err != nil {
		return failed(2, "%v", err)
	}
	path, err := lookPath(cmd.Path, os.Getenv("PATH"), s.launch.Cwd)
	if err != nil {
		return failed(exitTrouble, "%v", err)
	}
	probes := s.backend.Probes(s.launch.Turn)
	env := environ.Probe(os.Environ())
	var cache *preflight.Cache
	var key string
	if s.launch.ReuseProbes {
		if dir, err := userdir.Open(os.Getenv, preflightDir); err == nil {
			words := make([][]string, len(probes))
			for i, p := range probes {
				words[i] = p.Args
			}
			cache, key = preflight.Open(dir), preflight.Key(path, words, env)
		}
	}
	var said []byte
	answers, reused, err := cache.Do(ctx, key, func() ([]preflight.Answer, error) {
		return s.probe(ctx, path, probes, env, &said)
	})
	if reused {
		said = nil
		for _, a := range answers {
			said = join(said, a.Stdout, a.Stderr)
		}
		said = join(said, []byte("reused: the same program gave these answers less than a minute ago\n"))
	}
	if werr := atomicfile.Replace(nb.unit.Path(state.FilePreflightTail), said, 0o600); werr != nil {
		s.note(werr.Error())
	}
	var bad *probeError
	switch {
	case errors.As(err, &bad):
		return failed(bad.status, "%s", bad.text)
	case err != nil:
		return failed(exitTrouble, "%v", err)
	}
	for i, p := range probes {
		if p.Check == nil || i >= len(answers) {
			continue
		}
		notes, err := p.Check(&s.launch.Turn, answers[i].Stdout, answers[i].Stderr)
		s.noteRoute(nb, notes)
		if err != nil {
			return failed(exitTrouble, "%v", err)
		}
	}
	return nil
}

// probeError is a probe that did not go well.
type probeError struct {
	status int
	text   string
}

func (e *probeError) Error() string { return e.text }

func (s *supervisor) probe(ctx context.Context, path string, probes []agent.Probe, env []string, said *[]byte) ([]preflight.Answer, error) {
	bad := func(status int, format string, args ...any) ([]preflight.Answer, error) {
		return nil, &probeError{status, fmt.Sprintf(format, args...)}
	}
	var answers []preflight.Answer
	for _, p := range probes {
		res, err := proc.Run(ctx, proc.RunSpec{
			Path: path, Args: append([]string{path}, p.Args...), Env: env,
			Dir: s.launch.Cwd, Limit: s.launch.PreflightTimeout, MaxOutput: 1 << 20,
		})
		*said = join(*said, res.Stdout, res.Stderr)
		switch {
		case ctx.Err() != nil:
			return bad(exitTrouble, "preflight was stopped")
		case res.TimedOut:
			return bad(124, "preflight timed out after %ds", int(s.launch.PreflightTimeout/time.Second))
		case err != nil:
			return bad(exitTrouble, "preflight could not run %s: %v", p.Name, err)
		case res.Exit.Code != 0:
			return bad(exitTrouble, "Antigravity preflight failed; %s exited with code %d", p.Name, res.Exit.Code)
		}
		answers = append(answers, preflight.Answer{Stdout: res.Stdout, Stderr: res.Stderr})
	}
	return answers, nil
}

// join appends outputs, each beginning on a line of its own.
func join(said []byte, outputs ...[]byte) []byte {
	for _, out := range outputs {
		if len(out) == 0 {
			continue
		}
		if len(said) > 0 && said[len(said)-1] != '\n' {
			said = append(said, '\n')
		}
		said = append(said, out...)
	}
	return said
}
