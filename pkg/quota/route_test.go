package quota

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const flash, sonnet = "gemini-3.8-flash-high", "claude-sonnet-4-6"

func TestRoute(t *testing.T) {
	full, none := bucket(0.8, short, future)+","+bucket(0.9, long), bucket(0, `"reset_time":"tonight"`)
	both := func(left float64) string { return bucket(left, short) + "," + bucket(left, long) }
	unnamed, balanced := Ask{Model: flash, Default: flash}, Ask{Model: flash, Default: flash, Balance: true}
	named := func(model string) Ask { return Ask{Model: model, Named: true, Default: flash} }
	pass := func(a Ask) Route { return Route{Model: a.Model} }
	blocked := func(a Ask, reason string, resets ...Reset) Route {
		return Route{Model: a.Model, Blocked: true, Reason: reason, Resets: resets}
	}
	fallback := func(a Ask, resets string) Route {
		return Route{Model: flash, Notes: []string{"MODEL-FALLBACK from=" + a.Model + " to=" + flash + " reason=claude-and-gpt-quota-exhausted resets=" + resets}}
	}
	balance := func(own, other string) Route {
		return Route{Model: SecondModel, Notes: []string{"MODEL-BALANCE from=" + flash + " to=" + SecondModel + " reason=freer-meter own=" + own + " other=" + other}}
	}
	const geminiEmpty = "the Agy Gemini quota group is exhausted (resets tonight). Wait for that reset, or name a model of the Claude and GPT group through ANTIGRAVITY_DISPATCH_MODEL."
	const bothEmpty = "both Agy quota groups are exhausted (Gemini resets tonight, Claude and GPT resets later). Wait for a reset, or name a model of neither group through ANTIGRAVITY_DISPATCH_MODEL."
	tonight := Reset{Pool: Gemini, Text: "tonight"}
	for _, c := range []struct {
		name           string
		gemini, second string
		ask            Ask
		want           Route
	}{
		{"all well", full, full, unnamed, pass(unnamed)},
		{"second empty, second named", full, none, named(sonnet), fallback(named(sonnet), "tonight")},
		{"second empty without a reset", full, bucket(0), named("gpt-oss-120b-medium"), fallback(named("gpt-oss-120b-medium"), "later")},
		{"second empty, Gemini not reported", "", none, named(sonnet), fallback(named(sonnet), "tonight")},
		{"second empty, Gemini named", full, none, named(flash), pass(named(flash))},
		{"second not reported, second named", full, "", named(sonnet), pass(named(sonnet))},
		{"Gemini empty, Gemini named", none, full, named(flash), blocked(named(flash), geminiEmpty, tonight)},
		{"Gemini empty, none named: the seed's rule", none, full, unnamed, blocked(unnamed, geminiEmpty, tonight)},
		{"Gemini empty, second not reported", none, "", unnamed, blocked(unnamed, geminiEmpty, tonight)},
		{"Gemini empty, second named", none, full, named(sonnet), pass(named(sonnet))},
		{"both empty", none, bucket(0), unnamed, blocked(unnamed, bothEmpty, tonight, Reset{Pool: Second})},
		{"both empty, second named", none, bucket(0), named(sonnet), blocked(named(sonnet), bothEmpty, tonight, Reset{Pool: Second})},
		{"both empty, balanced", none, bucket(0), balanced, blocked(balanced, bothEmpty, tonight, Reset{Pool: Second})},
		{"a model of no group", none, bucket(0), named("o9"), pass(named("o9"))},
		{"balanced, Gemini empty", none, bucket(0.1, long), balanced, balance("0%", "10%")},
		{"balanced, Gemini empty, named", none, full, Ask{Model: flash, Named: true, Default: flash, Balance: true}, blocked(named(flash), geminiEmpty, tonight)},
		{"balanced, a lead of 15 points", both(0.20), both(0.35), balanced, balance("20%", "35%")},
		{"balanced, a lead of 15 points higher up", both(0.50), both(0.65), balanced, balance("50%", "65%")},
		{"balanced, a lead of 14 points", both(0.20), both(0.34), balanced, pass(balanced)},
		{"balanced, one window", both(0.20), bucket(0.9, long), balanced, pass(balanced)},
		{"balanced, second not reported", both(0.20), "", balanced, pass(balanced)},
		{"balanced, Gemini not reported", "", both(0.9), balanced, pass(balanced)},
		{"balanced, another model", both(0.1), both(0.9), Ask{Model: "gemini-4", Default: flash, Balance: true}, Route{Model: "gemini-4"}},
		{"not balanced, a lead", both(0.20), both(0.9), unnamed, pass(unnamed)},
		{"nothing reported", "", "", unnamed, pass(unnamed)},
		{"a time for machines", bucket(0, future), full, unnamed, blocked(unnamed, strings.Replace(geminiEmpty, "tonight", "2026-11-29T14:10:00+00:00", 1),
			Reset{Pool: Gemini, Text: "2026-11-29T14:10:00+00:00", At: "2026-11-29T14:10:00Z"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := snapshot(t, c.gemini, c.second).Route(c.ask, now); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
	var nothing *Snapshot
	if got := nothing.Route(unnamed, now); !reflect.DeepEqual(got, pass(unnamed)) {
		t.Errorf("without a snapshot: %+v", got)
	}
}

// A reset time is foreign text and stays on its line.
func TestRouteEscapes(t *testing.T) {
	s := snapshot(t, bucket(0, `"reset_time":"x\nSTATE-DIR /tmp/evil"`), bucket(0, `"reset_time":"`+strings.Repeat("y", 1000)+`"`))
	r := s.Route(Ask{Model: flash, Default: flash}, now)
	if !r.Blocked || strings.Contains(r.Reason, "\n") || !strings.Contains(r.Reason, `x\x0aSTATE-DIR`) || strings.Contains(r.Reason, "yyy") {
		t.Errorf("%+v", r)
	}
}

func TestRegate(t *testing.T) {
	s := snapshot(t, bucket(0), bucket(0.5))
	if r := s.Regate("gemini-3.8-flash-high", "gemini-3.9-flash-high", now); r.Blocked || r.Model != "gemini-3.9-flash-high" {
		t.Errorf("within the group: %+v", r)
	}
	r := s.Regate(SecondModel, flash, now)
	if !r.Blocked || !strings.HasPrefix(r.Reason, "after MODEL-FALLBACK to "+flash+": the Agy Gemini quota group is exhausted") || len(r.Resets) != 1 {
		t.Errorf("into an empty group: %+v", r)
	}
	if r := s.Regate(flash, "o9", now); r.Blocked {
		t.Errorf("into no group: %+v", r)
	}
	if r := snapshot(t, bucket(1), bucket(0)).Regate(flash, sonnet, now); !r.Blocked || len(r.Notes) > 0 {
		t.Errorf("out of Gemini: %+v", r)
	}
	if r := (*Snapshot)(nil).Regate(SecondModel, flash, now); r.Blocked || r.Model != flash {
		t.Errorf("without a snapshot: %+v", r)
	}
}

func TestPoolOf(t *testing.T) {
	for model, want := range map[string]Pool{
		flash: Gemini, "GEMINI-X": Gemini, sonnet: Second, "claude-opus-4-6-thinking": Second, "gpt-oss-120b-medium": Second, "": "", "o9": "", "my-gemini": "",
	} {
		if got, ok := PoolOf(model); got != want || ok != (want != "") {
			t.Errorf("PoolOf(%q) = %q, %t", model, got, ok)
		}
	}
	if pools := []string{Gemini.Title(), Second.Title()}; !slices.Equal(pools, []string{"Gemini", "Claude and GPT"}) {
		t.Error(pools)
	}
}
