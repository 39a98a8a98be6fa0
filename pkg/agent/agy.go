package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// agy is Google's Antigravity CLI, in its streaming form: one line of JSON in, events out.
type agy struct{}

func init() { register(agy{}) }

const (
	// AgyModel is the model of a turn that names none.
	AgyModel = "gemini-3.8-flash-high"
	// AgyPrintTimeout is agy's own limit of a turn that names none.
	AgyPrintTimeout = 2700 * time.Second

	agyEffort = "high"
	// agyShort is the size under which a final response is taken for none: seen were "OK" and "Done." in place
	// of an answer.
	agyShort = 20
)

// agy's modes.
const (
	ModePlan        = "plan"
	ModeAcceptEdits = "accept-edits"
)

func (agy) Name() string    { return "agy" }
func (agy) Summary() string { return "Google Antigravity CLI" }

func (agy) Capabilities() Capabilities {
	return Capabilities{
		Streams:     true,
		Resumes:     true,
		Doors:       []string{DoorDispatch, DoorFanout},
		FirstSignal: sigTerm,
		Grace:       5 * time.Second,
	}
}

func (agy) Command(t Turn) (Command, error) {
	mode := t.Mode
	if mode == "" {
		mode = ModeAcceptEdits
		if t.Access == AccessReadOnly {
			mode = ModePlan
		}
	}
	if mode != ModePlan && mode != ModeAcceptEdits {
		return Command{}, fmt.Errorf("%w: agy: mode %q is neither %s nor %s", ErrBadTurn, short(mode), ModePlan, ModeAcceptEdits)
	}
	if t.Resume != "" && (sessionID(t.Resume) == "" || t.Resume[0] == '-') {
		return Command{}, fmt.Errorf("%w: agy: %q is no conversation id", ErrBadResume, short(t.Resume))
	}
	model := first(t.Model, AgyModel)
	limit := t.PrintTimeout
	if limit <= 0 {
		limit = AgyPrintTimeout
	}
	seconds := int64((limit + time.Second - 1) / time.Second)
	args := []string{"--input-format", "stream-json", "--output-format", "stream-json", "--model", model}
	if effort := agyEffortFor(model, t.Effort); effort != "" {
		args = append(args, "--effort", effort)
	}
	args = append(args, "--mode", mode, "--print-timeout", strconv.FormatInt(seconds, 10)+"s")
	if t.Sandbox {
		args = append(args, "--sandbox")
	}
	if mode == ModeAcceptEdits {
		args = append(args, "--dangerously-skip-permissions")
	}
	for _, dir := range t.AddDirs {
		if !filepath.IsAbs(dir) && !strings.HasPrefix(dir, "/") {
			return Command{}, fmt.Errorf("%w: agy: directory %q is not absolute", ErrBadTurn, dir)
		}
		args = append(args, "--add-dir", dir)
	}
	if t.Resume != "" {
		args = append(args, "--conversation", t.Resume)
	}
	return Command{Path: program(t, "agy"), Args: append(args, t.BackendArgs...)}, nil
}

// agyEffortFor: models of the second pool refuse --effort. Where the caller named none, the tier in the model's own
// name wins over the default, because agy refuses a pair that disagrees.
func agyEffortFor(model, named string) string {
	if strings.HasPrefix(model, "claude-") || strings.HasPrefix(model, "gpt-") {
		return ""
	}
	if named != "" {
		return named
	}
	if i := strings.LastIndexByte(model, '-'); i >= 0 {
		switch tier := model[i+1:]; tier {
		case "low", "medium", "high", "max":
			return tier
		}
	}
	return agyEffort
}

func (a agy) Stdin(t Turn, prompt []byte) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	type message struct {
		Content string `json:"content"`
	}
	text := a.Relay(t, prompt)
	if t.door() == DoorFanout {
		// A brief says itself what is to come of it.
		text = string(prompt)
	}
	err := enc.Encode(struct {
		Event   string  `json:"event"`
		Message message `json:"message"`
	}{"user", message{text}})
	if err != nil {
		return nil, fmt.Errorf("encode agy's input: %w", err)
	}
	return line.Bytes(), nil
}

func (agy) NewParser(Turn) Parser { return agyEvents{} }

