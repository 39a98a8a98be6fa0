package preflight

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

var fine = []Answer{{Stdout: []byte("1.2.17\n")}, {Stdout: []byte("m\n"), Stderr: []byte("\xff")}}

func TestDo(t *testing.T) {
	c := Open(scratch(t))
	now := time.Now()
	c.now = func() time.Time { return now }
	runs := 0
	ask := func(key string) bool {
		t.Helper()
		got, reused, err := c.Do(t.Context(), key, func() ([]Answer, error) { runs++; return fine, nil })
		if err != nil || len(got) != 2 || string(got[1].Stderr) != "\xff" {
			t.Fatalf("Do: %q, %v", got, err)
		}
		return reused
	}
	for _, step := range []struct {
		after  time.Duration
		key    string
		reused bool
	}{
		{0, "a", false}, {0, "a", true}, {0, "b", false}, {Lifetime - 1, "a", true}, {1, "a", false},
		{Lifetime - 1, "a", true}, {-2 * Lifetime, "a", false}, {0, "", false}, {0, "", false},
	} {
		now = now.Add(step.after)
		if got := ask(step.key); got != step.reused {
			t.Errorf("%+v: reused %t", step, got)
		}
	}
	if runs != 6 {
		t.Errorf("%d runs", runs)
	}
	if _, reused, err := (*Cache)(nil).Do(t.Context(), "a", func() ([]Answer, error) { return fine, nil }); reused || err != nil {
		t.Errorf("no cache: %t, %v", reused, err)
	}
}

func TestFailures(t *testing.T) {
	c := Open(scratch(t))
	broken := errors.New("exit 1")
	for range 2 {
		if _, reused, err := c.Do(t.Context(), "a", func() ([]Answer, error) { return nil, broken }); reused || err != broken {
			t.Errorf("Do: %t, %v", reused, err)
		}
	}
	// A directory that cannot be used costs the reuse and nothing else.
	gone := Open(filepath.Join(scratch(t), "gone"))
	for range 2 {
		if _, reused, err := gone.Do(t.Context(), "a", func() ([]Answer, error) { return fine, nil }); reused || err != nil {
			t.Errorf("Do: %t, %v", reused, err)
		}
	}
}

// Twenty at once: one asks. When that one fails, the others ask at the same time, not one
// after the other.
func TestTogether(t *testing.T) {
	for _, fails := range []bool{false, true} {
		c := Open(scratch(t))
		var runs, inside, most atomic.Int32
		began := make(chan struct{})
		var all sync.WaitGroup
		one := func(first bool) {
			defer all.Done()
			_, _, err := c.Do(t.Context(), "a", func() ([]Answer, error) {
				runs.Add(1)
				if first {
					close(began)
				}
				most.Store(max(most.Load(), inside.Add(1)))
				<-time.After(100 * time.Millisecond)
				inside.Add(-1)
				if fails {
					return nil, errors.New("no")
				}
				return fine, nil
			})
			if (err != nil) != fails {
				t.Errorf("Do: %v", err)
			}
		}
		all.Add(20)
		go one(true)
		<-began
		for range 19 {
			go one(false)
		}
		all.Wait()
		if !fails && runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		if fails && (runs.Load() != 20 || most.Load() < 3) {
			t.Errorf("after a failure %d runs, %d at once", runs.Load(), most.Load())
		}
	}
}

func TestStopped(t *testing.T) {
	c := Open(scratch(t))
	lock, err := atomicfile.TryLock(filepath.Join(c.dir, "a.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ran := false
	if _, _, err := c.Do(ctx, "a", func() ([]Answer, error) { ran = true; return nil, ctx.Err() }); !ran || err == nil {
		t.Errorf("ran %t, %v", ran, err)
	}
}

func TestKey(t *testing.T) {
	dir := scratch(t)
	program := filepath.Join(dir, "agy")
	if err := os.WriteFile(program, []byte("one"), 0o700); err != nil {
		t.Fatal(err)
	}
	probes := [][]string{{"--version"}, {"models"}}
	env := []string{"HOME=/h", "PATH=/bin", "ANTIGRAVITY_BIN=agy"}
	key := Key(program, probes, env)
	if key == "" || key != Key(program, probes, []string{"ANTIGRAVITY_BIN=agy", "TERM=x", "HOME=/h"}) {
		t.Errorf("key %q", key)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(program, link); err == nil {
		// Wine makes links that it does not read.
		if real, err := filepath.EvalSymlinks(link); err == nil && filepath.Base(real) == "agy" && Key(link, probes, env) != key {
			t.Error("a link has another key")
		}
	}
	seen := map[string]string{key: "the first"}
	check := func(why, k string) {
		t.Helper()
		if other, ok := seen[k]; ok || k == "" {
			t.Errorf("%s: the key of %s", why, other)
		}
		seen[k] = why
	}
	check("another home", Key(program, probes, []string{"HOME=/g", "ANTIGRAVITY_BIN=agy"}))
	check("another setting", Key(program, probes, append(env, "ANTIGRAVITY_X=1")))
	check("other probes", Key(program, probes[:1], env))
	check("probes joined", Key(program, [][]string{{"--version", "models"}}, env))
	if err := os.WriteFile(program, []byte("three"), 0o700); err != nil {
		t.Fatal(err)
	}
	check("another size", Key(program, probes, env))
	if err := os.Chtimes(program, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	check("another time", Key(program, probes, env))
	for _, name := range []string{filepath.Join(dir, "missing"), dir} {
		if k := Key(name, probes, env); k != "" {
			t.Errorf("%s: key %q", name, k)
		}
	}
}

func TestOff(t *testing.T) {
	for value, want := range map[string]bool{"": false, "on": false, "off": true, " OFF ": true, "0": true, "x": false} {
		if Off(value) != want {
			t.Errorf("Off(%q)", value)
		}
	}
}

func TestPrune(t *testing.T) {
	c := Open(scratch(t))
	for _, name := range []string{"old.json", "old.lock", "other"} {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	c.store("new", fine)
	for name, want := range map[string]bool{"old.json": false, "old.lock": false, "other": true, "new.json": true} {
		if _, err := os.Stat(filepath.Join(c.dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzLoad: whatever stands in the file, it is an answer or none.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"at":"2026-01-01T00:00:00Z","answers":[{"stdout":"YQ==","stderr":null}]}`))
	f.Add([]byte(`{"schema_version":1,"at":"9999-01-01T00:00:00Z","answers":null}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Open(scratch(t))
		c.now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC) }
		if err := os.WriteFile(c.path("k"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		c.load("k")
	})
}
