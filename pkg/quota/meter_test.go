package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestClaude(t *testing.T) {
	text := fmt.Sprintf(`{"ts":%d,"model":"Opus 4.6 (1M context)","rate_limits":{"five_hour":{"used_percentage":18,"resets_at":%d},"seven_day":{"used_percentage":"60.4"}}}`,
		now.Add(-3*time.Minute).Unix(), now.Add(time.Hour).Unix())
	r, err := parseClaude([]byte(text), now)
	if err != nil || r.Model != "Opus 4.6" || !r.Taken.Equal(now.Add(-3*time.Minute)) || len(r.Windows) != 2 || r.Windows[0].Left != 82 ||
		!r.Windows[0].ResetAt.Equal(now.Add(time.Hour)) || r.Windows[1].Left != 39.6 || !r.Windows[1].ResetAt.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{
		"{}", `{"rate_limits":[],"model":7,"ts":"x"}`, `{"rate_limits":{"five_hour":null,"seven_day":{"used_percentage":NaN,"resets_at":1e300}}}`,
		`{"rate_limits":{"five_hour":{"used_percentage":true}}}`, `{"ts":99999999999,"rate_limits":{}}`,
	} {
		r, err := parseClaude([]byte(text), now)
		if err != nil || len(r.Windows) != 2 || r.Windows[0].Known || r.Windows[1].Known || !r.Taken.IsZero() || r.Model != "" {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "[]", "{", "null"} {
		if _, err := parseClaude([]byte(text), now); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if r, _ := parseClaude([]byte(`{"rate_limits":{"five_hour":{"used_percentage":150},"seven_day":{"used_percentage":-3}}}`), now); r.Windows[0].Left != 0 || r.Windows[1].Left != 100 {
		t.Errorf("%+v", r)
	}
	if _, err := ReadClaude(scratch(t), now); err == nil {
		t.Error("a directory was read")
	}
	env := func(v string) func(string) string { return func(string) string { return v } }
	if got := ClaudeCache(env(" "), "/h"); got != filepath.Join("/h", ".claude", "rate-limits-cache.json") {
		t.Error(got)
	}
	if got := ClaudeCache(env("/x"), "/h"); got != "/x" {
		t.Error(got)
	}
}

func TestLowest(t *testing.T) {
	soon, gone := now.Add(time.Hour), now.Add(-time.Second)
	for _, c := range []struct {
		windows []Window
		side    bool
		want    Verdict
		left    float64
	}{
		{nil, false, Unknown, 0},
		{[]Window{{Left: 5, Known: true, ResetAt: soon}, {Left: 80, Known: true}}, false, Has, 5},
		{[]Window{{Left: 5, Known: true, ResetAt: soon}, {Left: 0, Known: true}}, false, Exhausted, 0},
		{[]Window{{Left: 0, Known: true, ResetAt: gone}, {Left: 80, Known: true}}, false, Has, 80},
		{[]Window{{Left: 50, Known: true, ResetAt: gone}, {}}, false, Unknown, 0},
		{[]Window{{Left: 50, Known: true}}, true, Unknown, 0},
	} {
		if w, v := (Reading{Windows: c.windows, Side: c.side}).Lowest(now); v != c.want || w.Left != c.left {
			t.Errorf("%+v: %+v, %v", c.windows, w, v)
		}
	}
	if got := fmt.Sprint(Unknown, Has, Exhausted); got != "unknown has quota empty" {
		t.Error(got)
	}
}

// record is a line of a rollout.
func record(stamp, id string, used int) string {
	limits := fmt.Sprintf(`"primary":{"used_percent":%d,"window_minutes":10080,"resets_at":%d}`, used, now.Add(time.Hour).Unix())
	if id != "" {
		limits = fmt.Sprintf(`"limit_id":%q,"limit_name":%q,`, id, "GPT-5.3-Codex-Spark") + limits
	}
	return fmt.Sprintf(`{"timestamp":%q,"type":"event_msg","payload":{"type":"token_count","rate_limits":{%s}}}`+"\n", stamp, limits)
}

func stamp(ago time.Duration) string { return now.Add(-ago).Format("2006-01-02T15:04:05.000Z") }

// codex is a codex directory with rollouts.
type codex struct {
	t   *testing.T
	dir string
}

func (c codex) put(day, name, text string, old time.Duration) string {
	c.t.Helper()
	path := filepath.Join(c.dir, "sessions", filepath.FromSlash(day), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, now, now.Add(-old))); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func TestCodex(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(codex)
		left float64
		err  error
		side string
		ago  time.Duration // -1: no age
	}{
		{"nothing", func(codex) {}, 0, ErrNoRollouts, "", 0},
		{"no meter", func(c codex) { c.put("2026/11/29", "rollout-1.jsonl", "{}\n{\"rate_limits\":1}\n", 0) }, 0, ErrNoMeter, "", 0},
		{"another file", func(c codex) { c.put("2026/11/29", "x.jsonl", record(stamp(0), "", 1), 0) }, 0, ErrNoRollouts, "", 0},
		{"the last record", func(c codex) {
			c.put("2026/11/29", "rollout-1.jsonl", record(stamp(2*time.Minute), "", 10)+record(stamp(time.Minute), "codex", 20)+`{"torn`, 0)
		}, 80, nil, "", time.Minute},
		{"the plan before a side meter", func(c codex) {
			c.put("2026/11/28", "rollout-1.jsonl", record(stamp(time.Hour), "codex", 50), time.Hour)
			c.put("2026/11/29", "rollout-2.jsonl", record(stamp(0), "codex_bengalfox", 0), 0)
		}, 50, nil, "", time.Hour},
		{"a side meter for want of the plan", func(c codex) {
			c.put("2026/11/29", "rollout-2.jsonl", record(stamp(0), "codex_bengalfox", 3), 0)
		}, 97, nil, "Spark", 0},
		{"the newer record, not the newer file", func(c codex) {
			c.put("2026/11/28", "rollout-1.jsonl", record(stamp(time.Minute), "", 30), time.Hour)
			c.put("2026/11/29", "rollout-2.jsonl", record(stamp(2*time.Minute), "", 10), 0)
		}, 70, nil, "", time.Minute},
		{"a record from the future does not win", func(c codex) {
			c.put("2026/11/29", "rollout-1.jsonl", record(stamp(-time.Hour), "", 1), 0)
			c.put("2026/11/29", "rollout-2.jsonl", record(stamp(time.Hour), "", 40), 0)
		}, 60, nil, "", time.Hour},
		{"only a record from the future", func(c codex) { c.put("2026/11/29", "rollout-1.jsonl", record(stamp(-time.Hour), "", 1), 0) }, 99, nil, "", -1},
		{"no time in the record", func(c codex) {
			c.put("2026/11/29", "rollout-1.jsonl", strings.Replace(record("", "", 5), `"timestamp":"",`, "", 1), 5*time.Minute)
		}, 95, nil, "", 5 * time.Minute},
		{"a last turn of half a megabyte", func(c codex) {
			c.put("2026/11/29", "rollout-1.jsonl", record(stamp(time.Minute), "", 25)+`{"x":"`+strings.Repeat("y", 500<<10)+"\"}\n", 0)
		}, 75, nil, "", time.Minute},
		{"a folder that leads in circles", func(c codex) {
			c.put("2026/11/29", "rollout-1.jsonl", record(stamp(0), "", 25), 0)
			if err := os.Symlink("..", filepath.Join(c.dir, "sessions", "2026", "loop")); err != nil {
				t.Log(err)
			}
		}, 75, nil, "", 0},
		{"among more than are read", func(c codex) {
			for i := range 30 {
				c.put("2026/10/01", fmt.Sprintf("rollout-%d.jsonl", i), record(stamp(100*time.Hour), "", 99), 100*time.Hour)
			}
			// A session that was begun in October and is the latest.
			c.put("2026/10/02", "rollout-x.jsonl", record(stamp(time.Second), "", 1), time.Second)
		}, 99, nil, "", time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := codex{t, scratch(t)}
			c.put(dir)
			r, err := ReadCodex(dir.dir, now)
			if !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if len(r.Windows) != 1 || r.Windows[0].Left != c.left || r.Windows[0].Label != "7d" || r.Side != (c.side != "") {
				t.Errorf("%+v", r)
			}
			if c.side != "" && r.Model != c.side || c.side == "" && r.Model != "codex" {
				t.Errorf("model %q", r.Model)
			}
			if c.ago < 0 != r.Taken.IsZero() || c.ago >= 0 && now.Sub(r.Taken) != c.ago {
				t.Errorf("taken %v", r.Taken)
			}
		})
	}
}

