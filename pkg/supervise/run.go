package supervise

import (
	"fmt"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/watch"
)

// tick is how often a running unit is looked at: the growth of its output and
// the limits. One fstat a second cost 0.02 % of a core; a change notice for
// every write cost 11 % at 20,000 writes a second.
const tick = time.Second

// tree is what the loop needs of a running worker; proc.Group is one.
type tree interface {
	Done() <-chan struct{}
	Exit() proc.Exit
	Signal(syscall.Signal) error
	End(proc.EndOptions) proc.Proof
}

// limits are a unit's bounds; a zero duration is none.
type limits struct {
	stall, hard time.Duration
	// deadStart bounds the time to the first growth, linger the time after the
	// worker's final event.
	deadStart, linger time.Duration
	// stops are the signals that ask, each with what it is given; KILL follows.
	stops []agent.StopStep
	// keepEnded leaves alive what a worker that ended well left behind.
	keepEnded bool
	end       proc.EndOptions
}

// sensors are what the loop hears and sees.
type sensors struct {
	// stops carries signal numbers: a request to end the unit.
	stops <-chan int
	// size looks at the captured output and returns how many bytes count as
	// growth so far.
	size func() int64
	// final reports that the worker has said its last event; nil never does.
	final func() bool
	// stopCause says what a stop request means.
	stopCause func(sig int) state.Cause
	// stopSteps, if not nil, says how a requested stop asks the worker to end.
	stopSteps func() []agent.StopStep
	// ended is called once, after the end of a leader that nobody asked to end
	// was seen and before anything is killed: the status is recorded there.
	ended func(proc.Exit)
	// reaping is told, before the first signal, why the worker is ended.
	reaping func(verdict)
	// lost closes when the guard above us died.
	lost <-chan struct{}
}

// verdict is how a run came to its end.
type verdict struct {
	cause  state.Cause
	signal int
	// itself: the leader ended without being asked to; lingered: it said its
	// final event and then had to be ended.
	itself, lingered bool
	exit             proc.Exit
	proof            proc.Proof
	idle             time.Duration
	// limit is the one that was reached.
	limit time.Duration
	notes []string
}

// run waits until the worker ends or has to be ended, then ends everything of
// it. It is one goroutine with one select; nothing in it blocks without a
// bound. A worker that ended by itself wins over a limit that is reached in
// the same moment.
func run(t tree, lim limits, in sensors) verdict {
	v := decide(t, lim, &in)
	if v.itself {
		v.exit = t.Exit()
		in.ended(v.exit)
	} else {
		in.reaping(v)
		if v.signal != 0 && in.stopSteps != nil {
			lim.stops = in.stopSteps()
		}
		ask(t, lim, in.stops)
	}
	if lim.keepEnded && (v.itself && v.exit == (proc.Exit{}) || v.lingered) {
		lim.end.Keep = true
	}
	v.proof = t.End(lim.end)
	if !v.itself {
		v.exit = t.Exit()
	}
	if v.lingered {
		// What it said decides; that it would not go is a note.
		v.exit = proc.Exit{}
	}
	return v
}

func decide(t tree, lim limits, in *sensors) verdict {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	origin := time.Now()
	growth := watch.NewGrowth(lim.stall, tick)
	deadline := watch.NewDeadline(lim.hard, tick)
	start := watch.NewDeadline(lim.deadStart, tick)
	linger := watch.NewDeadline(lim.linger, tick)
	var v verdict
	var last time.Duration
	begun, late := false, 0
	for {
		select {
		case <-t.Done():
			v.cause, v.itself = state.Exited, true
			return v
		default:
		}
		select {
		case <-t.Done():
			v.cause, v.itself = state.Exited, true
			return v
		case sig, open := <-in.stops:
			if !open {
				in.stops = nil
				continue
			}
			v.cause, v.signal = in.stopCause(sig), sig
			return v
		case <-in.lost:
			in.lost = nil
			v.notes = append(v.notes, "keeper-lost")
		case <-ticker.C:
			now := time.Since(origin)
			if gap := now - last; gap > 3*tick {
				// Stopped, suspended or starved: the clocks credit two ticks.
				if late++; late <= maxLateNotes {
					v.notes = append(v.notes, fmt.Sprintf("late tick %.1f s", gap.Seconds()))
				}
			}
			last = now
			size := in.size()
			g := growth.Observe(now, size)
			begun = begun || size > 0
			switch {
			case deadline.Observe(now):
				v.cause, v.limit = state.HardTimeout, lim.hard
				return v
			case lim.linger > 0 && in.final != nil && in.final():
				if linger.Observe(now) {
					v.cause, v.lingered = state.Exited, true
					v.notes = append(v.notes, "the process did not end after its final event and was ended")
					return v
				}
			case lim.linger > 0:
				// Another turn of the same process has begun.
				linger = watch.NewDeadline(lim.linger, tick)
			}
			if start.Observe(now) && !begun {
				v.cause, v.limit = state.DeadStart, lim.deadStart
				return v
			}
			if g == watch.Stalled {
				v.cause, v.idle, v.limit = state.IdleStall, growth.Idle(), lim.stall
				return v
			}
		}
	}
}

// maxLateNotes bounds what a machine that sleeps every night writes into an
// outcome.
const maxLateNotes = 8

// ask sends the signals one after the other and gives the worker its time. A
// second stop request means now.
func ask(t tree, lim limits, stops <-chan int) {
	for _, step := range lim.stops {
		if err := t.Signal(syscall.Signal(step.Signal)); err != nil {
			return
		}
		timer := time.NewTimer(step.Wait)
		select {
		case <-t.Done():
			timer.Stop()
			return
		case <-stops:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
