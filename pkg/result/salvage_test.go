package result

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func salvaged(t testing.TB, s Salvage) string {
	t.Helper()
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	must(t, err)
	if n != int64(b.Len()) {
		t.Errorf("says %d bytes, wrote %d", n, b.Len())
	}
	line, _, _ := strings.Cut(b.String(), "\n")
	if !IsFallbackHeader([]byte(line)) {
		t.Errorf("line 1 is %q", line)
	}
	return b.String()
}

func TestSalvageTexts(t *testing.T) {
	dir := tempDir(t)
	tail, stderr := filepath.Join(dir, "tail"), filepath.Join(dir, "tail.stderr-tmp")
	write(t, tail, "\n said \xff\r\n ")
	write(t, stderr, "``` quoted\n\n")
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		s    Salvage
		want string
	}{
		{Salvage{Form: FormCodex, Unit: "u1", Tool: "dispatch-task", Tail: tail},
			"# u1 result (FALLBACK, worker wrote no result file)\n" +
				"Conclusion: INCOMPLETE; structured result missing, raw worker output salvaged from the dispatch tail below.\n" +
				"Files: unknown\n" +
				"Open items: worker did not write its result file; review the raw output below or re-dispatch this unit.\n" +
				"Verification: none (salvaged by dispatch-task, not by the worker)\n" +
				"\n\n said \xff\r\n "},
		{Salvage{Form: FormCodex, Unit: "u1", Tool: "dispatch-task", Reason: "idle-stall", Reaped: true, Tail: tail},
			"# u1 result (FALLBACK, worker wrote no result file)\n" +
				"Conclusion: INCOMPLETE; worker was reaped by dispatch-task (idle-stall) before writing a result; raw worker output salvaged from the dispatch tail below.\n" +
				"Files: unknown\n" +
				"Open items: worker was reaped by dispatch-task (idle-stall); review the raw output below or re-dispatch this unit.\n" +
				"Verification: none (worker reaped by dispatch-task; tail salvaged by dispatch-task)\n" +
				"\n\n said \xff\r\n "},
		{Salvage{Form: FormCodex, Unit: "u1", Reason: "stopped by\nsignal 15", Tail: none, Note: "tree not proven empty"},
			"# u1 result (FALLBACK, worker wrote no result file)\n" +
				"Conclusion: INCOMPLETE; stopped by signal 15\n" +
				"Files: unknown\n" +
				"Open items: stopped by signal 15; review the raw output below or re-dispatch this unit.\n" +
				"Verification: none (salvaged by prun-dispatch, not by the worker)\n" +
				"Note: tree not proven empty\n\n"},
		{Salvage{Form: FormAgy, Unit: "u1", Reason: "Agy exited with code 3", Tail: tail, Stderr: stderr},
			"# u1 result (FALLBACK, Agy wrote no final result)\n" +
				"Conclusion: INCOMPLETE; Agy exited with code 3\n" +
				"Files: unknown\n" +
				"Open items: Agy exited with code 3\n" +
				"Verification: none (dispatcher fallback)\n" +
				"\n## stdout events\n\n```text\nsaid \xff\n```\n" +
				"\n## stderr\n\n````text\n``` quoted\n````\n"},
		{Salvage{Form: FormAgy, Unit: "u1", Reason: "bad\xff\x1b[1m\x00 byte", Stderr: stderr},
			"# u1 result (FALLBACK, Agy wrote no final result)\n" +
				"Conclusion: INCOMPLETE; bad\ufffd\ufffd[1m\ufffd byte\n" +
				"Files: unknown\n" +
				"Open items: bad\ufffd\ufffd[1m\ufffd byte\n" +
				"Verification: none (dispatcher fallback)\n" +
				"\n## stderr\n\n````text\n``` quoted\n````\n"},
		{Salvage{Form: FormNamed, Unit: "u1", Backend: "claude", Reason: "r", Tail: none},
			"# u1 result (FALLBACK, claude wrote no final result)\n" +
				"Conclusion: INCOMPLETE; r\nFiles: unknown\nOpen items: r\nVerification: none (dispatcher fallback)\n" +
				"\nNo worker output was captured.\n"},
	} {
		if got := salvaged(t, c.s); got != c.want {
			t.Errorf("%+v\n got %q\nwant %q", c.s, got, c.want)
		}
	}
	write(t, tail, " \n\t\r\n")
	if got := salvaged(t, Salvage{Form: FormAgy, Unit: "u", Tail: tail}); !strings.HasSuffix(got, "\n\nNo worker output was captured.\n") {
		t.Errorf("only blanks: %q", got)
	}
	if got := salvaged(t, Salvage{Form: FormCodex, Unit: "u", Tail: dir}); !strings.HasSuffix(got, "not a regular file]\n") {
		t.Errorf("a directory as tail: %q", got)
	}
}

