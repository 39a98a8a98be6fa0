package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// A Door is what a front door does at the points where its caller sees it.
type Door struct {
	// Announce prints the STATE-DIR line. When it fails no worker is started.
	Announce func(dir string) error
	// Note is told what a person should read; without prefix, one line.
	Note func(text string)
	// Signals are requests to stop; a second one means now.
	Signals <-chan os.Signal
	// Detach: leave after STATE-DIR; with a ledger, once the unit is in it.
	Detach bool
	// Record is what the door adds; the same that its other processes use.
	Record Record
}

// A Report is what a front door knows when it is done.
type Report struct {
	// Dir is the state directory; empty when the unit was refused.
	Dir string
	// Outcome is nil after a detach and when nobody could conclude.
	Outcome *state.Outcome
	// Unprinted: Announce failed with this error, and the worker never ran.
	Unprinted error
}

// Waits for parties that answer at once unless something is badly wrong.
const (
	// reapPatience bounds the wait for our own processes after the end.
	reapPatience = time.Second
	// settlePatience is the keeper's time to end a tree and conclude.
	settlePatience = 30 * time.Second
	// stopMargin is what a supervisor gets beyond the worker's grace before it
	// counts as hung.
	stopMargin = 5 * time.Second
)

// Front starts a unit and, unless it detaches, waits for its outcome. The
// error is a *Refusal when nothing was started; any other error is a failure of
// our own parts, after which the report still says what is known.
func Front(l Launch, prompt []byte, d Door) (Report, error) {
	at(partyFront, "F1")
	// The caller's open descriptors are none of our processes' business: a
	// pipe held by a keeper would keep the caller's reader waiting.
	if err := proc.CloseOnExecAbove(3); err != nil {
		return Report{}, fmt.Errorf("close inherited descriptors: %w", err)
	}
	// With children of its own from before (a shell that ran exec), this
	// process could not tell theirs from the unit's.
	heir := !d.Detach && !hasChildren()
	if heir {
		// Only needed when keeper and supervisor are both killed.
		heir = proc.BecomeReaper() == nil
	}
	l.Front = pid.Self()
	l.SchemaVersion = 1
	l.Detached = d.Detach
	party, up, err := launch(&l)
	if err != nil {
		return Report{}, &Refusal{Stage: StageStart, Text: err.Error()}
	}
	at(partyFront, "F2")
	defer up.close()
	f := &front{door: d, launch: l, link: up, child: party, heir: heir}
	if err := f.hand(prompt); err != nil {
		// The reason, if there is one, is on its way up.
		f.handing = err
	}
	return f.wait()
}

type front struct {
	door   Door
	launch Launch
	link   *link
	child  *proc.Child
	heir   bool
	// handing is what went wrong while the launch was handed over.
	handing error
	report  Report
	dirPID  int
	stops   int
}

// hand sends the launch and the prompt.
func (f *front) hand(prompt []byte) error {
	l := f.launch
	// As bytes: these need not be the text that JSON wants.
	m := message{Kind: kindLaunch, Argv: raws(l.Turn.Argv), Args: raws(l.Turn.BackendArgs), Cwd: []byte(l.Cwd)}
	kept := l.kept()
	m.Launch = &kept
	if err := f.link.send(m); err != nil {
		return err
	}
	for len(prompt) > 0 {
		n := min(len(prompt), promptChunk)
		if err := f.link.send(message{Kind: kindPrompt, Data: prompt[:n]}); err != nil {
			return err
		}
		prompt = prompt[n:]
	}
	return f.link.send(message{Kind: kindPromptEnd})
}

func (f *front) wait() (Report, error) {
	incoming := f.link.receive()
	var hung <-chan time.Time
	for {
		select {
		case m, open := <-incoming:
			if !open {
				return f.orphaned()
			}
			switch m.Kind {
			case kindRefused:
				f.child.AwaitTimeout(reapPatience)
				f.child.Reap()
				return f.report, m.Refusal
			case kindDir:
				f.report.Dir, f.dirPID = m.Dir, m.PID
				// With a ledger, only when the unit is in it: whoever reads the ledger
				// next must not take it for complete.
				if f.begin(); f.leaves() && f.launch.Ledger == "" {
					return f.report, nil
				}
			case kindAccepted:
				if f.leaves() {
					return f.report, nil
				}
			case kindNote:
				f.door.Note(m.Text)
			case kindEnd:
				f.report.Outcome = m.Outcome
				// So that nothing of ours outlives us.
				if _, ended := f.child.AwaitTimeout(reapPatience); ended {
					f.child.Reap()
				}
				return f.report, nil
			}
		case sig := <-f.door.Signals:
			n, ok := sig.(syscall.Signal)
			if !ok || !isStop(n) {
				continue
			}
			f.stop(int(n))
			if hung == nil {
				hung = time.After(f.launch.grace() + stopMargin + endBound)
			}
		case <-hung:
			hung = nil
			// It does not answer: stopped, or stuck. Its guard concludes.
			f.killSupervisor()
		}
	}
}

