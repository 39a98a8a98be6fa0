package state

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLedger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger.jsonl")
	if _, _, err := ReadLedger(file); !isMissing(err) {
		t.Errorf("a missing ledger: %v", err)
	}
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	a := Entry{ID: "a", Executor: "m", Backend: "codex", StateDir: "/s/a", ResultFile: "/r/a", Status: LedgerQueued, Start: start}
	b := a
	b.ID, b.StateDir, b.Status = "b", "/s/b", LedgerDispatched
	for _, e := range []Entry{a, b} {
		if err := AppendLedger(file, e); err != nil {
			t.Fatal(err)
		}
	}
	a.Status = LedgerDispatched
	if err := AppendLedger(file, a); err != nil {
		t.Fatal(err)
	}
	o := Outcome{Cause: Failed, ExitCode: new(3), EndedAt: start.Add(time.Minute), Model: "m2"}
	if err := EndLedger(file, "/s/a", o); err != nil {
		t.Fatal(err)
	}
	// A second concluder adds nothing.
	if err := EndLedger(file, "/s/a", Outcome{Cause: Lost}); err != nil {
		t.Fatal(err)
	}
	entries, warnings, err := ReadLedger(file)
	if err != nil || len(warnings) > 0 || len(entries) != 2 {
		t.Fatalf("%+v, %q, %v", entries, warnings, err)
	}
	got := entries[0]
	if got.ID != "a" || got.Status != LedgerFailed || got.Cause != Failed || *got.ExitCode != 3 || !got.End.Equal(o.EndedAt) || got.Executor != "m2" || got.ResultFile != "/r/a" {
		t.Errorf("ended as %+v", got)
	}
	if entries[1].Ended() || entries[1].ID != "b" {
		t.Errorf("the other is %+v", entries[1])
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	const want = `{"schema_version":1,"id":"a","executor":"m","backend":"codex","mode":"","prompt_file":"","state_dir":"/s/a","clone_dir":"",` +
		`"result_file":"/r/a","status":"queued","start":"2026-11-29T12:00:00Z","end":null,"continued_from":"","cause":"","exit_code":null}`
	if lines[0] != want || len(lines) != 5 || lines[4] != "" {
		t.Errorf("ledger\n%s", text)
	}
}

// A dispatcher that was killed while it wrote leaves half a line; the next one
// must not be glued to it.
func TestLedgerAfterATornLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "l")
	writeFile(t, file, `{"id":"a","state_dir":"/s/a"`)
	if err := AppendLedger(file, Entry{ID: "b", StateDir: "/s/b"}); err != nil {
		t.Fatal(err)
	}
	entries, warnings, err := ReadLedger(file)
	if err != nil || len(entries) != 1 || entries[0].ID != "b" || len(warnings) != 1 {
		t.Errorf("%+v, %q, %v", entries, warnings, err)
	}
}

func TestLedgerNoise(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("\n\ufeff\n[]\n7\n\"x\"\nnull\n{}\n{\"state_dir\":\"\"}\n")
	text.WriteString(strings.Repeat("x", ledgerLineMax+10) + "\n")
	for i := range 30 {
		fmt.Fprintf(&text, "bad %d\n", i)
	}
	text.WriteString(`{"id":"a","state_dir":"/s/a","later":true}` + "\r\n" + `{"id":"b","state_dir":"/s/b"}`)
	entries, warnings, err := readLedger(&text)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 || entries[0].Extra["later"] == nil || entries[1].ID != "b" {
		t.Errorf("entries %+v", entries)
	}
	if len(warnings) != ledgerWarnings+1 || warnings[0] != "line 2: not a ledger entry" {
		t.Errorf("%d warnings, %q", len(warnings), warnings[0])
	}
}

func TestLedgerGate(t *testing.T) {
	if _, _, err := ReadLedger(t.TempDir()); err == nil {
		t.Error("a directory read as a ledger")
	}
	if err := AppendLedger(t.TempDir(), Entry{StateDir: "/s"}); err == nil {
		t.Error("appended to a directory")
	}
	if err := AppendLedger(filepath.Join(t.TempDir(), "none", "l"), Entry{StateDir: "/s"}); err == nil {
		t.Error("appended to a ledger in a missing directory")
	}
}

func TestLedgerWritersDoNotMix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "l")
	const writers, each = 8, 12
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				e := Entry{ID: strings.Repeat("x", 3000), StateDir: fmt.Sprintf("/s/%d-%d", w, i)}
				if err := AppendLedger(file, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries, warnings, err := ReadLedger(file)
	if err != nil || len(entries) != writers*each || len(warnings) > 0 {
		t.Errorf("%d entries, %q, %v", len(entries), warnings, err)
	}
}

// A ledger of a long life must not fill the memory.
func TestLedgerIsReadInFlatMemory(t *testing.T) {
	line := []byte(`{"id":"a","state_dir":"/s/a","prompt_file":"` + strings.Repeat("p", 2000) + `"}` + "\n")
	r := &repeat{line: line, left: 3000}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	entries, _, err := readLedger(r)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// repeat reads as one line, many times over.
type repeat struct {
	line []byte
	at   int
	left int
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.line[r.at:])
	if r.at += n; r.at == len(r.line) {
		r.at = 0
		r.left--
	}
	return n, nil
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"id":"a","state_dir":"/s"}` + "\n" + `{"id":"b","state_dir":"/s","end":"2026-11-29T12:00:00Z"}`))
	f.Add([]byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _, err := readLedger(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		for _, e := range entries {
			line, err := encodeJSON(e)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(append(line, '\n'))
		}
		again, warnings, err := readLedger(&text)
		if err != nil || len(again) != len(entries) || len(warnings) > 0 {
			t.Errorf("%q: %d entries, then %d (%q, %v)", data, len(entries), len(again), warnings, err)
		}
	})
}

// A ledger that was made for a refused unit goes, lock and all, but not when
// another unit has counted on it meanwhile; and whoever makes it again makes it for
// its owner alone.
func TestRemoveEmptyLedger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger.jsonl")
	writeFile(t, file, "")
	if err := RemoveEmptyLedger(file); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if i%2 == 0 {
				if err := RemoveEmptyLedger(file); err != nil {
					t.Error(err)
				}
				return
			}
			if err := AppendLedger(file, Entry{ID: "u", StateDir: fmt.Sprint("/s", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	entries, warnings, err := ReadLedger(file)
	if err != nil || len(entries) != 20 || len(warnings) > 0 {
		t.Errorf("%d entries, want 20: %v %v", len(entries), warnings, err)
	}
	if m := mode(t, file); m != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("mode %o", m)
	}
}