// TestFenceHolds: output that holds three backticks ended the block.
func TestFenceHolds(t *testing.T) {
	tail := filepath.Join(tempDir(t), "tail")
	for _, n := range []int{0, 1, 2, 3, 4, chunk - 1, chunk, 3*chunk + 5} {
		write(t, tail, "x"+strings.Repeat("`", n/2)+" "+strings.Repeat("`", n)+"\nend")
		got := salvaged(t, Salvage{Form: FormAgy, Unit: "u", Tail: tail})
		fence := strings.Repeat("`", max(3, n+1))
		if !strings.Contains(got, "\n"+fence+"text\nx") || !strings.HasSuffix(got, "\nend\n"+fence+"\n") {
			t.Errorf("%d backticks: %s", n, short(got))
		}
	}
}

func TestLongTail(t *testing.T) {
	dir := tempDir(t)
	tail, stderr := filepath.Join(dir, "tail"), filepath.Join(dir, "stderr")
	const half = bodyMax / 2
	// Characters of three bytes, so that both cuts fall inside one.
	body := "ab" + strings.Repeat("世", (bodyMax+3000)/3) + "z"
	write(t, tail, body)
	got := salvaged(t, Salvage{Form: FormCodex, Unit: "u", Tail: tail})
	if !utf8.ValidString(got) {
		t.Error("a character was cut")
	}
	_, shown, _ := strings.Cut(got, "\n\n")
	before, rest, ok := strings.Cut(shown, "\n[prun: ")
	line, after, ok2 := strings.Cut(rest, "]\n")
	if !ok || !ok2 || strings.Contains(line, "\n") || !strings.Contains(line, tail) {
		t.Fatalf("no line about what is left out: %s", short(shown))
	}
	if !strings.HasPrefix(body, before) || !strings.HasSuffix(body, after) || len(before) <= half-3 || len(before) > half ||
		len(after) <= half-3 || len(after) > half {
		t.Errorf("%d bytes before, %d after", len(before), len(after))
	}
	if want := fmt.Sprintf("%d of %d bytes are left out here, from offset %d;", len(body)-len(before)-len(after), len(body), len(before)); !strings.HasPrefix(line, want) {
		t.Errorf("%q, want %q", line, want)
	}
	// Exactly 4 MiB is whole.
	write(t, tail, body[:bodyMax])
	if got := salvaged(t, Salvage{Form: FormCodex, Unit: "u", Tail: tail}); !strings.HasSuffix(got, "\n\n"+body[:bodyMax]) {
		t.Error("4 MiB are not whole")
	}
	// Two long files share.
	for _, c := range []struct{ tail, stderr int }{{5 << 20, 5 << 20}, {5 << 20, 10}, {10, 5 << 20}, {bodyMax - 10, 20}} {
		write(t, tail, strings.Repeat("t", c.tail))
		write(t, stderr, strings.Repeat("e", c.stderr))
		got := salvaged(t, Salvage{Form: FormAgy, Unit: "u", Tail: tail, Stderr: stderr})
		tt, ee := strings.Count(got, "t"), strings.Count(got, "e")
		if tt+ee > bodyMax+1000 || tt < min(c.tail, bodyMax-stderrMin)-10 || ee < min(c.stderr, stderrMin) {
			t.Errorf("%+v: %d of the tail, %d of stderr", c, tt, ee)
		}
	}
	// Binary output is cut where it is.
	write(t, tail, strings.Repeat("\x80", bodyMax+1))
	got = salvaged(t, Salvage{Form: FormCodex, Unit: "u", Tail: tail})
	if n := strings.Count(got, "\x80"); n != bodyMax {
		t.Errorf("%d of %d bytes", n, bodyMax)
	}
}

