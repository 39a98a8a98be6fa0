package snapshot

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// private is a directory that is fit for snapshots.
func private(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// entries are the names in dir.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func class(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return 0
}

// tails are what a worker may have left: nothing, bytes that text modes change,
// zeros that are skipped, and lengths around that of a buffer.
func tails() map[string][]byte {
	hole := make([]byte, 3*bufferSize+17)
	copy(hole[bufferSize:], "in the middle")
	random := make([]byte, bufferSize+1)
	for i := range random {
		random[i] = byte(i * 7 >> 3)
	}
	return map[string][]byte{
		"empty":      {},
		"one":        []byte("x"),
		"NUL and CR": []byte("a\x00b\r\nc\r\xff\x1a"),
		"buffer":     random[:bufferSize],
		"and one":    random,
		"zeros":      make([]byte, 2*bufferSize),
		"hole":       hole,
	}
}

func TestTake(t *testing.T) {
	for name, data := range tails() {
		t.Run(name, func(t *testing.T) {
			dir := private(t)
			tail := write(t, filepath.Join(t.TempDir(), "tail"), data)
			s, err := Take(t.Context(), Request{Tail: tail, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if got := entries(t, dir); len(got) != 1 || filepath.Join(dir, got[0]) != s.Path {
				t.Errorf("the directory holds %q beside %s", got, s.Path)
			}
			if s.Warning != "" || len(s.Observed) != 0 {
				t.Errorf("warning %q, observed %q", s.Warning, s.Observed)
			}
			checkArchive(t, s, data)
			m, err := Verify(t.Context(), s.Path)
			if err != nil || m != s.Manifest {
				t.Errorf("verify: %+v, %v", m, err)
			}
		})
	}
}

// checkArchive reads the archive with another library, and its first header by
// hand.
func checkArchive(t *testing.T, s *Snapshot, data []byte) {
	t.Helper()
	if fi, err := os.Stat(s.Path); err != nil || runtime.GOOS != "windows" && fi.Mode() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	z, err := zip.OpenReader(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		if f.Flags != 0 || f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
			t.Errorf("%s: flags %#x, method %d, sizes %d and %d", f.Name, f.Flags, f.Method, f.CompressedSize64, f.UncompressedSize64)
		}
		if f.ModifiedDate != dosEpoch || f.ModifiedTime != 0 {
			t.Errorf("%s is dated %v", f.Name, f.Modified)
		}
	}
	if !slices.Equal(names, []string{"tail.bin", "manifest.json"}) {
		t.Fatalf("members %q", names)
	}
	if got := content(t, z.File[0]); !bytes.Equal(got, data) {
		t.Errorf("tail.bin has %d bytes that are not those %d of the tail", len(got), len(data))
	}
	var m Manifest
	if err := json.Unmarshal(content(t, z.File[1]), &m); err != nil || m != s.Manifest {
		t.Errorf("manifest %+v, %v, want %+v", m, err, s.Manifest)
	}
	sum := sha256.Sum256(data)
	if m.SHA256 != hex.EncodeToString(sum[:]) || m.BytesCopied != int64(len(data)) {
		t.Errorf("manifest says %s, %d bytes", m.SHA256, m.BytesCopied)
	}
	raw, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	extra := raw[extraAt:]
	if le.Uint16(raw[4:]) != version45 || le.Uint16(raw[6:]) != 0 || le.Uint32(raw[18:]) != ones || le.Uint32(raw[22:]) != ones ||
		le.Uint16(extra) != zip64ID || le.Uint16(extra[2:]) != 16 || le.Uint64(extra[4:]) != uint64(len(data)) || le.Uint64(extra[12:]) != uint64(len(data)) {
		t.Errorf("header % x", raw[:extraAt+zip64Extra])
	}
	if le.Uint32(raw[crcAt:]) != z.File[0].CRC32 {
		t.Errorf("checksum %#x in the header, %#x in the directory", le.Uint32(raw[crcAt:]), z.File[0].CRC32)
	}
}

func content(t *testing.T, f *zip.File) []byte {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The original was written in Python, and so are readers of its archives.
func TestPythonReads(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("condition python3: not there")
	}
	const program = `
import hashlib, json, sys, zipfile
for path in sys.argv[1:]:
    z = zipfile.ZipFile(path)
    assert z.testzip() is None
    assert sorted(z.namelist()) == ["manifest.json", "tail.bin"], z.namelist()
    for i in z.infolist():
        assert i.compress_type == zipfile.ZIP_STORED and i.flag_bits == 0 and i.file_size == i.compress_size, i
    assert z.getinfo("tail.bin").date_time == (1980, 1, 1, 0, 0, 0)
    m = json.loads(z.read("manifest.json"))
    assert list(m) == ["schema_version", "captured_at", "source_path", "source_size_at_open", "bytes_copied", "sha256",
                       "source_may_be_live", "capture_outcome", "note"], list(m)
    data = z.read("tail.bin")
    assert len(data) == m["bytes_copied"] and hashlib.sha256(data).hexdigest() == m["sha256"]
    assert m["source_may_be_live"] is True and m["capture_outcome"] == "complete_bounded_read" and "do not prove" in m["note"]
    assert json.dumps(m, indent=2) + "\n" == z.read("manifest.json").decode("ascii")
`
	dir := private(t)
	args := []string{"-c", program}
	for _, data := range tails() {
		tail := write(t, filepath.Join(t.TempDir(), "tail é☃\"\t"), data)
		s, err := Take(t.Context(), Request{Tail: tail, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, s.Path)
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Six writers to one name in the original's tests, sixty-four here: one wins, the
// file is its own, no temporary file stays.
func TestOneName(t *testing.T) {
	dir := private(t)
	const writers = 64
	var wg sync.WaitGroup
	errs, won := make([]error, writers), make([]*Snapshot, writers)
	for i := range writers {
		tail := write(t, filepath.Join(t.TempDir(), "tail"), bytes.Repeat([]byte{byte(i)}, 100+i))
		wg.Go(func() { won[i], errs[i] = Take(t.Context(), Request{Tail: tail, Dir: dir, Name: "x.zip"}) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case err == nil:
			t.Errorf("%d and %d won", winner, i)
		case class(err) != Exists || !strings.Contains(err.Error(), "already exists; refusing to replace"):
			t.Errorf("%d: %v", i, err)
		}
	}
	if winner < 0 {
		t.Fatal("nobody won")
	}
	checkArchive(t, won[winner], bytes.Repeat([]byte{byte(winner)}, 100+winner))
	if got := entries(t, dir); !slices.Equal(got, []string{"x.zip"}) {
		t.Errorf("the directory holds %q", got)
	}
}

// What stands at the name stays, a dangling link and a directory included.
func TestExists(t *testing.T) {
	dir := private(t)
	tail := write(t, filepath.Join(t.TempDir(), "tail"), []byte("new"))
	write(t, filepath.Join(dir, "file"), []byte("old"))
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	names := []string{"file", "dir"}
	if os.Symlink("nowhere", filepath.Join(dir, "link")) == nil {
		// Wine says that it made one.
		if _, err := os.Lstat(filepath.Join(dir, "link")); err == nil {
			names = append(names, "link")
		}
	}
	before := entries(t, dir)
	for _, name := range names {
		if _, err := Take(t.Context(), Request{Tail: tail, Dir: dir, Name: name}); class(err) != Exists {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := entries(t, dir); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
}

// meddler runs what after the first bytes were read.
type meddler struct {
	r    io.Reader
	what func()
}

func (m *meddler) Read(p []byte) (int, error) {
	n, err := m.r.Read(p[:min(len(p), 100)])
	if m.what != nil {
		m.what()
		m.what = nil
	}
	return n, err
}

// A tail that is written, cut, replaced or removed while it is read gives a valid
// archive that says what was seen.
func TestLiveTail(t *testing.T) {
	old := bytes.Repeat([]byte("0123456789"), 5000)
	for _, c := range []struct {
		name   string
		what   func(name string) error
		want   []Change
		copied int64
	}{
		{"still", func(string) error { return nil }, nil, 50000},
		{"grew", func(name string) error { return atomicfile.Append(name, []byte("more"), 0o600) }, []Change{Grew}, 50000},
		{"shrank", func(name string) error { return os.Truncate(name, 1000) }, []Change{Shrank}, 1000},
		{"cut to nothing", func(name string) error { return os.Truncate(name, 0) }, []Change{Shrank}, 100},
		{"cut and grown", func(name string) error {
			return errors.Join(os.Truncate(name, 0), atomicfile.Append(name, bytes.Repeat([]byte("y"), 60000), 0o600))
		}, []Change{Grew}, 50000},
		{"rewritten", func(name string) error {
			return errors.Join(os.WriteFile(name, bytes.Repeat([]byte("z"), 50000), 0o600), os.Chtimes(name, date, date))
		}, []Change{Rewritten}, 50000},
		{"replaced", func(name string) error {
			return errors.Join(os.WriteFile(name+"2", nil, 0o600), atomicfile.Rename(name+"2", name))
		}, []Change{Replaced}, 50000},
		{"removed", os.Remove, []Change{Removed}, 50000},
		{"grown and replaced", func(name string) error {
			return errors.Join(atomicfile.Append(name, []byte("more"), 0o600), os.WriteFile(name+"2", nil, 0o600), atomicfile.Rename(name+"2", name))
		}, []Change{Grew, Replaced}, 50000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && (slices.Contains(c.want, Replaced) || slices.Contains(c.want, Removed)) {
				t.Skip("condition unix: an open file keeps its name on Windows")
			}
			dir := private(t)
			tail := write(t, filepath.Join(t.TempDir(), "tail"), old)
			root, err := openDestination(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			f, err := atomicfile.OpenRegular(tail)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var failed error
			m := &meddler{r: f, what: func() { failed = c.what(tail) }}
			s, err := (&taking{root: root, dir: dir, tail: tail, source: f, bytes: m}).run(t.Context())
			if failed != nil || err != nil {
				t.Fatal(failed, err)
			}
			if !slices.Equal(s.Observed, c.want) || s.Manifest.BytesCopied != c.copied || s.Manifest.SourceSizeAtOpen != 50000 {
				t.Errorf("observed %q, %d of %d bytes; want %q, %d", s.Observed, s.Manifest.BytesCopied, s.Manifest.SourceSizeAtOpen, c.want, c.copied)
			}
			if short := s.Manifest.CaptureOutcome == ShortRead; short != (c.copied < 50000) {
				t.Errorf("outcome %s for %d bytes", s.Manifest.CaptureOutcome, c.copied)
			}
			if _, err := Verify(t.Context(), s.Path); err != nil {
				t.Error(err)
			}
		})
	}
}

// A copy that is stopped leaves nothing.
func TestStopped(t *testing.T) {
	dir := private(t)
	tail := write(t, filepath.Join(t.TempDir(), "tail"), make([]byte, 100))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := Take(ctx, Request{Tail: tail, Dir: dir}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("the directory holds %q", got)
	}
}

// A read error is no short read.
func TestReadError(t *testing.T) {
	dir := private(t)
	f, err := os.OpenFile(filepath.Join(dir, "x"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = build(t.Context(), f, io.MultiReader(strings.NewReader("abc"), broken{}), 10, func(int64, []byte) Manifest { return Manifest{} })
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

// Memory does not grow with the tail.
func TestFlatMemory(t *testing.T) {
	dir := private(t)
	tail := write(t, filepath.Join(t.TempDir(), "tail"), nil)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for range 48 {
		if err := atomicfile.Append(tail, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Take(t.Context(), Request{Tail: tail, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes allocated for a tail of %d", n, 48*len(data))
	}
}

// pack makes an archive of members by hand.
func pack(t *testing.T, edit func(h *zip.FileHeader), members ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m[0], Method: zip.Store}
		if edit != nil {
			edit(h)
		}
		out, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(out, m[1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestVerify(t *testing.T) {
	m := newManifest("/x", date, 4, 4, sum("tail"))
	good := [2]string{"manifest.json", m.JSON("")}
	tail := [2]string{"tail.bin", "tail"}
	with := func(edit func(*Manifest)) [2]string {
		n := m
		edit(&n)
		return [2]string{"manifest.json", n.JSON("")}
	}
	flip := func(b []byte, at string) []byte {
		b[bytes.Index(b, []byte(at))] ^= 1
		return b
	}
	ordinary := pack(t, nil, tail, good)
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"good", "", ordinary},
		{"other order", "", pack(t, nil, good, tail)},
		{"nothing", "too short", nil},
		{"no archive", "not an archive", bytes.Repeat([]byte("x"), 1000)},
		{"cut", "not an archive", ordinary[:len(ordinary)-5]},
		{"bytes behind it", "not an archive", append(slices.Clone(ordinary), 0)},
		{"no member", "unexpected archive members", pack(t, nil)},
		{"one member", "unexpected archive members", pack(t, nil, tail)},
		{"three members", "unexpected archive members", pack(t, nil, tail, good, [2]string{"x", ""})},
		{"twice the same", "unexpected archive members", pack(t, nil, tail, tail)},
		{"another name", "unexpected archive members", pack(t, nil, tail, [2]string{"Manifest.json", good[1]})},
		{"compressed", "not stored", pack(t, func(h *zip.FileHeader) { h.Method = zip.Deflate }, tail, good)},
		{"manifest unreadable", "manifest unreadable", pack(t, nil, tail, [2]string{"manifest.json", "{"})},
		{"manifest large", "manifest unreadable", pack(t, nil, tail, [2]string{"manifest.json", strings.Repeat(" ", manifestMax+1)})},
		{"other schema", "schema_version", pack(t, nil, tail, with(func(m *Manifest) { m.SchemaVersion = 2 }))},
		{"length", "length mismatch", pack(t, nil, [2]string{"tail.bin", "tai"}, good)},
		{"digest", "digest mismatch", pack(t, nil, [2]string{"tail.bin", "tale"}, good)},
		{"bytes changed", "digest mismatch", flip(pack(t, nil, [2]string{"tail.bin", "tailtailtail"}, with(func(m *Manifest) {
			*m = newManifest("/x", date, 12, 12, sum("tailtailtail"))
		})), "tailtailtail")},
		{"outcome", "outcome contradicts", pack(t, nil, tail, with(func(m *Manifest) { m.CaptureOutcome = ShortRead }))},
		{"counts", "contradict", pack(t, nil, tail, with(func(m *Manifest) { m.SourceSizeAtOpen = 3 }))},
		{"short read", "", pack(t, nil, tail, with(func(m *Manifest) { *m = newManifest("/x", date, 5, 4, sum("tail")) }))},
	} {
		name := write(t, filepath.Join(t.TempDir(), "a.zip"), c.data)
		_, err := Verify(t.Context(), name)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (class(err) != Archive || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if _, err := Verify(t.Context(), name); class(err) != Source {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every fault that validation has to find, each alone, in an archive of our own.
func TestValidate(t *testing.T) {
	data := []byte("what the worker said")
	for _, c := range []struct {
		name, want string
		spoil      func(f *os.File, m *Manifest) error
	}{
		{"nothing", "", func(*os.File, *Manifest) error { return nil }},
		{"a byte of the tail", "digest mismatch", func(f *os.File, _ *Manifest) error {
			_, err := f.WriteAt([]byte("W"), int64(extraAt+zip64Extra))
			return err
		}},
		{"manifest", "manifest differs", func(_ *os.File, m *Manifest) error { m.Note = "x"; return nil }},
		{"end", "not an archive", func(f *os.File, _ *Manifest) error { _, err := f.WriteAt(make([]byte, 4), 700); return err }},
		{"cut", "not an archive", func(f *os.File, _ *Manifest) error { return f.Truncate(100) }},
	} {
		f, err := os.OpenFile(filepath.Join(t.TempDir(), "part"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m, err := build(t.Context(), f, bytes.NewReader(data), int64(len(data)), func(n int64, sum []byte) Manifest {
			return newManifest("/x", date, int64(len(data)), n, sum)
		})
		if err != nil {
			t.Fatal(err)
		}
		if c.name == "end" {
			fi, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			c.spoil = func(f *os.File, _ *Manifest) error { _, err := f.WriteAt(make([]byte, 4), fi.Size()-22); return err }
		}
		if err := c.spoil(f, &m); err != nil {
			t.Fatal(err)
		}
		err = validate(t.Context(), f, m)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (class(err) != Archive || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestManifestJSON(t *testing.T) {
	m := newManifest("/tmp/a \"b\"\\\xff é😀", date, 3, 2, sum("x"))
	want := `{
  "schema_version": 1,
  "captured_at": "2026-11-29T12:00:00Z",
  "source_path": "/tmp/a \"b\"\\\udcff \u00e9\ud83d\ude00",
  "source_size_at_open": 3,
  "bytes_copied": 2,
  "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
  "source_may_be_live": true,
  "capture_outcome": "short_read",
  "note": ` + Quote(note) + `
}`
	if got := m.JSON(""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(note, "do not prove") {
		t.Error("the note lacks its words")
	}
}

// Any bytes: an answer, in bounded memory.
func FuzzCheck(f *testing.F) {
	m := newManifest("/x", date, 4, 4, sum("tail"))
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{"tail.bin": "tail", "manifest.json": m.JSON("")} {
		out, _ := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		io.WriteString(out, text)
	}
	w.Close()
	f.Add(b.Bytes())
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := check(t.Context(), bytes.NewReader(data), int64(len(data)))
		if err == nil {
			if int64(len(data)) < c.size {
				t.Errorf("%d bytes in an archive of %d", c.size, len(data))
			}
			_, _ = readManifest(c.manifest)
		}
	})
}

func BenchmarkTake(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "private")
	tail := filepath.Join(b.TempDir(), "tail")
	const size = 256 << 20
	if err := os.WriteFile(tail, bytes.Repeat([]byte("0123456789abcdef"), size/16), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		s, err := Take(b.Context(), Request{Tail: tail, Dir: dir, Name: fmt.Sprint(i)})
		if err != nil {
			b.Fatal(err)
		}
		os.Remove(s.Path)
	}
}

func sum(text string) []byte {
	s := sha256.Sum256([]byte(text))
	return s[:]
}

var date = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// An archive as the original tool made it is one.
func TestVerifyPythonArchive(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("condition python3: not there")
	}
	m := newManifest("/x", date, 4, 4, sum("tail"))
	name := filepath.Join(t.TempDir(), "a.zip")
	c := exec.Command(python, "-c", `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_STORED, allowZip64=True) as z:
    with z.open(zipfile.ZipInfo("tail.bin"), "w", force_zip64=True) as f:
        f.write(b"tail")
    z.writestr("manifest.json", sys.argv[2])
`, name, m.JSON(""))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := Verify(t.Context(), name); err != nil || got != m {
		t.Errorf("%+v, %v", got, err)
	}
}
