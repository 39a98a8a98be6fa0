package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// snapshot makes a snapshot of bucket texts by group, "" for a group that is not there.
func snapshot(t *testing.T, gemini, second string) *Snapshot {
	t.Helper()
	var groups []string
	for name, buckets := range map[string]string{GeminiGroup: gemini, SecondGroup: second} {
		if buckets != "" {
			groups = append(groups, fmt.Sprintf(`{"name":%q,"buckets":[%s]}`, name, buckets))
		}
	}
	s, err := Parse([]byte(`{"cached_at":1,"usage":{"groups":[` + strings.Join(groups, ",") + `]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bucket(left any, more ...string) string {
	return fmt.Sprintf(`{"remaining_fraction":%v%s}`, left, strings.Join(append([]string{""}, more...), ","))
}

const (
	past   = `"reset_time":"2026-11-29T11:59:59Z"`
	future = `"reset_time":"2026-11-29T14:10:00+00:00"`
	short  = `"window":"5h"`
	long   = `"id":"gemini-weekly"`
)

func TestState(t *testing.T) {
	for _, c := range []struct {
		name    string
		buckets string
		known   bool
		left    float64
		reset   string
		both    bool
	}{
		{"one bucket", bucket(0.4), true, 0.4, "", false},
		{"the lowest decides", bucket(0.9, short) + "," + bucket(0.2, long, future), true, 0.2, "2026-11-29T14:10:00+00:00", true},
		{"window from the id", bucket(1, `"id":"3p-5h"`) + "," + bucket(1, `"id":"3p-weekly"`), true, 1, "", true},
		{"another window", bucket(1, `"window":"daily"`), true, 1, "", false},
		{"window before id", bucket(1, short, `"id":"x-weekly"`), true, 1, "", false},
		{"empty", bucket(0, future), true, 0, "2026-11-29T14:10:00+00:00", false},
		{"empty, reset since", bucket(0, past), false, 0, "", false},
		{"empty, reset since, and another", bucket(0, past) + "," + bucket(0.3), true, 0.3, "", false},
		{"not empty, reset since", bucket(0.1, past), true, 0.1, "2026-11-29T11:59:59Z", false},
		{"empty, a reset without a date", bucket(0, `"reset_time":"1pm (Europe/Lisbon)"`), true, 0, "1pm (Europe/Lisbon)", false},
		{"empty, a reset without a zone", bucket(0, `"reset_time":"2020-01-01T00:00:00"`), true, 0, "2020-01-01T00:00:00", false},
		{"empty, a number as reset", bucket(0, `"reset_time":1`), true, 0, "", false},
		{"NaN", bucket("NaN"), false, 0, "", false},
		{"NaN and another", bucket("NaN") + "," + bucket(0), true, 0, "", false},
		{"infinite", bucket("-Infinity") + "," + bucket("Infinity"), false, 0, "", false},
		{"beyond a float", bucket("1e999"), false, 0, "", false},
		{"negative", bucket(-0.5), false, 0, "", false},
		{"more than all", bucket(7), true, 1, "", false},
		{"a boolean", bucket("false"), false, 0, "", false},
		{"a text", bucket(`"0"`), false, 0, "", false},
		{"null", bucket("null"), false, 0, "", false},
		{"no fraction", `{"window":"5h"}`, false, 0, "", false},
		{"no object", `1,null,"x",[]`, false, 0, "", false},
		{"minus zero", bucket("-0.0"), true, 0, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, known := snapshot(t, c.buckets, "").State(Gemini, now)
			if known != c.known || st.Left != c.left || st.Reset != c.reset || st.Both != c.both {
				t.Errorf("%+v, %t", st, known)
			}
			if _, known := snapshot(t, c.buckets, "").State(Second, now); known {
				t.Error("a group that is not there is known")
			}
		})
	}
	var none *Snapshot
	if _, known := none.State(Gemini, now); known {
		t.Error("no snapshot knows something")
	}
}

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"usage":{}}`:                                   true,
		`{"usage":{"groups":null}}`:                      true,
		`{"usage":{"groups":{"a":1}}}`:                   true,
		`{"usage":{"groups":[1,null,{"name":5}]}}`:       true,
		"\xef\xbb\xbf" + `{"usage":{}}`:                  true,
		`{"usage":{"x":"NaN in a \" text NaN"},"y":NaN}`: true,
		"":               false,
		"null":           false,
		"[]":             false,
		"7":              false,
		`{"usage":[]}`:   false,
		`{"usage":null}`: false,
		`{"Usage":{}}`:   false,
		`{"usage":{"groups":[{"name":"Gemini Models","bu`: false,
		`{"usage":{}} {}`:          false,
		`{"usage":{}}x`:            false,
		strings.Repeat("[", 20000): false,
		`{"usage":` + strings.Repeat(`{"a":`, 20000) + "1": false,
		"\x00\xff": false,
	} {
		s, err := Parse([]byte(text))
		if (err == nil) != ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("Parse(%.60q) = %+v, %v", text, s, err)
		}
	}
	s, err := Parse([]byte(`{"cached_at":1764417600.25,"plan_tier":"ULTRA","usage":{"groups":[{"name":"Gemini Models","buckets":[` + bucket(0.5, short) + `]}]}}`))
	if err != nil || s.Tier != "ULTRA" || s.Cached.UnixMilli() != 1764417600250 || s.Group(GeminiGroup).Window("5h").Left != 0.5 || s.Group("x") != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for _, at := range []string{"-1", "1e300", "NaN", "true", "null", `"x"`, "{}"} {
		s, err := Parse([]byte(`{"usage":{},"cached_at":` + at + `}`))
		if err != nil || !s.Cached.IsZero() {
			t.Errorf("cached_at %s: %+v, %v", at, s, err)
		}
	}
	many := strings.Repeat(`{"name":"Gemini","buckets":[`+strings.Repeat(bucket(0.5)+",", 200)+bucket(0.5)+`]},`, 100)
	if s, err := Parse([]byte(`{"usage":{"groups":[` + many + `{}]}}`)); err != nil || len(s.Groups) != maxEntries || len(s.Groups[0].Buckets) != maxEntries {
		t.Errorf("%d groups, %v", len(s.Groups), err)
	}
}

