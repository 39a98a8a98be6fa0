package supervise

import (
	"fmt"
	"syscall"
	"time"

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
	// first is the signal that asks, grace what it is given before KILL.
	first syscall.Signal
	grace time.Duration
	end   proc.EndOptions
}

// sensors are what the loop hears and sees.
type sensors struct {
	// stops carries signal numbers: a request to end the unit.
	stops <-chan int
	// size looks at the captured output and returns how many bytes count as
	// growth so far.
	size func() int64
	// note is told what is worth a line.
	note func(string)
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
	// itself: the leader ended without being asked to.
	itself bool
	exit   proc.Exit
	proof  proc.Proof
	idle   time.Duration
	notes  []string
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
		ask(t, lim, in.stops)
	}
	v.proof = t.End(lim.end)
	if !v.itself {
		v.exit = t.Exit()
	}
	return v
}

func decide(t tree, lim limits, in *sensors) verdict {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	origin := time.Now()
	growth := watch.NewGrowth(lim.stall, tick)
	deadline := watch.NewDeadline(lim.hard, tick)
	var v verdict
	last := time.Duration(0)
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
			v.cause, v.signal = state.Interrupted, sig
			return v
		case <-in.lost:
			in.lost = nil
			v.notes = append(v.notes, "keeper-lost")
		case <-ticker.C:
			now := time.Since(origin)
			if late := now - last; late > 3*tick && last > 0 {
				v.notes = append(v.notes, fmt.Sprintf("late tick %.1f s", late.Seconds()))
			}
			last = now
			g := growth.Observe(now, in.size())
			if deadline.Observe(now) {
				v.cause = state.HardTimeout
				return v
			}
			if g == watch.Stalled {
				v.cause, v.idle = state.IdleStall, growth.Idle()
				return v
			}
		}
	}
}

// ask sends the first signal and gives the worker its grace. A second stop
// request means now.
func ask(t tree, lim limits, stops <-chan int) {
	if err := t.Signal(lim.first); err != nil || lim.grace <= 0 {
		return
	}
	timer := time.NewTimer(lim.grace)
	defer timer.Stop()
	for {
		select {
		case <-t.Done():
			return
		case _, open := <-stops:
			if open {
				return
			}
			stops = nil
		case <-timer.C:
			return
		}
	}
}
