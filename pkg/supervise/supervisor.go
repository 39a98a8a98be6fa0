package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/environ"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/quota"
	"github.com/prun-suite/prun/pkg/result"
	"github.com/prun-suite/prun/pkg/state"
)

// Names of the hidden commands by which a door's binary becomes the other
// processes of a unit.
const (
	KeeperCommand     = "__keeper"
	SupervisorCommand = "__supervise"
)

// launchPatience is how long a new supervisor waits for the front door to say
// what it wants; the front door writes it before it does anything else.
const launchPatience = 30 * time.Second

// notePatience bounds a write to the front door: it may be stopped, and the
// unit must not wait for it.
const notePatience = 50 * time.Millisecond

// exitTrouble is the supervisor's own exit status when it could not conclude;
// nobody but the keeper sees it.
const exitTrouble = 70

type supervisor struct {
	record  Record
	link    *link
	launch  Launch
	backend agent.Backend
	prompt  []byte
	// stops carries signal numbers from the front door and from our own
	// signals; gone closes when the front door's end of the link is closed.
	stops chan int
	goes  chan struct{}
	gone  chan struct{}
	abort chan string
	guard *guardLink
	notes []string
}

// Supervise is the main function of the supervisor process. It returns the
// process's exit status, which only tells the keeper whether anything is left
// to conclude; the unit's story is in outcome.json.
func Supervise(rec Record) int {
	caught := make(chan os.Signal, 8)
	// Catching them all is also what gives the worker default dispositions: an
	// ignored HUP or INT would otherwise be inherited.
	unheard := catch(caught)
	s := &supervisor{
		record: rec,
		stops:  make(chan int, 8),
		goes:   make(chan struct{}),
		gone:   make(chan struct{}),
		abort:  make(chan string, 1),
	}
	if unheard != nil {
		s.notes = append(s.notes, unheard.Error())
	}
	var err error
	if s.link, s.guard, err = supervisorLinks(); err != nil {
		fmt.Fprintln(os.Stderr, "prun: error:", err)
		return exitTrouble
	}
	// Without adoption the tree can still be ended, but not proven.
	if err := proc.BecomeReaper(); err != nil {
		s.notes = append(s.notes, err.Error())
	}
	if err := s.hear(); err != nil {
		return exitTrouble
	}
	go s.forward(caught)
	return s.live()
}

// hear reads the launch and the prompt, then leaves one goroutine listening.
func (s *supervisor) hear() error {
	_ = s.link.in.SetReadDeadline(time.Now().Add(launchPatience))
	for {
		m, err := s.link.recv()
		if err != nil {
			return err
		}
		switch m.Kind {
		case kindLaunch:
			s.launch = *m.Launch
			if m.Cwd != nil {
				s.launch.Cwd = string(m.Cwd)
			}
			s.launch.Turn.Argv = texts(m.Argv)
			s.launch.Turn.BackendArgs = texts(m.Args)
		case kindPrompt:
			s.prompt = append(s.prompt, m.Data...)
		case kindPromptEnd:
			_ = s.link.in.SetReadDeadline(time.Time{})
			var known bool
			if s.backend, known = agent.Lookup(s.launch.Backend); !known {
				return fmt.Errorf("launch names an unknown backend %q", s.launch.Backend)
			}
			go s.listen()
			return nil
		}
	}
}

func (s *supervisor) listen() {
	defer close(s.gone)
	started := false
	for m := range s.link.receive() {
		switch m.Kind {
		case kindGo:
			if !started {
				started = true
				close(s.goes)
			}
		case kindStop:
			s.stop(m.Signal)
		case kindAbort:
			select {
			case s.abort <- m.Text:
			default:
			}
		}
	}
}

func (s *supervisor) forward(caught <-chan os.Signal) {
	for sig := range caught {
		n, ok := sig.(syscall.Signal)
		if !ok || !isStop(n) || slices.Contains(s.launch.Ignored, int(n)) {
			continue
		}
		s.stop(int(n))
	}
}

// stop passes a request on; more than a few at once say nothing new.
func (s *supervisor) stop(sig int) {
	select {
	case s.stops <- sig:
	default:
	}
}

// say tells the front door; what it does not hear is in the outcome anyway.
func (s *supervisor) say(m message) { _ = s.link.send(m) }

func (s *supervisor) note(text string) { s.say(message{Kind: kindNote, Text: text}) }

