//go:build !linux

package wake

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestPollingNoticesChanges(t *testing.T) {
	dir := t.TempDir()
	kept, coming := filepath.Join(dir, "kept"), filepath.Join(dir, "coming")
	if err := os.WriteFile(kept, []byte("a"), 0o666); err != nil {
		t.Fatal(err)
	}
	const interval = time.Minute
	w := New(interval)
	defer w.Close()
	w.Add(kept)
	w.Add(coming)
	for name, change := range map[string]func() error{
		"grown":   func() error { return os.WriteFile(kept, []byte("ab"), 0o666) },
		"made":    func() error { return os.WriteFile(coming, nil, 0o666) },
		"removed": func() error { return os.Remove(kept) },
	} {
		go func() {
			if err := change(); err != nil {
				t.Error(err)
			}
		}()
		start := time.Now()
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > interval/2 {
			t.Errorf("%s: noticed after %v", name, took)
		}
		if name == "removed" {
			// The changes are in no order: this one may come before "grown".
			if err := os.WriteFile(kept, []byte("a"), 0o666); err != nil {
				t.Fatal(err)
			}
			w.native.changed()
		}
	}
}

func TestPollingEnds(t *testing.T) {
	w := New(20 * time.Millisecond)
	w.Add(filepath.Join(t.TempDir(), "nothing"))
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.SetInterval(time.Minute)
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := w.Wait(ctx); err == nil {
		t.Error("the end of its context did not end Wait")
	}
}
