package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/git"
	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/preflight"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/quota"
	"github.com/prun-suite/prun/pkg/slots"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/supervise"
)

// Variables that the manual names. Those with an old contract keep its rules,
// blank values included (spec of the Agy front, 4.2).
const (
	varStall         = "PRUN_STALL_THRESHOLD"
	varAgyStall      = "PRUN_AGY_STALL_THRESHOLD"
	varHard          = "CODEX_DISPATCH_TIMEOUT"
	varScratch       = "PRUN_SCRATCH_CWD"
	varSandbox       = "CODEX_DISPATCH_SANDBOX"
	varReasoning     = "CODEX_DISPATCH_REASONING"
	varIsolate       = "CODEX_DISPATCH_ISOLATE_MCP"
	varAgyModel      = "ANTIGRAVITY_DISPATCH_MODEL"
	varAgyEffort     = "ANTIGRAVITY_DISPATCH_EFFORT"
	varAgyTimeout    = "ANTIGRAVITY_DISPATCH_TIMEOUT_SECONDS"
	varAgyGrace      = "PRUN_AGY_GRACE"
	varAgySandbox    = "PRUN_AGY_SANDBOX"
	varPreflight     = "ANTIGRAVITY_PREFLIGHT"
	varPreflightTime = "ANTIGRAVITY_PREFLIGHT_TIMEOUT_SECONDS"
	varContainment   = "PRUN_CONTAINMENT"
	varLeftovers     = "PRUN_LEFTOVERS"
	varWithhold      = "PRUN_WITHHOLD_ENV"
	varCloneLinks    = "PRUN_CLONE_LINKS"
	varMaxWorkers    = "PRUN_MAX_WORKERS"
	varMinFree       = "PRUN_MIN_FREE_MEMORY"
	varNice          = "PRUN_NICE"
	varGate          = "PRUN_AGY_QUOTA_GATE"
	varBalance       = "PRUN_AGY_BALANCE"
	varProbeCache    = "PRUN_PREFLIGHT_CACHE"
)

var environment = []cli.EnvVar{
	{Name: varStall, Default: "600", Text: "seconds without new output after which a codex or command worker is reaped; 0 never"},
	{Name: varHard, Default: "0", Text: "seconds after which a codex or command worker is reaped; 0 never"},
	{Name: varScratch, Text: "directory the worker runs in; made if missing. Otherwise work in the state directory"},
	{Name: "CODEX_BIN", Default: "codex", Text: "the codex program, used as it is"},
	{Name: varSandbox, Default: agent.AccessFull, Text: "value of codex's --sandbox"},
	{Name: varReasoning, Default: "xhigh", Text: "codex reasoning effort"},
	{Name: varIsolate, Default: "on", Text: "with off the user's codex configuration stays in force"},
	{Name: "ANTIGRAVITY_BIN", Default: "agy", Text: "the Antigravity CLI"},
	{Name: varAgyModel, Default: agent.AgyModel, Text: "agy's model; a named one runs verbatim or fails"},
	{Name: varAgyEffort, Default: "high", Text: "agy's effort, for its Gemini models"},
	{Name: varAgyTimeout, Default: "2700", Text: "agy's --print-timeout in seconds"},
	{Name: varAgyGrace, Default: "60", Text: "seconds beyond agy's own limit after which it is ended (124)"},
	{Name: varAgyStall, Default: "0", Text: "as PRUN_STALL_THRESHOLD, for agy"},
	{Name: varAgySandbox, Default: "off", Text: "1, true, yes or on adds agy's --sandbox"},
	{Name: varPreflight, Default: "auto", Text: "with auto or force agy is probed before the worker starts, with off it is not"},
	{Name: varPreflightTime, Default: "60", Text: "seconds for each probe"},
	{Name: varContainment, Default: "auto", Text: "how the unit's processes are held together: auto, cgroup (refused where there is none) or subreaper"},
	{Name: varLeftovers, Default: "kill", Text: "with keep, processes that outlive the worker's first one are left alive and reported"},
	{Name: varWithhold, Text: "variables that the worker is not given: names, or the word secrets"},
	{Name: varCloneLinks, Default: "0", Text: "with 1 --clone shares objects by hard links"},
	{Name: varMinFree, Text: "hold a new unit back while less memory is available (2GiB, 512MiB, or bytes); nothing is ended for it"},
	{Name: varNice, Default: "0", Text: "niceness added to the worker, 0 to 19"},
	{Name: varGate, Default: "on", Text: "with off agy is started without a look at its quota meters"},
	{Name: varBalance, Default: "off", Text: "with on a unit that names no model may go to the agy group where more is left"},
	{Name: "AGY_QUOTA_CACHE", Text: "another snapshot of agy's meters, never refreshed and never too old"},
	{Name: varProbeCache, Default: "on", Text: "with off agy is probed for every unit, also within a minute"},
	{Name: "PRUN_USER_DIR", Text: "directory where workers are counted and answers of probes kept, instead of prun-user-UID in /tmp"},
	{Name: "PRUN_STATE_BASE", Text: "directory of the state directories instead of TMPDIR"},
	{Name: "TMPDIR", Default: "/tmp", Text: "directory of the state directories"},
}

