package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletionBash lets bash answer, as if the words had been typed.
func TestCompletionBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash on PATH: its completion file is not run")
	}
	dir := t.TempDir()
	for name, got := range map[string]answer{
		"watch": execute(nastyTool(), &watchOptions{}, nil, "__completion", "bash"),
		"herd":  execute(herdTool(&verbOptions{}), &rootOptions{}, nil, "__completion", "bash"),
	} {
		if got.status != 0 || got.errors != "" {
			t.Fatalf("%+v", got)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ words, want string }{
		{"watch --mo", "--mode --model"},
		{"watch --mode p", "plan"},
		{"watch --mode = acc", "accept-edits"},
		{"watch --mode =", "plan accept-edits"},
		{"watch -m p", "plan"},
		{"watch --model p", ""},
		{"watch --col", "--color"},
		{"watch --dia", ""},
		{"herd s", "spawn"},
		{"herd --js", "--json"},
		{"herd spawn --w", "--wait"},
		{"herd spawn --js", "--json"},
		{"herd spawn r", "read"},
		{"herd ls --w", ""},
		{"herd spawn --color n", "never"},
	} {
		fields := strings.Fields(c.words)
		script := `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _` + fields[0] + `; echo "${COMPREPLY[*]}"`
		out, err := exec.Command(bash, append([]string{"--norc", "-c", script, "-", filepath.Join(dir, fields[0])}, fields...)...).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%s: %q %v, want %q", c.words, out, err, c.want)
		}
	}
}

// TestCompletionSyntax asks each shell that is here whether it can read its file.
func TestCompletionSyntax(t *testing.T) {
	for _, name := range []string{"bash", "zsh", "fish"} {
		t.Run(name, func(t *testing.T) {
			for _, got := range []answer{
				execute(nastyTool(), &watchOptions{}, nil, "__completion", name),
				execute(herdTool(&verbOptions{}), &rootOptions{}, nil, "__completion", name),
			} {
				if got.status != 0 || !strings.Contains(got.out, "color") {
					t.Fatalf("%+v", got)
				}
				shell, err := exec.LookPath(name)
				if err != nil {
					t.Skipf("no %s on PATH: its completion file is not checked", name)
				}
				file := filepath.Join(t.TempDir(), "c")
				if err := os.WriteFile(file, []byte(got.out), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
					t.Errorf("%s\n%s", out, got.out)
				}
			}
		})
	}
	if got := execute(watchTool, &watchOptions{}, nil, "__completion", "csh"); got.status != 2 {
		t.Errorf("%+v", got)
	}
}
