package environ

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestWorker(t *testing.T) {
	for _, c := range []struct {
		name     string
		env      string // entries separated by |
		options  WorkerOptions
		want     string
		withheld string
	}{
		{"nothing", "", WorkerOptions{}, "GIT_TERMINAL_PROMPT=0", ""},
		{"the caller's stays, in order", "B=2|A=1|EMPTY=", WorkerOptions{}, "B=2|A=1|EMPTY=|GIT_TERMINAL_PROMPT=0", ""},
		{"guards", "PRUN_DISPATCH_REEXEC=1|PRUN_MONITOR_REEXEC=1|PRUN_GATHER_REEXEC=1|GO_FLAGS_COMPLETION=1|PRUN__FD=3|PRUN_X=1",
			WorkerOptions{}, "PRUN_X=1|GIT_TERMINAL_PROMPT=0", ""},
		{"repository", "GIT_DIR=x|GIT_INDEX_FILE=x|GIT_CONFIG_COUNT=1|GIT_CONFIG_KEY_0=a|GIT_CONFIG_VALUE_0=b|GIT_CONFIG_KEY_=x|" +
			"GIT_CONFIG_KEY_x=x|GIT_CONFIG_GLOBAL=g|GIT_CONFIG_SYSTEM=s|GIT_CONFIG_NOSYSTEM=1|GIT_AUTHOR_NAME=n", WorkerOptions{},
			"GIT_CONFIG_KEY_=x|GIT_CONFIG_KEY_x=x|GIT_CONFIG_GLOBAL=g|GIT_CONFIG_SYSTEM=s|GIT_CONFIG_NOSYSTEM=1|GIT_AUTHOR_NAME=n|GIT_TERMINAL_PROMPT=0", ""},
		{"session: exactly four", "CLAUDECODE=1|CLAUDE_CODE_ENTRYPOINT=cli|CLAUDE_CODE_SSE_PORT=1|CLAUDE_CODE_SESSION_ID=u|" +
			"CLAUDE_CODE_OAUTH_TOKEN=t|CLAUDE_CODE_USE_BEDROCK=1|CLAUDECODE2=1", WorkerOptions{},
			"CLAUDE_CODE_OAUTH_TOKEN=t|CLAUDE_CODE_USE_BEDROCK=1|CLAUDECODE2=1|GIT_TERMINAL_PROMPT=0", ""},
		{"unit", "A=1", WorkerOptions{Unit: "u", StateDir: "/s", ResultFile: "/r"},
			"A=1|GIT_TERMINAL_PROMPT=0|PRUN_UNIT=u|PRUN_STATE_DIR=/s|PRUN_RESULT_FILE=/r", ""},
		{"an outer unit is not this one", "PRUN_UNIT=outer|PRUN_STATE_DIR=/o|PRUN_RESULT_FILE=/o/r", WorkerOptions{Unit: "inner"},
			"GIT_TERMINAL_PROMPT=0|PRUN_UNIT=inner", ""},
		{"prompt only where unset", "GIT_TERMINAL_PROMPT=1", WorkerOptions{}, "GIT_TERMINAL_PROMPT=1", ""},
		{"ci forces", "GIT_TERMINAL_PROMPT=1|CI=|PAGER=less|NO_COLOR=", WorkerOptions{CI: true},
			"CI=1|GIT_TERMINAL_PROMPT=0|GIT_PAGER=cat|PAGER=cat|NO_COLOR=1", ""},
		{"no scrubbing by default", "API_KEY=1|AWS_REGION=x", WorkerOptions{}, "API_KEY=1|AWS_REGION=x|GIT_TERMINAL_PROMPT=0", ""},
		{"secrets", "MY_API_KEY=1|x_token=2|SSH_AUTH_SOCK=/s|XAUTHORITY=/x|AWS_REGION=x|ANTIGRAVITY_API_KEY=k|HOME=/h|DB_PASSWD=p",
			WorkerOptions{Withhold: "secrets"}, "SSH_AUTH_SOCK=/s|ANTIGRAVITY_API_KEY=k|HOME=/h|GIT_TERMINAL_PROMPT=0",
			"AWS_REGION|DB_PASSWD|MY_API_KEY|XAUTHORITY|x_token"},
		{"names", "A=1|B=2|C=3|MY_KEY=4|A=5", WorkerOptions{Withhold: " A, C ,"}, "B=2|MY_KEY=4|GIT_TERMINAL_PROMPT=0", "A|C"},
		{"both", "A=1|MY_KEY=4", WorkerOptions{Withhold: "Secrets A"}, "GIT_TERMINAL_PROMPT=0", "A|MY_KEY"},
		{"keep", "MY_KEY=4|THEIR_KEY=5", WorkerOptions{Withhold: "secrets", Keep: []string{"MY_KEY"}},
			"MY_KEY=4|GIT_TERMINAL_PROMPT=0", "THEIR_KEY"},
		{"backend", "DROP=1|SET=old|SET=older", WorkerOptions{Drop: []string{"DROP"}, Add: []string{"SET=new", "MORE=1"}},
			"GIT_TERMINAL_PROMPT=0|SET=new|MORE=1", ""},
		{"odd entries", "=C:=C:\\x|novalue||=", WorkerOptions{}, "=C:=C:\\x|novalue||=|GIT_TERMINAL_PROMPT=0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var env []string
			if c.env != "" {
				env = strings.Split(c.env, "|")
			}
			before := slices.Clone(env)
			out, withheld := Worker(env, c.options)
			if got := strings.Join(out, "|"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := strings.Join(withheld, "|"); got != c.withheld {
				t.Errorf("withheld %s, want %s", got, c.withheld)
			}
			if !slices.Equal(env, before) {
				t.Errorf("the input was changed: %q", env)
			}
		})
	}
}

