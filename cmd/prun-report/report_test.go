package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

// report runs the tool as main would.
func report(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return reportEnv(nil, args...)
}

func reportEnv(environ []string, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = cli.Execute(tool(), new(options), &cli.Env{Args: args, Stdout: &out, Stderr: &errs, Environ: environ})
	return out.String(), errs.String(), status
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unit makes a state directory with a tail and a recorded result.
func unit(t *testing.T, root, id string, pid int, tail, result string) string {
	t.Helper()
	dir := filepath.Join(root, state.Name("0123abcd", id, pid, "00112233445566aa"))
	write(t, filepath.Join(dir, state.FileTail), tail)
	if result != "" {
		write(t, filepath.Join(dir, state.FileResult), result+"\n")
	}
	return dir
}

// The answer for a small tree, byte for byte: key order, spacing, escapes.
func TestGoldenJSON(t *testing.T) {
	root := t.TempDir()
	out := filepath.Join(t.TempDir(), "r é☃𝄞.md")
	write(t, out, "x")
	a := unit(t, root, "a", 7, "12345", out)
	b := unit(t, root, "b", 8, "", filepath.Join(root, "none"))
	write(t, filepath.Join(a, state.FileDispatchPID), " 12\n")
	if err := os.Mkdir(filepath.Join(b, state.FileDispatchPID), 0o700); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := report(t, "--root", root, "--root", root+"/none", "--json", "--summary", "--include-legacy-pid")
	q := func(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }
	want := `{
  "schema_version": 1,
  "roots": [
    "` + q(root) + `",
    "` + q(filepath.Join(root, "none")) + `"
  ],
  "unit_count": 2,
  "discovery_errors": [
    {
      "stage": "root",
      "root": "` + q(filepath.Join(root, "none")) + `",
      "error": "FileNotFoundError"
    }
  ],
  "units": [
    {
      "unit": "` + q(a) + `",
      "errors": [],
      "result_path_state": "resolved",
      "result": "present",
      "result_target": "` + q(filepath.Dir(out)+string(filepath.Separator)) + `r \u00e9\u2603\ud834\udd1e.md",
      "tail_bytes": 5,
      "legacy_pid_unverified": "12"
    },
    {
      "unit": "` + q(b) + `",
      "errors": [
        {
          "stage": "legacy-pid",
          "error": "NotARegularFile"
        }
      ],
      "result_path_state": "resolved",
      "result": "missing",
      "result_target": "` + q(filepath.Join(root, "none")) + `",
      "tail_bytes": 0,
      "legacy_pid_unverified": null
    }
  ],
  "safety": "Snapshotting a tail is the only safe operation offered here. This output does not establish that deleting, overwriting, or promoting any unit is safe.",
  "summary": {
    "units": 2,
    "by_result": {
      "present": 1,
      "empty": 0,
      "missing": 1,
      "unknown": 0
    },
    "by_path_state": {
      "resolved": 2,
      "absent-entry": 0,
      "invalid-entry": 0,
      "unreadable": 0
    },
    "missing_or_empty_result_bytes": 0,
    "missing_or_empty_result_units": 0,
    "unresolved_bytes": 0,
    "unresolved_units": 0
  }
}
`
	if stdout != want {
		t.Errorf("got\n%s\nwant\n%s", stdout, want)
	}
	if stderr != "" || status != 1 {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

// What Python would have printed for the same values is what we print.
func TestJSONAsPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("condition python3: not there")
	}
	root := t.TempDir()
	unit(t, root, "a", 7, "1", "/x\x7f\u0080é\u2028\U0010FFFF")
	unit(t, root, "b", 8, "1", filepath.Join(root, "\"q\"\t\\\x01"))
	stdout, _, status := report(t, "--root", root, "--json", "--summary", "--include-legacy-pid")
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	c := exec.Command(python, "-c", "import json,sys; sys.stdout.write(json.dumps(json.loads(sys.stdin.read()), indent=2) + '\\n')")
	c.Stdin = strings.NewReader(stdout)
	got, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != stdout {
		t.Errorf("Python prints\n%s\nwe print\n%s", got, stdout)
	}
}

func TestGoldenText(t *testing.T) {
	root := t.TempDir()
	a := unit(t, root, "a", 7, strings.Repeat("x", 1234567), filepath.Join(root, "none"))
	b := unit(t, root, strings.Repeat("long-", 10)+"id", 8, "12", "../outside")
	write(t, filepath.Join(a, state.FileDispatchPID), "12\n34\n")
	if err := os.Remove(filepath.Join(b, state.FileTail)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b, state.FileTail), 0o700); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := report(t, "--root", root, "--root", root+"/none", "--summary")
	want := `unit                                                 result    path           tail bytes
----------------------------------------------------------------------------------------
prun-task-0123abcd-a-7-00112233445566aa              missing   resolved        1,234,567
prun-task-0123abcd-long-long-long-long-long-long-lon unknown   invalid-entry           ?
    error [tail]: NotARegularFile

summary
  units inspected          2
  result present           0
  result empty             0
  result missing           1
  result unknown           1
  path resolved            1
  path absent-entry        0
  path invalid-entry       1
  path unreadable          0
  missing or empty result  1 unit, 1.2 MiB of tail
  unresolved               0 units, 0.0 MiB of tail

Snapshotting a tail is the only safe operation offered here.
This output does not establish that deleting, overwriting, or
promoting any unit is safe.
`
	if stdout != want {
		t.Errorf("got\n%s\nwant\n%s", stdout, want)
	}
	wantErr := "discovery failed: " + filepath.Join(root, "none") + " (FileNotFoundError)\n\nThis sweep is incomplete; what could not be seen is named above, and nothing is claimed about it.\n"
	if stderr != wantErr || status != 1 {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	stdout, _, _ = report(t, "--root", root, "--include-legacy-pid", "--min-tail-bytes", "3")
	if want := `unit                                                 result    path           tail bytes legacy_pid_unverified
--------------------------------------------------------------------------------------------------------------
prun-task-0123abcd-a-7-00112233445566aa              missing   resolved        1,234,567 12\x0a34
`; !strings.HasPrefix(stdout, want) {
		t.Errorf("got\n%s", stdout)
	}
}

// No root, unit or pattern is a usage that fails in the wrong way.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--nope"}, {"--sort", "size"}, {"--min-tail-bytes", "x"}, {"--units", "["}, {"--since", "soon"}, {"--since", "-3"}, {"--since", "d"}, {"word"}, {"--root"}, {"--s"},
	} {
		stdout, stderr, status := report(t, args...)
		if status != 2 || stdout != "" || stderr == "" {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
	root := t.TempDir()
	for _, args := range [][]string{
		{"--root=" + root, "--js", "--su", "--so", "path", "--min-tail-bytes=-5", "--inc"}, {"--r", root, "--m", "1"},
	} {
		if _, stderr, status := report(t, args...); status != 0 || stderr != "" {
			t.Errorf("%q: status %d, stderr %q", args, status, stderr)
		}
	}
}

type answer struct {
	SchemaVersion int                 `json:"schema_version"`
	Roots         []string            `json:"roots"`
	UnitCount     int                 `json:"unit_count"`
	Discovery     []map[string]string `json:"discovery_errors"`
	Units         []answerUnit        `json:"units"`
	Safety        string              `json:"safety"`
	Summary       struct {
		Units               int
		ByResult            map[string]int `json:"by_result"`
		ByPathState         map[string]int `json:"by_path_state"`
		MissingOrEmptyBytes int64          `json:"missing_or_empty_result_bytes"`
		MissingOrEmptyUnits int            `json:"missing_or_empty_result_units"`
		UnresolvedBytes     int64          `json:"unresolved_bytes"`
		UnresolvedUnits     int            `json:"unresolved_units"`
	} `json:"summary"`
}

type answerUnit struct {
	Unit      string                   `json:"unit"`
	Errors    []state.ObservationError `json:"errors"`
	PathState state.PathState          `json:"result_path_state"`
	Result    state.ResultState        `json:"result"`
	Target    *string                  `json:"result_target"`
	TailBytes *int64                   `json:"tail_bytes"`
	Legacy    *string                  `json:"legacy_pid_unverified"`
	Identity  *struct {
		Liveness, Reason                  string
		Front, Keeper, Supervisor, Worker *struct {
			PID     int
			Verdict string
			Reason  *string
		}
	} `json:"identity"`
	Containment *string              `json:"containment"`
	Outcome     map[string]any       `json:"outcome"`
	Age         *int64               `json:"age_s"`
	Executor    *string              `json:"executor"`
	Queue       *struct{ Ahead int } `json:"queue"`
}

func decode(t *testing.T, text string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i, c := range []byte(text) {
		if c >= 0x7f {
			t.Fatalf("byte %#x at %d is not ASCII", c, i)
		}
	}
	if a.Safety != safety {
		t.Errorf("safety is %q", a.Safety)
	}
	return a
}

func (a answer) names() []string {
	var names []string
	for _, u := range a.Units {
		id, _ := state.UnitOf(filepath.Base(u.Unit))
		names = append(names, id)
	}
	return names
}

func TestSelection(t *testing.T) {
	root := t.TempDir()
	now := time.Now().Unix()
	for i, id := range []string{"build-1", "build-2", "test-1", "old", "ageless"} {
		dir := unit(t, root, id, 100+i, strings.Repeat("x", i), filepath.Join(root, "none"))
		begun := map[string]int64{"old": now - 100_000}[id]
		if begun == 0 {
			begun = now - 60
		}
		if id != "ageless" {
			write(t, filepath.Join(dir, state.FileTimestamp), strconv.FormatInt(begun, 10)+"\n")
		}
	}
	for _, c := range []struct {
		args  []string
		want  []string
		count int
	}{
		{nil, []string{"ageless", "build-1", "build-2", "old", "test-1"}, 5},
		{[]string{"--units", "build-*"}, []string{"build-1", "build-2"}, 2},
		{[]string{"--units", "build-1", "--units", "old"}, []string{"build-1", "old"}, 2},
		{[]string{"--units", "prun-task-*-test-1-*"}, []string{"test-1"}, 1},
		{[]string{"--units", "nothing"}, nil, 0},
		{[]string{"--since", "1d"}, []string{"ageless", "build-1", "build-2", "test-1"}, 4},
		{[]string{"--since", "2w"}, []string{"ageless", "build-1", "build-2", "old", "test-1"}, 5},
		{[]string{"--since", "3"}, []string{"ageless"}, 1},
		{[]string{"--since", "99999999999999999h"}, []string{"ageless", "build-1", "build-2", "old", "test-1"}, 5},
		{[]string{"--min-tail-bytes", "3"}, []string{"ageless", "old"}, 5},
		{[]string{"--sort", "tail-bytes-desc"}, []string{"ageless", "old", "test-1", "build-2", "build-1"}, 5},
	} {
		stdout, stderr, status := report(t, append([]string{"--root", root, "--json", "--summary"}, c.args...)...)
		a := decode(t, stdout)
		if got := a.names(); !slices.Equal(got, c.want) || a.UnitCount != c.count || a.Summary.Units != c.count || status != 0 || stderr != "" {
			t.Errorf("%q: got %q of %d (%d), want %q of %d; status %d, stderr %q", c.args, got, a.UnitCount, a.Summary.Units, c.want, c.count, status, stderr)
		}
	}
}

// The two counters are disjoint, and only tails with bytes count.
func TestSummary(t *testing.T) {
	root := t.TempDir()
	full, empty := filepath.Join(root, "full"), filepath.Join(root, "empty")
	write(t, full, "x")
	write(t, empty, "")
	unit(t, root, "present", 1, "1", full)
	unit(t, root, "empty", 2, "22", empty)
	unit(t, root, "missing", 3, "333", filepath.Join(root, "none"))
	unit(t, root, "silent", 4, "", filepath.Join(root, "none"))
	unit(t, root, "lost", 5, "55555", "")
	unit(t, root, "dir", 6, "666666", root)
	unit(t, root, "nothing", 7, "", "")
	for _, extra := range [][]string{nil, {"--min-tail-bytes", "4"}, {"--sort", "tail-bytes-desc"}} {
		stdout, _, status := report(t, append([]string{"--root", root, "--json", "--summary"}, extra...)...)
		s := decode(t, stdout).Summary
		if s.MissingOrEmptyBytes != 5 || s.MissingOrEmptyUnits != 2 || s.UnresolvedBytes != 11 || s.UnresolvedUnits != 2 || s.Units != 7 || status != 1 {
			t.Errorf("%q: %+v, status %d", extra, s, status)
		}
		if s.ByResult["missing"] != 2 || s.ByPathState["absent-entry"] != 2 {
			t.Errorf("%q: %+v", extra, s)
		}
	}
}

func TestDefaultRoot(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	unit(t, root, "a", 1, "", "")
	for _, environ := range [][]string{{"TMPDIR=" + root}, {"PRUN_STATE_BASE=" + root, "TMPDIR=" + other}, {"TMPDIR=  ", "TEMP=" + root, "TMP=" + root}} {
		stdout, _, status := reportEnv(environ, "--json")
		if a := decode(t, stdout); len(a.Units) != 1 || a.Roots[0] != root || status != 0 {
			t.Errorf("%q: roots %q, %d units, status %d", environ, a.Roots, len(a.Units), status)
		}
	}
	missing := filepath.Join(root, "missing")
	stdout, stderr, status := reportEnv([]string{"TMPDIR=" + missing})
	if status != 1 || !strings.Contains(stderr, "discovery failed: "+missing) || !strings.Contains(stdout, "promoting") {
		t.Errorf("a missing TMPDIR: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// The same root twice, relative and through a link.
func TestRoots(t *testing.T) {
	parent := t.TempDir()
	root := filepath.Join(parent, "root")
	unit(t, root, "a", 1, "", "")
	unit(t, root, "b", 2, "", "")
	write(t, filepath.Join(root, "prun-task-file"), "")
	write(t, filepath.Join(root, ".new-prun-task-hidden", "tail"), "")
	t.Chdir(parent)
	stdout, _, status := report(t, "--json", "--root", root, "--root", "root", "--root", "./root/../root")
	a := decode(t, stdout)
	if len(a.Units) != 2 || a.UnitCount != 2 || status != 0 {
		t.Errorf("%d units, count %d, status %d", len(a.Units), a.UnitCount, status)
	}
	if len(a.Roots) != 3 || a.Roots[1] != a.Roots[0] {
		t.Errorf("roots %q", a.Roots)
	}
	if !filepath.IsAbs(a.Units[0].Unit) {
		t.Errorf("unit %q", a.Units[0].Unit)
	}
}

// Directories of every older version read as they always did, in both forms.
func TestOldDirectories(t *testing.T) {
	versions, err := filepath.Glob(filepath.Join("..", "..", "testdata", "state", "*"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("no old directories: %v", err)
	}
	for _, v := range versions {
		for _, args := range [][]string{{"--json"}, {"--json", "--detail"}} {
			stdout, stderr, status := report(t, append(args, "--root", v)...)
			a := decode(t, stdout)
			if status != 0 || stderr != "" || len(a.Units) == 0 {
				t.Errorf("%s %q: status %d, %d units, stderr %q", v, args, status, len(a.Units), stderr)
			}
			for _, u := range a.Units {
				if !slices.Contains(state.LegalPairs[u.PathState], u.Result) {
					t.Errorf("%s: %s and %s", u.Unit, u.PathState, u.Result)
				}
				if old := filepath.Base(v) != "1.0"; old && u.Identity != nil {
					t.Errorf("%s has an identity", u.Unit)
				}
			}
		}
	}
}

// The old keys come first and unchanged; what is unknown is no error.
func TestDetail(t *testing.T) {
	root := filepath.Join("..", "..", "testdata", "state", "1.0")
	plain, _, _ := report(t, "--root", root, "--json")
	detailed, stderr, status := report(t, "--root", root, "--json", "--detail")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	a := decode(t, detailed)
	if a.SchemaVersion != 2 || decode(t, plain).SchemaVersion != 1 {
		t.Errorf("schema_version %d", a.SchemaVersion)
	}
	u := a.Units[0]
	if u.Identity == nil || u.Identity.Liveness != "settled" || u.Identity.Supervisor.Verdict == "alive" || u.Identity.Supervisor.PID != 99999999 {
		t.Errorf("identity %+v", u.Identity)
	}
	if u.Containment == nil || *u.Containment != "cgroup" || u.Outcome["cause"] != "failed" || u.Outcome["from_a_later_version"] != "kept <&>" || u.Executor == nil || *u.Executor != "codex" || u.Age == nil {
		t.Errorf("%+v", u)
	}
	keys := func(text string) []string {
		var keys []string
		d := json.NewDecoder(strings.NewReader(text[strings.Index(text, `"units": [`)+9:]))
		for depth, key := 0, false; d.More() || depth > 0; {
			token, err := d.Token()
			if err != nil {
				return keys
			}
			switch token := token.(type) {
			case json.Delim:
				if token == '{' || token == '[' {
					depth++
				} else if depth--; depth <= 1 {
					return keys
				}
				key = depth == 2
				continue
			case string:
				if depth == 2 && key {
					keys = append(keys, token)
				}
			}
			if depth == 2 {
				key = !key
			}
		}
		return keys
	}
	want := []string{"unit", "errors", "result_path_state", "result", "result_target", "tail_bytes"}
	if got := keys(plain); !slices.Equal(got, want) {
		t.Errorf("keys %q", got)
	}
	if got := keys(detailed); !slices.Equal(got, append(want, "identity", "containment", "outcome", "age_s", "executor", "queue")) {
		t.Errorf("keys with --detail %q", got)
	}
	text, _, _ := report(t, "--root", root, "--detail")
	for _, part := range []string{"n1 ", "failed 137", "settled", "executor"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// What a terminal shows: whole ids, columns that fit, marks.
func TestFit(t *testing.T) {
	n := int64(7)
	rows := []row{
		{Observation: state.Observation{Unit: "/t/prun-task-0123abcd-first-11-00112233445566aa", TailBytes: &n}, detail: &detail{executor: strings.Repeat("m", 30)}},
		{Observation: state.Observation{Unit: "/t/prun-task-0123abcd-second-second-22-00112233445566aa", TailBytes: &n}, detail: &detail{}},
		{Observation: state.Observation{Unit: "/t/prun-task-0123abcd-first-33-00112233445566aa", TailBytes: &n}, detail: &detail{}},
		{Observation: state.Observation{Unit: "/t/prun-task-\n", TailBytes: &n}, detail: &detail{}},
	}
	ids := labels(rows)
	if got := ids[rows[0].Unit] + ids[rows[1].Unit] + ids[rows[3].Unit]; got != "first (11)second-secondprun-task-\n" {
		t.Errorf("labels %q", got)
	}
	all := []column{
		{"unit", 0, func(r row) string { return ids[r.Unit] }},
		{">tail bytes", 2, func(r row) string { return grouped(r.TailBytes) }},
		{"executor", 5, func(r row) string { return r.executor }},
		{"directory", 7, func(r row) string { return r.Unit }},
	}
	for _, c := range []struct {
		limit int
		want  string
	}{
		{0, "unit >tail bytes executor directory"},
		{500, "unit >tail bytes executor directory"},
		{60, "unit >tail bytes executor"},
		{30, "unit >tail bytes"},
		{16, "unit"},
		{3, "unit"},
	} {
		var heads []string
		for _, col := range fit(slices.Clone(all), rows, c.limit) {
			heads = append(heads, col.head)
		}
		if got := strings.Join(heads, " "); got != c.want {
			t.Errorf("width %d: %s, want %s", c.limit, got, c.want)
		}
	}
}

func TestColour(t *testing.T) {
	root := t.TempDir()
	full := filepath.Join(root, "full")
	write(t, full, "x")
	unit(t, root, "good", 1, "1", full)
	unit(t, root, "bad", 2, "22", filepath.Join(root, "none"))
	unit(t, root, "open", 3, "", filepath.Join(root, "none"))
	stdout, _, _ := report(t, "--root", root, "--detail", "--color=always")
	lines := strings.Split(stdout, "\n")
	for i, want := range []string{"\x1b[1munit", "\x1b[31mbad", "good", "\x1b[33mopen"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q", i, lines[i])
		}
	}
	if stdout, _, _ := report(t, "--root", root, "--color=always"); strings.Contains(stdout, "\x1b") {
		t.Error("the table for scripts has colour")
	}
}

// failing is an output that does not take everything.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no room")
	}
	return len(p), nil
}

func TestOutputFails(t *testing.T) {
	root := t.TempDir()
	for i := range 50 {
		unit(t, root, "u"+strconv.Itoa(i), i+2, "", "")
	}
	for _, args := range [][]string{{"--json"}, {}, {"--detail"}} {
		var errs bytes.Buffer
		env := &cli.Env{Args: append(args, "--root", root), Stdout: &failing{left: 1000}, Stderr: &errs}
		if status := cli.Execute(tool(), new(options), env); status != 74 {
			t.Errorf("%q: status %d, stderr %q", args, status, errs.String())
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a\"\\/\b\f\n\r\t\x00\x7f", "é\u2028\ufffd\U0001F600", "\xff\xc3(\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := quote(s)
		for i := 0; i < len(q); i++ {
			if q[i] < ' ' || q[i] > '~' {
				t.Fatalf("%q has %#x", q, q[i])
			}
		}
		var back string
		if err := json.Unmarshal([]byte(q), &back); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); strings.Contains(want, "\ufffd") {
			return // Go reads a lone surrogate as a replacement, Python as the byte
		} else if back != s {
			t.Fatalf("%q became %q", s, back)
		}
	})
}