// live is a unit's life from birth to conclusion.
func (s *supervisor) live() int {
	s.launch.Owner = ownerName(pid.Self())
	nb, refusal := bear(s.record, &s.launch, s.guard, s.guard.keeper())
	if refusal != nil {
		s.say(message{Kind: kindRefused, Refusal: refusal})
		// Nothing is left for the keeper.
		return 0
	}
	s.notes = append(s.notes, nb.notes...)
	s.say(message{Kind: kindDir, Dir: nb.unit.Dir, PID: os.Getpid()})
	at(partySupervisor, "S7")

	c := &concluder{
		record: s.record, unit: nb.unit, launch: s.launch, identity: nb.identity, backend: s.backend,
		party: partySupervisor, note: s.note,
	}
	if nb.claim != nil {
		// Freed by the kernel in any case; this also removes its file.
		c.release = func() { _ = state.ReleaseClaim(nb.claim) }
	}
	e := s.runUnit(nb, c)
	e.notes = append(s.notes, e.notes...)
	// What went wrong is in the outcome's notes, which the front door prints.
	outcome, err := c.conclude(e)
	// The collector closes a file that nobody can reach any more, and with it
	// the lock would go.
	runtime.KeepAlive(nb.lock)
	runtime.KeepAlive(nb.claim)
	if c.backendFailed {
		s.renewQuota()
	}
	at(partySupervisor, "C9")
	s.say(message{Kind: kindEnd, Outcome: &outcome})
	if errors.Is(err, errUnrecorded) {
		return exitTrouble
	}
	return 0
}

// runUnit waits for go, prepares, starts the worker and watches it.
func (s *supervisor) runUnit(nb *newborn, c *concluder) (e ending) {
	e.started = time.Now()
	e.proof = proc.Proof{Containment: planned(nb.leaf), Empty: true}
	defer func() {
		if nb.leaf != nil {
			nb.leaf.Close()
		}
	}()
	unstarted := func(cause state.Cause, status int, reason string) ending {
		// Preparations may have left something behind; the same proof is
		// owed for it.
		e.proof = proc.Sweep(nb.leaf, proc.EndOptions{})
		e.cause, e.status, e.reason = cause, status, reason
		return e
	}
	interrupted := func(sig int) ending {
		e = unstarted(s.record.StopCause(nb.unit, sig), 128+sig, interruptReason(sig))
		e.signal = sig
		return e
	}

	select {
	case <-s.goes:
	case sig := <-s.stops:
		return interrupted(sig)
	case why := <-s.abort:
		return unstarted(state.LaunchFailed, exitNoResult, why)
	case <-s.gone:
		// go and the end of the link may be ready together.
		select {
		case <-s.goes:
		default:
			return unstarted(state.LaunchFailed, exitTrouble, "the front door died before the worker was started")
		}
	}
	at(partySupervisor, "S7a")

	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan int, 1)
	prepared := make(chan struct{})
	go func() {
		select {
		case sig := <-s.stops:
			stopped <- sig
			cancel()
		case <-prepared:
		}
		close(stopped)
	}()
	slot, failure := s.admit(ctx, nb, c)
	defer func() { _ = slot.Release() }()
	if failure == nil {
		failure = s.prepare(ctx, nb)
	}
	close(prepared)
	if sig, ok := <-stopped; ok {
		cancel()
		return interrupted(sig)
	}
	cancel()
	// Also where nothing is started: that is the model that was tried.
	c.launch.Turn.Model = s.launch.Turn.Model
	if failure != nil {
		e.resets = failure.resets
		return unstarted(failure.cause, failure.status, failure.reason)
	}
	s.launch.Turn = s.turn(nb)
	c.launch = s.launch

	e.started = time.Now()
	group, r, failure := s.start(nb)
	if failure != nil {
		return unstarted(failure.cause, failure.status, failure.reason)
	}
	at(partySupervisor, "S8")
	e.started = time.Now()
	worker := state.WorkerRecord{
		Worker: group.ID(), Containment: string(group.Containment()), Started: e.started.UTC(),
	}
	if nb.leaf != nil && group.Containment() == proc.Cgroup {
		worker.Leaf, worker.LeafInode = nb.leaf.Path(), nb.leaf.Inode()
	}
	err := fault(partySupervisor, "S9")
	if err == nil {
		err = nb.unit.WriteWorker(worker)
	}
	if err != nil {
		e.notes = append(e.notes, err.Error())
	}
	if err := atomicfile.Write(nb.unit.Path(state.FileWorkerPID), []byte(strconv.Itoa(group.ID().PID)+"\n"), 0o600); err != nil {
		e.notes = append(e.notes, err.Error())
	}
	if starter, ok := s.record.(Starter); ok {
		if err := starter.Started(nb.unit, &s.launch, worker); err != nil {
			e.notes = append(e.notes, err.Error())
		}
	}
	at(partySupervisor, "S9")
	proc.PremakeThreads(premadeThreads)
	e.reading = r
	var steps func() []agent.StopStep
	if stopper, ok := s.record.(Stopper); ok {
		steps = func() []agent.StopStep { return stopper.StopSteps(nb.unit, &s.launch) }
	}
	v := run(group, limits{
		stall: s.launch.Stall, hard: s.launch.Hard, deadStart: s.launch.DeadStart, linger: s.launch.Linger,
		stops: s.launch.Stops, keepEnded: s.launch.KeepEnded,
		end: proc.EndOptions{Keep: s.launch.KeepLeftovers, Spare: detachedUnits(nb.unit)},
	}, sensors{
		stops: s.stops,
		size: func() int64 {
			return r.Look(lookBudget) + s.record.Evidence(nb.unit, &s.launch)
		},
		final:     func() bool { tr := r.Transcript(); return tr.Terminal && tr.Open == 0 },
		stopCause: func(sig int) state.Cause { return s.record.StopCause(nb.unit, sig) },
		stopSteps: steps,
		ended: func(x proc.Exit) {
			at(partySupervisor, "C0")
			if d, ok := r.(Drainer); ok {
				d.Drain()
			}
			err := fault(partySupervisor, "C1")
			if err == nil {
				err = nb.unit.WriteWorkerExit(x.Code, x.Signal)
			}
			if err != nil {
				e.notes = append(e.notes, err.Error())
			}
			at(partySupervisor, "C1")
		},
		reaping: func(v verdict) {
			switch {
			case v.signal != 0:
				s.note("stopping worker process tree (" + signalName(v.signal) + ")")
			case !v.lingered:
				s.note("reaping worker process tree (" + string(v.cause) + ")")
			}
		},
		lost: s.guard.lost(),
	})
	at(partySupervisor, "C2")
	e.verdict(v)
	return e
}

