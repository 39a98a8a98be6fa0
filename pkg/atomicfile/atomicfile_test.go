package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestReplace(t *testing.T) {
	dir := tempDir(t)
	name := filepath.Join(dir, "state.json")
	for _, text := range []string{"first", "", strings.Repeat("x", 1<<20)} {
		must(t, Replace(name, []byte(text), 0o600))
		if got := read(t, name); got != text {
			t.Fatalf("got %d bytes, want %d", len(got), len(text))
		}
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
	if fi, _ := os.Stat(name); runtime.GOOS != "windows" && fi.Mode() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
}

func TestReplaceKeepsOldBytesWhenBodyFails(t *testing.T) {
	dir := tempDir(t)
	name := filepath.Join(dir, "f")
	must(t, Replace(name, []byte("old"), 0o600))
	boom := errors.New("boom")
	err := ReplaceWith(name, 0o600, func(w io.Writer) error {
		io.WriteString(w, "half")
		return boom
	})
	if !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "replace "+name) {
		t.Errorf("error %v", err)
	}
	if read(t, name) != "old" || len(names(t, dir)) != 1 {
		t.Errorf("now %q in %q", read(t, name), names(t, dir))
	}
	if err := Replace(filepath.Join(dir, "no", "such"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	if err := Replace(filepath.Join(dir, "d"), []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if got := names(t, dir); !slices.Equal(got, []string{"d", "f"}) {
		t.Errorf("left behind: %q", got)
	}
}

// TestReplaceKilled: state truncated in place is lost when the writer dies
// (agent-of-empires#1207, ten sessions). Old or new, never a part.
func TestReplaceKilled(t *testing.T) {
	dir := tempDir(t)
	name := filepath.Join(dir, "state")
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		cmd := helper(t, "replace-for-ever", name)
		for range 20 {
			b, err := ReadRegular(name, 1<<20)
			must(t, err)
			if !whole(b) {
				t.Fatalf("torn: %d bytes", len(b))
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		b, err := ReadRegular(name, 1<<20)
		must(t, err)
		if !whole(b) {
			t.Fatalf("torn after kill: %d bytes", len(b))
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "..state.prun-x-1"), nil, 0o600))
	must(t, Sweep(dir, func(int) bool { return true }))
	before := len(names(t, dir))
	must(t, Sweep(dir, func(int) bool { return false }))
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("%d names before the sweep, then %q", before, got)
	}
	must(t, Sweep(filepath.Join(dir, "none"), nil))
}

func TestWrite(t *testing.T) {
	dir := tempDir(t)
	name := filepath.Join(dir, "timestamp")
	must(t, Write(name, []byte("1\n"), 0o600))
	if err := Write(name, []byte("2\n"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing name: %v", err)
	}
	if read(t, name) != "1\n" {
		t.Error("overwritten")
	}
}

func TestAppendDoesNotMix(t *testing.T) {
	name := filepath.Join(tempDir(t), "ledger")
	if underWine {
		t.Skip("Wine finds the end and writes there in two steps")
	}
	const writers, lines = 8, 100
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			line := strings.Repeat(string(rune('a'+i)), 300) + "\n"
			for range lines {
				if err := Append(name, []byte(line), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := strings.Split(strings.TrimSuffix(read(t, name), "\n"), "\n")
	if len(got) != writers*lines {
		t.Fatalf("%d lines", len(got))
	}
	for _, line := range got {
		if len(line) != 300 || strings.Trim(line, line[:1]) != "" {
			t.Fatalf("mixed line %q", line)
		}
	}
	if err := Append(tempDir(t), nil, 0o600); err == nil {
		t.Error("appended to a directory")
	}
}

func TestPublish(t *testing.T) {
	dir := tempDir(t)
	temp, name := filepath.Join(dir, "temp"), filepath.Join(dir, "name")
	must(t, os.WriteFile(temp, []byte("ours"), 0o600))
	must(t, Publish(temp, name))
	if read(t, name) != "ours" || read(t, temp) != "ours" {
		t.Error("not linked")
	}
	must(t, Publish(temp, name)) // the reply to the first was lost
	other := filepath.Join(dir, "other")
	must(t, os.WriteFile(other, []byte("other"), 0o600))
	err := Publish(other, name)
	if !errors.Is(err, ErrExists) || !errors.Is(err, fs.ErrExist) || errors.Is(err, ErrUnsupported) {
		t.Errorf("taken name: %v", err)
	}
	if read(t, name) != "ours" || read(t, other) != "other" {
		t.Error("something was replaced")
	}
	if err := Publish(other, filepath.Join(dir, "no", "name")); err == nil ||
		errors.Is(err, ErrExists) || errors.Is(err, ErrUnsupported) {
		t.Errorf("missing directory: %v", err)
	}
	for _, kind := range []string{"directory", "dangling"} {
		if kind == "dangling" && underWine {
			continue
		}
		name := filepath.Join(dir, kind)
		if kind == "directory" {
			must(t, os.Mkdir(name, 0o700))
		} else if err := os.Symlink(filepath.Join(dir, "nothing"), name); err != nil {
			t.Logf("no links here: %v", err)
			continue
		}
		if err := Publish(other, name); !errors.Is(err, ErrExists) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestPublishWithoutLinks: FAT, some FUSE and SMB.
func TestPublishWithoutLinks(t *testing.T) {
	dir := tempDir(t)
	temp, name := filepath.Join(dir, "temp"), filepath.Join(dir, "name")
	noLinks := func(old, new string) error { return ErrUnsupported }
	must(t, os.WriteFile(temp, []byte("ours"), 0o600))
	must(t, os.WriteFile(name, []byte("theirs"), 0o600))
	if err := publish(temp, name, noLinks); !errors.Is(err, ErrExists) {
		t.Errorf("taken: %v", err)
	}
	if read(t, name) != "theirs" || read(t, temp) != "ours" {
		t.Error("something moved")
	}
	must(t, os.Remove(name))
	must(t, publish(temp, name, noLinks))
	if read(t, name) != "ours" || len(names(t, dir)) != 1 {
		t.Errorf("not renamed: %q", names(t, dir))
	}
}

// TestSixPublishers: one name, six publishers, one winner.
func TestSixPublishers(t *testing.T) {
	dir := tempDir(t)
	for round := range 50 {
		name := filepath.Join(dir, fmt.Sprint("name", round))
		var won [6]bool
		var wg sync.WaitGroup
		for i := range won {
			temp := fmt.Sprint(name, ".temp", i)
			must(t, os.WriteFile(temp, []byte{byte('0' + i)}, 0o600))
			wg.Go(func() {
				err := Publish(temp, name)
				won[i] = err == nil
				if err != nil && !errors.Is(err, ErrExists) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		winner := slices.Index(won[:], true)
		if winner < 0 || slices.Contains(won[winner+1:], true) {
			t.Fatalf("winners: %v", won)
		}
		if got := read(t, name); got != string(rune('0'+winner)) {
			t.Fatalf("%d won, %q is there", winner, got)
		}
	}
}

func TestRenameNoReplace(t *testing.T) {
	dir := tempDir(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte("a"), 0o600))
	must(t, os.WriteFile(b, []byte("b"), 0o600))
	if err := RenameNoReplace(a, b); !errors.Is(err, ErrExists) {
		t.Errorf("taken: %v", err)
	}
	if read(t, a) != "a" || read(t, b) != "b" {
		t.Error("something was replaced")
	}
	must(t, RenameNoReplace(a, filepath.Join(dir, "c")))
	if err := RenameNoReplace(a, filepath.Join(dir, "d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestExchange(t *testing.T) {
	dir := tempDir(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte("a"), 0o600))
	must(t, os.WriteFile(b, []byte("b"), 0o600))
	err := Exchange(a, b)
	if errors.Is(err, ErrUnsupported) {
		if read(t, a) != "a" || read(t, b) != "b" {
			t.Error("unsupported, but done")
		}
		return
	}
	must(t, err)
	if read(t, a) != "b" || read(t, b) != "a" {
		t.Error("not exchanged")
	}
	if err := Exchange(a, filepath.Join(dir, "c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestMkdir(t *testing.T) {
	name := filepath.Join(tempDir(t), "d")
	must(t, Mkdir(name, 0o700))
	if err := Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing: %v", err)
	}
}

func TestReadRegular(t *testing.T) {
	dir := tempDir(t)
	name := filepath.Join(dir, "entry")
	must(t, os.WriteFile(name, make([]byte, 100), 0o600))
	if b, err := ReadRegular(name, 100); err != nil || len(b) != 100 {
		t.Errorf("exactly: %d bytes, %v", len(b), err)
	}
	if _, err := ReadRegular(name, 99); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one more: %v", err)
	}
	if _, err := ReadRegular(dir, 99); !errors.Is(err, ErrNotRegular) {
		t.Errorf("directory: %v", err)
	}
	if _, err := ReadRegular(filepath.Join(dir, "none"), 99); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestLook(t *testing.T) {
	dir := tempDir(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte("four"), 0o600))
	must(t, os.Link(a, b))
	x, err := Look(a)
	must(t, err)
	y, err := Look(b)
	must(t, err)
	if !x.Same(y) || x.Size != 4 || !x.Mode.IsRegular() || x.ChangeTime.IsZero() || x.ModTime.IsZero() {
		t.Errorf("two names of one file: %+v %+v", x, y)
	}
	d, err := Look(dir)
	must(t, err)
	if d.Same(x) || !d.Mode.IsDir() {
		t.Errorf("directory: %+v", d)
	}
	must(t, os.Rename(a, filepath.Join(dir, "c")))
	must(t, os.WriteFile(a, nil, 0o600))
	if z, _ := Look(a); z.Same(x) {
		t.Error("another file under the old name is the same")
	}
	if _, err := Look(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestTempName(t *testing.T) {
	long := strings.Repeat("é", 127) + "x" // 255 bytes
	for _, base := range []string{"r.md", "r", ".hidden", "a.prun-1-2", long, strings.Repeat("x", 255)} {
		got := filepath.Base(TempName(filepath.Join("dir", base), "4242-77"))
		if len(got) > nameMax || !utf8.ValidString(got) || got[0] != '.' {
			t.Errorf("%q: %d bytes %q", base, len(got), got)
		}
		if pid, ok := TempOwner(got); !ok || pid != 4242 {
			t.Errorf("%q: owner %d %v", got, pid, ok)
		}
	}
	for _, base := range []string{"", ".", "r.md", ".r.prun-", ".r.prun-1", ".r.prun-1-", ".r.prun--1", ".r.prun-x-1",
		".r.prun-1-x", ".r.prun-0-1", "r.prun-1-1", ".r.prun-99999999999999999999-1", ".r.prun-+1-1"} {
		if pid, ok := TempOwner(base); ok {
			t.Errorf("%q has owner %d", base, pid)
		}
	}
}

func FuzzTempOwner(f *testing.F) {
	f.Add(".r.md.prun-12-34")
	f.Add(".prun-1-1")
	f.Fuzz(func(t *testing.T, base string) {
		pid, ok := TempOwner(base)
		if ok && pid <= 0 {
			t.Errorf("%q has owner %d", base, pid)
		}
		if strings.ContainsAny(base, "/\x00\\:") {
			return
		}
		name := filepath.Base(TempName(base, "12-34"))
		if pid, ok := TempOwner(name); base != "" && (!ok || pid != 12 || len(name) > nameMax) {
			t.Errorf("%q makes %q, owner %d %v", base, name, pid, ok)
		}
	})
}

func BenchmarkReplace(b *testing.B) {
	name := filepath.Join(tempDir(b), "state.json")
	data := make([]byte, 1024)
	for b.Loop() {
		must(b, Replace(name, data, 0o600))
	}
}

func BenchmarkPublish(b *testing.B) {
	dir := tempDir(b)
	temp, name := filepath.Join(dir, "temp"), filepath.Join(dir, "name")
	must(b, os.WriteFile(temp, nil, 0o600))
	for b.Loop() {
		must(b, Publish(temp, name))
		must(b, os.Remove(name))
	}
}

func BenchmarkHeld(b *testing.B) {
	name := filepath.Join(tempDir(b), "lock")
	l, err := TryLock(name)
	must(b, err)
	defer l.Unlock()
	for b.Loop() {
		if held, err := Held(name); err != nil || !held {
			b.Fatal(held, err)
		}
	}
}
