package supervise

import (
	"os"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// A Record is what a door adds to the life of a unit: where its directory
// lies, which files it promises, where the worker's output goes, and what is
// published at the end. The order in which all this happens, and what is true
// after a kill between two steps, is this package's.
//
// The supervisor, the keeper, the front door and prun-reap use the same Record,
// each in a process of its own: it holds no state between calls but what it is
// given. [Dispatch] is the Record of prun-dispatch.
type Record interface {
	// Place names the unit's directory: hidden while it is built, final from
	// then on. Both lie in the same directory, which is made if missing. The
	// hidden name holds the nonce: whoever clears it away must not meet another
	// unit's.
	Place(l *Launch, pid int, nonce string) (hidden, final string)

	// Furnish writes the files that the door promises before the unit is
	// announced. u is the hidden directory, final the name it will get. It
	// returns the worker's directory. Its error is a *Refusal.
	Furnish(u state.Unit, final string, l *Launch) (dir string, refusal *Refusal)

	// Open makes the worker's two outputs, which the supervisor closes after
	// the start, and the reading of what is written to them.
	Open(u state.Unit, l *Launch, b agent.Backend) (stdout, stderr *os.File, r Reading, err error)

	// Reread is the reading of a unit whose supervisor is dead. Everything
	// that is still on disk is parsed by its Finish.
	Reread(u state.Unit, l *Launch, b agent.Backend) (Reading, error)

	// Evidence is progress beyond output, asked at most once in a tick: any
	// number that is larger when something has happened since. Zero is none.
	Evidence(u state.Unit, l *Launch) int64

	// StopCause says what a stop request by this signal means for the record:
	// state.Interrupted, or state.Killed when the door left a request of its
	// own.
	StopCause(u state.Unit, sig int) state.Cause

	// WorkerResult reports that the worker itself left a result.
	WorkerResult(c *Conclusion) bool

	// Conclude publishes what there is to publish and fills in
	// c.Outcome.Result. The tree is ended; the outcome is not yet on disk. It
	// may be called again for the same unit by another process and must find
	// out what the first one did.
	Conclude(c *Conclusion) error

	// Settled runs after the outcome is on disk: the door's own markers, last
	// of all. It may run several times, also without the ones before it.
	Settled(u state.Unit, l *Launch, o *state.Outcome) error
}

// A Stopper is a Record that says, when a stop is requested, how the worker is
// asked to end; for others Launch.Stops does.
type Stopper interface {
	StopSteps(u state.Unit, l *Launch) []agent.StopStep
}

// A Capturer is a Record whose worker's output does not go into the unit's own
// tail. Captures names the files that it goes to.
type Capturer interface {
	Captures(u state.Unit, l *Launch) []string
}

// A Starter is a Record that keeps files about the worker itself; Started is
// called once, right after worker.json was written.
type Starter interface {
	Started(u state.Unit, l *Launch, w state.WorkerRecord) error
}

// A Reading follows what a worker writes. It belongs to one goroutine.
type Reading interface {
	// Transcript is what the backend's parser made of it so far.
	Transcript() *agent.Transcript
	// Look takes in what is new, at most about budget bytes of it, and returns
	// how many bytes count as growth since the start.
	Look(budget int64) int64
	// Finish takes in everything that is left, the partial last line included.
	// Nothing writes any more.
	Finish()
	// Bytes is how much was captured.
	Bytes() int64
	Close()
}

// A Drainer is a Reading of what only the supervisor holds, such as a pipe.
// Drain takes in, without waiting for more, all that a worker that has ended
// wrote; it is called before that end is recorded, because a record of the end
// promises whoever concludes in the supervisor's place that the words are there.
type Drainer interface {
	Drain()
}

// A Conclusion is a unit whose tree is ended and whose end has been judged.
type Conclusion struct {
	Unit     state.Unit
	Launch   *Launch
	Identity state.Identity
	Backend  agent.Backend
	// Outcome is complete but for Result and ExitStatus.
	Outcome *state.Outcome
	// Verdict is nil when the worker did not end by itself.
	Verdict    *agent.Verdict
	Transcript *agent.Transcript
	Proof      proc.Proof
	// Owner names the supervisor in the names of temporary files.
	Owner string
	// Gone: the state directory is no longer the one that was made, and
	// nothing in it may be touched.
	Gone bool
	// Note is for people at the front door; Step marks a crash point.
	Note func(text string)
	Step func(name string)

	source func(capture string) string
	// fault makes a write fail in test builds.
	fault func(step string) error
}

// Source is where a capture can be read: under its name, or, when that was
// removed while somebody still followed it, by what they hold open. Empty means
// nowhere.
func (c *Conclusion) Source(capture string) string {
	if c.source != nil {
		return c.source(capture)
	}
	if c.Gone {
		return ""
	}
	return capture
}
