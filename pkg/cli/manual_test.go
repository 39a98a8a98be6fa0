package cli

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// nastyTool has texts that an unwary writer of mdoc would break on.
func nastyTool() Tool {
	tool := watchTool
	tool.Description = ".Sh begins this line, and\n'so does this.\n\nA backslash \\n stays, e.g. C:\\Users. (See below.) Really? Yes.\n\n" +
		"\t.literal line\n\t  'kept' \"as\" it \\is --x -y\n\nThe end -- of --options and [--nested]."
	tool.Environment = []EnvVar{{Name: "T_OTHER", Default: "\"q\"", Text: ".dot"}}
	tool.Files = []File{{Path: ".hidden \"name\"", Text: "A file"}}
	tool.Examples = []Example{{Text: "Look once:", Command: "watch --poll 1 'a b' |\n.Sh"}, {Text: "Again:", Command: "watch"}}
	tool.Sections = []Section{{Title: "Dialects", Text: "None.\n\n\ta  b\n\tc  d"}}
	tool.SeeAlso = []string{"prun(7)", "zed(1)", "alpha(1)"}
	return tool
}

func TestManual(t *testing.T) {
	for _, args := range []string{"--man", "__man"} {
		got := execute(nastyTool(), &watchOptions{}, []string{"TZ=America/New_York"}, args)
		if got.status != 0 || got.errors != "" {
			t.Fatalf("%s: %d %s", args, got.status, got.errors)
		}
		for _, want := range []string{
			".Dd November 29, 2026\n", "\n\\&.Sh begins this line", "\\&.literal line\n", "C:\\eUsers.\n",
			".It Fl m , Fl -mode Ar \"\\&MODE\"\n", "One of plan or accept-edits.\n", "Default: plan.\n", "Variable: T_MODE.\n",
			".It Ev \"\\&T_STALL\"\n", ".It Ev \"\\&T_OTHER\"\n", ".It \"\\&141\"\n", ".It \"\\&3\"\n", ".Xr alpha 1 ,\n.Xr zed 1 ,\n.Xr prun 7\n",
			".It Fl -thinking Op Ar \"\\&N\"\n", "\\-\\-options",
		} {
			if !strings.Contains(got.out, want) {
				t.Errorf("no %q in\n%s", want, got.out)
			}
		}
		if strings.Contains(got.out, "dialect\n") {
			t.Error("a hidden option is shown")
		}
	}
}

func TestManualLints(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("no mandoc on PATH: the pages are not linted")
	}
	pages := map[string]answer{
		"nasty": execute(nastyTool(), &watchOptions{}, nil, "--man"),
		"verbs": execute(herdTool(&verbOptions{}), &rootOptions{}, nil, "--man"),
		"plain": execute(Tool{Name: "plain", Summary: "be plain", Exits: Exits{0: "well"}}, nil, nil, "--man"),
	}
	for name, got := range pages {
		cmd := exec.Command(mandoc, "-T", "lint", "-W", "style")
		cmd.Stdin = strings.NewReader(got.out)
		report, _ := cmd.CombinedOutput()
		for l := range strings.Lines(string(report)) {
			if !strings.Contains(l, "referenced manual not found") { // the other pages are not installed
				t.Errorf("%s: %s\n%s", name, l, got.out)
			}
		}
		var text bytes.Buffer
		cmd = exec.Command(mandoc, "-T", "ascii")
		cmd.Stdin, cmd.Stdout = strings.NewReader(got.out), &text
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "nasty" {
			plain := strings.NewReplacer("\b", "").Replace(text.String())
			for _, want := range []string{".literal line", "C:\\Users", `'kept' "as" it \is`} {
				if !strings.Contains(plain, want) {
					t.Errorf("%s: no %q in\n%s", name, want, plain)
				}
			}
		}
	}
}