// request is a unit that may be started.
type request struct {
	launch       supervise.Launch
	prompt       []byte
	mergedStderr bool
	// made are the directories and the ledger that the checks have made, outer
	// ones first.
	made []string
}

// undo removes what the checks made for a unit that was then refused. What
// somebody else has put something into meanwhile stays.
func (r *request) undo() {
	for _, name := range slices.Backward(r.made) {
		if name == r.launch.Ledger {
			_ = state.RemoveEmptyLedger(name)
			continue
		}
		if fi, err := os.Lstat(name); err != nil || fi.Mode().IsRegular() && fi.Size() > 0 {
			continue
		}
		_ = os.Remove(name)
	}
	r.made = nil
}

// maxWorkers is the highest limit, as in the tag of the option.
const maxWorkers = 1_000_000

// maxPrompt bounds what is held in memory; the clients stop at about a
// million characters.
const maxPrompt = 64 << 20

// checker holds what the checks share.
type checker struct {
	env     *cli.Env
	d       dialect
	o       *options
	backend agent.Backend
	temper  temper
	cwd     string
	r       request
}

func (c *checker) fail(format string, args ...any) error {
	return c.d.fail(2, fmt.Sprintf(format, args...))
}

// check does everything that can refuse a unit before anything exists, in the
// front's order.
func check(ctx context.Context, env *cli.Env, d dialect, o *options) (request, error) {
	c := &checker{env: env, d: d, o: o}
	if d.backend != "" {
		o.Backend = d.backend
	}
	b, ok := agent.Lookup(o.Backend)
	if !ok || !agent.Serves(b, agent.DoorDispatch) {
		return c.r, c.fail("--backend must be one of %s, got: %s", strings.Join(backends(), ", "), visible(o.Backend))
	}
	c.backend, c.temper = b, temperOf(o.Backend)
	c.r.mergedStderr = b.Capabilities().MergeStderr
	for _, need := range []struct{ name, value string }{
		{"--prompt-file", o.PromptFile}, {"--result-file", o.ResultFile}, {"--unit-id", o.UnitID},
	} {
		if need.value == "" {
			return c.r, c.fail("%s is required", need.name)
		}
	}
	var err error
	if c.cwd, err = os.Getwd(); err != nil {
		return c.r, c.fail("the current directory is gone: %v", err)
	}
	steps := []func(context.Context) error{c.promptExists, c.unitID, c.resultPath, c.readPrompt, c.directories}
	if b.Name() == "agy" {
		steps = []func(context.Context) error{c.unitID, c.promptExists, c.resultPath, c.readPrompt, c.directories}
	}
	// What leaves traces comes last: whoever is refused finds nothing made.
	steps = append(steps, c.resume, c.program, c.settings, c.limits, c.books, c.describe, c.parents, c.openLedger)
	for _, step := range steps {
		if err := step(ctx); err != nil {
			c.r.undo()
			return c.r, err
		}
	}
	return c.r, nil
}

func (c *checker) unitID(context.Context) error {
	if state.ValidUnit(c.o.UnitID) {
		return nil
	}
	if c.backend.Name() == "agy" {
		return c.fail("--unit-id must contain only letters, digits, dashes, or underscores")
	}
	return c.fail("--unit-id must be alphanumeric/dash/underscore, got: %s", visible(c.o.UnitID))
}

// stdinPrompt: `-` is a file name in the old fronts.
func (c *checker) stdinPrompt() bool { return c.o.PromptFile == "-" && c.d.backend == "" }

func (c *checker) promptExists(context.Context) error {
	if c.stdinPrompt() {
		return nil
	}
	fi, err := os.Stat(c.o.PromptFile)
	if err != nil || !fi.Mode().IsRegular() {
		return c.fail("prompt file not found: %s", visible(c.o.PromptFile))
	}
	return nil
}

