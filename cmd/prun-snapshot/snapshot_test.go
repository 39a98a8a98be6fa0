package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/state"
)

func take(environ []string, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = cli.Execute(tool(), new(options), &cli.Env{Args: args, Stdout: &out, Stderr: &errs, Environ: environ})
	return out.String(), errs.String(), status
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// unit makes a state directory with a tail, and a result where one is given.
func unit(t *testing.T, root, id, tail, result string) string {
	t.Helper()
	dir := filepath.Join(root, state.Name("0123abcd", id, 7, "00112233445566aa"))
	write(t, filepath.Join(dir, state.FileTail), tail)
	if result != "" {
		write(t, filepath.Join(dir, state.FileResult), result+"\n")
	}
	return dir
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

const digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // of "x"

func TestText(t *testing.T) {
	u, dest := unit(t, t.TempDir(), "a", "x", ""), filepath.Join(t.TempDir(), "new", "d")
	stdout, stderr, status := take(nil, "--unit", u, "--dest", dest)
	made := names(t, dest)
	if len(made) != 1 || !regexp.MustCompile(`^snapshot-\d{8}T\d{6}Z-[0-9a-f]{8}\.zip$`).MatchString(made[0]) {
		t.Fatalf("%q; status %d, stderr %q", made, status, stderr)
	}
	want := "published " + filepath.Join(dest, made[0]) + `
1 of 1 bytes, complete_bounded_read
sha256 ` + digest + `
Equal counts do not prove that the tail held still while it was read.
Holding this snapshot does not make the unit disposable.
`
	if stdout != want || stderr != "" || status != 0 {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	name := filepath.Join(dest, "named.zip")
	stdout, stderr, status = take(nil, "--un="+u, "--o", name, "--js")
	want = `{
  "published": ` + quoteJSON(t, name) + `,
  "manifest": {
    "schema_version": 1,
    "captured_at": "TIME",
    "source_path": ` + quoteJSON(t, filepath.Join(u, "tail")) + `,
    "source_size_at_open": 1,
    "bytes_copied": 1,
    "sha256": "` + digest + `",
    "source_may_be_live": true,
    "capture_outcome": "complete_bounded_read",
    "note": "NOTE"
  },
  "warning": null,
  "observed": []
}
`
	got := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(stdout, "TIME")
	got = regexp.MustCompile(`"Equal counts do not prove[^"]*"`).ReplaceAllString(got, `"NOTE"`)
	if got != want || stderr != "" || status != 0 {
		t.Errorf("status %d, stderr %q, stdout\n%s\nwant\n%s", status, stderr, stdout, want)
	}
	stdout, stderr, status = take(nil, "--verify", name)
	if want := "verified " + name + "\n1 of 1 bytes, complete_bounded_read\nsha256 " + digest + "\n"; stdout != want || stderr != "" || status != 0 {
		t.Errorf("verify: status %d, stderr %q, stdout %q", status, stderr, stdout)
	}
	stdout, _, status = take(nil, "--verify", name, "--json")
	var answer struct {
		Verified string
		Manifest map[string]any
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || answer.Verified != name || answer.Manifest["sha256"] != digest || status != 0 {
		t.Errorf("verify: %v, status %d, %s", err, status, stdout)
	}
}

func quoteJSON(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExits(t *testing.T) {
	root := t.TempDir()
	u := unit(t, root, "a", "x", "")
	bare := filepath.Join(root, "prun-task-bare")
	if err := os.Mkdir(bare, 0o700); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(t.TempDir(), "p")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	old := write(t, filepath.Join(private, "old.zip"), "old")
	sep := string(filepath.Separator)
	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{nil, 2, "option --unit is required"},
		{[]string{"--unit", u, "--dest", private, "--output", old}, 2, "exclude each other"},
		{[]string{"--unit", filepath.Join(root, "none")}, 2, "error: unit is not a directory: "},
		{[]string{"--unit", old, "--dest", private}, 2, "error: unit is not a directory: "},
		{[]string{"--unit", u, "--output", private + sep}, 2, "error: output name may not traverse: "},
		{[]string{"--unit", u, "--output", private + sep + ".."}, 2, "error: output name may not traverse: "},
		{[]string{"--unit", u, "--output", private + sep + "."}, 2, "error: output name may not traverse: "},
		{[]string{"--unit", u, "--output", private + sep + " x.zip"}, 2, "error: output name may not traverse: "},
		{[]string{"--unit", u, "--output", private + sep + "x.zip\n"}, 2, `error: output name may not traverse: `},
		{[]string{"--unit", u, "--output", ""}, 2, "error: output name may not traverse: "},
		{[]string{"--unit", u, "--dest", ""}, 2, "option --dest is empty"},
		{[]string{"--unit", u, "--root", root}, 2, "--root needs --all"},
		{[]string{"--all", "--unit", u}, 2, "--all goes with neither"},
		{[]string{"--all", "--output", old}, 2, "--all goes with neither"},
		{[]string{"--verify", old, "--unit", u}, 2, "--verify goes with --json alone"},
		{[]string{"--unit", u, "--output", old}, 3, "error: " + old + " already exists; refusing to replace\n"},
		{[]string{"--unit", bare, "--dest", private}, 4, "error: open the tail: "},
		{[]string{"--unit", bare, "--output", old}, 4, "error: open the tail: "},
		{[]string{"--verify", filepath.Join(root, "none")}, 4, "error: open archive: "},
		{[]string{"--verify", old}, 5, "not an archive"},
		{[]string{"--unit", u, "--dest", old}, 6, "error: prepare destination: "},
	} {
		stdout, stderr, status := take(nil, c.args...)
		if status != c.status || stdout != "" || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, status, stdout, stderr)
		}
		if i := strings.Index(stderr, "\n"); c.status != 2 && i != len(stderr)-1 {
			t.Errorf("%q: stderr %q is not one line", c.args, stderr)
		}
	}
	if data, err := os.ReadFile(old); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
	if got := names(t, private); !slices.Equal(got, []string{"old.zip"}) {
		t.Errorf("the directory holds %q", got)
	}
}

// Where snapshots go that were given no place (E93: no home, a relative XDG).
func TestDefaultDestination(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("condition unix: other variables")
	}
	u, home := unit(t, t.TempDir(), "a", "x", ""), t.TempDir()
	const below = "anywhere-agents/prun/snapshots"
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{[]string{"HOME=" + home}, home + "/.local/state/" + below},
		{[]string{"HOME=" + home, "XDG_STATE_HOME= "}, home + "/.local/state/" + below},
		{[]string{"HOME=" + home, "XDG_STATE_HOME=relative"}, home + "/.local/state/" + below},
		{[]string{"XDG_STATE_HOME=" + home + "/x"}, home + "/x/" + below},
	} {
		stdout, stderr, status := take(c.environ, "--unit", u)
		if !strings.HasPrefix(stdout, "published "+c.want+"/snapshot-") || status != 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.environ, status, stdout, stderr)
		}
	}
	for _, dir := range []string{".local", ".local/state", ".local/state/" + below, "x"} {
		if fi, err := os.Stat(filepath.Join(home, dir)); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, fi.Mode(), err)
		}
	}
}

