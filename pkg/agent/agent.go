// Package agent describes the coding agents that the suite can run: how each one is called, what it reads on
// standard input, what the bytes that it writes mean, and how the way it ended is to be judged.
//
// It does not own a process, a file or a clock. It starts nothing, opens nothing and waits for nothing: a
// description goes in (Turn), a description comes out (Command, Verdict). The one exception is Find, which looks
// for a program's file.
//
// One file holds one backend, registered by its init function; names, help texts, completion and the conformance
// suite all come from that registry. The invariants every backend keeps: the prompt never appears among the
// arguments (a command line is public, and bounded by the kernel); foreign bytes never make it fail, grow without
// bound or panic; and words inside an answer are never read as an event.
package agent

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// The doors through which a backend may be used. A door is a tool with its own command line for the same client.
const (
	DoorDispatch = "dispatch" // prun-dispatch: one unit
	DoorHerd     = "herd"     // herd: turns of a long conversation
	DoorFanout   = "fanout"   // agent-fanout: a lane in a worktree
)

// The degrees of access that a caller can ask for, in codex's words; other backends translate them.
const (
	AccessReadOnly  = "read-only"
	AccessWorkspace = "workspace-write"
	AccessFull      = "danger-full-access"
)

// Errors that Command and Find return, wrapped with what was asked. Only the tools decide an exit status.
var (
	ErrNoBinary  = errors.New("no runnable program found")
	ErrBadTurn   = errors.New("the turn cannot be described to this backend")
	ErrBadResume = errors.New("not a session that this backend can resume")
)

// A Turn is one request to a backend: everything that shapes its command line and its judgement, and not the
// prompt itself. The zero value of a field means "the caller said nothing".
type Turn struct {
	Unit string // the unit's id, for the texts a worker reads
	Door string // DoorDispatch when empty
	Bin  string // the program, as Find returned it; empty means the backend's usual name
	Dir  string // the directory the worker starts in

	Model      string
	ModelNamed bool   // the caller named Model: it runs verbatim or the turn fails
	Effort     string // empty: the backend's own rule
	Mode       string // agy: plan or accept-edits
	Access     string // one of the Access constants
	Resume     string // the session to continue; empty starts a new one
	Fast       bool   // herd, codex: the fast service tier

	AddDirs     []string // absolute directories the worker may use beside Dir
	BackendArgs []string // handed to the client unchanged
	Argv        []string // command: the program and its arguments

	Sandbox      bool          // agy's own sandbox
	PrintTimeout time.Duration // agy's own limit; zero means 45 minutes
	Isolate      bool          // codex: ignore the user's configuration
	Reasoning    string        // codex: model_reasoning_effort when Effort is empty
	SandboxMode  string        // codex: --sandbox when Access is empty

	ResultFile string // where the worker should leave its result; absolute
	StateDir   string
	// NoNetwork withholds the network from a workspace-write lane (codex, DoorFanout).
	NoNetwork bool
	// LastMessageFile is codex's -o (DoorFanout).
	LastMessageFile string
	// PromptFile is the file that a backend reads its prompt from, when it takes it by name; empty means the unit's
	// own.
	PromptFile string
	// SessionDir is where a client keeps its sessions, when it is told; empty means a directory of the unit.
	SessionDir string
	// ClientVersion is what the client calls itself, when the caller found out; a backend speaks an older client's
	// dialect by it.
	ClientVersion string
}

// door returns the door, with the default applied.
func (t Turn) door() string {
	if t.Door == "" {
		return DoorDispatch
	}
	return t.Door
}

// A Command is what to start.
type Command struct {
	Path string   // a name to look up, or a path
	Args []string // without the program's own name
	Env  []string // additions, NAME=value
}

// Capabilities says what a backend can do and how it wants to be treated in prun-dispatch.
type Capabilities struct {
	Streams bool // it has a form whose events can be read while it runs
	Resumes bool // it can continue a session by id
	// MergeStderr: standard error goes into the same tail as standard output.
	MergeStderr bool
	Doors       []string // where it may be used
	// FirstSignal is the number of the first stop signal (15 TERM, 2 INT), Grace the time until KILL.
	FirstSignal int
	Grace       time.Duration
	// JudgedByExitOnly: in prun-dispatch the exit status alone decides, a missing result does not change it.
	JudgedByExitOnly bool
	// IdleReaps: a worker whose tail stops growing is ended by default.
	IdleReaps bool
}

// A StopStep is one signal of the way a backend is asked to stop, and how long to wait after it. SIGKILL and the
// sweep of the whole tree always follow the last step.
type StopStep struct {
	Signal int
	Wait   time.Duration
}