func (c *checker) readPrompt(context.Context) error {
	var b []byte
	var err error
	if c.stdinPrompt() {
		b, err = io.ReadAll(io.LimitReader(c.env.Stdin, maxPrompt+1))
	} else {
		c.r.launch.PromptFile = c.abs(c.o.PromptFile)
		b, err = atomicfile.ReadRegular(c.o.PromptFile, maxPrompt)
	}
	switch {
	case err != nil:
		return c.fail("could not read prompt file: %v", err)
	case len(b) > maxPrompt:
		return c.fail("could not read prompt file: larger than %d MiB", maxPrompt>>20)
	case len(bytes.TrimSpace(b)) == 0:
		return c.fail("prompt file is empty: %s", visible(c.o.PromptFile))
	case c.temper.utf8Prompt && !utf8.Valid(b):
		return c.fail("could not read prompt file: %s is not valid UTF-8", visible(c.o.PromptFile))
	}
	c.r.prompt = b
	return nil
}

// resultPath settles where the result goes and refuses what cannot be one.
func (c *checker) resultPath(context.Context) error {
	given := c.o.ResultFile
	path, err := c.plainAbs(given)
	if err != nil {
		return c.fail("--result-file %v: %s", err, visible(path))
	}
	if !namesFile(given) {
		return c.fail("--result-file names a directory, not a file: %s", visible(given))
	}
	l := &c.r.launch
	l.Result, l.ResultEntry = path, path
	link, err := os.Lstat(path)
	if err != nil && !absent(err) {
		return c.fail("result path cannot be used: %v", err)
	}
	there := err == nil
	switch {
	case c.temper.freshResult:
		// The link is refused before it is resolved: a dangling one exists.
		if !there {
			path = resolved(path)
			l.Result, l.ResultEntry = path, path
			_, err = os.Lstat(path)
			there = err == nil
		}
		if there {
			return c.fail("result path already exists; use a fresh path: %s", visible(path))
		}
	case there:
		fi, err := os.Stat(path)
		switch {
		case err != nil && link.Mode()&os.ModeSymlink != 0:
			return c.fail("result path is a link to nothing: %s", visible(path))
		case err != nil || !fi.Mode().IsRegular():
			return c.fail("result path is not a regular file: %s", visible(path))
		case link.Mode()&os.ModeSymlink != 0:
			// The worker may write through the link; what lands is judged there.
			l.Result = resolved(path)
		}
	}
	l.Unit, l.Backend, l.Tool, l.Form = c.o.UnitID, c.backend.Name(), c.d.tool, c.temper.form
	l.SalvageAlways = c.temper.salvageAlways
	return nil
}

// parents makes the directories above the result. They are the caller's to see
// and have the caller's umask.
func (c *checker) parents(context.Context) error {
	dir := filepath.Dir(c.r.launch.Result)
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o777); err == nil {
			c.r.made = append(c.r.made, d)
		}
	}
	// Says what is wrong, or that another made it first.
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return c.fail("could not create the result's directory: %v", err)
	}
	return nil
}

// namesFile reports whether a path's last element can be a file.
func namesFile(path string) bool {
	if os.IsPathSeparator(path[len(path)-1]) {
		return false
	}
	base := filepath.Base(path)
	return base != "." && base != ".."
}

