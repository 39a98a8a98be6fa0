package agent

import (
	"bytes"
	"fmt"
)

// judgeStream judges a client whose stream ends with an event that says how the turn went: success is status 0 and a
// last final event that reports no failure. Neither is enough alone: some clients exit 0 after a failed turn, and all
// of them can die after a good one.
func judgeStream(who string, tr *Transcript, x Ending) Verdict {
	v := Verdict{OK: x.clean() && tr.Terminal && !tr.Failed, ExitStatus: x.exitStatus()}
	switch {
	case v.OK:
	case x.Signal != 0:
		v.Reason = x.describe(who)
	case tr.Failed:
		v.Reason = first(short(tr.Error), who+" reported a failed turn without a reason")
	case x.Code != 0:
		v.Reason = first(short(tr.Error), tr.LastErrorLine, x.describe(who))
	case x.WorkerResult:
		v.OK = true
		v.Notes = append(v.Notes, who+" exited 0 without a final event; the worker's own result stands")
	default:
		v.Reason = first(short(tr.Error), who+" exited 0 without a final event")
	}
	if !v.OK && v.ExitStatus == 0 {
		v.ExitStatus = statusJudgedFailed
	}
	return v
}

// compareSession fails a resumed turn whose reply belongs to another session: clients start afresh without a word
// when they do not find the one that was asked for.
func compareSession(who string, t Turn, tr *Transcript, v *Verdict) {
	if t.Resume == "" {
		return
	}
	other, moved := elsewhere(t.Resume, tr)
	switch {
	case moved:
		v.Notes = append(v.Notes, "the reply belongs to session "+other)
		if v.OK {
			v.OK, v.ExitStatus = false, statusJudgedFailed
			v.Reason = fmt.Sprintf("%s was to resume session %s and started %s", who, t.Resume, other)
		}
	case v.OK && len(tr.Sessions) == 0:
		v.Notes = append(v.Notes, who+" named no session, so the resume is not confirmed")
	}
}

// conclude adds the transcript's remarks and the response to a judgement.
func (v *Verdict) conclude(tr *Transcript, x Ending) {
	v.BackendFailed = !v.OK
	v.Notes = append(tr.Notes[:len(tr.Notes):len(tr.Notes)], v.Notes...)
	if v.OK || x.WorkerResult {
		v.Response = answer(tr.Response)
	}
}

// lastWords keeps the last line of standard error: a client that fails before its first event says why only there.
func lastWords(line []byte, tr *Transcript) {
	line = bytes.TrimSpace(line[:min(len(line), maxPlain)])
	for _, noise := range []string{"Warning", "warning", "Working..."} {
		if bytes.HasPrefix(line, []byte(noise)) {
			return
		}
	}
	if said := short(string(line)); said != "" {
		tr.LastErrorLine = said
	}
}

// contentText is the text of a message's content: a text as it is, or the text blocks of a list.
func contentText(content any) string {
	switch c := content.(type) {
	case string:
		return c
	case []any:
		var b bytes.Buffer
		for _, block := range c {
			if m, ok := block.(map[string]any); ok && fields(m).text("type") == "text" {
				b.WriteString(fields(m).text("text"))
			}
		}
		return b.String()
	}
	return ""
}

// contentThinking is the last block of a message's content that holds thoughts.
func contentThinking(content any) string {
	blocks, _ := content.([]any)
	thought := ""
	for _, block := range blocks {
		if m, ok := block.(map[string]any); ok && fields(m).text("type") == "thinking" {
			thought = first(fields(m).text("thinking"), thought)
		}
	}
	return thought
}

// sessionWord reports whether a text can stand as an argument that names a session.
func sessionWord(s string) bool { return sessionID(s) == s && s != "" && s[0] != '-' }
