//go:build unix

package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A device said zero bytes once and was published as a whole capture; a FIFO hung.
func TestTailsThatAreNone(t *testing.T) {
	from := t.TempDir()
	at := func(name string) string { return filepath.Join(from, name) }
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for _, err := range []error{
		syscall.Mkfifo(at("fifo"), 0o600),
		os.Mkdir(at("dir"), 0o700),
		os.Symlink("loop", at("loop")),
		os.Symlink("nowhere", at("dangling")),
		os.Symlink("/dev/zero", at("device")),
		syscall.Bind(fd, &syscall.SockaddrUnix{Name: at("socket")}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, at("file"), []byte("x"))
	for _, name := range []string{at("fifo"), at("dir"), at("loop"), at("dangling"), at("device"), at("socket"), at("none"), at("file/x"), "/dev/null"} {
		dir := filepath.Join(t.TempDir(), "private")
		done := make(chan error, 1)
		go func() {
			_, err := Take(t.Context(), Request{Tail: name, Dir: dir})
			done <- err
		}()
		select {
		case err := <-done:
			if class(err) != Source {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: blocked", name)
		}
		if got := entries(t, dir); len(got) != 0 {
			t.Errorf("%s: the directory holds %q", name, got)
		}
	}
	if err := os.Symlink("file", at("link")); err != nil {
		t.Fatal(err)
	}
	if s, err := Take(t.Context(), Request{Tail: at("link"), Dir: private(t)}); err != nil || s.Manifest.BytesCopied != 1 {
		t.Errorf("a link to a file: %v", err)
	}
}

func TestDestination(t *testing.T) {
	tail := write(t, filepath.Join(t.TempDir(), "tail"), []byte("x"))
	for _, mode := range []fs.FileMode{0o755, 0o701, 0o710, 0o777 | fs.ModeSticky} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		_, err := Take(t.Context(), Request{Tail: tail, Dir: dir})
		var loose *LooseError
		if class(err) != Destination || !errors.As(err, &loose) {
			t.Fatalf("%v: %v", mode, err)
		}
		want := map[bool]string{true: "1777", false: mode.String()[1:]}[mode&fs.ModeSticky != 0]
		if mode&fs.ModeSticky == 0 {
			want = "0" + map[fs.FileMode]string{0o755: "755", 0o701: "701", 0o710: "710"}[mode]
		}
		if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, "chmod 700 "+dir) || strings.Contains(text, "shared") != loose.Shared || loose.Shared != (want == "1777") {
			t.Errorf("%v: %v", mode, err)
		}
		if got := entries(t, dir); len(got) != 0 {
			t.Errorf("%v: the directory holds %q", mode, got)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), nil)
	for _, err := range []error{syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.Symlink("nowhere", filepath.Join(dir, "dangling"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "file/below", "fifo", "dangling", strings.Repeat("x", 300)} {
		if _, err := Take(t.Context(), Request{Tail: tail, Dir: filepath.Join(dir, name)}); class(err) != Destination {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Take(t.Context(), Request{Tail: tail, Dir: private(t), Name: strings.Repeat("x", 300)}); class(err) != Destination {
		t.Errorf("a long name: %v", err)
	}
}

// Directories are made private whatever the umask, and what is above them too.
func TestUmask(t *testing.T) {
	tail := write(t, filepath.Join(t.TempDir(), "tail"), []byte("x"))
	for _, mask := range []int{0, 0o077, 0o777} {
		top := t.TempDir()
		old := syscall.Umask(mask)
		s, err := Take(t.Context(), Request{Tail: tail, Dir: filepath.Join(top, "a", "b", "c")})
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{"a": 0o700 | fs.ModeDir, "a/b": 0o700 | fs.ModeDir, "a/b/c": 0o700 | fs.ModeDir} {
			if fi, err := os.Stat(filepath.Join(top, name)); err != nil || fi.Mode() != want {
				t.Errorf("umask %04o: %s: %v, %v", mask, name, fi.Mode(), err)
			}
		}
		if fi, err := os.Stat(s.Path); err != nil || fi.Mode() != 0o600 {
			t.Errorf("umask %04o: %v, %v", mask, fi.Mode(), err)
		}
	}
}

// A directory that is swapped after it was checked gets nothing.
func TestSwappedDirectory(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "d")
	tail := write(t, filepath.Join(top, "tail"), []byte("0123456789"))
	root, err := openDestination(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := os.Open(tail)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := &meddler{r: f, what: func() {
		if err := errors.Join(os.Rename(dir, filepath.Join(top, "moved")), os.Mkdir(dir, 0o777)); err != nil {
			t.Error(err)
		}
	}}
	if _, err := (&taking{root: root, dir: dir, name: "x.zip", tail: tail, source: f, bytes: m}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("the new directory holds %q", got)
	}
	if got := entries(t, filepath.Join(top, "moved")); len(got) != 1 || got[0] != "x.zip" {
		t.Errorf("the checked directory holds %q", got)
	}
}

// What a killed maker left is removed by the next one; what anybody still holds,
// what is young and what only looks like it stays.
func TestSweep(t *testing.T) {
	dir := private(t)
	tail := write(t, filepath.Join(t.TempDir(), "tail"), []byte("x"))
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{".snap-0011223344556677.part", ".snap-8811223344556677.part", ".snap-short.part", ".snap-0011223344556677.par", "snapshot.zip"} {
		write(t, filepath.Join(dir, name), []byte("x"))
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, ".snap-9911223344556677.part"), []byte("young"))
	held, err := os.Open(filepath.Join(dir, ".snap-8811223344556677.part"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if !claim(held) {
		t.Fatal("nobody else has it")
	}
	if _, err := Take(t.Context(), Request{Tail: tail, Dir: dir, Name: "x.zip"}); err != nil {
		t.Fatal(err)
	}
	want := ".snap-0011223344556677.par .snap-8811223344556677.part .snap-9911223344556677.part .snap-short.part snapshot.zip x.zip"
	if got := strings.Join(entries(t, dir), " "); got != want {
		t.Errorf("the directory holds %s", got)
	}
}
