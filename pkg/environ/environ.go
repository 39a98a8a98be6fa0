// Package environ decides which environment variables a program we start may see.
//
// It owns the lists (git's repository variables, the markers of a surrounding
// agent session, our own hand-over names, the shapes of secret names) and the
// functions that apply them. It does not read or change the environment of this
// process and starts nothing: every function maps a []string to a new []string.
//
// Invariant: the input slice is never changed, the order of what stays is kept,
// and a name that is removed is removed in every entry that carries it.
package environ

import (
	"runtime"
	"slices"
	"strings"
)

// GuardNames are variables by which our own programs, or the scripts they
// replace, talk to a later copy of themselves. A worker that inherited one would
// change how a suite tool started by that worker behaves. GO_FLAGS_COMPLETION is
// one of them because a tool that sees it lists its options instead of working.
var GuardNames = []string{
	"PRUN_DISPATCH_REEXEC",
	"PRUN_MONITOR_REEXEC",
	"PRUN_GATHER_REEXEC",
	"GO_FLAGS_COMPLETION",
}

// HandoverPrefix begins every hidden hand-over name of the suite (front door to
// keeper to supervisor). The double underscore keeps it apart from settings.
const HandoverPrefix = "PRUN__"

// RepositoryNames are the variables by which git points at one repository: the
// answer of `git rev-parse --local-env-vars`, old and new editions together. A
// worker started from a git hook would otherwise work on the hook's repository,
// whatever directory it stands in.
var RepositoryNames = []string{
	"GIT_ALTERNATE_OBJECT_DIRECTORIES",
	"GIT_CONFIG",
	"GIT_CONFIG_PARAMETERS",
	"GIT_CONFIG_COUNT",
	"GIT_OBJECT_DIRECTORY",
	"GIT_DIR",
	"GIT_WORK_TREE",
	"GIT_IMPLICIT_WORK_TREE",
	"GIT_GRAFT_FILE",
	"GIT_INDEX_FILE",
	"GIT_NO_REPLACE_OBJECTS",
	"GIT_REPLACE_REF_BASE",
	"GIT_PREFIX",
	"GIT_INTERNAL_SUPER_PREFIX",
	"GIT_SHALLOW_FILE",
	"GIT_COMMON_DIR",
}

// SessionNames mark "this runs inside that very session" for a client that
// starts another one. Exactly these four go: logins and settings live in the
// other variables of the same prefix.
var SessionNames = []string{
	"CLAUDECODE",
	"CLAUDE_CODE_ENTRYPOINT",
	"CLAUDE_CODE_SSE_PORT",
	"CLAUDE_CODE_SESSION_ID",
}

// Names that tell a worker which unit it is.
const (
	Unit       = "PRUN_UNIT"
	StateDir   = "PRUN_STATE_DIR"
	ResultFile = "PRUN_RESULT_FILE"
	// Withhold is the opt-in of decision 3.12: the word secrets, names, or both.
	Withhold = "PRUN_WITHHOLD_ENV"
)

// WorkerOptions say what a worker's environment is made for. Empty fields are
// left out, and a value that the caller inherited from an outer unit under the
// same name is removed all the same: it describes another unit.
type WorkerOptions struct {
	Unit       string
	StateDir   string
	ResultFile string
	// Withhold is the value of PRUN_WITHHOLD_ENV: blank withholds nothing, the
	// word secrets withholds every name that Secret knows, any other word is a
	// name. Words are separated by commas or blanks.
	Withhold string
	// CI adds CI=1, GIT_PAGER=cat, PAGER=cat, NO_COLOR=1 and forces
	// GIT_TERMINAL_PROMPT=0. Without it GIT_TERMINAL_PROMPT=0 is set only where
	// the caller left it unset.
	CI bool
	// Keep names are exempt from Withhold, for a backend that cannot log in
	// without one of them.
	Keep []string
	// Drop removes further names; a backend asks for it.
	Drop []string
	// Add holds NAME=value entries of the backend; they win over the caller's.
	Add []string
}

// Worker returns the environment of a worker and, sorted, the names that were
// withheld because of o.Withhold. Names removed for hygiene are not in that
// list: they were never the worker's business.
func Worker(env []string, o WorkerOptions) (out, withheld []string) {
	secrets, named := withholding(o.Withhold)
	own := []string{Unit, StateDir, ResultFile}
	for _, entry := range env {
		name := Name(entry)
		switch {
		case guard(name), repository(name),
			contains(SessionNames, name), contains(own, name), contains(o.Drop, name):
			continue
		case contains(o.Keep, name):
		case contains(named, name), secrets && Secret(name):
			if !contains(withheld, name) {
				withheld = append(withheld, name)
			}
			continue
		}
		out = append(out, entry)
	}
	if o.CI {
		out = set(out, "CI=1", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "PAGER=cat", "NO_COLOR=1")
	} else if !present(out, "GIT_TERMINAL_PROMPT") {
		out = append(out, "GIT_TERMINAL_PROMPT=0")
	}
	out = set(out, o.Add...)
	for i, value := range []string{o.Unit, o.StateDir, o.ResultFile} {
		if value != "" {
			out = set(out, own[i]+"="+value)
		}
	}
	slices.Sort(withheld)
	return out, withheld
}