// TestRepositoryNames compares the list with the git that is here.
func TestRepositoryNames(t *testing.T) {
	out, err := exec.Command("git", "rev-parse", "--local-env-vars").Output()
	if err != nil {
		t.Skipf("no git to compare the list with: %v", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !slices.Contains(RepositoryNames, name) {
			t.Errorf("git has %s", name)
		}
		if got, _ := Worker([]string{name + "=x"}, WorkerOptions{}); len(got) != 1 {
			t.Errorf("%s stays: %q", name, got)
		}
	}
}

func TestGit(t *testing.T) {
	got := Git([]string{"GIT_DIR=/x", "GIT_EXTERNAL_DIFF=x", "LANG=de_DE.UTF-8", "LC_ALL=de_DE.UTF-8", "LANGUAGE=de", "GIT_TERMINAL_PROMPT=1",
		"PRUN_DISPATCH_REEXEC=1", "GIT_SSH=plink", "HOME=/h", "GIT_TEMPLATE_DIR=/t"})
	want := "LANG=de_DE.UTF-8|GIT_SSH=plink|HOME=/h|LC_ALL=C|GIT_TERMINAL_PROMPT=0|GIT_ASKPASS=true|GIT_PAGER=cat|GIT_EDITOR=true|GIT_OPTIONAL_LOCKS=0"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
	if got := Git(nil); !slices.Contains(got, "GIT_SSH_COMMAND=ssh -oBatchMode=yes") {
		t.Errorf("%q", got)
	}
}

func TestProbeAndFront(t *testing.T) {
	env := []string{"PRUN_UNIT=u", "PRUN__FD=3", "CLAUDECODE=1", "MY_KEY=1", "GIT_DIR=x", "PRUN_GATHER_REEXEC=1"}
	if got := strings.Join(Probe(env), "|"); got != "MY_KEY=1|GIT_TERMINAL_PROMPT=0" {
		t.Error(got)
	}
	if got := strings.Join(Front(env), "|"); got != "PRUN_UNIT=u|CLAUDECODE=1|MY_KEY=1|GIT_DIR=x" {
		t.Error(got)
	}
}

func TestGet(t *testing.T) {
	env := []string{"A=1", "A=2", "BLANK= \t", "EMPTY=", "AB=3", "EQ=a=b", "LOST=1", "LOST="}
	for name, want := range map[string]string{"A": "2", "BLANK": "", "EMPTY": "", "AB": "3", "EQ": "a=b", "NONE": "", "LOST": ""} {
		if got := Get(env, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Get([]string{"novalue"}, "novalue"); got != "" {
		t.Errorf("%q", got)
	}
}

func FuzzWorker(f *testing.F) {
	f.Add("A=1|GIT_DIR=x|=C:=x", "secrets,A")
	f.Fuzz(func(t *testing.T, joined, withhold string) {
		env := strings.Split(joined, "|")
		out, withheld := Worker(env, WorkerOptions{Unit: "u", Withhold: withhold})
		for _, entry := range out {
			name := Name(entry)
			if guard(name) || repository(name) || contains(SessionNames, name) || (contains(withheld, name) && name != Unit && name != "GIT_TERMINAL_PROMPT") {
				t.Fatalf("%q stays", entry)
			}
		}
		Get(env, withhold)
	})
}
