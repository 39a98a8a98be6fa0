package supervise

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
)

// fakeTree is a worker without a process: it ends when told, or on a signal
// that it obeys.
type fakeTree struct {
	done    chan struct{}
	exit    proc.Exit
	signals []syscall.Signal
	obeys   bool
	ended   int
}

func newFakeTree() *fakeTree { return &fakeTree{done: make(chan struct{})} }

func (f *fakeTree) Done() <-chan struct{} { return f.done }
func (f *fakeTree) Exit() proc.Exit       { return f.exit }
func (f *fakeTree) end(x proc.Exit)       { f.exit = x; close(f.done) }

func (f *fakeTree) Signal(sig syscall.Signal) error {
	f.signals = append(f.signals, sig)
	if f.obeys {
		f.end(proc.Exit{Code: 128 + int(sig), Signal: int(sig)})
	}
	return nil
}

func (f *fakeTree) End(proc.EndOptions) proc.Proof {
	f.ended++
	select {
	case <-f.done:
	default:
		f.end(proc.Exit{Code: 137, Signal: 9})
	}
	return proc.Proof{Containment: proc.Subreaper, Empty: true}
}

func quietSensors(stops <-chan int, size func() int64) sensors {
	return sensors{
		stops: stops, size: size, stopCause: func(int) state.Cause { return state.Interrupted },
		ended: func(proc.Exit) {}, reaping: func(verdict) {},
	}
}

func term(grace time.Duration) []agent.StopStep {
	return []agent.StopStep{{Signal: int(syscall.SIGTERM), Wait: grace}}
}

func TestRun(t *testing.T) {
	still := func() int64 { return 0 }
	tests := []struct {
		name string
		lim  limits
		// script runs beside the loop.
		script func(f *fakeTree, stops chan<- int)
		size   func(since time.Duration) int64
		cause  state.Cause
		took   time.Duration
		signal int
		obeys  bool
	}{
		{
			name: "a worker that ends by itself", lim: limits{stall: time.Minute},
			script: func(f *fakeTree, _ chan<- int) { time.Sleep(5 * time.Second); f.end(proc.Exit{Code: 7}) },
			cause:  state.Exited, took: 5 * time.Second,
		},
		{
			name: "silence reaches the stall limit", lim: limits{stall: 10 * time.Minute, stops: term(2 * time.Second)}, obeys: true,
			cause: state.IdleStall, took: 10 * time.Minute,
		},
		{
			name: "a stall limit of zero never reaps", lim: limits{},
			script: func(f *fakeTree, _ chan<- int) { time.Sleep(48 * time.Hour); f.end(proc.Exit{}) },
			cause:  state.Exited, took: 48 * time.Hour,
		},
		{
			name: "a drip holds the stall off and the hard limit takes it", lim: limits{stall: 10 * time.Second, hard: time.Hour}, obeys: true,
			size:  func(d time.Duration) int64 { return int64(d / time.Second) },
			cause: state.HardTimeout, took: time.Hour,
		},
		{
			name: "a worker that ignores the first signal is given its grace", lim: limits{hard: time.Minute, stops: term(5 * time.Second)},
			cause: state.HardTimeout, took: time.Minute + 5*time.Second,
		},
		{
			name: "a stop request", lim: limits{stall: time.Hour, stops: term(5 * time.Second)}, obeys: true,
			script: func(_ *fakeTree, stops chan<- int) { time.Sleep(3 * time.Second); stops <- 15 },
			cause:  state.Interrupted, took: 3 * time.Second, signal: 15,
		},
		{
			name: "a second stop request ends the grace", lim: limits{stops: term(time.Minute)},
			script: func(_ *fakeTree, stops chan<- int) {
				time.Sleep(3 * time.Second)
				stops <- 15
				time.Sleep(time.Second)
				stops <- 15
			},
			cause: state.Interrupted, took: 4 * time.Second, signal: 15,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeTree()
				f.obeys = tt.obeys
				stops := make(chan int, 4)
				begin := time.Now()
				size := still
				if tt.size != nil {
					size = func() int64 { return tt.size(time.Since(begin)) }
				}
				if tt.script != nil {
					go tt.script(f, stops)
				}
				if tt.lim.stops == nil {
					tt.lim.stops = term(0)
				}
				v := run(f, tt.lim, quietSensors(stops, size))
				took := time.Since(begin)
				if v.cause != tt.cause || v.signal != tt.signal {
					t.Errorf("cause %s signal %d, want %s %d", v.cause, v.signal, tt.cause, tt.signal)
				}
				if took < tt.took || took > tt.took+2*tick {
					t.Errorf("took %v, want %v and at most two ticks more", took, tt.took)
				}
				if f.ended != 1 {
					t.Errorf("the tree was ended %d times, want once", f.ended)
				}
				if tt.cause == state.Exited && len(f.signals) != 0 {
					t.Errorf("signals %v to a worker that ended by itself", f.signals)
				}
			})
		})
	}
}

// A worker whose end and a limit fall together ended by itself.
func TestEndWinsOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		f.end(proc.Exit{Code: 3})
		stops := make(chan int, 1)
		stops <- 15
		v := run(f, limits{stall: time.Nanosecond, hard: time.Nanosecond}, quietSensors(stops, func() int64 { return 0 }))
		if v.cause != state.Exited || v.exit.Code != 3 {
			t.Errorf("cause %s code %d, want exited 3", v.cause, v.exit.Code)
		}
	})
}

// The status of a worker that was asked to end is not recorded as its own.
func TestReapedWorkerLeavesNoExitRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		f.obeys = true
		in := quietSensors(nil, func() int64 { return 0 })
		recorded, told := false, state.Cause("")
		in.ended = func(proc.Exit) { recorded = true }
		in.reaping = func(v verdict) { told = v.cause }
		v := run(f, limits{hard: 3 * time.Second, stops: term(time.Second)}, in)
		if recorded || told != state.HardTimeout || v.exit.Signal != 15 {
			t.Errorf("recorded %v, told %q, exit %+v", recorded, told, v.exit)
		}
	})
}
