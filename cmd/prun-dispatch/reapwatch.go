package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/proc"
	"github.com/prun-suite/prun/pkg/state"
	"github.com/prun-suite/prun/pkg/watch"
)

// varWatchPoll is how often the watchdog looks.
const varWatchPoll = "PRUN_WATCH_POLL_SECONDS"

// reapWatch is the old watchdog of a worker that somebody else started
// (reap-watch.ps1): it ends the worker's tree when the tail has not grown for
// PRUN_STALL_THRESHOLD seconds or the worker is older than
// CODEX_DISPATCH_TIMEOUT, and leaves the reason in the state directory first.
// It never fails: bad use, and a worker that is gone, end it silently.
func reapWatch(env *cli.Env) int {
	w, ok := parseWatch(env.Args[1:])
	if !ok {
		return 0
	}
	w.env = env
	w.poll = env.Fraction(varWatchPoll, "1").Duration()
	w.stall = env.Seconds(varStall, "600").Duration()
	w.hard = env.Seconds(varHard, "0").Duration()
	w.run()
	return 0
}

type watchdog struct {
	env               *cli.Env
	unit              state.Unit
	worker            pid.ID
	tail              string
	poll, stall, hard time.Duration
}

// parseWatch reads the three options, each of which is needed, and takes the
// worker's identity: its number may be another's by the time it is to be ended.
func parseWatch(args []string) (w watchdog, ok bool) {
	given := map[string]string{}
	for ; len(args) > 0; args = args[2:] {
		name := strings.ToLower(args[0])
		switch name {
		case "--state-dir", "--worker-pid", "--tail":
		default:
			return w, false
		}
		if len(args) == 1 || args[1] == "" {
			return w, false
		}
		given[name] = args[1]
	}
	if len(given) != 3 {
		return w, false
	}
	dir, err := filepath.Abs(given["--state-dir"])
	if err != nil {
		return w, false
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return w, false
	}
	p, err := pid.Parse(given["--worker-pid"])
	if err != nil || pid.Forbidden(p) {
		return w, false
	}
	w.unit, w.tail = state.Unit{Dir: dir}, given["--tail"]
	w.worker, err = pid.Of(p)
	return w, err == nil
}

func (w *watchdog) run() {
	origin := time.Now()
	growth := watch.NewGrowth(w.stall, w.poll)
	deadline := watch.NewDeadline(w.hard, w.poll)
	ticker := time.NewTicker(w.poll)
	defer ticker.Stop()
	for w.alive() {
		now := time.Since(origin)
		stalled := growth.Observe(now, w.size()) == watch.Stalled
		switch {
		case deadline.Observe(now):
			w.reap(state.HardTimeout)
			return
		case stalled:
			w.reap(state.IdleStall)
			return
		}
		<-ticker.C
	}
}

// alive is false only when the worker is known to be gone.
func (w *watchdog) alive() bool {
	alive, err := w.worker.Alive()
	return alive || err != nil
}

func (w *watchdog) size() int64 {
	fi, err := os.Stat(w.tail)
	if err != nil || !fi.Mode().IsRegular() {
		return 0
	}
	return fi.Size()
}

// reap says why in the state directory, then ends the tree. A worker that ended
// by itself in between was not reaped, and the reason is taken back.
func (w *watchdog) reap(why state.Cause) {
	name := w.unit.Path(state.FileReapReason)
	if err := atomicfile.Replace(name, []byte(string(why)+"\n"), 0o600); err != nil {
		// An unrecorded end is better than a worker that hangs for ever.
		w.env.Warnf("%v", err)
	}
	if !w.alive() {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			w.env.Warnf("take back the reason: %v", err)
		}
		return
	}
	if proof := proc.KillTree(w.worker, proc.DefaultBound); len(proof.Remaining) > 0 {
		w.env.Warnf("worker %d was reaped (%s), and these are still alive: %v; %s", w.worker.PID, why, proof.Remaining, proof.Note)
	}
}