// leaves reports whether this door goes as soon as the unit is under way.
func (f *front) leaves() bool {
	return f.door.Detach && f.report.Unprinted == nil && f.stops == 0
}

// endBound is how long the end of a tree may take at most.
const endBound = 10 * time.Second

// begin announces the directory and lets the worker start.
func (f *front) begin() {
	if f.stops > 0 {
		// A stop is on its way already; the caller still learns the name.
		_ = f.door.Announce(f.report.Dir)
		return
	}
	if err := f.door.Announce(f.report.Dir); err != nil {
		f.report.Unprinted = err
		_ = f.link.send(message{Kind: kindAbort, Text: "STATE-DIR could not be printed: " + err.Error()})
		return
	}
	at(partyFront, "F6")
	_ = f.link.send(message{Kind: kindGo})
}

func (f *front) stop(sig int) {
	f.stops++
	_ = f.link.send(message{Kind: kindStop, Signal: sig})
	if f.dirPID > 1 {
		// A stopped supervisor reads nothing.
		f.supervisor(func(id pid.ID) { _ = wakeUp(id) })
	}
}

// supervisor calls fn with the recorded identity of the supervisor.
func (f *front) supervisor(fn func(pid.ID)) {
	if f.report.Dir == "" {
		return
	}
	id, err := state.Unit{Dir: f.report.Dir}.ReadIdentity()
	if err != nil || id == nil || id.Supervisor.PID != f.dirPID {
		return
	}
	fn(id.Supervisor)
}

func (f *front) killSupervisor() {
	f.supervisor(func(id pid.ID) { _ = id.Signal(syscall.SIGKILL) })
}

// orphaned is the end of file without an end: the supervisor is dead. The
// keeper concludes; only when it is dead too is it this process's turn.
func (f *front) orphaned() (Report, error) {
	_, ended := f.child.AwaitTimeout(settlePatience)
	if ended {
		f.child.Reap()
	}
	if f.report.Dir == "" {
		if f.heir && ended {
			proc.Sweep(nil, proc.EndOptions{})
		}
		return f.report, errors.Join(&Refusal{Stage: StageStart, Text: "the supervisor ended before it said why"}, f.handing)
	}
	u := state.Unit{Dir: f.report.Dir}
	end := proc.EndOptions{Spare: detachedUnits(u)}
	if !f.heir {
		end.Spare = func(int) bool { return true }
	}
	if o, err := u.ReadOutcome(); err == nil && o != nil {
		f.report.Outcome = o
		if !ended || !u.Unfinished() {
			return f.report, nil
		}
		// Both died behind the outcome; what comes after it is still to do.
		if lock, err := atomicfile.TryLock(u.Path(state.FileLock)); err == nil {
			_, err = settle(f.door.Record, u, partyFront, killed, nil, end, f.door.Note)
			if err != nil {
				f.door.Note(err.Error())
			}
			_ = lock.Unlock()
		}
		return f.report, nil
	}
	if !ended {
		return f.report, fmt.Errorf("conclude unit: keeper %d has not concluded in %v", f.child.ID().PID, settlePatience)
	}
	// prun-reap may be at it already.
	ctx, cancel := context.WithTimeout(context.Background(), settlePatience)
	defer cancel()
	lock, err := atomicfile.WaitLock(ctx, u.Path(state.FileLock))
	if err != nil {
		return f.report, fmt.Errorf("conclude unit: %w", err)
	}
	defer lock.Unlock()
	o, err := settle(f.door.Record, u, partyFront, killed, nil, end, f.door.Note)
	if err != nil && o.Unit == "" {
		return f.report, err
	}
	f.report.Outcome = &o
	return f.report, nil
}

func hasChildren() bool {
	children, err := proc.Children()
	return err != nil || len(children) > 0
}