// Git returns the environment of a git call of ours: no variable that points at
// another repository or at a template, no pathspec or diff setting that changes
// an answer, messages in English, and nothing that can wait for a person.
func Git(env []string) []string {
	drop := []string{
		"GIT_TEMPLATE_DIR", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS", "GIT_NAMESPACE",
		"GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS",
		"LANGUAGE", "SSH_ASKPASS",
	}
	out := make([]string, 0, len(env)+8)
	for _, entry := range env {
		name := Name(entry)
		if guard(name) || repository(name) || contains(drop, name) {
			continue
		}
		out = append(out, entry)
	}
	out = set(out, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "GIT_PAGER=cat", "GIT_EDITOR=true",
		"GIT_OPTIONAL_LOCKS=0")
	if !present(out, "GIT_SSH_COMMAND") && !present(out, "GIT_SSH") {
		out = append(out, "GIT_SSH_COMMAND=ssh -oBatchMode=yes")
	}
	return out
}

// Probe returns the environment of a short question to a backend CLI (version,
// models, login state): the worker's hygiene without a unit's names, so that the
// probe sees the same login as the worker will.
func Probe(env []string) []string {
	out, _ := Worker(env, WorkerOptions{})
	return out
}

// Front returns the environment that our own detached processes get: the
// caller's, minus loop guards and hand-over names. They apply the other rules
// when they start a worker.
func Front(env []string) []string {
	out := make([]string, 0, len(env))
	for _, entry := range env {
		if !guard(Name(entry)) {
			out = append(out, entry)
		}
	}
	return out
}

// Get returns the value of name in env, the last entry winning as exec does it.
// A value of blanks only counts as unset and is returned as "".
func Get(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if same(Name(entry), name) && len(entry) > len(name) {
			value := entry[len(name)+1:]
			if strings.TrimSpace(value) == "" {
				return ""
			}
			return value
		}
	}
	return ""
}

// Name returns the part of a NAME=value entry before the equals sign. The
// entries of Windows that begin with an equals sign (=C:=C:\dir) have that sign
// in their name.
func Name(entry string) string {
	if entry == "" {
		return ""
	}
	if i := strings.IndexByte(entry[1:], '='); i >= 0 {
		return entry[:i+1]
	}
	return entry
}

// Secret reports whether a name has the shape of one that holds a credential.
// SSH_AUTH_SOCK is a path, not a secret, and workers that push need it;
// ANTIGRAVITY_ names are settings of a client that we start.
func Secret(name string) bool {
	upper := strings.ToUpper(name)
	if upper == "SSH_AUTH_SOCK" || strings.HasPrefix(upper, "ANTIGRAVITY_") {
		return false
	}
	if strings.HasPrefix(upper, "AWS_") {
		return true
	}
	for _, part := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"} {
		if strings.Contains(upper, part) {
			return true
		}
	}
	return false
}

func withholding(value string) (secrets bool, names []string) {
	words := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
	for _, word := range words {
		if strings.EqualFold(word, "secrets") {
			secrets = true
			continue
		}
		names = append(names, word)
	}
	return secrets, names
}

func guard(name string) bool {
	return contains(GuardNames, name) || hasPrefix(name, HandoverPrefix)
}

func repository(name string) bool {
	return contains(RepositoryNames, name) || numbered(name, "GIT_CONFIG_KEY_") || numbered(name, "GIT_CONFIG_VALUE_")
}

// numbered reports whether name is prefix and a decimal number, as in the pairs
// that GIT_CONFIG_COUNT counts.
func numbered(name, prefix string) bool {
	if !hasPrefix(name, prefix) || len(name) == len(prefix) {
		return false
	}
	return strings.Trim(name[len(prefix):], "0123456789") == ""
}

// set replaces the entries of the same names and appends the new ones.
func set(env []string, entries ...string) []string {
	for _, entry := range entries {
		name := Name(entry)
		env = slices.DeleteFunc(env, func(old string) bool { return same(Name(old), name) })
		env = append(env, entry)
	}
	return env
}

func present(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool { return same(Name(entry), name) })
}

func contains(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return same(n, name) })
}

func hasPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && same(name[:len(prefix)], prefix)
}

// same compares names as the system does: Windows ignores case.
func same(a, b string) bool {
	if runtime.GOOS == "windows" {
		return strings.EqualFold(a, b)
	}
	return a == b
}
