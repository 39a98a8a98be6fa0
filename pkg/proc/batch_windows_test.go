package proc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

var _ = helper("words", func([]string) int {
	// As a C library does it: Go's own reading of "" is another.
	args := cWords(windows.UTF16PtrToString(windows.GetCommandLine()))[1:]
	text, _ := json.Marshal(args[1:])
	os.WriteFile(args[0], text, 0o666)
	return 9
})

// cWords splits a command line as C libraries do since 2008.
func cWords(line string) (words []string) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		var w strings.Builder
		in := false
		for line != "" && (in || line[0] != ' ') {
			rest := strings.TrimLeft(line, `\`)
			slashes := len(line) - len(rest)
			quote := strings.HasPrefix(rest, `"`)
			switch {
			case slashes > 0 && !quote:
				w.WriteString(line[:slashes])
			case slashes > 0:
				w.WriteString(strings.Repeat(`\`, slashes/2))
				if slashes%2 == 1 {
					w.WriteByte('"')
					rest = rest[1:]
				}
			case quote && in && strings.HasPrefix(rest, `""`):
				w.WriteByte('"')
				rest = rest[2:]
			case quote:
				in = !in
				rest = rest[1:]
			default:
				w.WriteByte(line[0])
				rest = line[1:]
			}
			line = rest
		}
		words = append(words, w.String())
	}
	return words
}

// npm installs clients as .cmd files. What they are given must reach the program
// behind them, and nothing in it may become a command.
func TestBatchFilesGetTheirArguments(t *testing.T) {
	dir := filepath.Join(sharedDir(t), "a dir & more")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(dir, "client.cmd")
	if err := os.WriteFile(wrapper, []byte("@\""+self()+"\" %*\r\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	words := []string{
		"plain", "", "two words", `effort="low"`, `"`, `say "a b" now`, `C:\dir\`, `C:\a dir\`, `\"`, `a\\"b`,
		"a&echo x>made", `"&echo x>made&"`, "a|b", "<in", "(x)", "^", "a^^b", "!x!", "~", ";", ",", "=", "ünïcode 雪",
	}
	if os.Getenv("PRUN_TEST_WINE") == "" {
		// Wine's interpreter does not know %cd:~,%.
		words = append(words, "%PATH%", "100%", "%%", "%1", "%*", "%cd:~,%")
	}
	for name, path := range map[string]string{"with its ending": wrapper, "without": filepath.Join(dir, "client")} {
		out := filepath.Join(dir, "words")
		os.Remove(out)
		g, err := Start(Spec{Path: path, Args: append([]string{wrapper, out}, words...), Env: helperEnv("words"), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		<-g.Done()
		p := g.End(EndOptions{})
		if !p.Empty || g.Exit().Code != 9 {
			t.Errorf("%s: exit %+v, %+v", name, g.Exit(), p)
		}
		var got []string
		text, err := os.ReadFile(out)
		if err != nil || json.Unmarshal(text, &got) != nil {
			t.Fatalf("%s: %v %q", name, err, text)
		}
		if !reflect.DeepEqual(got, words) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, words)
		}
		if exists(filepath.Join(dir, "made")) {
			t.Errorf("%s: an argument became a command", name)
		}
	}
	for _, bad := range []string{"a\nb", "a\rb"} {
		if g, err := Start(Spec{Path: wrapper, Args: []string{wrapper, bad}, Env: os.Environ(), Dir: dir}); err == nil {
			g.End(EndOptions{})
			t.Errorf("%q was accepted", bad)
		}
	}
}
