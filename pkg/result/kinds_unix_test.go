//go:build linux || darwin

package result

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// TestForeignKinds: a directory counted as a result, a FIFO hung the reader, a
// dangling link was written through.
func TestForeignKinds(t *testing.T) {
	dir := tempDir(t)
	at := func(base string) string { return filepath.Join(dir, base) }
	must(t, syscall.Mkfifo(at("fifo"), 0o600))
	must(t, os.Symlink(at("target"), at("dangling")))
	must(t, os.Symlink(at("loop"), at("loop")))
	must(t, os.Symlink(at("fifo"), at("to-fifo")))
	must(t, os.Symlink("/dev/null", at("to-device")))
	must(t, os.Symlink(dir, at("to-dir")))
	must(t, os.Symlink(at("void"), at("to-empty")))
	write(t, at("void"), "")
	for _, base := range []string{"fifo", "dangling", "loop", "to-fifo", "to-device", "to-dir", "to-empty"} {
		path := at(base)
		info, err := Inspect(path)
		if want := Foreign; base != "to-empty" && (err != nil || info.Kind != want) {
			t.Errorf("%s: %v, %v", base, info.Kind, err)
		}
		before, err := os.Lstat(path)
		must(t, err)
		got, err := Publish(publication(path))
		if err != nil || got.Ours || got.Where != at("spare") || got.Existing != Foreign || got.Note == "" || read(t, at("spare")) != fallback {
			t.Errorf("%s: %+v, %v", base, got, err)
		}
		after, err := os.Lstat(path)
		must(t, err)
		if !os.SameFile(before, after) {
			t.Errorf("%s was touched", base)
		}
		must(t, Sweep(path, owner, false))
		must(t, os.Remove(at("spare")))
	}
	if read(t, at("target")) != "<absent>" || read(t, at("void")) != "" {
		t.Error("a link was followed")
	}
	if info, err := Inspect("/dev/null"); err != nil || info.Kind != Foreign {
		t.Errorf("device: %v, %v", info.Kind, err)
	}
	if _, err := Malformed(at("fifo"), "u1"); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("malformed FIFO: %v", err)
	}
	if got := salvaged(t, Salvage{Unit: "u", Tail: at("fifo")}); got == "" {
		t.Error("FIFO as tail")
	}

	// A link to a file with words is that file, known to be a link.
	write(t, at("words"), fallback)
	must(t, os.Symlink(at("words"), at("to-words")))
	info, err := Inspect(at("to-words"))
	if err != nil || info.Kind != Fallback || info.Mode&fs.ModeSymlink == 0 || info.Size != int64(len(fallback)) {
		t.Errorf("link to words: %+v, %v", info, err)
	}
	if got, err := Publish(publication(at("to-words"))); err != nil || got.Existing != Fallback || got.Where != "" {
		t.Errorf("link to words: %+v, %v", got, err)
	}
	name, err := PublishResponse(at("fifo"), []byte("x"), nil)
	if err != nil || name != at("fifo.response") {
		t.Errorf("%s, %v", name, err)
	}
	must(t, syscall.Mkfifo(at("r.response"), 0o600))
	if name, err := PublishResponse(at("r"), []byte("x"), func(string) bool { return true }); err != nil || name != at("r.response-2") {
		t.Errorf("a FIFO as sibling: %s, %v", name, err)
	}
}

// TestUnreadableIsAWorkers: what cannot be read cannot be shown to be less.
func TestUnreadableIsAWorkers(t *testing.T) {
	path := filepath.Join(tempDir(t), "r.md")
	write(t, path, fallback)
	must(t, os.Chmod(path, 0))
	if os.Geteuid() == 0 {
		t.Skip("root can read everything")
	}
	if info, err := Inspect(path); err == nil || info.Kind != Worker {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestUmask: the result gets the caller's umask, spare and state 0600.
func TestUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	dir := tempDir(t)
	path := filepath.Join(dir, "sub", "r.md")
	_, err := Publish(publication(path))
	must(t, err)
	name, err := PublishResponse(path, []byte("x"), nil)
	must(t, err)
	for name, want := range map[string]fs.FileMode{path: 0o640, name: 0o640, filepath.Dir(path): fs.ModeDir | 0o750} {
		if fi, err := os.Stat(name); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, want %v", name, fi.Mode(), want)
		}
	}
	syscall.Umask(0)
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	got, err := Publish(publication(filepath.Join(dir, "d")))
	must(t, err)
	if fi, err := os.Stat(got.Where); err != nil || fi.Mode() != 0o600 {
		t.Errorf("spare: %v, %v", fi, err)
	}
}
