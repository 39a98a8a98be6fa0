package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/proc"
)

// answered is what agy says, with left for Gemini.
func answered(left float64) string {
	return fmt.Sprintf(`{"status":"SUCCESS","num_turns":0,"command":{"name":"usage","data":{"groups":[{"name":"Gemini Models","buckets":[{"id":"gemini-5h","window":"5h","remaining_fraction":%g}],"new":{"kept":[1]}}],"more":1}},"plan_tier":"ULTRA"}`, left)
}

// world is a keeper with a clock and an agy that are the test's.
type world struct {
	t *testing.T
	*Keeper
	mu     sync.Mutex
	clock  time.Time
	calls  []proc.RunSpec
	answer func(proc.RunSpec) (proc.RunResult, error)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	home := scratch(t)
	w := &world{t: t, clock: time.Now().Truncate(time.Second)}
	w.answer = func(proc.RunSpec) (proc.RunResult, error) {
		return proc.RunResult{Stdout: []byte(answered(0.5))}, nil
	}
	w.Keeper = NewKeeper(Config{
		Source: SourceOf(func(string) string { return "" }, home), Home: home,
		Agy: func() (string, error) { return "/bin/agy", nil }, Env: []string{"A=b"}, Now: w.time,
	})
	w.run = func(_ context.Context, s proc.RunSpec) (proc.RunResult, error) {
		w.mu.Lock()
		w.calls = append(w.calls, s)
		w.mu.Unlock()
		return w.answer(s)
	}
	return w
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

// put writes a file that is so old.
func (w *world) put(path, text string, old time.Duration) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
	w.age(path, old)
}

func (w *world) age(path string, old time.Duration) {
	w.t.Helper()
	at := w.time().Add(-old)
	if err := os.Chtimes(path, at, at); err != nil {
		w.t.Fatal(err)
	}
}

const stored = `{"usage":{"groups":[{"name":"Gemini Models","buckets":[{"remaining_fraction":0.25}]}]},"theirs":{"a":1}}`

func TestRefreshDue(t *testing.T) {
	const absent = -time.Duration(1 << 62)
	for _, c := range []struct {
		name              string
		snapshot, attempt time.Duration
		force, asked      bool
	}{
		{"nothing there", absent, absent, false, true},
		{"both old", 301 * time.Second, 301 * time.Second, false, true},
		{"recent snapshot", 299 * time.Second, absent, false, false},
		{"recent attempt, which failed", absent, 299 * time.Second, false, false},
		{"old snapshot, recent attempt", time.Hour, time.Second, false, false},
		{"recent snapshot, forced", time.Second, time.Second, true, true},
		{"snapshot from the future", -time.Hour, absent, false, true},
		{"attempt from the future", absent, -time.Hour, false, true},
		{"a clock that differs a little", -30 * time.Second, absent, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.snapshot != absent {
				w.put(w.Source.Path, stored, c.snapshot)
			}
			if c.attempt != absent {
				w.put(w.attempt(), "{}", c.attempt)
			}
			if due := w.Due(); due != (c.asked && !c.force) {
				t.Errorf("due: %t", due)
			}
			asked, err := w.Refresh(t.Context(), c.force)
			if err != nil || asked != c.asked || len(w.calls) > 0 != c.asked {
				t.Fatalf("asked %t, %v, %d calls", asked, err, len(w.calls))
			}
			if !c.asked {
				return
			}
			got, err := Read(w.Source.Path)
			if st, _ := got.State(Gemini, w.time()); err != nil || st.Left != 0.5 || got.Tier != "ULTRA" || !got.Cached.Equal(w.time()) {
				t.Errorf("%+v, %v", got, err)
			}
			if fi, err := os.Stat(w.Source.Path); err != nil || fi.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
				t.Errorf("mode %v, %v", fi.Mode(), err)
			}
			if _, err := os.Stat(w.foreign()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the original's lock is left: %v", err)
			}
			var stamp struct{ TS float64 }
			if data, err := os.ReadFile(w.attempt()); err != nil || json.Unmarshal(data, &stamp) != nil || stamp.TS != float64(w.time().Unix()) {
				t.Errorf("attempt %s, %v", data, err)
			}
		})
	}
}