// absent reports an error that leaves a path free: nothing there, or nothing
// above it, which is made. A parent that is a file is found when it is to be made.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func (c *checker) directories(ctx context.Context) error {
	l := &c.r.launch
	scratch := c.env.Getenv(varScratch)
	if c.o.Clone != "" && scratch != "" {
		return c.fail("--clone makes the worker's directory itself; unset %s", varScratch)
	}
	theirs := scratch != "" || len(c.o.AddDirs) > 0
	if c.temper.explicitMode && theirs && c.o.Mode == "" && c.o.Access == "" {
		if c.backend.Name() == "agy" {
			return c.fail("%s and --add-dir require an explicit --mode (accept-edits or plan)", varScratch)
		}
		return c.fail("%s and --add-dir require an explicit --access", varScratch)
	}
	if c.o.Mode != "" && c.o.Mode != agent.ModePlan && c.o.Mode != agent.ModeAcceptEdits {
		return c.fail("--mode must be %s or %s, got: %s", agent.ModePlan, agent.ModeAcceptEdits, visible(c.o.Mode))
	}
	for _, dir := range c.o.AddDirs {
		if strings.TrimSpace(dir) == "" {
			return c.fail("--add-dir requires a non-empty directory path")
		}
		if fi, err := os.Stat(c.abs(dir)); err != nil || !fi.IsDir() {
			return c.fail("--add-dir path is not an existing directory: %s", visible(dir))
		}
		abs, err := c.plainAbs(dir)
		if err != nil {
			return c.fail("--add-dir %v: %s", err, visible(abs))
		}
		l.Turn.AddDirs = append(l.Turn.AddDirs, resolved(abs))
	}
	if scratch != "" {
		dir, err := c.plainAbs(scratch)
		if err != nil {
			return c.fail("%s %v: %s", varScratch, err, visible(dir))
		}
		l.Scratch = dir
	}
	if c.o.Clone == "" {
		return nil
	}
	repo, err := c.plainAbs(c.o.Clone)
	if err != nil {
		return c.fail("--clone %v: %s", err, visible(repo))
	}
	l.CloneRepo = repo
	l.CloneLinks = slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(c.env.Getenv(varCloneLinks)))
	if err := git.IsRepository(ctx, l.CloneRepo, c.env.Environ); err != nil {
		return c.fail("--clone: %v", err)
	}
	return nil
}

// resume finds the session to go on with. An empty id would silently start a
// fresh one that claims to be a follow-up.
func (c *checker) resume(context.Context) error {
	from := c.o.Continue
	if from == "" && !c.env.Given("continue-from") {
		return nil
	}
	if strings.TrimSpace(from) == "" {
		return c.fail("--continue-from requires a non-empty state directory path")
	}
	if !c.backend.Capabilities().Resumes {
		return c.fail("--continue-from: backend %s has no sessions", c.backend.Name())
	}
	dir := c.abs(from)
	u := state.Unit{Dir: dir}
	if id, err := u.ReadIdentity(); err == nil && id != nil && id.Backend != "" && id.Backend != c.backend.Name() {
		return c.fail("--continue-from: %s ran on backend %s, not %s", visible(from), visible(id.Backend), c.backend.Name())
	}
	id, err := u.ReadEntry(state.FileConversationID)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return c.fail("--continue-from has no conversation-id file: %s", visible(from))
	case err != nil:
		return c.fail("--continue-from conversation-id file cannot be read: %v", err)
	case strings.TrimSpace(id) == "":
		return c.fail("--continue-from conversation-id file is empty: %s", visible(from))
	case strings.ContainsAny(strings.TrimSpace(id), "\r\n"):
		return c.fail("--continue-from conversation-id file has more than one line: %s", visible(from))
	}
	c.r.launch.Turn.Resume = strings.TrimSpace(id)
	c.r.launch.ContinuedFrom = dir
	return nil
}

func (c *checker) program(context.Context) error {
	isSet := func(name string) bool { _, ok := c.env.LookupEnv(name); return ok }
	bin, err := agent.Find(c.backend, c.env.Getenv, isSet, runtime.GOOS)
	if err != nil {
		return c.d.fail(70, strings.TrimPrefix(err.Error(), agent.ErrNoBinary.Error()+": "))
	}
	c.r.launch.Bin = bin
	return nil
}

// settings fills in what shapes the worker's command line.
func (c *checker) settings(context.Context) error {
	t := &c.r.launch.Turn
	t.Door = agent.DoorDispatch
	t.Model, t.Effort, t.Mode, t.Access = c.o.Model, c.o.Effort, c.o.Mode, c.o.Access
	t.ModelNamed = t.Model != ""
	t.BackendArgs, t.Argv = c.o.BackendArgs, c.env.Rest
	if len(t.Argv) > 0 && c.backend.Name() != "command" {
		return c.fail("the words after -- are for --backend command only")
	}
	switch c.backend.Name() {
	case "codex":
		t.SandboxMode = c.env.Getenv(varSandbox)
		t.Reasoning = c.env.Getenv(varReasoning)
		if t.Reasoning == "" {
			t.Reasoning = "xhigh"
		}
		t.Isolate = !strings.EqualFold(c.env.Getenv(varIsolate), "off")
	case "agy":
		return c.agySettings(t)
	}
	return nil
}

