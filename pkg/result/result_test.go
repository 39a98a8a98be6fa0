package result

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

func TestIsFallbackHeader(t *testing.T) {
	for line, want := range map[string]bool{
		"# u1 result (FALLBACK, worker wrote no result file)":  true,
		"# U_-9 result (FALLBACK, Agy wrote no final result)":  true,
		"# u result (FALLBACK, ":                               true,
		"# u result (FALLBACK,":                                false,
		"# u result (fallback, x)":                             false,
		"# u result":                                           false,
		" # u result (FALLBACK, x)":                            false,
		"#  result (FALLBACK, x)":                              false,
		"# u v result (FALLBACK, x)":                           false,
		"# ü result (FALLBACK, x)":                             false,
		"The text `# u result (FALLBACK, x)` stands in line 1": false,
		"": false,
	} {
		if got := IsFallbackHeader([]byte(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func FuzzIsFallbackHeader(f *testing.F) {
	for _, s := range []string{"# u result (FALLBACK, x", "# \xff result (FALLBACK, ", "# "} {
		f.Add([]byte(s))
	}
	rule := regexp.MustCompile(`^# [A-Za-z0-9_-]+ result \(FALLBACK, `)
	f.Fuzz(func(t *testing.T, line []byte) {
		if got, want := IsFallbackHeader(line), rule.Match(line); got != want {
			t.Errorf("%q: %v, the expression says %v", line, got, want)
		}
	})
}

func TestInspect(t *testing.T) {
	dir := tempDir(t)
	at := func(base string) string { return filepath.Join(dir, base) }
	write(t, at("empty"), "")
	write(t, at("blank"), " ")
	write(t, at("worker"), "# u1 result\n# u1 result (FALLBACK, quoted)\n")
	write(t, at("fallback"), fallback)
	write(t, at("longline"), "# u1 result "+strings.Repeat("x", 1<<20))
	write(t, at("binary"), "\xff\xfe\x00\n")
	must(t, os.Mkdir(at("dir"), 0o700))
	for base, want := range map[string]Kind{
		"none": Absent, "empty": Empty, "blank": Worker, "worker": Worker, "fallback": Fallback,
		"longline": Worker, "binary": Worker, "dir": Foreign, "no/such": Absent,
	} {
		info, err := Inspect(at(base))
		if err != nil || info.Kind != want {
			t.Errorf("%s: %v, %v", base, info.Kind, err)
		}
		if want == Fallback && (info.Size != int64(len(fallback)) || info.Ino == 0 || info.ModTime.IsZero() || info.ChangeTime.IsZero()) {
			t.Errorf("%s: %+v", base, info)
		}
	}
}

func TestMalformed(t *testing.T) {
	const good = "# u1 result\nConclusion: yes\nFiles:\nOpen items: none\nVerification: ran\n\nbody\n"
	dir := tempDir(t)
	for _, c := range []struct{ text, want string }{
		{good, ""},
		{strings.ReplaceAll(good, "\n", "\r\n"), ""},
		{strings.TrimSuffix("# u1 result  \nVerification:\nOpen items:\nFiles:\nConclusion:\n", "\n"), ""},
		{"", "empty"},
		{"# u2 result\n" + good, `line 1 is not "# u1 result"`},
		{"# u1 result (FALLBACK, x)\n" + good, `line 1 is not "# u1 result"`},
		{"\n" + good, `line 1 is not "# u1 result"`},
		{"\ufeff" + good, `line 1 is not "# u1 result"`},
		{strings.Replace(good, "Files:", " Files:", 1), "missing Files:"},
		{strings.Replace(good, "Files:", "FILES:", 1), "missing Files:"},
		{"# u1 result\n", "missing Conclusion: Files: Open items: Verification:"},
		{strings.Replace(good, "Conclusion: yes", "Conclusion: "+strings.Repeat("x", 10000), 1), ""},
		{strings.Replace(good, "Conclusion: yes", strings.Repeat("x", 8192)+"Conclusion: yes", 1), "missing Conclusion:"},
		{"# u1 result\n" + strings.Repeat("x\n", contractMax) + good, "missing Conclusion: Files: Open items: Verification:"},
		{"\xff\x00\xfe", `line 1 is not "# u1 result"`},
	} {
		name := filepath.Join(dir, "r")
		write(t, name, c.text)
		got, err := Malformed(name, "u1")
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", short(c.text), got, err, c.want)
		}
	}
	if _, err := Malformed(filepath.Join(dir, "none"), "u1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Malformed(dir, "u1"); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("directory: %v", err)
	}
}

func FuzzMalformed(f *testing.F) {
	f.Add("# u1 result\nConclusion:\nFiles:\nOpen items:\nVerification:\n", "u1")
	f.Add("# u1 result\r\nConclusion:\r\n", "u1")
	f.Fuzz(func(t *testing.T, in, unit string) {
		if len(in) > contractMax {
			return
		}
		got, err := malformed(strings.NewReader(in), unit)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(in, "\n")
		ok := strings.TrimRight(lines[0], " \t\r\n") == "# "+unit+" result"
		for _, name := range []string{"Conclusion:", "Files:", "Open items:", "Verification:"} {
			found := false
			for _, line := range lines {
				found = found || strings.HasPrefix(line, name)
			}
			ok = ok && found
		}
		if strings.Contains(unit, "\n") || in == "" {
			return
		}
		if ok != (got == "") {
			t.Errorf("%q, unit %q: %q", in, unit, got)
		}
	})
}

func TestResponsePath(t *testing.T) {
	for path, want := range map[string]string{
		"r.md": "r.response.md", "r.tar.gz": "r.tar.response.gz", "r": "r.response", ".md": ".md.response",
		"a.b/r": "a.b/r.response", "/x/r.md": "/x/r.response.md", "r.": "r..response",
	} {
		if got := ResponsePath(filepath.FromSlash(path)); got != filepath.FromSlash(want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func FuzzResponsePath(f *testing.F) {
	f.Add("a/b.c")
	f.Add(".md")
	f.Fuzz(func(t *testing.T, path string) {
		seen := map[string]bool{path: true}
		for n := 1; n < 4; n++ {
			got := responsePath(path, n)
			if seen[got] {
				t.Errorf("%q: %q again", path, got)
			}
			seen[got] = true
			if d, _ := filepath.Split(path); !strings.HasPrefix(got, d) {
				t.Errorf("%q: %q is elsewhere", path, got)
			}
		}
	})
}

func TestPublishResponse(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "new", "r.md")
	at := func(base string) string { return filepath.Join(dir, "new", base) }
	never := func(string) bool { return false }
	publish := func(body, want string, ours func(string) bool) {
		t.Helper()
		got, err := PublishResponse(path, []byte(body), ours)
		if err != nil || got != at(want) || read(t, got) != body {
			t.Errorf("%q is in %s, %v: %s", body, got, err, short(read(t, at(want))))
		}
	}
	publish("one", "r.response.md", nil)
	publish("one", "r.response.md", never) // concluded again after a crash
	publish("two", "r.response-2.md", never)
	publish("three", "r.response.md", func(existing string) bool { return existing == at("r.response.md") })
	must(t, os.Mkdir(at("r.response-3.md"), 0o700))
	publish("four", "r.response-4.md", never)
	if read(t, at("r.response.md")) != "three" || read(t, at("r.response-2.md")) != "two" {
		t.Error("somebody's response was replaced")
	}
	if got := names(t, at("")); got != "r.response-2.md r.response-3.md r.response-4.md r.response.md" {
		t.Errorf("left behind: %s", got)
	}
	write(t, atomicfile.TempName(path, "123-response"), "of a dead process")
	must(t, Sweep(path, owner, false))
	if got := names(t, at("")); strings.Contains(got, "prun") {
		t.Errorf("left behind: %s", got)
	}
}