// TestHugeTailIsFlat: the whole tail was read into memory, and twice.
func TestHugeTailIsFlat(t *testing.T) {
	dir := tempDir(t)
	tail := filepath.Join(dir, "tail")
	sizes := []int64{4 << 30, 1 << 30} // sparse, one line
	if runtime.GOOS == "windows" {
		sizes = []int64{64 << 20} // NTFS writes the zeros
	}
	for _, size := range sizes {
		f, err := os.Create(tail)
		must(t, err)
		if err := f.Truncate(size); err != nil {
			t.Skipf("no sparse file of %d bytes here: %v", size, err)
		}
		_, err = f.WriteAt([]byte(" end "), size-5)
		must(t, err)
		must(t, f.Close())
		for _, form := range []Form{FormCodex, FormAgy} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			n, err := Salvage{Form: form, Unit: "u", Tail: tail}.WriteTo(io.Discard)
			runtime.ReadMemStats(&after)
			must(t, err)
			if n < bodyMax || n > bodyMax+2000 {
				t.Errorf("%d bytes written", n)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("form %d, %d bytes of tail: %d bytes allocated", form, size, used)
			}
		}
	}
}

func TestSalvageSaysWhatTheWriterSays(t *testing.T) {
	full := errors.New("full")
	for _, size := range []int{0, 100, 300} {
		room := size
		n, err := Salvage{Form: FormAgy, Unit: "u"}.WriteTo(writerFunc(func(p []byte) (int, error) {
			fits := min(len(p), room)
			room -= fits
			if fits < len(p) {
				return fits, full
			}
			return fits, nil
		}))
		if wrong := size < 200; errors.Is(err, full) != wrong || n != int64(size-room) {
			t.Errorf("room for %d: %d bytes, %v", size, n, err)
		}
	}
}

func FuzzSalvage(f *testing.F) {
	f.Add("u", "reason", []byte("tail ``` \xff"), []byte("err"))
	dir := tempDir(f)
	f.Fuzz(func(t *testing.T, unit, reason string, tail, stderr []byte) {
		s := Salvage{Form: FormAgy, Unit: "u1", Reason: reason, Tail: filepath.Join(dir, "tail"), Stderr: filepath.Join(dir, "stderr")}
		write(t, s.Tail, string(tail))
		write(t, s.Stderr, string(stderr))
		got := salvaged(t, s)
		const blanks = " \t\n\v\f\r"
		if want := bytes.Trim(tail, blanks); !strings.Contains(got, string(want)) {
			t.Errorf("the tail %q is not in %q", want, got)
		}
		header, _, _ := strings.Cut(got, "\n\n")
		if strings.Count(header, "\n") != 4 || !utf8.ValidString(header) {
			t.Errorf("header %q", header)
		}
		s.Form = FormCodex
		s.Stderr = ""
		if got := salvaged(t, s); !strings.HasSuffix(got, "\n\n"+string(tail)) {
			t.Errorf("the tail %q is not at the end of %q", tail, got)
		}
	})
}

func BenchmarkSalvage(b *testing.B) {
	tail := filepath.Join(tempDir(b), "tail")
	must(b, os.WriteFile(tail, bytes.Repeat([]byte("words of a worker\n"), 1<<20), 0o600))
	for _, form := range []Form{FormCodex, FormAgy} {
		b.Run(fmt.Sprint("form", form), func(b *testing.B) {
			b.SetBytes(bodyMax)
			for b.Loop() {
				if _, err := (Salvage{Form: form, Unit: "u", Tail: tail}).WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
