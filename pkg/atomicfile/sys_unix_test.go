//go:build linux || darwin

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUmask: prompts and output were readable by everybody; and a umask set to
// prevent that leaked into the worker's own files.
func TestUmask(t *testing.T) {
	dir := tempDir(t)
	for _, mask := range []int{0, 0o777} {
		old := unix.Umask(mask)
		defer unix.Umask(old)
		name := filepath.Join(dir, "f")
		must(t, Mkdir(filepath.Join(dir, "d"), 0o700))
		must(t, Replace(name, nil, 0o640))
		must(t, Write(name+"w", nil, 0o600))
		must(t, Append(name+"a", nil, 0o600))
		l, err := TryLock(name + "l")
		must(t, err)
		l.Unlock()
		if now := unix.Umask(mask); now != mask {
			t.Errorf("umask %o became %o", mask, now)
		}
		unix.Umask(old)
		for base, want := range map[string]fs.FileMode{"d": 0o700 | fs.ModeDir, "f": 0o640, "fw": 0o600, "fa": 0o600, "fl": 0o600} {
			fi, err := os.Stat(filepath.Join(dir, base))
			must(t, err)
			if fi.Mode() != want {
				t.Errorf("umask %o: %s is %v, want %v", mask, base, fi.Mode(), want)
			}
			must(t, os.Remove(filepath.Join(dir, base)))
		}
	}
}

func TestForeignKindsDoNotBlock(t *testing.T) {
	dir := tempDir(t)
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(fifo, link))
	for _, name := range []string{fifo, link, "/dev/zero"} {
		if _, err := ReadRegular(name, 10); !errors.Is(err, ErrNotRegular) {
			t.Errorf("read %s: %v", name, err)
		}
	}
	if err := Append(fifo, []byte("x"), 0o600); err == nil {
		t.Error("appended to a FIFO")
	}
	if _, err := TryLock(fifo); !errors.Is(err, ErrNotRegular) {
		t.Errorf("lock a FIFO: %v", err)
	}
	if _, err := Held(fifo); !errors.Is(err, ErrNotRegular) {
		t.Errorf("ask a FIFO: %v", err)
	}
	if _, err := TakeLease(fifo); !errors.Is(err, ErrNotRegular) {
		t.Errorf("lease a FIFO: %v", err)
	}
	file, loop := filepath.Join(dir, "file"), filepath.Join(dir, "loop")
	must(t, os.WriteFile(file, []byte("text"), 0o600))
	must(t, os.Remove(link))
	must(t, os.Symlink(file, link))
	must(t, os.Symlink(loop, loop))
	if b, err := ReadRegular(link, 10); err != nil || string(b) != "text" {
		t.Errorf("link to a file: %q, %v", b, err)
	}
	if _, err := ReadRegular(loop, 10); !errors.Is(err, unix.ELOOP) {
		t.Errorf("loop: %v", err)
	}
	// Whoever plants a link could make two owners lock two files.
	if _, err := TryLock(link); !errors.Is(err, ErrNotRegular) {
		t.Errorf("lock through a link: %v", err)
	}
	must(t, Replace(link, []byte("new"), 0o600))
	if read(t, file) != "text" || read(t, link) != "new" {
		t.Error("Replace followed a link")
	}
	must(t, os.Remove(file))
	if err := Write(loop, nil, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("write through a link: %v", err)
	}
	dangling := filepath.Join(dir, "dangling")
	must(t, os.Symlink(file, dangling))
	if err := Append(dangling, nil, 0o600); err == nil {
		t.Error("a dangling link was followed")
	}
}

func TestLockFileReplaced(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	l, err := TryLock(name)
	must(t, err)
	defer l.Unlock()
	must(t, os.Remove(name))
	again, err := TryLock(name)
	must(t, err)
	defer again.Unlock()
	if same, _ := stillNamed(l.File(), name); same {
		t.Error("the old file is still the lock")
	}
	if !held(t, name) {
		t.Error("not held")
	}
}

const underWine = false