// premadeThreads are made while the machine still has room: a full process
// table otherwise kills a Go program at its next blocking call.
const premadeThreads = 8

// failure is why a worker was never started.
type failure struct {
	cause  state.Cause
	status int
	reason string
	// resets says when a blocked unit may be tried again.
	resets []quota.Reset
}

func failed(status int, format string, args ...any) *failure {
	return &failure{cause: state.LaunchFailed, status: status, reason: fmt.Sprintf(format, args...)}
}

// prepare does everything between the admission and the worker's start: the
// clone, the model with its meters and probes, and the files that the worker
// reads.
func (s *supervisor) prepare(ctx context.Context, nb *newborn) *failure {
	s.launch.Turn = s.turn(nb)
	if s.launch.Complaint != "" {
		return failed(2, "%s", s.launch.Complaint)
	}
	if s.launch.CloneRepo != "" {
		report, err := git.Clone(ctx, git.CloneSpec{
			Repo: s.launch.CloneRepo, Dir: nb.scratch, Links: s.launch.CloneLinks, Env: os.Environ(),
		})
		if err != nil {
			return failed(exitTrouble, "%v", err)
		}
		if warning := report.Warning(); warning != "" {
			s.note(warning)
		}
		for _, n := range report.Notes {
			s.note(n)
		}
	}
	if f := s.chooseModel(ctx, nb); f != nil {
		return f
	}
	if relayer, ok := s.backend.(agent.Relayer); ok {
		text := relayer.Relay(s.launch.Turn, s.prompt)
		if err := atomicfile.Write(nb.unit.Path(state.FilePromptRelay), []byte(text), 0o600); err != nil {
			return failed(exitTrouble, "%v", err)
		}
	}
	stdin, err := s.backend.Stdin(s.launch.Turn, s.prompt)
	if err != nil {
		return failed(exitTrouble, "prepare prompt: %v", err)
	}
	if err = fault(partySupervisor, "S7b"); err == nil {
		err = atomicfile.Write(nb.unit.Path(state.FilePrompt), stdin, 0o600)
	}
	if err != nil {
		return failed(exitTrouble, "%v", err)
	}
	large := len(s.prompt) > 1<<20
	s.prompt = nil
	if large {
		// A supervisor lives for hours; a large prompt need not.
		debug.FreeOSMemory()
	}
	return nil
}

func (s *supervisor) writeModel(u state.Unit) error {
	model := s.launch.Turn.Model
	if model == "" {
		return nil
	}
	return atomicfile.Replace(u.Path(state.FileModel), []byte(model+"\n"), 0o600)
}

func (s *supervisor) turn(nb *newborn) agent.Turn {
	t := s.launch.Turn
	t.Unit, t.Dir, t.StateDir, t.ResultFile = s.launch.Unit, nb.scratch, nb.unit.Dir, s.launch.Result
	if t.Bin == "" {
		t.Bin = s.launch.Bin
	}
	return t
}

