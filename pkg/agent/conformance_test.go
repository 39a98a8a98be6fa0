package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata/agent")

const transcripts = "../../testdata/agent"

// A suite is testdata/agent/<backend>/cases.json: turns whose command lines are compared with commands.golden.json,
// and cases whose output files (<case>.stdout, .stderr, or .tail for both in one) are replayed and whose transcript
// and verdict are compared with verdicts.golden.json.
type suite struct {
	Commands map[string]Turn `json:"commands"`
	Cases    map[string]struct {
		Files  string `json:"files"` // the case whose files these are, when not its own
		Turn   Turn   `json:"turn"`
		Ending Ending `json:"ending"`
	} `json:"cases"`
}

func loadSuite(t testing.TB, name string) suite {
	t.Helper()
	var s suite
	data, err := os.ReadFile(filepath.Join(transcripts, name, "cases.json"))
	if err != nil {
		t.Fatalf("backend %s has no transcripts: %v", name, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

func golden(t *testing.T, backend, file string, got any) {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(transcripts, backend, file)
	if *update {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")); !bytes.Equal(text.Bytes(), want) {
		t.Errorf("%s differs (run with -update and read the difference); got\n%s", path, text.Bytes())
	}
}

func TestRegistry(t *testing.T) {
	if got := Names(); !slices.IsSorted(got) || len(slices.Compact(got)) != len(All()) {
		t.Errorf("names %q", got)
	}
	if _, ok := Lookup("nosuch"); ok {
		t.Error("found a backend named nosuch")
	}
	for _, b := range All() {
		if got, ok := Lookup(b.Name()); !ok || got.Name() != b.Name() {
			t.Errorf("%s is not found", b.Name())
		}
	}
}

func TestCapabilities(t *testing.T) {
	for _, b := range All() {
		t.Run(b.Name(), func(t *testing.T) {
			c, s := b.Capabilities(), loadSuite(t, b.Name())
			if b.Summary() == "" || strings.ContainsAny(b.Summary(), "\n.") {
				t.Errorf("summary %q", b.Summary())
			}
			if len(c.Doors) == 0 {
				t.Error("no door")
			}
			for _, d := range c.Doors {
				if d != DoorDispatch && d != DoorHerd && d != DoorFanout {
					t.Errorf("door %q", d)
				}
				if d == DoorHerd && (!c.Streams || !c.Resumes) {
					t.Error("herd needs a backend that streams and resumes")
				}
				if len(Stops(b, d)) == 0 || Stops(b, d)[0].Signal <= 0 || Stops(b, d)[0].Wait <= 0 {
					t.Errorf("door %s: stops %v", d, Stops(b, d))
				}
			}
			needed := []string{"ok", "error", "truncated", "quota"}
			if c.Streams {
				needed = append(needed, "no-session")
			}
			if c.Resumes {
				needed = append(needed, "resume", "resume-other")
			}
			for _, n := range needed {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(s.Cases)), func(k string) bool {
					return k == n || strings.HasPrefix(k, n+"-")
				}) {
					t.Errorf("no transcript %s", n)
				}
			}
			turn := s.Commands["spawn"]
			turn.Resume = "01a22837-9239-74d3-8b29-9caab1dd2b89"
			_, err := b.Command(turn)
			if c.Resumes != (err == nil) {
				t.Errorf("resumes is %v, and the command of a resumed turn says %v", c.Resumes, err)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	for _, b := range All() {
		t.Run(b.Name(), func(t *testing.T) {
			type command struct {
				Path  string   `json:"path,omitempty"`
				Args  []string `json:"args,omitempty"`
				Env   []string `json:"env,omitempty"`
				Error string   `json:"error,omitempty"`
			}
			got := map[string]command{}
			for name, turn := range loadSuite(t, b.Name()).Commands {
				c, err := b.Command(turn)
				if err != nil {
					if !errors.Is(err, ErrBadTurn) && !errors.Is(err, ErrBadResume) {
						t.Errorf("%s: %v", name, err)
					}
					got[name] = command{Error: err.Error()}
					continue
				}
				for i := range c.Args {
					// The recorded ones have the separators of unix.
					c.Args[i] = filepath.ToSlash(c.Args[i])
				}
				got[name] = command{Path: c.Path, Args: c.Args, Env: c.Env}
			}
			golden(t, b.Name(), "commands.golden.json", got)
		})
	}
}

// A command line is public and bounded: the prompt goes to standard input, whole, whatever it holds.
func TestPromptsGoToStandardInput(t *testing.T) {
	for _, b := range All() {
		for name, prompt := range map[string]string{
			"words":     "do the zq9 thing",
			"dash":      "--zq9",
			"large":     strings.Repeat("zq9 ", 100_000),
			"bad bytes": "zq9 \xff\xfe\x00 \u2028 caf\u00e9 <>&",
			"lines":     "zq9\r\nzq9\r\n\r\n",
		} {
			turn := loadSuite(t, b.Name()).Commands["spawn"]
			c, err := b.Command(turn)
			if err != nil {
				t.Fatal(err)
			}
			in, err := b.Stdin(turn, []byte(prompt))
			if err != nil {
				t.Fatalf("%s, %s: %v", b.Name(), name, err)
			}
			if in == nil {
				// The prompt goes by a file, which holds what the relay says.
				r, ok := b.(Relayer)
				if !ok {
					t.Fatalf("%s, %s: nothing on standard input and no file", b.Name(), name)
				}
				in = []byte(r.Relay(turn, []byte(prompt)))
			}
			if strings.Contains(strings.Join(append(c.Args, c.Env...), " "), "zq9") {
				t.Errorf("%s, %s: the prompt is on the command line", b.Name(), name)
			}
			if bytes.Count(in, []byte("zq9")) != strings.Count(prompt, "zq9") {
				t.Errorf("%s, %s: the prompt did not arrive whole", b.Name(), name)
			}
			if _, wraps := b.(Relayer); !wraps && string(in) != prompt {
				t.Errorf("%s, %s: the prompt was changed", b.Name(), name)
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, b := range All() {
		t.Run(b.Name(), func(t *testing.T) {
			type outcome struct {
				Transcript Transcript `json:"transcript"`
				Quiet      int64      `json:"quiet,omitempty"`
				Verdict    Verdict    `json:"verdict"`
			}
			got := map[string]outcome{}
			for name, c := range loadSuite(t, b.Name()).Cases {
				files := name
				if c.Files != "" {
					files = c.Files
				}
				var first outcome
				for _, step := range []int{1 << 20, 7} {
					tr, quiet := replay(t, b, c.Turn, files, step)
					o := outcome{*tr, quiet, b.Judge(c.Turn, tr, c.Ending)}
					consistent(t, name, c.Ending, o.Verdict)
					if step == 1<<20 {
						first = o
					} else if !equalJSON(t, first, o) {
						t.Errorf("%s: reading in pieces of %d bytes changes the outcome", name, step)
					}
				}
				got[name] = first
			}
			golden(t, b.Name(), "verdicts.golden.json", got)
		})
	}
}

// replay feeds a case's files to a parser.
func replay(t *testing.T, b Backend, turn Turn, files string, step int) (*Transcript, int64) {
	t.Helper()
	tr := &Transcript{}
	p := b.NewParser(turn)
	var quiet int64
	found := false
	for _, f := range []struct {
		suffix string
		stream Stream
	}{{".stdout", Stdout}, {".stderr", Stderr}, {".tail", Merged}} {
		data, err := os.ReadFile(filepath.Join(transcripts, b.Name(), files+f.suffix))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		found = true
		fd := NewFeed(p, tr, f.stream)
		for len(data) > 0 {
			n := min(step, len(data))
			fd.Write(data[:n])
			data = data[n:]
		}
		fd.Close()
		quiet += fd.Quiet()
	}
	if !found {
		t.Fatalf("no files for case %s of %s", files, b.Name())
	}
	return tr, quiet
}

// consistent checks what is true of every verdict.
func consistent(t *testing.T, name string, x Ending, v Verdict) {
	t.Helper()
	if v.OK != (v.ExitStatus == 0) || v.OK != (v.Reason == "") {
		t.Errorf("%s: ok %v, exit %d, reason %q", name, v.OK, v.ExitStatus, v.Reason)
	}
	if !x.clean() && v.ExitStatus != x.exitStatus() {
		t.Errorf("%s: the worker's status %d became %d", name, x.exitStatus(), v.ExitStatus)
	}
	if !v.OK && !x.WorkerResult && v.Response != "" {
		t.Errorf("%s: a failed turn publishes %q", name, v.Response)
	}
	for _, s := range append([]string{v.Reason}, v.Notes...) {
		if strings.ContainsAny(s, "\n\r\x00\x1b") || !utf8.ValidString(s) || len(s) > maxShort+1024 {
			t.Errorf("%s: %q does not fit on a line", name, s)
		}
	}
	if !utf8.ValidString(v.Response) || v.Response != "" && (!strings.HasSuffix(v.Response, "\n") || strings.TrimSpace(v.Response) == "") {
		t.Errorf("%s: response %q", name, v.Response)
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

// seedLines gives a fuzz target every recorded stream.
func seedLines(f *testing.F) {
	f.Helper()
	for _, b := range All() {
		for _, suffix := range []string{"stdout", "stderr", "tail"} {
			names, err := filepath.Glob(filepath.Join(transcripts, b.Name(), "*."+suffix))
			if err != nil {
				f.Fatal(err)
			}
			for _, name := range names {
				data, err := os.ReadFile(name)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(data, byte(len(data)))
				for line := range bytes.Lines(data) {
					f.Add(bytes.TrimSpace(line), byte(len(line)))
				}
			}
		}
	}
}

// FuzzParsers: whatever comes, every parser of every door stays whole and every verdict keeps its invariants.
func FuzzParsers(f *testing.F) {
	seedLines(f)
	f.Fuzz(func(t *testing.T, text []byte, n byte) {
		for _, b := range All() {
			for _, door := range b.Capabilities().Doors {
				turn := Turn{Door: door}
				if n&1 != 0 {
					turn.Resume = "01a22837-9239-74d3-8b29-9caab1dd2b89"
				}
				tr := &Transcript{}
				p := b.NewParser(turn)
				for _, s := range []Stream{Stdout, Stderr} {
					fd := NewFeed(p, tr, s)
					fd.Write(text)
					fd.Close()
					if q := fd.Quiet(); q < 0 || q > int64(len(text)) {
						t.Fatalf("quiet %d of %d", q, len(text))
					}
				}
				for _, id := range tr.Sessions {
					if id == "" || strings.ContainsAny(id, " \n\x00") || len(id) > maxID {
						t.Fatalf("session %q", id)
					}
				}
				x := Ending{Code: int(n >> 4), WorkerResult: n&2 != 0}
				consistent(t, b.Name(), x, b.Judge(turn, tr, x))
			}
		}
	})
}