func TestRead(t *testing.T) {
	dir := scratch(t)
	huge := filepath.Join(dir, "huge")
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(1<<40), f.Close()); err != nil {
		// A file system without holes: then as much as counts.
		if err := os.WriteFile(huge, make([]byte, maxFile+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		filepath.Join(dir, "missing"): os.ErrNotExist, dir: atomicfile.ErrNotRegular, huge: atomicfile.ErrTooLarge,
	} {
		if s, err := Read(path); s != nil || !errors.Is(err, want) {
			t.Errorf("Read(%s) = %v, %v", path, s, err)
		}
	}
}

func TestSource(t *testing.T) {
	env := func(v string) func(string) string { return func(string) string { return v } }
	if s := SourceOf(env(" "), "/home/u"); s.Path != filepath.Join("/home/u", ".claude", "agy-quota-cache.json") || !s.Managed {
		t.Errorf("%+v", s)
	}
	if s := SourceOf(env("x.json"), "/home/u"); !filepath.IsAbs(s.Path) || s.Managed {
		t.Errorf("%+v", s)
	}
}

func TestSwitches(t *testing.T) {
	for value, want := range map[string][2]bool{
		"": {}, "on": {false, true}, " Off ": {true, false}, "0": {true, false}, "FALSE": {true, false}, "disabled": {true, false},
		"no": {true, false}, "1": {false, true}, "true": {false, true}, "yes": {false, true}, "maybe": {},
	} {
		if got := [2]bool{GateOff(value), BalanceOn(value)}; got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"cached_at":1,"usage":{"groups":[{"name":"Gemini Models","buckets":[{"id":"gemini-5h","remaining_fraction":0.4,"reset_time":"2026-10-09T15:00:14Z"}]}]},"plan_tier":"ULTRA"}`))
	f.Add([]byte(`{"usage":{"groups":[{"name":"Claude and GPT models","buckets":[{"remaining_fraction":NaN},{"remaining_fraction":-1}]}]}}`))
	f.Add([]byte(`{"usage":{"x":"\"NaN"},"y":-Infinity}`))
	f.Add([]byte("\xef\xbb\xbf[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if (s == nil) != (err != nil) {
			t.Fatalf("%v, %v", s, err)
		}
		for _, a := range []Ask{{Model: "gemini-3.8-flash-high", Default: "gemini-3.8-flash-high", Balance: true}, {Model: "gpt-x", Named: true, Default: "gemini-3.8-flash-high"}} {
			r := s.Route(a, now)
			if r.Blocked != (r.Reason != "") || r.Blocked && len(r.Resets) == 0 || r.Blocked && r.Model != a.Model {
				t.Errorf("%+v", r)
			}
			for _, text := range append(r.Notes, r.Reason) {
				if strings.ContainsAny(text, "\n\r\x00") {
					t.Errorf("more than a line: %q", text)
				}
			}
		}
		for _, p := range []Pool{Gemini, Second} {
			if st, ok := s.State(p, now); ok && !(st.Left >= 0 && st.Left <= 1) {
				t.Errorf("%+v", st)
			}
		}
	})
}
