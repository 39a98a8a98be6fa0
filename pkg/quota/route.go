package quota

import (
	"fmt"
	"math"
	"time"

	"github.com/prun-suite/prun/pkg/line"
)

// Ask is what a dispatch wants to run.
type Ask struct {
	Model string
	// Named: the caller chose the model, by option or variable.
	Named bool
	// Default is the built-in model of the Gemini pool.
	Default string
	// Second is the model of the second pool that an unnamed unit may move to; empty
	// means SecondModel.
	Second string
	// Balance asks for the newer routing, by which an unnamed unit goes where more is
	// left.
	Balance bool
}

// Route is what the meters say about a dispatch.
type Route struct {
	// Model is the one to run. When it is not the one asked for it is a built-in
	// default, and the preflight may let it float.
	Model string
	// Notes are the lines for stderr and quota-note, without a newline.
	Notes []string
	// Blocked: nothing may be started. Reason is one line that says why and names both
	// the reset times and the way round; Resets holds the former for machines.
	Blocked bool
	Reason  string
	Resets  []Reset
}

// Reset is when a pool that stopped a dispatch has something again.
type Reset struct {
	Pool Pool `json:"pool"`
	// Text is the time as agy wrote it, "" when it did not say.
	Text string `json:"text"`
	// At is the same in RFC 3339, only when agy wrote a time with date and zone: the
	// others ("resets 1pm") cannot be turned into a promise.
	At string `json:"at,omitempty"`
}

// lead is how much more the other pool must have left before an unnamed unit moves
// away from one that still has something. The tolerance is for 0.35-0.20, which is
// not 0.15 in binary.
const lead = 0.15 - 1e-9

// Route decides. A nil snapshot, a pool that it does not report and a model in
// neither pool never stop anything.
func (s *Snapshot) Route(a Ask, now time.Time) Route {
	r := Route{Model: a.Model}
	pool, metered := PoolOf(a.Model)
	if s == nil || !metered {
		return r
	}
	if a.Balance && !a.Named && a.Model == a.Default && pool == Gemini {
		if moved, ok := s.balance(a, now); ok {
			return moved
		}
	}
	own, known := s.State(pool, now)
	if !known || !own.Empty() {
		return r
	}
	other, otherKnown := s.State(pool.other(), now)
	if otherKnown && other.Empty() {
		return s.block(r, now, Gemini, Second)
	}
	if pool == Second && a.Default != "" {
		r.Model = a.Default
		r.Notes = []string{line.ModelFallback(a.Model, a.Default, "claude-and-gpt-quota-exhausted", later(own.Reset)).String()}
		return r
	}
	return s.block(r, now, pool)
}

// balance moves an unnamed unit to the second pool when that has visibly more, or
// anything at all while its own has nothing. A lead counts only when both windows are
// reported: a pool that shows one may be empty in the other.
func (s *Snapshot) balance(a Ask, now time.Time) (Route, bool) {
	own, ok := s.State(Gemini, now)
	other, otherOK := s.State(Second, now)
	if !ok || !otherOK || other.Empty() {
		return Route{}, false
	}
	if !own.Empty() && (!other.Both || other.Left-own.Left < lead) {
		return Route{}, false
	}
	to := a.Second
	if to == "" {
		to = SecondModel
	}
	note := line.ModelBalance(a.Model, to, "freer-meter", percent(own.Left), percent(other.Left))
	return Route{Model: to, Notes: []string{note.String()}}, true
}

// Regate decides anew when the preflight has replaced the model: within one pool
// nothing changes, otherwise the new model is gated as if the caller had named it.
func (s *Snapshot) Regate(before, after string, now time.Time) Route {
	from, _ := PoolOf(before)
	to, metered := PoolOf(after)
	if !metered || from == to {
		return Route{Model: after}
	}
	r := s.Route(Ask{Model: after, Named: true}, now)
	if r.Blocked {
		r.Reason = fmt.Sprintf("after MODEL-FALLBACK to %s: %s", line.Escape(after), r.Reason)
	}
	return r
}

// block words why nothing is started.
func (s *Snapshot) block(r Route, now time.Time, pools ...Pool) Route {
	r.Blocked = true
	for _, p := range pools {
		st, _ := s.State(p, now)
		reset := Reset{Pool: p, Text: st.Reset}
		if !st.ResetAt.IsZero() {
			reset.At = st.ResetAt.UTC().Format(time.RFC3339)
		}
		r.Resets = append(r.Resets, reset)
	}
	text := func(i int) string { return line.Escape(later(r.Resets[i].Text)) }
	if len(pools) == 2 {
		r.Reason = fmt.Sprintf("both Agy quota groups are exhausted (Gemini resets %s, Claude and GPT resets %s). "+
			"Wait for a reset, or name a model of neither group through %s.", text(0), text(1), ModelVariable)
		return r
	}
	r.Reason = fmt.Sprintf("the Agy %s quota group is exhausted (resets %s). Wait for that reset, or name a model of the %s group through %s.",
		pools[0].Title(), text(0), pools[0].other().Title(), ModelVariable)
	return r
}

func later(reset string) string {
	if reset == "" {
		return "later"
	}
	return reset
}

func percent(fraction float64) string {
	return fmt.Sprintf("%.0f%%", math.RoundToEven(fraction*100))
}