// The query is the original's, word for word.
func TestQuery(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Refresh(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	s := w.calls[0]
	if !slices.Equal(s.Args, []string{"/bin/agy", "-p", "/usage", "--output-format", "json", "--print-timeout", "30s"}) ||
		s.Dir != w.Home || s.Limit != 35*time.Second || s.MaxOutput != maxFile || s.Stdin != nil || !slices.Equal(s.Env, []string{"A=b"}) {
		t.Errorf("%+v", s)
	}
}

func TestKeepsUnknown(t *testing.T) {
	w := newWorld(t)
	w.put(w.Source.Path, `{"cached_at":1,"usage":{"old":1},"plan_tier":"PRO","theirs":{"a":[1,2]}}`, time.Hour)
	w.answer = func(proc.RunSpec) (proc.RunResult, error) {
		return proc.RunResult{Stdout: []byte(strings.Replace(answered(0.5), `,"plan_tier":"ULTRA"`, "", 1))}, nil
	}
	if _, err := w.Refresh(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	data, err := os.ReadFile(w.Source.Path)
	if err != nil || json.Unmarshal(data, &got) != nil {
		t.Fatal(err, string(data))
	}
	usage, _ := got["usage"].(map[string]any)
	if got["theirs"] == nil || got["plan_tier"] != nil || usage["more"] != 1.0 || usage["old"] != nil || !strings.Contains(string(data), `"new":{"kept":[1]}`) {
		t.Errorf("%s", data)
	}
}

func TestRejected(t *testing.T) {
	for name, r := range map[string]proc.RunResult{
		"exit 1":         {Stdout: []byte(answered(1)), Exit: proc.Exit{Code: 1}},
		"a signal":       {Stdout: []byte(answered(1)), Exit: proc.Exit{Code: 137, Signal: 9}},
		"time":           {Stdout: []byte(answered(1)), TimedOut: true},
		"too much":       {Stdout: []byte(answered(1)), Truncated: true},
		"nothing":        {},
		"torn":           {Stdout: []byte(answered(1)[:100])},
		"text before":    {Stdout: []byte("hello\n" + answered(1))},
		"ERROR":          {Stdout: []byte(strings.Replace(answered(1), "SUCCESS", "ERROR", 1))},
		"no status":      {Stdout: []byte(strings.Replace(answered(1), `"status"`, `"Status"`, 1))},
		"another answer": {Stdout: []byte(strings.Replace(answered(1), `"usage"`, `"help"`, 1))},
		"no Gemini":      {Stdout: []byte(strings.Replace(answered(1), "Gemini Models", "Others", 1))},
		"groups no list": {Stdout: []byte(`{"status":"SUCCESS","command":{"name":"usage","data":{"groups":{"name":"Gemini Models"}}}}`)},
		"no data":        {Stdout: []byte(`{"status":"SUCCESS","command":{"name":"usage"}}`)},
		"an array":       {Stdout: []byte("[]")},
		"null":           {Stdout: []byte("null")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put(w.Source.Path, stored, time.Hour)
			w.answer = func(proc.RunSpec) (proc.RunResult, error) { return r, nil }
			asked, err := w.Refresh(t.Context(), false)
			if !asked || !errors.Is(err, ErrRejected) {
				t.Errorf("asked %t, %v", asked, err)
			}
			if data, err := os.ReadFile(w.Source.Path); err != nil || string(data) != stored {
				t.Errorf("the snapshot became %s, %v", data, err)
			}
			// A failure throttles like a success.
			if asked, err := w.Refresh(t.Context(), false); asked || err != nil {
				t.Errorf("again: asked %t, %v", asked, err)
			}
			if _, err := os.Stat(w.foreign()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the original's lock is left: %v", err)
			}
		})
	}
	w := newWorld(t)
	w.answer = func(proc.RunSpec) (proc.RunResult, error) { return proc.RunResult{}, proc.ErrBusy }
	if _, err := w.Refresh(t.Context(), false); !errors.Is(err, proc.ErrBusy) {
		t.Errorf("not started: %v", err)
	}
	missing := errors.New("no agy")
	w = newWorld(t)
	w.Agy = func() (string, error) { return "", missing }
	if asked, err := w.Refresh(t.Context(), true); asked || !errors.Is(err, missing) {
		t.Errorf("no agy: asked %t, %v", asked, err)
	}
	if _, err := os.Stat(w.attempt()); !errors.Is(err, os.ErrNotExist) {
		t.Error("an attempt without agy was recorded")
	}
}

// What a dispatch goes by.
func TestSnapshot(t *testing.T) {
	left := func(w *world) (float64, error) {
		s, err := w.Snapshot(t.Context())
		st, ok := s.State(Gemini, w.time())
		if !ok {
			return -1, err
		}
		return st.Left, err
	}
	for _, c := range []struct {
		name  string
		old   time.Duration
		text  string
		fails bool
		want  float64
		err   error
		asked int
	}{
		{"recent", 900 * time.Second, stored, false, 0.25, nil, 0},
		{"stale", 901 * time.Second, stored, false, 0.5, nil, 1},
		{"stale, and agy fails", 901 * time.Second, stored, true, -1, ErrStale, 1},
		{"from the future", -2 * time.Minute, stored, false, 0.5, nil, 1},
		{"from the future, and agy fails", -2 * time.Minute, stored, true, -1, ErrStale, 1},
		{"recent and torn", 0, stored[:40], false, -1, ErrMalformed, 0},
		{"recent and no object", 0, "[]", false, -1, ErrMalformed, 0},
		{"recent and huge", 0, stored + strings.Repeat(" ", maxFile), false, -1, atomicfile.ErrTooLarge, 0},
		{"cached in the future", 0, strings.Replace(stored, "{", `{"cached_at":9999999999,`, 1), false, 0.5, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.put(w.Source.Path, c.text, c.old)
			if c.name == "cached in the future" {
				w.age(w.Source.Path, 901*time.Second)
			}
			if c.fails {
				w.answer = func(proc.RunSpec) (proc.RunResult, error) { return proc.RunResult{}, nil }
			}
			got, err := left(w)
			if got != c.want || !errors.Is(err, c.err) || len(w.calls) != c.asked {
				t.Errorf("%g left, %v, asked %d times", got, err, len(w.calls))
			}
		})
	}
	t.Run("none, and an attempt just failed", func(t *testing.T) {
		w := newWorld(t)
		w.put(w.attempt(), "", 10*time.Second)
		if got, err := left(w); got != -1 || !errors.Is(err, ErrStale) || len(w.calls) > 0 {
			t.Errorf("%g left, %v, asked %d times", got, err, len(w.calls))
		}
	})
	t.Run("named by the caller", func(t *testing.T) {
		w := newWorld(t)
		w.Source.Managed = false
		w.put(w.Source.Path, stored, 1000*time.Hour)
		if got, err := left(w); got != 0.25 || err != nil || len(w.calls) > 0 {
			t.Errorf("%g left, %v, asked %d times", got, err, len(w.calls))
		}
		if asked, err := w.Renew(t.Context(), w.time()); asked || err != nil {
			t.Errorf("renewed: %t, %v", asked, err)
		}
	})
}

