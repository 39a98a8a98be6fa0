package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestAgyListed(t *testing.T) {
	want := "gemini-3.8-flash-high claude-sonnet-4-6"
	for name, output := range map[string]string{
		"tabs":            "gemini-3.8-flash-high\tGemini 3.8 Flash (High)\nclaude-sonnet-4-6\tClaude Sonnet 4.6\n",
		"columns":         "gemini-3.8-flash-high  Gemini 3.8 Flash\r\nclaude-sonnet-4-6      Claude Sonnet 4.6\r\n",
		"heading, dashes": "Available models:\n\n  gemini-3.8-flash-high - Gemini 3.8 Flash\n  claude-sonnet-4-6 - Claude\n",
		"no separator":    "gemini-3.8-flash-highGemini 3.8 Flash\nclaude-sonnet-4-6Claude Sonnet 4.6",
		"bullets":         "* gemini-3.8-flash-high\n- claude-sonnet-4-6\n",
		"byte order mark": "\xef\xbb\xbfgemini-3.8-flash-high\nclaude-sonnet-4-6\n",
	} {
		if got := strings.Join(AgyListed([]byte(output)), " "); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if n := len(AgyListed([]byte(strings.Repeat("a\n", 5000)))); n != maxModels {
		t.Errorf("read %d models", n)
	}
}

func TestAgyNewest(t *testing.T) {
	for _, c := range []struct{ template, listed, want string }{
		{"gemini-3.8-flash-high", "gemini-3.9-flash-high gemini-4-flash-high gemini-3.10-flash-high", "gemini-4-flash-high"},
		{"gemini-3.8-flash-high", "gemini-3.9-flash-high gemini-3.10-flash-high", "gemini-3.10-flash-high"},
		{"gemini-3.8-flash-high", "gemini-9-pro-high gemini-9-flash-lite-high claude-9-flash-high", ""},
		{"gemini-3.8-flash-low", "gemini-3.9-flash-high gemini-3.7-flash-low", "gemini-3.7-flash-low"},
		{"gemini-3.8-flash-low", "gemini-3.9-flash gemini-3.7-flash-high", "gemini-3.7-flash-high"},
		{"gemini-3.8-flash-low", "gemini-3.9-flash-thinking gemini-3.7-flash", "gemini-3.7-flash"},
		{"gemini-3.8-flash-low", "gemini-3.8-flash-thinking gemini-3.9-flash-medium", "gemini-3.9-flash-medium"},
		{"claude-sonnet-4-6", "claude-sonnet-5-5-high claude-sonnet-6 claude-opus-9", "claude-sonnet-5-5-high"},
		{"claude-sonnet-4-6", "claude-sonnet-4-10 claude-sonnet-4-9", "claude-sonnet-4-10"},
		{"gemini-3.8-flash-high", "gemini-4-flash-high gemini-4.0-flash-high", "gemini-4.0-flash-high"},
		{"gpt-oss-120b-medium", "gpt-oss-200b-medium", ""},
		{"nothing", "nothing", ""},
		{"gemini-99999999999999999999-flash", "gemini-1-flash", ""},
	} {
		if got := AgyNewest(c.template, strings.Fields(c.listed)); got != c.want {
			t.Errorf("%s among %q: got %q, want %q", c.template, c.listed, got, c.want)
		}
	}
}

func TestAgyModelCheck(t *testing.T) {
	const list = "gemini-4-flash-high\tG\nclaude-sonnet-4-6\tC\n"
	for _, c := range []struct {
		name, list, model, want, note, err string
		named                              bool
	}{
		{name: "listed", list: list, model: "claude-sonnet-4-6", want: "claude-sonnet-4-6"},
		{name: "listed default stays, though a newer one is there", list: list + AgyModel, want: ""},
		{name: "unlisted default floats", list: list, want: "gemini-4-flash-high",
			note: "MODEL-RESOLVE from=gemini-3.8-flash-high to=gemini-4-flash-high reason=newest-in-family"},
		{name: "a named model runs verbatim or fails", list: list, model: AgyModel, named: true, want: AgyModel,
			err: "model 'gemini-3.8-flash-high' is unavailable to this Antigravity account"},
		{name: "a second default without family falls back", list: list, model: "gpt-oss-120b-medium", want: "gemini-4-flash-high",
			note: "MODEL-FALLBACK from=gpt-oss-120b-medium to=gemini-4-flash-high reason=template-unlisted"},
		{name: "nothing listed", list: "\n", want: "", err: "model 'gemini-3.8-flash-high' is unavailable to this Antigravity account"},
	} {
		turn := Turn{Model: c.model, ModelNamed: c.named}
		notes, err := checkAgyModels(&turn, []byte(c.list), nil)
		if turn.Model != c.want || strings.Join(notes, "|") != c.note || err == nil != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: model %q, notes %q, error %v", c.name, turn.Model, notes, err)
		}
	}
	probes := agy{}.Probes(Turn{})
	if len(probes) != 2 || probes[0].Args[0] != "--version" || probes[1].Args[0] != "models" || probes[1].Check == nil {
		t.Errorf("probes %v", probes)
	}
}