// A relative name in a directory that others can enter, and the message.
func TestLoose(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("condition unix: modes")
	}
	u, dir := unit(t, t.TempDir(), "a", "x", ""), t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	_, stderr, status := take(nil, "--unit", u, "--output", "x.zip")
	if want := "error: destination refused: directory " + dir + " has mode 0755 and is open to others; chmod 700 " + dir + "\n"; status != 6 || stderr != want {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, status := take(nil, "--unit", u, "--output", "x.zip"); status != 0 || !strings.HasPrefix(stdout, "published "+dir+"/x.zip\n") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestAll(t *testing.T) {
	root, dest := t.TempDir(), filepath.Join(t.TempDir(), "d")
	full, empty := write(t, filepath.Join(root, "full"), "x"), write(t, filepath.Join(root, "empty"), "")
	done := unit(t, root, "done", "x", full)
	blank := unit(t, root, "blank", "x", empty)
	gone := unit(t, root, "gone", "xx", filepath.Join(root, "none"))
	silent := unit(t, root, "silent", "", filepath.Join(root, "none"))
	unit(t, root, "untold", "x", "")
	unit(t, root, "untold-silent", "", "")
	stdout, stderr, status := take(nil, "--all", "--root", root, "--root", root, "--dest", dest)
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if len(lines) != 3 || len(names(t, dest)) != 3 || status != 0 {
		t.Fatalf("status %d, stdout\n%s", status, stdout)
	}
	for i, u := range []string{blank, gone, silent} {
		rest, ok := strings.CutPrefix(lines[i], "published "+filepath.Base(u)+" ")
		if !ok {
			t.Fatalf("line %q for %s", lines[i], u)
		}
		if _, stderr, status := take(nil, "--verify", rest); status != 0 {
			t.Errorf("%s: %s", rest, stderr)
		}
	}
	if want := "prun-snapshot: 1 unit whose result cannot be told holds output and was left out; prun-report shows it, --unit takes it\n"; stderr != want {
		t.Errorf("stderr %q", stderr)
	}

	// A failure is one unit's alone, and the worst status is the answer.
	if err := os.Remove(filepath.Join(blank, "tail")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(blank, "tail"), 0o700); err != nil {
		t.Fatal(err)
	}
	stdout, _, status = take(nil, "--all", "--root", root, "--dest", dest)
	if lines := strings.Split(stdout, "\n"); status != 4 || len(lines) != 4 || !strings.HasPrefix(lines[0], "failed "+filepath.Base(blank)+" 4 open the tail: ") || !strings.HasPrefix(lines[1], "published ") {
		t.Errorf("status %d, stdout\n%s", status, stdout)
	}
	stdout, _, status = take(nil, "--all", "--root", root, "--dest", full)
	if status != 6 || strings.Count(stdout, "\nfailed ") != 2 || !strings.HasPrefix(stdout, "failed ") {
		t.Errorf("status %d, stdout\n%s", status, stdout)
	}

	stdout, _, status = take(nil, "--all", "--root", root, "--dest", dest, "--json")
	var answer struct {
		Snapshots []struct {
			Published *string
			Manifest  map[string]any
			Warning   *string
			Observed  []string
			Unit      string
			Exit      int
			Error     *string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || status != 4 || len(answer.Snapshots) != 3 {
		t.Fatalf("%v, status %d, stdout\n%s", err, status, stdout)
	}
	if s := answer.Snapshots[0]; s.Published != nil || s.Manifest != nil || s.Unit != blank || s.Exit != 4 || s.Error == nil {
		t.Errorf("%+v", s)
	}
	if s := answer.Snapshots[1]; s.Published == nil || s.Manifest["bytes_copied"] != 2.0 || s.Unit != gone || s.Exit != 0 || s.Error != nil {
		t.Errorf("%+v", s)
	}

	// Nothing to do, and nowhere to look.
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := take(nil, "--all", "--root", root, "--dest", dest); status != 4 || !strings.Contains(stderr, "warning: ") {
		t.Errorf("no root: status %d, stderr %q", status, stderr)
	}
	unit(t, root, "done", "x", done)
	os.RemoveAll(done)
	if stdout, _, status := take([]string{"PRUN_STATE_BASE=" + root}, "--all", "--dest", dest, "--json"); status != 0 || stdout != "{\n  \"snapshots\": []\n}\n" {
		t.Errorf("no unit: status %d, stdout %q", status, stdout)
	}
}

// A path with any bytes in it is one line of text and whole in JSON.
func TestForeignBytes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("condition linux: names of any bytes")
	}
	root, dest := t.TempDir(), filepath.Join(t.TempDir(), "a b'\"$(id)\n☃\xff")
	u := filepath.Join(root, "prun-task-\n\x1b[31m\xfe")
	write(t, filepath.Join(u, "tail"), "x")
	write(t, filepath.Join(u, "result-file"), filepath.Join(root, "none"))
	stdout, stderr, status := take(nil, "--unit", u, "--dest", dest)
	if status != 0 || strings.Count(stdout, "\n") != 5 || strings.Contains(stdout, "\x1b") || !strings.Contains(stdout, `\x0a☃\xff/snapshot-`) {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	stdout, _, status = take(nil, "--all", "--root", root, "--dest", dest)
	if status != 0 || strings.Count(stdout, "\n") != 1 || !strings.HasPrefix(stdout, `published prun-task-\x0a\x1b[31m\xfe `) {
		t.Errorf("status %d, stdout %q", status, stdout)
	}
	stdout, _, _ = take(nil, "--unit", u, "--dest", dest, "--json")
	if !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `\n\u001b[31m\udcfe/tail`) {
		t.Errorf("stdout %s", stdout)
	}
}