func (c *checker) agySettings(t *agent.Turn) error {
	if !t.ModelNamed {
		if v, set := c.env.LookupEnv(varAgyModel); set {
			t.Model, t.ModelNamed = strings.TrimSpace(v), true
		} else {
			t.Model = agent.AgyModel
		}
	}
	effort, named := c.env.LookupEnv(varAgyEffort)
	if t.Effort == "" {
		t.Effort = strings.TrimSpace(effort)
	}
	if strings.TrimSpace(t.Model) == "" || named && strings.TrimSpace(effort) == "" && c.o.Effort == "" {
		return c.fail("model and effort overrides must be non-empty")
	}
	t.PrintTimeout = agent.AgyPrintTimeout
	if v, set := c.env.LookupEnv(varAgyTimeout); set {
		n, err := pythonInt(v)
		if err != nil || n <= 0 {
			return c.fail("%s must be a positive integer", varAgyTimeout)
		}
		t.PrintTimeout = seconds(n)
	}
	value, _ := c.env.LookupEnv(varAgySandbox)
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "1", "true", "yes", "on":
		t.Sandbox = true
	case "", "0", "false", "no", "off":
	default:
		return c.fail("%s must be 1/true/yes/on or 0/false/no/off (got: %s)", varAgySandbox, visible(value))
	}
	c.preflight()
	if t.Mode == "" && c.o.Access == "" {
		t.Mode = agent.ModeAcceptEdits
	}
	return nil
}

// preflight reads its two variables; what is wrong with them is only said
// after STATE-DIR, with a FALLBACK, as the old front did.
func (c *checker) preflight() {
	l := &c.r.launch
	l.PreflightTimeout = time.Minute
	mode, set := c.env.LookupEnv(varPreflight)
	switch {
	case !set, mode == "auto", mode == "force":
		l.Preflight = true
	case mode == "off":
		return
	default:
		l.Complaint = fmt.Sprintf("%s must be auto, force or off (got: %s)", varPreflight, visible(mode))
		return
	}
	if v, set := c.env.LookupEnv(varPreflightTime); set {
		n, err := pythonInt(v)
		if err != nil || n <= 0 {
			l.Complaint = varPreflightTime + " must be a positive integer"
			return
		}
		l.PreflightTimeout = seconds(n)
	}
}

func (c *checker) limits(context.Context) error {
	l := &c.r.launch
	l.Stops = agent.Stops(c.backend, agent.DoorDispatch)
	if c.backend.Capabilities().IdleReaps {
		l.Stall = c.env.Seconds(varStall, "600").Duration()
		l.Hard = c.env.Seconds(varHard, "0").Duration()
	}
	if c.backend.Name() == "agy" {
		l.Stall = c.env.Seconds(varAgyStall, "0").Duration()
		l.Hard = l.Turn.PrintTimeout + c.env.Seconds(varAgyGrace, "60").Duration()
	}
	if c.o.Stall != nil {
		l.Stall = c.o.Stall.Duration()
	}
	if c.o.Timeout != nil {
		l.Hard = c.o.Timeout.Duration()
	}
	mode, err := proc.ParseMode(c.env.Getenv(varContainment))
	if err != nil {
		c.env.Warnf("%s: %v; using the default auto", varContainment, err)
		mode = proc.ModeAuto
	}
	l.Containment = mode
	switch v := strings.ToLower(c.env.Getenv(varLeftovers)); v {
	case "", "kill":
	case "keep":
		l.KeepLeftovers = true
	default:
		c.env.Warnf("%s=%s is neither kill nor keep; using the default kill", varLeftovers, visible(v))
	}
	l.Withhold = c.env.Getenv(varWithhold)
	c.admission()
	return nil
}

// admission reads what may hold the unit back before its worker starts.
func (c *checker) admission() {
	l := &c.r.launch
	l.MaxWorkers = c.o.MaxWorkers
	if v := c.env.Getenv(varMaxWorkers); c.d.usage != "" && v != "" {
		// The shell fronts have no option of that name to carry it.
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > maxWorkers {
			c.env.Warnf("%s=%s is not a whole number from 0 to %d; using the default, no limit", varMaxWorkers, visible(v), maxWorkers)
			n = 0
		}
		l.MaxWorkers = n
	}
	if c.o.QueueTimeout != nil {
		l.QueueTimeout = c.o.QueueTimeout.Duration()
	}
	if v := c.env.Getenv(varMinFree); v != "" {
		n, err := slots.ParseSize(v)
		if err != nil {
			c.env.Warnf("%s=%s: %v; using the default, no limit", varMinFree, visible(v), err)
			n = 0
		}
		l.MinFree = n
	}
	if v := c.env.Getenv(varNice); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 19 {
			c.env.Warnf("%s=%s is not a number from 0 to 19; using the default 0", varNice, visible(v))
			n = 0
		}
		l.Nice = n
	}
	if c.backend.Name() == "agy" {
		l.Gate = !quota.GateOff(c.env.Getenv(varGate))
		l.Balance = quota.BalanceOn(c.env.Getenv(varBalance))
		if l.Gate {
			_, warnings := quota.Standard(c.env.Getenv)
			for _, w := range warnings {
				c.env.Warnf("%s", w)
			}
		}
	}
	l.ReuseProbes = !preflight.Off(c.env.Getenv(varProbeCache))
}

