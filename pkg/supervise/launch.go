package supervise

import (
	"encoding/json"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/result"
)

// Launch is everything a front door decided about a unit before anything was
// started. It travels to the supervisor as the first message and is kept in
// the state directory (without the argv a caller gave, which may hold a
// secret or a prompt) so that whoever concludes the unit, keeper or prun-reap,
// concludes it as the supervisor would have.
type Launch struct {
	SchemaVersion int    `json:"schema_version"`
	Unit          string `json:"unit"`
	Backend       string `json:"backend"`

	// Tool is the name that texts about the unit carry ("dispatch-task",
	// "prun-dispatch"); Form is the FALLBACK's shape.
	Tool string      `json:"tool"`
	Form result.Form `json:"form"`

	// Base is the absolute directory that holds state directories; Cwd the
	// caller's directory, where probes run; CwdHash its eight hex digits.
	Base    string `json:"base"`
	Cwd     string `json:"cwd"`
	CwdHash string `json:"cwd_hash"`

	// Result is the absolute result path, ResultEntry the text recorded in
	// the result-file entry.
	Result      string `json:"result"`
	ResultEntry string `json:"result_entry"`

	// Scratch is the worker's directory when the caller chose one. Empty
	// means a directory of our own inside the state directory.
	Scratch string `json:"scratch,omitempty"`

	// CloneRepo is the repository that a code-writing unit gets a throwaway
	// clone of (decision 3.14); CloneLinks allows hard links.
	CloneRepo  string `json:"clone_repo,omitempty"`
	CloneLinks bool   `json:"clone_links,omitempty"`

	Turn agent.Turn `json:"turn"`
	// Bin is the program when the front door resolved or was told one; empty
	// means what the backend names.
	Bin string `json:"bin,omitempty"`

	// Complaint is a setting that was found wrong but, by an old promise, is
	// only answered after STATE-DIR, with a FALLBACK and status 2.
	Complaint string `json:"complaint,omitempty"`
	// Preflight asks for the backend's probes before the worker starts.
	Preflight        bool          `json:"preflight,omitempty"`
	PreflightTimeout time.Duration `json:"preflight_timeout,omitempty"`
	// FloatModel lets a built-in default model move to the newest listed
	// member of its family when it is not listed itself (decision 4.4).
	FloatModel bool `json:"float_model,omitempty"`

	// Stall and Hard are the limits; zero is none. They count from the
	// worker's start on a monotonic clock.
	Stall time.Duration `json:"stall,omitempty"`
	Hard  time.Duration `json:"hard,omitempty"`
	// Stops are the signals by which the worker is asked to end, each with the
	// time it is given; KILL follows.
	Stops []agent.StopStep `json:"stops,omitempty"`
	// Linger is how long a worker may go on after its final event; zero is for
	// as long as the limits let it.
	Linger time.Duration `json:"linger,omitempty"`
	// DeadStart bounds the time to the first sign of progress; zero does not.
	DeadStart time.Duration `json:"dead_start,omitempty"`
	// ReuseLeaf is the cgroup of an earlier turn that this worker joins.
	ReuseLeaf string `json:"reuse_leaf,omitempty"`
	// MaxWorkers waits until fewer workers of this user than so many run on
	// this machine, and MinFree until so many bytes of memory are available;
	// zero waits for nothing. QueueTimeout gives up; zero never does.
	MaxWorkers   int           `json:"max_workers,omitempty"`
	MinFree      int64         `json:"min_free,omitempty"`
	QueueTimeout time.Duration `json:"queue_timeout,omitempty"`
	// Nice is added to the worker's niceness.
	Nice int `json:"nice,omitempty"`
	// Gate asks the backend's quota meters before the launch; Balance lets an
	// unnamed unit go where more is left.
	Gate    bool `json:"gate,omitempty"`
	Balance bool `json:"balance,omitempty"`
	// ReuseProbes lets a recent success of the same probes stand for them.
	ReuseProbes bool `json:"reuse_probes,omitempty"`
	// CI adds the variables of an unattended run to the worker's environment.
	CI bool `json:"ci,omitempty"`
	// Extra is the door's own, for its Record.
	Extra json.RawMessage `json:"extra,omitempty"`

	Containment   proc.Mode `json:"containment,omitempty"`
	KeepLeftovers bool      `json:"keep_leftovers,omitempty"`
	// KeepEnded is KeepLeftovers for a worker that ended by itself with status
	// 0 only: a stopped, failed or reaped one leaves nothing.
	KeepEnded bool   `json:"keep_ended,omitempty"`
	Withhold  string `json:"withhold,omitempty"`

	// SalvageAlways: a FALLBACK is written whenever no result landed, also
	// after exit 0 (codex and command); otherwise only for a failed unit.
	SalvageAlways bool `json:"salvage_always,omitempty"`

	// Interpreter is the text of the python-interpreter entry; empty means
	// that the dialect has none.
	Interpreter string `json:"interpreter,omitempty"`

	Ledger        string `json:"ledger,omitempty"`
	PromptFile    string `json:"prompt_file,omitempty"`
	ContinuedFrom string `json:"continued_from,omitempty"`
	ParentUnit    string `json:"parent_unit,omitempty"`

	Front pid.ID `json:"front"`
	// Owner names the supervisor in temporary names; it is set by it.
	Owner string `json:"-"`
	// Ignored are signal numbers that the caller had set to be ignored
	// (nohup, trap ''); they stay ignored (decision 3.2).
	Ignored []int `json:"ignored,omitempty"`
	// Detached: the front door leaves after STATE-DIR; a unit inside another
	// unit then leaves that unit's container (decision 3.6).
	Detached bool `json:"detached,omitempty"`
}

// grace is the longest that the worker is given to end when asked.
func (l Launch) grace() time.Duration {
	var sum time.Duration
	for _, s := range l.Stops {
		sum += s.Wait
	}
	return sum
}

// kept is the form of l that is written to the state directory: decision 3.3
// allows no prompt, no environment value and no argv there.
func (l Launch) kept() Launch {
	l.Turn.Argv = nil
	l.Turn.BackendArgs = nil
	return l
}

// Refusal says why a unit never came to be: nothing was started and nothing
// is left. The door words it in its dialect.
type Refusal struct {
	// Stage is one of the Stage constants.
	Stage string `json:"stage"`
	// Path is what the stage was about: the directory, the result.
	Path string `json:"path,omitempty"`
	// Text is the cause in words, without prefix.
	Text string `json:"text"`
}

// Stages of a refusal.
const (
	StageStateDir = "state-dir" // the state directory could not be made
	StageScratch  = "scratch"   // the worker's directory could not be made
	StageClaim    = "claim"     // another live unit has this result path
	StageContain  = "contain"   // the containment that was demanded cannot be had
	StageStart    = "start"     // our own processes could not be started
)

func (r *Refusal) Error() string { return r.Stage + ": " + r.Text }
