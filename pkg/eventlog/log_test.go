package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func openTest(t testing.TB, limit int64) (*Log, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "events.jsonl")
	l, err := Open(name, limit)
	if err != nil {
		t.Fatal(err)
	}
	return l, name
}

func all(t testing.TB, name string, tail int) string {
	t.Helper()
	var b bytes.Buffer
	if err := Copy(&b, name, tail); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLinesStayWhole(t *testing.T) {
	l, name := openTest(t, 1<<20)
	for _, p := range []string{"{\"a\":1}\n\n \xe2\x80\xa8x", "y\r", "\n", "last"} {
		l.Write([]byte(p))
	}
	if got := all(t, name, 0); got != "{\"a\":1}\n \u2028xy\r\n" && got != "{\"a\":1}\n \u2028xy\n" {
		t.Errorf("got %q", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := all(t, name, 1); got != "last\n" {
		t.Errorf("last line %q", got)
	}
	if fi, _ := os.Stat(name); runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
}

// Whatever is written in whatever pieces: at every moment the current file is within the cap and every line of it is
// whole; in the end the newest lines are there, in order, across the rotations.
func TestCapHoldsAtEveryMoment(t *testing.T) {
	const limit = 128 << 10
	l, name := openTest(t, limit)
	r := rand.New(rand.NewPCG(1, 2))
	next := 0
	var rest []byte
	for range 3000 {
		for len(rest) < 4000 {
			size := r.IntN(600)
			if r.IntN(400) == 0 {
				size = r.IntN(200 << 10)
			}
			rest = fmt.Appendf(rest, `{"n":%d,"pad":"%s"}`+"\n", next, strings.Repeat("x", size))
			next++
		}
		n := 1 + r.IntN(4000)
		l.Write(rest[:n])
		rest = rest[n:]
		fi, err := os.Stat(name)
		if err != nil || fi.Size() > limit {
			t.Fatalf("size %d, %v", fi.Size(), err)
		}
	}
	l.Write(rest)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var packed int64
	for _, s := range Segments(name) {
		if s.Name != name {
			packed += s.Size
			if !strings.HasSuffix(s.Name, suffix) {
				t.Errorf("not compressed: %s", s.Name)
			}
		}
	}
	if packed == 0 || packed > limit {
		t.Errorf("segments hold %d bytes", packed)
	}
	want, seen, cuts := -1, 0, 0
	for line := range strings.Lines(all(t, name, 0)) {
		var o struct {
			N      *int
			Type   string
			Length int
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("line %.80q: %v", line, err)
		}
		switch {
		case o.Type == "herd.cut":
			cuts++
			want++
		case o.Type == "herd.dropped":
		case o.N != nil:
			if seen > 0 && *o.N != want {
				t.Fatalf("line %d follows %d", *o.N, want-1)
			}
			want = *o.N + 1
		}
		seen++
	}
	if want != next || seen < 100 || cuts == 0 {
		t.Errorf("last line %d of %d, %d seen, %d cut", want, next, seen, cuts)
	}
	if got := strings.Count(all(t, name, 700), "\n"); got != 700 {
		t.Errorf("the last 700 are %d", got)
	}
	if whole, less := all(t, name, 0), all(t, name, -10); strings.Count(whole, "\n")-strings.Count(less, "\n") != 10 || !strings.HasSuffix(whole, less) {
		t.Error("all but the first ten")
	}
}

func TestReopen(t *testing.T) {
	l, name := openTest(t, 1<<20)
	l.Write([]byte("one\ntwo"))
	l.f.Close() // as a kill would
	os.WriteFile(segmentName(name, 1), []byte("zero\n"), 0o600)
	l, err := Open(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	from := l.Position()
	l.Write([]byte("three\n"))
	l.Close()
	if got := all(t, name, 0); got != "zero\none\ntwo\nthree\n" {
		t.Errorf("got %q", got)
	}
	var b bytes.Buffer
	if err := CopyRange(&b, name, 0, from, nil); err != nil || b.String() != "three\n" {
		t.Errorf("from %v: %q %v", from, b.String(), err)
	}
	b.Reset()
	if err := CopyRange(&b, name, 0, Position{}, &from); err != nil || b.String() != "zero\none\ntwo\n" {
		t.Errorf("to %v: %q %v", from, b.String(), err)
	}
}

// A line without an end costs no memory.
func TestHugeLine(t *testing.T) {
	l, name := openTest(t, 32<<20)
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l.Write([]byte(`{"pad":"`))
	for range 1024 {
		l.Write(chunk)
	}
	l.Write([]byte("\"}\n{\"next\":1}\n"))
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
	l.Close()
	list := strings.Split(strings.TrimSpace(all(t, name, 0)), "\n")
	var o struct {
		Type, Head string
		Length     int64
	}
	if err := json.Unmarshal([]byte(list[0]), &o); err != nil || o.Type != "herd.cut" || o.Length != 64<<20+10 || !strings.HasPrefix(o.Head, `{"pad":"xx`) {
		t.Errorf("%v %v %d %.20q", err, o.Type, o.Length, o.Head)
	}
	if len(list) != 2 || list[1] != `{"next":1}` {
		t.Errorf("%d lines, the last %.40q", len(list), list[len(list)-1])
	}
}

func TestBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stderr.log")
	b, err := OpenBounded(name, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		fmt.Fprintf(b, "line %d of many\n", i)
		if fi, err := os.Stat(name); err != nil || fi.Size() > 64<<10 {
			t.Fatalf("size %d, %v", fi.Size(), err)
		}
	}
	b.Write(bytes.Repeat([]byte("y"), 300<<10))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(name)
	if len(text) > 64<<10 || !bytes.HasPrefix(text, []byte("[")) || !bytes.HasSuffix(text, []byte("yyyy")) {
		t.Errorf("%d bytes, %.30q", len(text), text)
	}
}

// FuzzLog: any bytes in any pieces leave whole lines within the cap.
func FuzzLog(f *testing.F) {
	f.Add([]byte("a\n\nb\r\n{}"), byte(3))
	f.Add(bytes.Repeat([]byte("0123456789\n"), 9000), byte(200))
	f.Add(bytes.Repeat([]byte("z"), 140<<10), byte(255))
	f.Fuzz(func(t *testing.T, text []byte, step byte) {
		l, name := openTest(t, 64<<10)
		for n := int(step) + 1; len(text) > 0; {
			p := text[:min(n*n, len(text))]
			l.Write(p)
			text = text[len(p):]
			if fi, err := os.Stat(name); err != nil || fi.Size() > 64<<10 {
				t.Fatalf("size %d, %v", fi.Size(), err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := all(t, name, 0); got != "" && !strings.HasSuffix(got, "\n") || strings.Contains(got, "\n\n") {
			t.Fatalf("%.100q", got)
		}
	})
}