// A rollout of a terabyte is read from its end, and not much of it.
func TestCodexHuge(t *testing.T) {
	c := codex{t, scratch(t)}
	path := c.put("2026/11/29", "rollout-1.jsonl", "", 0)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 1 << 40
	if err := f.Truncate(size); err != nil {
		t.Skip("the file system has no holes of this size:", err)
	}
	if _, err := f.WriteAt([]byte("\n"+record(stamp(0), "", 42)), size); err != nil {
		t.Skip("the file system has no holes of this size:", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := ReadCodex(c.dir, now)
	runtime.ReadMemStats(&after)
	if err != nil || r.Windows[0].Left != 58 {
		t.Errorf("%+v, %v", r, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

func TestCodexRecord(t *testing.T) {
	both := `{"timestamp":"` + stamp(0) + `","payload":{"rate_limits":{"primary":{"used_percent":1,"window_minutes":300},"secondary":{"used_percent":2,"window_minutes":45},"credits":%s}}}`
	for credits, want := range map[string][2]any{
		`null`: {"", false}, `{"has_credits":true}`: {"", true}, `{"balance":"12.50"}`: {"12.50", true}, `{"balance":7}`: {"7", true},
		`{"balance":"0"}`: {"", false}, `{"balance":0}`: {"", false}, `{"has_credits":true,"balance":"0"}`: {"0", true}, `[]`: {"", false},
	} {
		m := parseRollout(fmt.Appendf(nil, both, credits), now, now)
		if len(m) != 1 {
			t.Fatalf("%s: %d meters", credits, len(m))
		}
		r := m[0].reading()
		if r.Credits != want[0] || r.HasCredits != want[1] || len(r.Windows) != 2 || r.Windows[0].Label != "5h" || r.Windows[1].Label != "45m" {
			t.Errorf("%s: %+v", credits, r)
		}
	}
	for minutes, want := range map[float64]string{300: "5h", 10080: "7d", 1440: "1d", 90: "90m", 0: "", -60: "", 1.5: "", 1e300: ""} {
		if got := span(minutes); got != want {
			t.Errorf("span(%g) = %q", minutes, got)
		}
	}
}

func TestCodexModel(t *testing.T) {
	path := filepath.Join(scratch(t), "config.toml")
	if got := codexModel(path); got != "codex" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"model = \"gpt-6\"\n": "gpt-6", "# x\r\nmodel='m' # y\r\n": "m", "[profile]\nmodel = \"p\"\n": "codex", "model_provider = \"x\"\nmodel = \"y\"": "y",
		"model = 5": "codex", "model = \"": "codex", "model = \"\"": "codex", "": "codex", "\"model\" = \"q\"": "q", "\x00\xff": "codex",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := codexModel(path); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	env := func(v string) func(string) string { return func(string) string { return v } }
	if a, b := CodexHome(env(""), "/h"), CodexHome(env("/c"), "/h"); a != filepath.Join("/h", ".codex") || b != "/c" {
		t.Error(a, b)
	}
}

func FuzzClaude(f *testing.F) {
	f.Add([]byte(`{"ts":1764417600,"model":"Opus (1M context)","rate_limits":{"five_hour":{"used_percentage":18,"resets_at":1764417600},"seven_day":{"used_percentage":NaN}}}`))
	f.Add([]byte(`{"rate_limits":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseClaude(data, now)
		checkReading(t, r)
		if err == nil && len(r.Windows) != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzRollout(f *testing.F) {
	f.Add([]byte(record(stamp(0), "codex", 5) + record(stamp(-time.Hour), "x-y", 5)))
	f.Add([]byte(`{"payload":{"rate_limits":{"limit_id":null,"primary":{"window_minutes":1e9},"credits":{"balance":1e999}}}}`))
	f.Add([]byte("\"rate_limits\n\n{\"rate_limits\""))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range parseRollout(data, now, now) {
			checkReading(t, m.reading())
		}
	})
}

func checkReading(t *testing.T, r Reading) {
	t.Helper()
	for _, w := range r.Windows {
		if w.Known && !(w.Left >= 0 && w.Left <= 100) {
			t.Errorf("%+v", w)
		}
	}
	if r.Taken.After(now.Add(skew)) || len(r.Model) > maxText {
		t.Errorf("%+v", r)
	}
	r.Lowest(now)
}