// Twenty dispatches at once on a stale snapshot, and twenty that hit the meter at once:
// one query each time, and all of them go by its answer.
func TestTogether(t *testing.T) {
	w := newWorld(t)
	w.put(w.Source.Path, stored, time.Hour)
	w.answer = func(proc.RunSpec) (proc.RunResult, error) {
		<-time.After(100 * time.Millisecond)
		return proc.RunResult{Stdout: []byte(answered(0.5))}, nil
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			s, err := w.Snapshot(t.Context())
			if st, ok := s.State(Gemini, w.time()); !ok || st.Left != 0.5 {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	all.Wait()
	if len(w.calls) != 1 {
		t.Errorf("asked %d times", len(w.calls))
	}
	w.calls = nil
	failed := time.Now()
	w.age(w.attempt(), time.Hour)
	for range 20 {
		all.Go(func() {
			if _, err := w.Renew(t.Context(), failed); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(w.calls) != 1 {
		t.Errorf("renewed %d times", len(w.calls))
	}
}

// The command line never waits.
func TestDeclines(t *testing.T) {
	w := newWorld(t)
	w.put(w.Source.Path, stored, time.Hour)
	lock, err := atomicfile.TryLock(w.Source.Path + lockSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if asked, err := w.Refresh(t.Context(), true); asked || err != nil {
		t.Errorf("asked %t, %v", asked, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	w.put(w.foreign(), "", 10*time.Second)
	if asked, err := w.Refresh(t.Context(), true); asked || err != nil {
		t.Errorf("beside the original: asked %t, %v", asked, err)
	}
	for _, left := range []struct {
		why, text string
		old       time.Duration
	}{{"old", "", 61 * time.Second}, {"from the future", "", -time.Hour}, {"ours", ourMark, 0}} {
		w.put(w.foreign(), left.text, left.old)
		if asked, err := w.Refresh(t.Context(), true); !asked || err != nil {
			t.Errorf("a lock that was left behind (%s): asked %t, %v", left.why, asked, err)
		}
	}
}

// A dispatch waits for the original and goes by what it wrote.
func TestWaitsForTheOriginal(t *testing.T) {
	w := newWorld(t)
	w.put(w.Source.Path, stored, time.Hour)
	w.put(w.foreign(), "", 0)
	w.put(w.attempt(), "", 0)
	done := make(chan error, 1)
	go func() {
		s, err := w.Snapshot(t.Context())
		if st, ok := s.State(Gemini, w.time()); !ok || st.Left != 0.75 {
			err = fmt.Errorf("%+v, %v", s, err)
		}
		done <- err
	}()
	<-time.After(50 * time.Millisecond)
	w.put(w.Source.Path, strings.Replace(stored, "0.25", "0.75", 1), 0)
	if err := os.Remove(w.foreign()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(w.calls) > 0 {
		t.Errorf("asked %d times", len(w.calls))
	}
	// One that died a while ago is not waited for, although the original still would.
	w.put(w.Source.Path, stored, time.Hour)
	w.age(w.attempt(), time.Hour)
	w.put(w.foreign(), "", 40*time.Second)
	if s, err := w.Snapshot(t.Context()); s != nil || !errors.Is(err, ErrStale) || len(w.calls) > 0 {
		t.Errorf("%+v, %v, asked %d times", s, err, len(w.calls))
	}
}

func TestScript(t *testing.T) {
	w := newWorld(t)
	w.Script, w.Python = filepath.Join(w.Home, ".claude", "agent-quota.py"), "/bin/python3"
	works := func(s proc.RunSpec) (proc.RunResult, error) {
		if s.Path == w.Python {
			w.put(w.Source.Path, strings.Replace(stored, "0.25", "0.75", 1), 0)
		}
		return proc.RunResult{Stdout: []byte(answered(0.5))}, nil
	}
	idles := func(s proc.RunSpec) (proc.RunResult, error) {
		if s.Path == w.Python {
			return proc.RunResult{Exit: proc.Exit{Code: 1}}, nil
		}
		return proc.RunResult{Stdout: []byte(answered(0.5))}, nil
	}
	for _, c := range []struct {
		name, script string
		answer       func(proc.RunSpec) (proc.RunResult, error)
		left         float64
		calls        []string
	}{
		{"it works", "print()", works, 0.75, []string{w.Python}},
		{"it cannot run", "print()", idles, 0.5, []string{w.Python, "/bin/agy"}},
		{"it is ours", "#!/usr/bin/env python3\n\"\"\"agent-quota.py: " + ShimMark + ".\"\"\"\n", works, 0.5, []string{"/bin/agy"}},
		{"there is none", "", works, 0.5, []string{"/bin/agy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.put(w.Source.Path, stored, time.Hour)
			w.put(w.attempt(), "", time.Hour)
			w.calls, w.answer = nil, c.answer
			w.put(w.Script, c.script, 0)
			if c.script == "" {
				if err := os.Remove(w.Script); err != nil {
					t.Fatal(err)
				}
			}
			s, err := w.Snapshot(t.Context())
			if st, _ := s.State(Gemini, w.time()); err != nil || st.Left != c.left {
				t.Errorf("%+v, %v", s, err)
			}
			var called []string
			for _, s := range w.calls {
				called = append(called, s.Path)
			}
			if !slices.Equal(called, c.calls) {
				t.Errorf("called %v", called)
			}
			if called[0] == w.Python {
				if s := w.calls[0]; !slices.Equal(s.Args, []string{w.Python, w.Script, "--refresh-agy"}) || s.Limit != 90*time.Second || s.Dir != w.Home {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	w.t = t
	w.put(w.Script, "print()", 0)
	w.calls, w.answer = nil, works
	w.put(w.attempt(), "", time.Hour)
	if asked, err := w.Renew(t.Context(), w.time()); !asked || err != nil || !slices.Equal(w.calls[0].Args[2:], []string{"--refresh-agy", "--force"}) {
		t.Errorf("renewed: %t, %v, %+v", asked, err, w.calls)
	}
}

// Our own shim, as it is in the tree, is recognised.
func TestShimMark(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "shims", "agent-quota.py"))
	if err != nil || !strings.Contains(string(text), ShimMark) {
		t.Errorf("%v", err)
	}
}

// Nobody waits longer than is said, whoever holds a lock.
func TestBounded(t *testing.T) {
	w := newWorld(t)
	w.put(w.Source.Path, stored, time.Hour)
	lock, err := atomicfile.TryLock(w.Source.Path + lockSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if s, err := w.Snapshot(ctx); s != nil || !errors.Is(err, ErrStale) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestStandard(t *testing.T) {
	home := scratch(t)
	env := map[string]string{"HOME": home, "USERPROFILE": home, "AGY_QUOTA_TTL_SECONDS": "60", "PATH": ""}
	getenv := func(name string) string { return env[name] }
	c, warnings := Standard(getenv)
	if c.TTL != time.Minute || c.Timeout != DefaultTimeout || c.Home != home || !c.Source.Managed || c.Python != "" || len(warnings) > 0 ||
		c.Script != filepath.Join(home, ".claude", "agent-quota.py") {
		t.Errorf("%+v, %v", c, warnings)
	}
	for _, bad := range []string{"abc", "-5", "0", "1.5", "99999999999999999999"} {
		env["AGY_QUOTA_TIMEOUT_SECONDS"] = bad
		if c, warnings := Standard(getenv); c.Timeout != DefaultTimeout || len(warnings) != 1 ||
			!strings.Contains(warnings[0], "AGY_QUOTA_TIMEOUT_SECONDS") || !strings.Contains(warnings[0], bad) || !strings.Contains(warnings[0], "30") {
			t.Errorf("%s: %v, %v", bad, c.Timeout, warnings)
		}
	}
	if got := NewKeeper(Config{Timeout: 1000 * time.Hour}).Timeout; got != maxTimeout {
		t.Errorf("timeout %v", got)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(answered(0.5)), []byte(stored))
	f.Add([]byte(answered(0.5)), []byte("{"))
	f.Add([]byte(`{"status":"SUCCESS","command":{"name":"quota","data":{"groups":[{"name":"Gemini Models\ud800"}]}}}`), []byte(`{"a":"\xff"}`))
	f.Fuzz(func(t *testing.T, answer, old []byte) {
		data, err := compose(answer, old, now)
		if err != nil {
			return
		}
		s, err := Parse(data)
		if err != nil || s.Cached.IsZero() {
			t.Errorf("%s became %s: %v", answer, data, err)
		}
	})
}

// Without a home directory nothing is made in whatever directory we happen to be in.
func TestNoHome(t *testing.T) {
	dir := scratch(t)
	t.Chdir(dir)
	w := newWorld(t)
	w.Source = SourceOf(func(string) string { return "" }, "")
	if s, err := w.Snapshot(context.Background()); s != nil || !errors.Is(err, ErrStale) || !errors.Is(err, ErrNoHome) {
		t.Errorf("Snapshot: %v, %v", s, err)
	}
	if asked, err := w.Refresh(context.Background(), true); asked || !errors.Is(err, ErrNoHome) {
		t.Errorf("Refresh: %v, %v", asked, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left here: %v, %v", left, err)
	}
	if home := Home(func(string) string { return "" }); home != "" && !filepath.IsAbs(home) {
		t.Errorf("Home without variables: %q", home)
	}
}
