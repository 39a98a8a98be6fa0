package copytree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestCopyKeepsWhatBuildsLookAt(t *testing.T) {
	src, out := filepath.Join(t.TempDir(), "target"), t.TempDir()
	old := time.Unix(1_600_000_000, 0)
	for name, mode := range map[string]fs.FileMode{"a": 0o644, "sub/run": 0o755, ".worktrees/other/x": 0o644, "empty": 0o600} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := []byte(name)
		if name == "empty" {
			text = nil
		}
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "windows" {
		if err := os.Symlink("a", filepath.Join(src, "link")); err != nil {
			t.Fatal(err)
		}
	}
	dst := filepath.Join(out, "deep", "target")
	means, err := Copy(src, dst)
	if err != nil || means == Link || means == "" {
		t.Fatalf("Copy: %q, %v", means, err)
	}
	for name, mode := range map[string]fs.FileMode{"a": 0o644, "sub/run": 0o755, "empty": 0o600} {
		fi, err := os.Stat(filepath.Join(dst, name))
		if err != nil {
			t.Fatal(err)
		}
		if !fi.ModTime().Equal(old) {
			t.Errorf("%s has time %v, want %v", name, fi.ModTime(), old)
		}
		if runtime.GOOS != "windows" && fi.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, want %v", name, fi.Mode(), mode)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dst, "sub/run")); string(b) != "sub/run" {
		t.Errorf("sub/run holds %q", b)
	}
	if _, err := os.Lstat(filepath.Join(dst, ".worktrees")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf(".worktrees was copied: %v", err)
	}
	if runtime.GOOS != "windows" {
		if to, err := os.Readlink(filepath.Join(dst, "link")); err != nil || to != "a" {
			t.Errorf("link points to %q, %v", to, err)
		}
	}
	if _, err := Copy(src, dst); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second copy: %v, want fs.ErrExist", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(dst)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestCopyOfNothing(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "x")
	if _, err := Copy(filepath.Join(t.TempDir(), "missing"), dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}
