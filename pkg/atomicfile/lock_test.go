package atomicfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func held(t *testing.T, name string) bool {
	t.Helper()
	h, err := Held(name)
	must(t, err)
	return h
}

func TestLock(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	if _, err := Held(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	l, err := TryLock(name)
	must(t, err)
	if !held(t, name) {
		t.Error("not held")
	}
	if _, err := TryLock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("second owner: %v", err)
	}
	must(t, l.Unlock())
	if held(t, name) {
		t.Error("held after Unlock")
	}
	l, err = TryLock(name)
	must(t, err)
	must(t, l.Close())
	if held(t, name) {
		t.Error("held after Close")
	}
	if fi, _ := os.Stat(name); runtime.GOOS != "windows" && fi.Mode() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
	if _, err := TryLock(tempDir(t)); err == nil {
		t.Error("locked a directory")
	}
}

// TestLockOfDead: a lock that is its file's existence outlives its owner for ever
// (habitat#8036); one that a child inherits lives as long as the worker.
func TestLockOfDead(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	cmd := helper(t, "hold-lock", name)
	if !held(t, name) {
		t.Fatal("not held by the helper")
	}
	if _, err := TryLock(name); !errors.Is(err, ErrLocked) {
		t.Fatalf("second owner: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	until(t, "the lock of a killed process is free", func() bool { return !held(t, name) })

	l, err := TryLock(name)
	must(t, err)
	helper(t, "sit") // must not inherit it
	must(t, l.Close())
	if held(t, name) {
		t.Error("a child inherited the lock")
	}
}

func TestWaitLock(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	l, err := TryLock(name)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := WaitLock(ctx, name); !errors.Is(err, ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the limit: %v", err)
	}
	go l.Unlock()
	l, err = WaitLock(t.Context(), name)
	must(t, err)
	must(t, l.Unlock())
}

func TestLockExcludes(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 20 {
				l, err := WaitLock(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				runtime.Gosched()
				inside.Add(-1)
				l.Unlock()
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d owners at once", most.Load())
	}
}

// TestProbesDoNotHurt: probing with a shared flock made 14,074 of 20,000 attempts
// of a taker fail.
func TestProbesDoNotHurt(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	l, err := TryLock(name)
	must(t, err)
	must(t, l.Unlock())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := Held(name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	takes := 500
	if askingTakes {
		takes = 20
	}
	for range takes {
		l, err := TryLock(name)
		if err != nil {
			t.Error(err)
			break
		}
		l.Unlock()
	}
	cancel()
	wg.Wait()
}