func (agy) Judge(t Turn, tr *Transcript, x Ending) Verdict {
	v := Verdict{ExitStatus: x.exitStatus(), Notes: tr.Notes[:len(tr.Notes):len(tr.Notes)]}
	response := answer(tr.Response)
	status := strings.ToUpper(strings.TrimSpace(tr.Status))
	other, moved := "", false
	if t.Resume != "" {
		other, moved = elsewhere(t.Resume, tr)
	}
	blank := response == ""
	switch {
	case !x.clean():
		v.Reason = x.describe("Agy")
		if said := first(short(tr.Error), tr.LastErrorLine); said != "" && x.Signal == 0 {
			v.Notes = append(v.Notes, "Agy said: "+said)
		}
	case status != "" && status != "SUCCESS":
		v.Reason = "Agy reported status " + short(tr.Status) + ": " + first(short(tr.Error), tr.LastErrorLine, "no error text")
	case tr.LastErrorLine != "":
		v.Reason = "Agy reported an error: " + tr.LastErrorLine
	case tr.Partial != "":
		v.Reason = "Agy stopped at its own time limit with a partial answer: " + tr.Partial
	case moved:
		v.Reason = fmt.Sprintf("Agy was to continue conversation %s and answered in %s", t.Resume, other)
	case blank && len(tr.Denied) > 0:
		v.Reason = "Agy was refused an action and gave no answer: " + strings.Join(tr.Denied, ", ")
	case x.WorkerResult:
		v.OK = true
		if !tr.Terminal {
			v.Notes = append(v.Notes, "Agy exited 0 without a final event; the worker's own result stands")
		}
	case blank:
		v.Reason = "Agy exited 0 without a final result response"
	case len(response)-1 < agyShort:
		v.Reason = "Agy returned an implausibly short final response"
	default:
		v.OK = true
	}
	if !v.OK && v.ExitStatus == 0 {
		v.ExitStatus = statusJudgedFailed
	}
	v.BackendFailed = !x.clean() || status != "" && status != "SUCCESS" || tr.LastErrorLine != ""
	if moved && !x.clean() {
		v.Notes = append(v.Notes, "the reply belongs to conversation "+other)
	}
	if v.OK && len(tr.Denied) > 0 {
		v.Notes = append(v.Notes, "Agy was refused: "+strings.Join(tr.Denied, ", "))
	}
	if v.OK && tr.Terminal && !tr.Usage.Known() {
		v.Notes = append(v.Notes, "Agy reported no usage")
	}
	if v.OK && t.Resume != "" && len(tr.Sessions) == 0 {
		v.Notes = append(v.Notes, "Agy named no conversation, so the continuation is not confirmed")
	}
	if v.OK || x.WorkerResult {
		v.Response = response
	}
	return v
}

// agyEvents reads `--output-format stream-json`. Its lines end at \n only: agy writes U+0085 as it is.
type agyEvents struct{}

func (agyEvents) answerPaths() []string { return []string{"result.response", "response"} }

const (
	agyErrorLine   = "AGY_ERROR:"
	agyTimeoutLine = "[agy] print timeout after"
)

func (agyEvents) Line(stream Stream, line []byte, tr *Transcript) bool {
	if stream != Stdout {
		agyLog(line, tr)
		return false
	}
	e := parseObject(line)
	if e == nil {
		return false
	}
	kind := first(e.text("event"), e.text("type"))
	body := e.object(kind) // the usual place of an event's own members; some versions put them at the top
	if body == nil {
		body = fields{}
	}
	get := func(key string) any {
		if v, ok := body[key]; ok {
			return v
		}
		return e[key]
	}
	tr.Events++
	id, _ := get("conversation_id").(string)
	id = sessionID(id)
	tr.sawSession(id)
	switch kind {
	case "init":
		if id != "" {
			tr.Session = id
		}
	case "result":
		tr.Terminal = true
		agyResult(e, body, get, tr)
	}
	return false
}

// agyResult takes a result event. There is one for each line of input; for each member the last event that carries
// it counts, so that a bare closing event cannot erase a failure.
func agyResult(e, body fields, get func(string) any, tr *Transcript) {
	if body.has("status") || e.has("status") {
		tr.HasStatus = true
		s, ok := get("status").(string)
		if !ok {
			s = "UNKNOWN"
		}
		tr.Status = short(s)
	}
	if body.has("error") || e.has("error") {
		tr.Error = first(body.message("error"), e.message("error"))
	}
	if s, _ := get("response").(string); strings.TrimSpace(s) != "" {
		tr.Response = s
	}
	denied, _ := get("denied_actions").([]any)
	for _, d := range denied {
		switch d := d.(type) {
		case string:
			tr.deny(short(d))
		case map[string]any:
			tr.deny(short(first(fields(d).text("display_name"), fields(d).text("action"), "an action")))
		}
	}
	if u, ok := get("usage").(map[string]any); ok {
		u := fields(u)
		tr.Usage.Input, tr.Usage.Output = u.count("input_tokens"), u.count("output_tokens")
		tr.Usage.Cached, tr.Usage.Total = u.count("cache_read_tokens"), u.count("total_tokens")
	}
}

// agyLog takes a line of standard error, where agy says what its exit status and status do not.
func agyLog(line []byte, tr *Transcript) {
	text := string(bytes.TrimSpace(line[:min(len(line), maxPlain)]))
	switch {
	case strings.HasPrefix(text, agyErrorLine):
		tr.LastErrorLine = agyError(strings.TrimSpace(text[len(agyErrorLine):]))
	case strings.HasPrefix(text, agyTimeoutLine):
		tr.Partial = short(text)
	case strings.Contains(text, "background task(s)"):
		tr.Note("Agy: %s", text)
	}
}

// agyError words the object behind AGY_ERROR.
func agyError(text string) string {
	e := parseObject([]byte(text))
	said := first(e.text("short_error"), e.text("message"), e.text("error_code"))
	if said == "" || !utf8.ValidString(said) {
		said = text
	}
	return first(short(said), "no error text")
}
