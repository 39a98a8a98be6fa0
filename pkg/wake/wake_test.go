//go:build linux

package wake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// long is an interval that no test waits for.
const long = time.Minute

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// waits reports how long Wait took, at most limit.
func waits(t *testing.T, w *Watcher, limit time.Duration) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	err := w.Wait(ctx)
	return time.Since(start), err
}

func TestInterval(t *testing.T) {
	w := New(20 * time.Millisecond)
	defer w.Close()
	w.Add(filepath.Join(t.TempDir(), "x"))
	took, err := waits(t, w, 10*time.Second)
	if err != nil || took < 20*time.Millisecond {
		t.Errorf("waited %v: %v", took, err)
	}
	w.SetInterval(0)
	if took, err := waits(t, w, 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an interval of 0 waited %v: %v", took, err)
	}
}

func TestCancel(t *testing.T) {
	w := New(long)
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait again: %v", err)
	}
	// A cancelled Wait leaves a Watcher that waits.
	w.SetInterval(time.Millisecond)
	if _, err := waits(t, w, 10*time.Second); err != nil {
		t.Errorf("Wait afterwards: %v", err)
	}
}

func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		path   string
		before func(t *testing.T, dir string)
		change func(t *testing.T, dir string)
		wakes  bool
	}{
		{name: "a file appears", path: "f", change: func(t *testing.T, dir string) { write(t, dir+"/f", "x") }, wakes: true},
		{name: "another file appears", path: "f", change: func(t *testing.T, dir string) { write(t, dir+"/g", "x") }},
		{name: "linked", path: "f", before: func(t *testing.T, dir string) { write(t, dir+"/.f", "x") },
			change: func(t *testing.T, dir string) { must(t, os.Link(dir+"/.f", dir+"/f")) }, wakes: true},
		{name: "renamed over", path: "f", before: func(t *testing.T, dir string) { write(t, dir+"/f", ""); write(t, dir+"/g", "x") },
			change: func(t *testing.T, dir string) { must(t, os.Rename(dir+"/g", dir+"/f")) }, wakes: true},
		{name: "removed", path: "f", before: func(t *testing.T, dir string) { write(t, dir+"/f", "x") },
			change: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/f")) }, wakes: true},
		{name: "written and closed", path: "f", before: func(t *testing.T, dir string) { write(t, dir+"/f", "") },
			change: func(t *testing.T, dir string) { write(t, dir+"/f", "x") }, wakes: true},
		{name: "anything in a watched directory", path: "d", before: func(t *testing.T, dir string) { must(t, os.Mkdir(dir+"/d", 0o700)) },
			change: func(t *testing.T, dir string) { write(t, dir+"/d/any", "x") }, wakes: true},
		{name: "its directory appears", path: "a/b/f", change: func(t *testing.T, dir string) { must(t, os.Mkdir(dir+"/a", 0o700)) }, wakes: true},
		{name: "all of it appears by a rename", path: "a/b/f",
			before: func(t *testing.T, dir string) { must(t, os.MkdirAll(dir+"/.a/b", 0o700)); write(t, dir+"/.a/b/f", "x") },
			change: func(t *testing.T, dir string) { must(t, os.Rename(dir+"/.a", dir+"/a")) }, wakes: true},
		{name: "its directory goes", path: "a/f", before: func(t *testing.T, dir string) { must(t, os.Mkdir(dir+"/a", 0o700)) },
			change: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/a")) }, wakes: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.before != nil {
				c.before(t, dir)
			}
			w := New(long)
			defer w.Close()
			w.Add(filepath.Join(dir, c.path))
			c.change(t, dir)
			limit := 10 * time.Second
			if !c.wakes {
				limit = 100 * time.Millisecond
			}
			took, err := waits(t, w, limit)
			if (err == nil) != c.wakes {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A path is followed down as its directories are made, away and back again.
func TestRearm(t *testing.T) {
	dir := t.TempDir()
	w := New(long)
	defer w.Close()
	w.Add(filepath.Join(dir, "a", "b", "f"))
	for round, step := range []func(){
		func() { must(t, os.Mkdir(dir+"/a", 0o700)) },
		func() { must(t, os.Mkdir(dir+"/a/b", 0o700)) },
		func() { write(t, dir+"/a/b/f", "x") },
		func() { must(t, os.RemoveAll(dir+"/a")) },
		func() { must(t, os.MkdirAll(dir+"/a/b", 0o700)) },
		func() { write(t, dir+"/a/b/f", "x") },
		func() { must(t, os.Rename(dir+"/a", dir+"/c")) },
		func() { must(t, os.MkdirAll(dir+"/a/b", 0o700)) },
		func() { write(t, dir+"/a/b/f", "x") },
	} {
		step()
		if took, err := waits(t, w, 10*time.Second); err != nil {
			t.Fatalf("step %d: after %v: %v", round, took, err)
		}
		// What is left of the step's own events.
		for {
			if _, err := waits(t, w, 80*time.Millisecond); err != nil {
				break
			}
		}
	}
}

// A busy tail wakes nobody; a busy directory wakes at most twenty times a second.
func TestBusyNeighbours(t *testing.T) {
	dir := t.TempDir()
	w := New(long)
	defer w.Close()
	w.Add(filepath.Join(dir, "result"))
	tail, err := os.Create(filepath.Join(dir, "result"))
	must(t, err)
	defer tail.Close()
	_, _ = waits(t, w, 100*time.Millisecond)
	for range 2000 {
		if _, err := tail.WriteString("x"); err != nil {
			t.Fatal(err)
		}
	}
	if took, err := waits(t, w, 100*time.Millisecond); err == nil {
		t.Errorf("woken by writes to an open file after %v", took)
	}

	w.Add(dir)
	stop := make(chan struct{})
	defer func() { <-stop }()
	start := time.Now()
	go func() {
		defer close(stop)
		for i := 0; time.Since(start) < 500*time.Millisecond; i++ {
			_ = os.WriteFile(fmt.Sprintf("%s/%d", dir, i%50), nil, 0o600)
		}
	}()
	woken := 0
	for time.Since(start) < 500*time.Millisecond {
		if _, err := waits(t, w, 500*time.Millisecond); err == nil {
			woken++
		}
	}
	if woken > 12 {
		t.Errorf("woken %d times in half a second", woken)
	}
}

// E94: where no instance is left, and where no watch is, the paths are polled.
func TestExhausted(t *testing.T) {
	var old syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	probe, err := os.Open(".")
	must(t, err)
	limit := old
	limit.Cur = uint64(probe.Fd())
	probe.Close()
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	w := New(20 * time.Millisecond)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
	defer w.Close()
	w.Add(filepath.Join(t.TempDir(), "x"))
	if w.native.file != nil {
		t.Fatal("an instance was made without a descriptor")
	}
	if took, err := waits(t, w, 10*time.Second); err != nil || took < 20*time.Millisecond {
		t.Errorf("waited %v: %v", took, err)
	}
}

func TestThousand(t *testing.T) {
	dir := t.TempDir()
	w := New(long)
	defer w.Close()
	for i := range 1000 {
		unit := fmt.Sprintf("%s/%d", dir, i)
		must(t, os.Mkdir(unit, 0o700))
		w.Add(unit + "/outcome")
		w.Add(fmt.Sprintf("%s/r%d", dir, i))
	}
	if _, err := waits(t, w, 50*time.Millisecond); err == nil {
		t.Error("woken by nothing")
	}
	write(t, dir+"/999/outcome", "x")
	if took, err := waits(t, w, 10*time.Second); err != nil || took > 150*time.Millisecond {
		t.Errorf("woken after %v: %v", took, err)
	}
}