// start opens the worker's three files and starts it, contained from birth.
func (s *supervisor) start(nb *newborn) (*proc.Group, Reading, *failure) {
	refuse := func(f *failure) (*proc.Group, Reading, *failure) { return nil, nil, f }
	cmd, err := s.backend.Command(s.launch.Turn)
	if err != nil {
		return refuse(failed(2, "%v", err))
	}
	stdin, err := os.Open(nb.unit.Path(state.FilePrompt))
	if err != nil {
		return refuse(failed(exitTrouble, "open prompt: %v", err))
	}
	defer stdin.Close()
	if err := fault(partySupervisor, "S8a"); err != nil {
		return refuse(failed(exitTrouble, "%v", err))
	}
	stdout, stderr, r, err := s.record.Open(nb.unit, &s.launch, s.backend)
	if err != nil {
		return refuse(failed(exitTrouble, "%v", err))
	}
	defer stdout.Close()
	defer stderr.Close()
	refuse = func(f *failure) (*proc.Group, Reading, *failure) {
		r.Close()
		return nil, nil, f
	}
	path, err := lookPath(cmd.Path, os.Getenv("PATH"), nb.scratch)
	if err != nil {
		return refuse(s.unlaunchable(127, fmt.Errorf("%s: command not found", cmd.Path)))
	}
	env, withheld := environ.Worker(os.Environ(), environ.WorkerOptions{
		Unit: s.launch.Unit, StateDir: nb.unit.Dir, ResultFile: s.launch.Result, Withhold: s.launch.Withhold,
		CI: s.launch.CI, Add: cmd.Env,
	})
	if len(withheld) > 0 {
		var text []byte
		for _, name := range withheld {
			text = append(append(text, name...), '\n')
		}
		if err := atomicfile.Write(nb.unit.Path(state.FileEnvWithheld), text, 0o600); err != nil {
			return refuse(failed(exitTrouble, "%v", err))
		}
	}
	at(partySupervisor, "S8a")
	group, err := proc.Start(proc.Spec{
		Path: path, Args: append([]string{path}, cmd.Args...), Env: env, Dir: nb.scratch,
		Stdin: stdin, Stdout: stdout, Stderr: stderr, Leaf: nb.leaf, OOMScoreAdj: workerOOMScore, Nice: s.launch.Nice,
	})
	var se *proc.StartError
	switch {
	case err == nil:
		return group, r, nil
	case errors.As(err, &se) && se.NotFound:
		return refuse(s.unlaunchable(127, err))
	case errors.As(err, &se) && se.NotExecutable:
		return refuse(s.unlaunchable(126, err))
	}
	return refuse(s.unlaunchable(exitTrouble, err))
}

// unlaunchable words a program that could not be started. A shell's two codes
// are promised for codex and command only.
func (s *supervisor) unlaunchable(status int, err error) *failure {
	switch s.launch.Form {
	case result.FormAgy:
		return failed(exitTrouble, "failed to launch Antigravity CLI: %v", err)
	case result.FormNamed:
		return failed(exitTrouble, "failed to launch %s: %v", s.launch.Backend, err)
	}
	return failed(status, "%v", err)
}

// workerOOMScore makes the kernel take a worker before its guards when memory
// runs out; raising needs no privilege.
const workerOOMScore = 300

func texts(raw [][]byte) []string {
	if raw == nil {
		return nil
	}
	out := make([]string, len(raw))
	for i, b := range raw {
		out[i] = string(b)
	}
	return out
}

func raws(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// keeperID is who our parent is, when it is a keeper.
func parentID() pid.ID {
	id, err := pid.Of(os.Getppid())
	if err != nil {
		return pid.ID{}
	}
	return id
}

// lookPath finds a program as execvp would from dir: a name with a separator
// is taken as it is (and resolved after the change of directory), others are
// searched in the caller's PATH, relative entries from dir.
func lookPath(name, path, dir string) (string, error) {
	if name == "" {
		return "", errors.New("no program named")
	}
	if filepath.Base(name) != name {
		return name, nil
	}
	denied := ""
	for _, entry := range filepath.SplitList(path) {
		if entry == "" {
			entry = "."
		}
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(dir, entry)
		}
		found, executable := findProgram(entry, name)
		if executable {
			return found, nil
		}
		if found != "" && denied == "" {
			denied = found
		}
	}
	if denied != "" {
		// The start then says why it cannot be executed.
		return denied, nil
	}
	return "", fmt.Errorf("%s: %w", name, os.ErrNotExist)
}