// A Backend describes one client. Implementations hold no state and may be used by several goroutines.
type Backend interface {
	// Name is what --backend takes.
	Name() string
	// Summary is one line for the manual.
	Summary() string
	Capabilities() Capabilities
	// Command describes the process for a turn. Its errors wrap ErrBadTurn or ErrBadResume and are the caller's
	// mistake, found before anything runs.
	Command(Turn) (Command, error)
	// Stdin is what the worker reads, whole, before end of file. A backend may wrap the prompt.
	Stdin(t Turn, prompt []byte) ([]byte, error)
	// Probes are the short commands that prove the client usable, in order; none for most.
	Probes(Turn) []Probe
	// NewParser returns the reader of this turn's output lines.
	NewParser(Turn) Parser
	// Judge says how the turn ended, from what the stream said and how the process ended, once everything
	// that was written has been parsed.
	Judge(Turn, *Transcript, Ending) Verdict
}

// A Relayer is a backend that wraps the prompt in a text of its own, which a state directory keeps.
type Relayer interface {
	// Relay returns the text that the model reads.
	Relay(t Turn, prompt []byte) string
}

// A Probe is one preflight command: the backend's program with these arguments.
type Probe struct {
	Name string // for messages
	Args []string
	// Check reads what a probe that exited 0 wrote. It may change the turn (the model, when the built-in default
	// floats) and returns lines to keep beside the unit. Nil means that exit status 0 is enough.
	Check func(t *Turn, stdout, stderr []byte) (notes []string, err error)
}

// Stream says which output of a worker a line came from.
type Stream int

// The streams. Merged is a tail that holds both.
const (
	Stdout Stream = iota
	Stderr
	Merged
)

// A Parser reads a worker's output line by line into a transcript. A line has no line ending. It must accept any
// bytes. It keeps nothing of the line: the slice is used again.
type Parser interface {
	// Line takes one line. quiet reports a retry notice, which stays in the tail and is no growth.
	Line(stream Stream, line []byte, tr *Transcript) (quiet bool)
}

// An Ending is how a worker's process ended.
type Ending struct {
	Code   int // exit status; 128+n when Signal is n
	Signal int // the signal it died of, or 0
	// WorkerResult: the worker left a non-empty result file of its own.
	WorkerResult bool
}

// A Verdict is how a turn is judged.
type Verdict struct {
	OK     bool
	Reason string // one line, empty when OK
	// ExitStatus is what prun-dispatch exits with.
	ExitStatus int
	// Response is the text to publish, valid UTF-8 with one final newline, or empty. When the worker left its own
	// result the response goes beside it, also after a failure; else it is the result. A failed turn without a
	// result of its own has none: its text is salvaged with the rest of the tail.
	Response string
	Notes    []string
	// BackendFailed: the client or the service behind it failed, not just its answer. Quota readings made before
	// are doubtful then.
	BackendFailed bool
}

// Exit statuses a judgement can add to the worker's own (decision 2).
const (
	statusJudgedFailed = 70
	signalBase         = 128
)

var registry []Backend

// register adds a backend; only init functions of this package call it, so that the table never changes later.
func register(b Backend) {
	registry = append(registry, b)
	slices.SortFunc(registry, func(a, b Backend) int { return strings.Compare(a.Name(), b.Name()) })
}

// Lookup returns the backend of that name.
func Lookup(name string) (Backend, bool) {
	for _, b := range registry {
		if b.Name() == name {
			return b, true
		}
	}
	return nil, false
}

// All returns every backend, sorted by name.
func All() []Backend { return slices.Clone(registry) }

// Names returns the names of every backend, sorted.
func Names() []string {
	names := make([]string, len(registry))
	for i, b := range registry {
		names[i] = b.Name()
	}
	return names
}

// Serves reports whether a backend may be used through a door.
func Serves(b Backend, door string) bool {
	return slices.Contains(b.Capabilities().Doors, door)
}

// Stops returns the steps by which a backend is asked to stop at a door. At prun-dispatch and agent-fanout that is
// the backend's first signal and its grace; herd asks by the signal on which a client also ends its own tools.
func Stops(b Backend, door string) []StopStep {
	if h, ok := b.(interface{ herdStops() []StopStep }); ok && door == DoorHerd {
		return h.herdStops()
	}
	c := b.Capabilities()
	return []StopStep{{Signal: c.FirstSignal, Wait: c.Grace}}
}

const (
	sigInt  = 2
	sigTerm = 15
)
