package agent

import (
	"fmt"
	"strings"
	"time"
)

// codex is OpenAI's codex CLI. prun-dispatch runs its plain dialect, whose answer and log are text; herd and
// agent-fanout run `exec --json`. Facts about the client are those of codex 0.171.
type codex struct{}

func init() { register(codex{}) }

func (codex) Name() string      { return "codex" }
func (codex) Summary() string   { return "OpenAI codex exec" }
func (codex) binaryVar() string { return "CODEX_BIN" }

func (codex) Capabilities() Capabilities {
	return Capabilities{
		Streams:          true, // at herd and agent-fanout
		Resumes:          true,
		MergeStderr:      true,
		Doors:            []string{DoorDispatch, DoorHerd, DoorFanout},
		FirstSignal:      sigTerm,
		Grace:            2 * time.Second,
		JudgedByExitOnly: true, // at prun-dispatch
		IdleReaps:        true,
	}
}

// herdStops: on INT codex ends its own tools, on TERM it dies at once and leaves them.
func (codex) herdStops() []StopStep { return []StopStep{{sigInt, 5 * time.Second}} }

func (c codex) Command(t Turn) (Command, error) {
	if t.Resume != "" && !isUUID(t.Resume) {
		// codex takes a word that is no id for a name, finds none and silently starts a new thread.
		return Command{}, fmt.Errorf("%w: codex: %q is no thread id", ErrBadResume, short(t.Resume))
	}
	var args []string
	switch t.door() {
	case DoorDispatch:
		args = c.dispatchArgs(t)
	case DoorHerd:
		args = c.herdArgs(t)
	case DoorFanout:
		args = c.fanoutArgs(t)
	}
	return Command{Path: program(t, "codex"), Args: args}, nil
}

func (codex) dispatchArgs(t Turn) []string {
	sandbox := first(t.Access, t.SandboxMode, AccessFull)
	args := []string{"exec", "--sandbox", sandbox, "--skip-git-repo-check"}
	if t.Isolate {
		args = append(args, "--ignore-user-config")
	}
	if effort := first(t.Effort, t.Reasoning); effort != "" && (t.Isolate || t.Effort != "") {
		args = append(args, "-c", "model_reasoning_effort="+effort)
	}
	if t.Model != "" {
		args = append(args, "-m", t.Model)
	}
	for _, dir := range t.AddDirs {
		args = append(args, "--add-dir", dir)
	}
	args = append(args, t.BackendArgs...)
	if t.Resume != "" {
		// Options before the word resume take effect; the same ones after it are a usage error, and a resumed
		// thread keeps neither sandbox nor effort, so they are given again.
		args = append(args, "resume", t.Resume)
	}
	return append(args, "-")
}

func (codex) herdArgs(t Turn) []string {
	fast := "--disable"
	if t.Fast {
		fast = "--enable"
	}
	const bypass = "--dangerously-bypass-approvals-and-sandbox"
	access := first(t.Access, AccessReadOnly)
	model := []string{"--model", t.Model, "-c", "model_reasoning_effort=" + t.Effort, "--skip-git-repo-check"}
	var args []string
	if t.Resume == "" {
		args = append([]string{"exec", "--json", "--cd", t.Dir}, model...)
		args = append(args, "--color", "never", fast, "fast_mode")
		if access == AccessFull {
			args = append(args, bypass)
		} else {
			args = append(args, "--sandbox", access, "-c", "approval_policy=never")
		}
		return append(append(args, t.BackendArgs...), "-")
	}
	args = append([]string{"exec", "resume", "--json"}, model...)
	args = append(args, fast, "fast_mode")
	if access == AccessFull {
		args = append(args, bypass)
	} else {
		args = append(args, "-c", "sandbox_mode="+access, "-c", "approval_policy=never")
	}
	return append(append(args, t.BackendArgs...), t.Resume, "-")
}

func (codex) fanoutArgs(t Turn) []string {
	args := []string{"exec", "--json", "--sandbox", first(t.Access, AccessWorkspace)}
	if !t.NoNetwork {
		args = append(args, "-c", "sandbox_workspace_write.network_access=true")
	}
	args = append(args, "-c", "features.default_mode_request_user_input=false")
	if t.Model != "" {
		args = append(args, "-m", t.Model)
	}
	if t.Effort != "" {
		args = append(args, "-c", fmt.Sprintf("model_reasoning_effort=%q", t.Effort))
	}
	if t.LastMessageFile != "" {
		args = append(args, "-o", t.LastMessageFile)
	}
	args = append(args, t.BackendArgs...)
	if t.Resume != "" {
		args = append(args, "resume", t.Resume)
	}
	return append(args, "-")
}

func (codex) Stdin(_ Turn, prompt []byte) ([]byte, error) { return prompt, nil }
func (codex) Probes(Turn) []Probe                         { return nil }

func (codex) NewParser(t Turn) Parser {
	if t.door() == DoorDispatch {
		return &codexPlain{}
	}
	return codexEvents{}
}

func (codex) Judge(t Turn, tr *Transcript, x Ending) Verdict {
	v := byExit(x, "codex", tr.LastErrorLine)
	streams := t.door() != DoorDispatch
	if streams {
		// An item or a line of type error decides nothing: both occur in runs that succeed.
		v = judgeStream("codex", tr, x)
	}
	v.BackendFailed = !v.OK
	compareSession("codex", t, tr, &v)
	v.Notes = append(tr.Notes[:len(tr.Notes):len(tr.Notes)], v.Notes...)
	if streams && (v.OK || x.WorkerResult) {
		v.Response = answer(tr.Response)
	}
	return v
}

// elsewhere reports whether a stream that was to continue one session named another.
func elsewhere(asked string, tr *Transcript) (other string, moved bool) {
	for _, id := range tr.Sessions {
		if !strings.EqualFold(id, asked) {
			return id, true
		}
	}
	return "", false
}

// program returns the turn's program, or the name to look up.
func program(t Turn, name string) string { return first(t.Bin, name) }

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// isUUID reports the canonical form, in either case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return true
}