// books settles where the state lies and who must hear of the unit.
func (c *checker) books(context.Context) error {
	l := &c.r.launch
	l.Base = state.Base(c.env.Getenv)
	if err := plainPath(l.Base); err != nil {
		return c.fail("the directory for state directories %v: %s", err, visible(l.Base))
	}
	l.Cwd, l.CwdHash = c.cwd, state.CwdHash(c.cwd)
	if c.backend.Name() == "agy" {
		l.Interpreter = interpreter(c.env.Getenv("PATH"))
	}
	if parent := c.env.Getenv("PRUN_STATE_DIR"); parent != "" {
		if live, _ := (state.Unit{Dir: parent}).Liveness(); live == state.Running {
			l.ParentUnit = parent
		}
	}
	if c.o.Ledger == "" {
		return nil
	}
	ledger, err := c.plainAbs(c.o.Ledger)
	if err != nil {
		return c.fail("--ledger %v: %s", err, visible(ledger))
	}
	l.Ledger = ledger
	return nil
}

// openLedger finds out now, not when the unit has ended and its line is lost,
// whether the ledger can be written.
func (c *checker) openLedger(context.Context) error {
	name := c.r.launch.Ledger
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		c.r.made = append(c.r.made, name)
	} else if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|nonblock, 0o600)
	}
	if err != nil {
		return c.fail("--ledger cannot be written: %v", err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return c.fail("--ledger is not a regular file: %s", visible(c.o.Ledger))
	}
	return nil
}

// describe asks the backend whether it can make a command line of all this.
func (c *checker) describe(context.Context) error {
	t := c.r.launch.Turn
	t.Unit, t.Bin = c.o.UnitID, c.r.launch.Bin
	if _, err := c.backend.Command(t); err != nil {
		return c.fail("%s", strings.TrimPrefix(err.Error(), agent.ErrBadTurn.Error()+": "))
	}
	return nil
}

func (c *checker) abs(path string) string {
	if filepath.IsAbs(path) {
		if c.temper.freshResult {
			return filepath.Clean(path)
		}
		return path
	}
	return filepath.Join(c.cwd, path)
}

// plainAbs makes a path absolute and refuses what one line of output, or JSON,
// cannot hold; the caller's directory may be what does not fit.
func (c *checker) plainAbs(path string) (string, error) {
	abs := c.abs(path)
	return abs, plainPath(abs)
}

// resolved follows links as far as the path exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir, base := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	if dir == filepath.Clean(path) {
		return path
	}
	return filepath.Join(resolved(dir), base)
}

// plainPath refuses paths that one line of output, or JSON, cannot hold.
func plainPath(path string) error {
	switch {
	case strings.ContainsAny(path, "\n\r\x00"):
		return errors.New("holds a newline or NUL")
	case !utf8.ValidString(path):
		return errors.New("is not valid UTF-8")
	}
	return nil
}

// visible makes a foreign word fit one line of a message.
func visible(s string) string { return line.Escape(s) }

// pythonInt reads an int as the old front did: blanks around it, a sign,
// single underscores between digits.
func pythonInt(s string) (int64, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") ||
		strings.Contains(s, "+_") || strings.Contains(s, "-_") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
}

// seconds is n seconds, cut to a hundred years.
func seconds(n int64) time.Duration {
	const most = 100 * 365 * 24 * 3600
	return time.Duration(min(n, most)) * time.Second
}

// interpreter is what the python-interpreter entry names: a Python where
// there is one, else this program.
func interpreter(path string) string {
	for _, dir := range filepath.SplitList(path) {
		for _, name := range []string{"python3", "python", "python.exe"} {
			full := filepath.Join(dir, name)
			if fi, err := os.Stat(full); err == nil && fi.Mode().IsRegular() &&
				(fi.Mode()&0o111 != 0 || runtime.GOOS == "windows") && !strings.Contains(full, `\WindowsApps\`) {
				return resolved(full)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return self
}
