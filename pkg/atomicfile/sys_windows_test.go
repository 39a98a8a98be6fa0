package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

// TestHeldOpen: a scanner or indexer opens a file for a moment, without sharing.
func TestHeldOpen(t *testing.T) {
	name := filepath.Join(tempDir(t), "state")
	for what, op := range map[string]func() error{
		"replace": func() error { return Replace(name, []byte("new"), 0o600) },
		"remove":  func() error { return Remove(name) },
		"read":    func() error { _, err := ReadRegular(name, 10); return err },
	} {
		must(t, os.WriteFile(name, []byte("old"), 0o600))
		f, err := openShared(name, windows.GENERIC_READ, windows.OPEN_EXISTING, 0, 0)
		must(t, err)
		time.AfterFunc(100*time.Millisecond, func() { f.Close() })
		if err := op(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestLeaseRefusesWriters(t *testing.T) {
	name := filepath.Join(tempDir(t), "empty")
	must(t, os.WriteFile(name, nil, 0o600))
	w, err := os.OpenFile(name, os.O_WRONLY, 0)
	must(t, err)
	if _, err := TakeLease(name); !errors.Is(err, ErrLocked) {
		t.Errorf("open for writing: %v", err)
	}
	must(t, w.Close())
	l, err := TakeLease(name)
	must(t, err)
	defer l.Close()
	if w, err := os.OpenFile(name, os.O_WRONLY, 0); err == nil {
		w.Close()
		t.Error("a writer got in")
	}
	must(t, RenameNoReplace(name, name+"2"))
	info, err := l.Look()
	must(t, err)
	if now, err := Look(name + "2"); err != nil || !now.Same(info) {
		t.Errorf("not the same file after the rename: %+v %+v, %v", info, now, err)
	}
}

// underWine: Wine appends in two steps and follows dangling links.
var underWine = windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
