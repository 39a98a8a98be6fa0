package agent

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a transcript. Its text is as large as the largest answer kept (maxAnswer), everything else is small.
const (
	maxNotes    = 32
	maxSessions = 32
	maxDenied   = 32
	maxShort    = 4 << 10 // an error text, a reason
	maxID       = 512
)

// A Transcript is what the lines of one turn have said so far. It is written by one Parser and may be read between
// two writes.
type Transcript struct {
	// Session is the id to record and resume; empty until the stream names one.
	Session string
	// Sessions holds every different id seen, in order.
	Sessions []string
	// Response is the final message so far.
	Response string
	// Thinking is the last thinking text so far.
	Thinking string
	// Status is the word of the last terminal event that carried one.
	Status    string
	HasStatus bool
	// Error is the text of the failure that the stream reported.
	Error string
	// Failed: the last terminal event said that the turn failed.
	Failed bool
	// Terminal: a terminal event was seen.
	Terminal bool
	// Open counts the tasks that the client keeps running in the background; while there are any, a terminal event
	// is not the last one.
	Open   int `json:",omitempty"`
	Usage  Usage
	Denied []string // actions that the client refused
	Notes  []string // remarks for the outcome, bounded
	// LastErrorLine is the last line of text that the client marked as an error.
	LastErrorLine string
	// Partial holds the client's words when it said that its answer was cut short.
	Partial string
	// Events counts the lines that were understood.
	Events int64
	// LongLines counts lines of which only the essentials were kept.
	LongLines int64
}

// Usage is what the client reported; nil means that it did not.
type Usage struct {
	Input, Output, Cached, Total *int64
	CostUSD                      *float64
	// CostOfSession: CostUSD counts from the session's start, not from this process's.
	CostOfSession bool `json:",omitempty"`
}

// Known reports whether anything other than zero was reported.
func (u Usage) Known() bool {
	for _, n := range []*int64{u.Input, u.Output, u.Cached, u.Total} {
		if n != nil && *n != 0 {
			return true
		}
	}
	return u.CostUSD != nil && *u.CostUSD != 0
}

// Note adds a remark once; after the last place it says that there were more.
func (tr *Transcript) Note(format string, args ...any) {
	text := short(fmt.Sprintf(format, args...))
	switch {
	case slices.Contains(tr.Notes, text):
	case len(tr.Notes) < maxNotes:
		tr.Notes = append(tr.Notes, text)
	case len(tr.Notes) == maxNotes:
		tr.Notes = append(tr.Notes, "further notes were left out")
	}
}

// sawSession records an id among Sessions.
func (tr *Transcript) sawSession(id string) {
	if id != "" && len(tr.Sessions) < maxSessions && !slices.Contains(tr.Sessions, id) {
		tr.Sessions = append(tr.Sessions, id)
	}
}

func (tr *Transcript) deny(what string) {
	if what != "" && len(tr.Denied) < maxDenied && !slices.Contains(tr.Denied, what) {
		tr.Denied = append(tr.Denied, what)
	}
}

// sessionID returns a usable id or "": one word without control characters, of a sane length.
func sessionID(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxID || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || r == utf8.RuneError
	}) {
		return ""
	}
	return s
}

// short makes foreign text fit for one line of ours: white space collapsed, control characters gone, bounded.
func short(s string) string {
	cut := len(s) > 4*maxShort
	if cut {
		s = s[:4*maxShort]
	}
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
	if len(s) > maxShort {
		end := maxShort
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s, cut = s[:end], true
	}
	if cut {
		s += " ..."
	}
	return s
}

// answer makes a response fit for publication: valid UTF-8, stripped, one final newline; "" when blank.
func answer(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	if s == "" {
		return ""
	}
	return s + "\n"
}

// exitStatus is the status a process's ending has outside.
func (x Ending) exitStatus() int {
	if x.Signal != 0 {
		return signalBase + x.Signal
	}
	return x.Code
}

// clean reports an ending with status 0.
func (x Ending) clean() bool { return x.Code == 0 && x.Signal == 0 }

// describe words an ending that was not clean.
func (x Ending) describe(who string) string {
	switch {
	case x.Signal == 9:
		return fmt.Sprintf("%s was killed by signal 9 (possibly out of memory)", who)
	case x.Signal != 0:
		return fmt.Sprintf("%s was killed by signal %d", who, x.Signal)
	default:
		return fmt.Sprintf("%s exited with code %d", who, x.Code)
	}
}
