package main

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// sweep looks at every unit that was found and counts what it sees.
type sweep struct {
	found  state.Discovery
	opts   state.ObserveOptions
	detail bool // look at the records too
	strict bool // and call one that cannot be read an error
	now    time.Time

	failed int // units with errors
	hidden int // of them, those that are not listed
	totals totals
}

// totals are the numbers of the summary. The two pairs never count one unit twice.
type totals struct {
	units                int
	byResult             map[state.ResultState]int
	byPath               map[state.PathState]int
	lacking, unresolved  int   // units with a tail
	lackingB, unresolveB int64 // bytes of these tails
}

// row is what was seen of one unit.
type row struct {
	state.Observation
	*detail
}

// The order in which the summary names the values.
var (
	resultStates = []state.ResultState{state.ResultPresent, state.ResultEmpty, state.ResultMissing, state.ResultUnknown}
	pathStates   = []state.PathState{state.PathResolved, state.PathAbsent, state.PathInvalid, state.PathUnreadable}
)

// batch is how many units are looked at before the first of them is printed, so
// that memory does not grow with their number.
const batch = 512

// each looks at the units and hands over those that are listed, in order.
func (s *sweep) each(o *options, list func(row) error) error {
	s.totals = totals{byResult: make(map[state.ResultState]int), byPath: make(map[state.PathState]int)}
	if o.Sort == "tail-bytes-desc" {
		var all []row
		err := s.inBatches(o, func(r row) error { all = append(all, r); return nil })
		if err != nil {
			return err
		}
		slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(b.tail(), a.tail()) })
		for _, r := range all {
			if err := list(r); err != nil {
				return err
			}
		}
		return nil
	}
	return s.inBatches(o, list)
}

func (s *sweep) inBatches(o *options, list func(row) error) error {
	for units := range slices.Chunk(s.found.Units, batch) {
		for _, r := range s.look(units) {
			s.count(r)
			if r.tail() < o.MinTailBytes {
				if len(r.Errors) > 0 {
					s.hidden++
				}
				continue
			}
			if err := list(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// look observes some units at once: most of the time goes into waiting for the
// kernel.
func (s *sweep) look(units []state.Unit) []row {
	rows := make([]row, len(units))
	workers := min(runtime.GOMAXPROCS(0), 4, (len(units)+31)/32)
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(units) {
				return
			}
			rows[i] = s.see(units[i])
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return rows
}

func (s *sweep) see(u state.Unit) row {
	r := row{Observation: u.Observe(s.opts)}
	if s.detail {
		d, errs := examine(u, s.now)
		r.detail = d
		if s.strict {
			r.Errors = append(r.Errors, errs...)
		}
	}
	return r
}

// tail is the size as filters and sorting take it: what cannot be seen is 0.
func (r row) tail() int64 {
	if r.TailBytes == nil {
		return 0
	}
	return *r.TailBytes
}

func (s *sweep) count(r row) {
	if len(r.Errors) > 0 {
		s.failed++
	}
	t := &s.totals
	t.units++
	t.byResult[r.Result]++
	t.byPath[r.PathState]++
	if n := r.tail(); n > 0 {
		switch r.Result {
		case state.ResultMissing, state.ResultEmpty:
			t.lacking++
			t.lackingB += n
		case state.ResultUnknown:
			t.unresolved++
			t.unresolveB += n
		}
	}
}

// detail is what the records of a unit say, beyond the contract of the original.
type detail struct {
	identity    *identity
	unreadable  bool // a record exists and cannot be read
	containment string
	outcome     *state.Outcome
	age         *int64 // seconds
	executor    string
	ahead       *int // workers before it, while it waits for a slot
}

// identity is who answers for a unit.
type identity struct {
	liveness                          state.Liveness
	reason                            string
	front, keeper, supervisor, worker *process
}

// process is what is known about one recorded process.
type process struct {
	pid     int
	verdict pid.Verdict
	reason  string // why it is unknown
}

// The stages of the records.
const (
	stageIdentity = "identity"
	stageWorker   = "worker"
	stageOutcome  = "outcome"
)

// examine reads the records of a unit. A directory without identity.json is of an
// older version: its bare numbers are nobody's identity.
func examine(u state.Unit, now time.Time) (*detail, []state.ObservationError) {
	d := &detail{}
	var errs []state.ObservationError
	note := func(stage string, err error) {
		if err == nil {
			return
		}
		name := "MalformedRecord"
		if !errors.Is(err, state.ErrMalformed) {
			name = state.ErrorName(err)
		}
		d.unreadable = true
		errs = append(errs, state.ObservationError{Stage: stage, Error: name})
	}
	id, err := u.ReadIdentity()
	note(stageIdentity, err)
	worker, err := u.ReadWorker()
	note(stageWorker, err)
	var outcomeErr error
	d.outcome, outcomeErr = u.ReadOutcome()
	if id != nil {
		d.identity = &identity{}
		d.identity.liveness, d.identity.reason = u.Liveness()
		if d.identity.liveness == state.Settled && d.outcome == nil {
			// It ended between the two looks.
			d.outcome, outcomeErr = u.ReadOutcome()
		}
		foreign := id.Machine != "" && pid.Machine() != "" && id.Machine != pid.Machine()
		judge := func(p pid.ID) *process { return judgeProcess(p, foreign) }
		d.identity.front, d.identity.keeper, d.identity.supervisor = judge(id.Front), judge(id.Keeper), judge(id.Supervisor)
		if worker != nil {
			d.identity.worker = judge(worker.Worker)
		}
		d.containment = id.Containment
	}
	note(stageOutcome, outcomeErr)
	if worker != nil && worker.Containment != "" {
		d.containment = worker.Containment
	}
	if d.outcome != nil && d.outcome.Containment != "" {
		d.containment = d.outcome.Containment
	}
	if begun, ok := begin(u, id); ok {
		// A clock that was set back must not make an age of less than nothing.
		age := max(int64(now.Sub(begun)/time.Second), 0)
		d.age = &age
	}
	d.executor = executor(u, id)
	if ahead, waiting := u.Queued(); waiting && d.outcome == nil {
		d.ahead = &ahead
	}
	return d, errs
}

// judgeProcess asks about a recorded process; nil when none was recorded. Another
// machine has another boot, which must not read as a reboot of this one.
func judgeProcess(id pid.ID, foreign bool) *process {
	if id.PID == 0 {
		return nil
	}
	p := &process{pid: id.PID}
	if foreign {
		p.reason = "recorded on another machine"
		return p
	}
	alive, err := id.Alive()
	switch {
	case err != nil:
		p.reason = err.Error()
	case alive:
		p.verdict = pid.Alive
	default:
		p.verdict = pid.Gone
	}
	return p
}

// executor is what ran: the model where one is recorded, else the backend.
func executor(u state.Unit, id *state.Identity) string {
	if text, err := u.ReadEntry(state.FileModel); err == nil && text != "" {
		return text
	}
	if id != nil {
		return id.Backend
	}
	return ""
}