func TestAgyRelay(t *testing.T) {
	turn := Turn{Unit: "u-1", ResultFile: "/w/r.md"}
	prompt := "\xef\xbb\xbfcount the files\r\nin caf\u00e9 <x> \xff\n \n\t"
	in, err := agy{}.Stdin(turn, []byte(prompt))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(in), "\n") != 1 || !strings.HasSuffix(string(in), "\n") {
		t.Fatalf("not one line: %q", in)
	}
	if !strings.HasPrefix(string(in), `{"event":"user","message":{"content":"`) || !strings.Contains(string(in), "caf\u00e9 <x> \uFFFD") {
		t.Errorf("not as agy wants it: %q", in)
	}
	var line struct{ Message struct{ Content string } }
	if err := json.Unmarshal(in, &line); err != nil {
		t.Fatal(err)
	}
	relay := agy{}.Relay(turn, []byte(prompt))
	if line.Message.Content != relay {
		t.Error("standard input does not hold the relay")
	}
	for _, want := range []string{
		"\n--- UNIT REQUEST ---\ncount the files\nin caf\u00e9 <x> \uFFFD\n--- END UNIT REQUEST ---\n",
		"Never commit, push", "# u-1 result\nConclusion: ", "\nFiles: ", "\nOpen items: ", "\nVerification: ", "\n/w/r.md\n",
	} {
		if !strings.Contains(relay, want) {
			t.Errorf("relay lacks %q:\n%s", want, relay)
		}
	}
}

func TestFindAgy(t *testing.T) {
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(dir, "agy.exe")
	if err := os.WriteFile(real, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(dir, "agy", "bin")
	if err := os.MkdirAll(local, 0o755); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(local, "agy.exe")
	if err := os.WriteFile(installed, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	linked := os.Symlink(real, link) == nil
	if linked {
		_, err := filepath.EvalSymlinks(link) // some Windows stand-ins make links that nobody can follow
		linked = err == nil
	}
	t.Chdir(dir)
	type env map[string]string
	for _, c := range []struct {
		name string
		env  env
		goos string
		want string
		skip bool
	}{
		{name: "a path", env: env{"ANTIGRAVITY_BIN": real}, want: real},
		{name: "a path seen from here", env: env{"ANTIGRAVITY_BIN": "./agy.exe"}, want: real},
		{name: "home", env: env{"ANTIGRAVITY_BIN": "~/agy.exe", "HOME": dir}, want: real},
		{name: "a variable", env: env{"ANTIGRAVITY_BIN": "${D}/agy.exe", "D": dir}, want: real},
		{name: "an unset variable", env: env{"ANTIGRAVITY_BIN": "$D/agy.exe"}},
		{name: "a link", env: env{"ANTIGRAVITY_BIN": link}, want: real, skip: !linked},
		{name: "a directory", env: env{"ANTIGRAVITY_BIN": dir + "/agy"}},
		{name: "set but empty", env: env{"ANTIGRAVITY_BIN": ""}},
		{name: "not on PATH", env: env{"PATH": dir, "ANTIGRAVITY_BIN": "no-such-program-here"}},
		{name: "the installer's place", env: env{"ANTIGRAVITY_BIN": "agy", "LOCALAPPDATA": dir}, goos: "windows", want: installed},
		{name: "not elsewhere", env: env{"ANTIGRAVITY_BIN": "agy", "LOCALAPPDATA": dir}, goos: "linux"},
	} {
		if c.skip {
			continue
		}
		if c.goos == "" {
			c.goos = runtime.GOOS
		}
		t.Setenv("PATH", "")
		got, err := Find(agy{}, func(n string) string { return c.env[n] },
			func(n string) bool { _, ok := c.env[n]; return ok }, c.goos)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, ErrNoBinary) {
			t.Errorf("%s: got %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	got, err := Find(codex{}, func(string) string { return "./my codex" }, func(string) bool { return true }, runtime.GOOS)
	if got != "./my codex" || err != nil {
		t.Errorf("codex: %q, %v", got, err)
	}
	if got, err := Find(codex{}, func(string) string { return " " }, func(string) bool { return true }, runtime.GOOS); got != "" || err != nil {
		t.Errorf("codex, blank: %q, %v", got, err)
	}
}
