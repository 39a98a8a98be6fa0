package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/state"
)

// printJSON prints the answer as it comes: keys in the order of the schema, two
// blanks deep per level, all of it ASCII.
func (o *options) printJSON(w *bufio.Writer, s *sweep) error {
	p := &printer{w: w}
	version := 1
	if o.Detail {
		version = 2
	}
	p.open('{')
	p.key("schema_version")
	p.raw(strconv.Itoa(version))
	p.key("roots")
	p.open('[')
	for _, root := range s.found.Roots {
		p.item()
		p.raw(quote(root))
	}
	p.close(']')
	p.key("unit_count")
	p.raw(strconv.Itoa(len(s.found.Units)))
	p.key("discovery_errors")
	p.open('[')
	for _, e := range s.found.Errors {
		p.item()
		p.open('{')
		p.text("stage", e.Stage)
		if e.Stage == state.StageRoot {
			p.text("root", e.Path)
		} else {
			p.text("unit", e.Path)
		}
		p.text("error", state.ErrorName(e.Err))
		p.close('}')
	}
	p.close(']')
	p.key("units")
	p.open('[')
	err := s.each(o, func(r row) error {
		p.item()
		p.unit(o, r)
		return p.err
	})
	if err != nil {
		return err
	}
	p.close(']')
	p.text("safety", safety)
	if o.Summary {
		p.summary(s.totals)
	}
	p.close('}')
	p.raw("\n")
	return p.err
}

func (p *printer) unit(o *options, r row) {
	p.open('{')
	p.text("unit", r.Unit)
	p.key("errors")
	p.open('[')
	for _, e := range r.Errors {
		p.item()
		p.open('{')
		p.text("stage", e.Stage)
		p.text("error", e.Error)
		p.close('}')
	}
	p.close(']')
	p.text("result_path_state", string(r.PathState))
	p.text("result", string(r.Result))
	p.orNull("result_target", r.ResultTarget)
	p.key("tail_bytes")
	p.number(r.TailBytes)
	if o.LegacyPID {
		p.key("legacy_pid_unverified")
		if r.LegacyPID == nil {
			p.raw("null")
		} else {
			p.raw(quote(*r.LegacyPID))
		}
	}
	if o.Detail {
		p.details(r.detail)
	}
	p.close('}')
}

func (p *printer) details(d *detail) {
	p.key("identity")
	if d.identity == nil {
		p.raw("null")
	} else {
		p.open('{')
		p.text("liveness", d.identity.liveness.String())
		p.text("reason", d.identity.reason)
		p.process("front", d.identity.front)
		p.process("keeper", d.identity.keeper)
		p.process("supervisor", d.identity.supervisor)
		p.process("worker", d.identity.worker)
		p.close('}')
	}
	p.orNull("containment", d.containment)
	p.key("outcome")
	p.outcome(d.outcome)
	p.key("age_s")
	p.number(d.age)
	p.orNull("executor", d.executor)
	p.key("queue")
	if d.ahead == nil {
		p.raw("null")
	} else {
		p.open('{')
		p.key("ahead")
		p.raw(strconv.Itoa(*d.ahead))
		p.close('}')
	}
}

func (p *printer) process(name string, who *process) {
	p.key(name)
	if who == nil {
		p.raw("null")
		return
	}
	p.open('{')
	p.key("pid")
	p.raw(strconv.Itoa(who.pid))
	p.text("verdict", who.verdict.String())
	p.orNull("reason", who.reason)
	p.close('}')
}

// outcome prints the record as its own encoder does, moved in and in ASCII.
func (p *printer) outcome(o *state.Outcome) {
	if o == nil {
		p.raw("null")
		return
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(strings.Repeat("  ", len(p.used)), "  ")
	if err := e.Encode(o); err != nil {
		if p.err == nil {
			p.err = fmt.Errorf("encode outcome: %w", err)
		}
		return
	}
	p.raw(ascii(strings.TrimSuffix(b.String(), "\n")))
}

func (p *printer) summary(t totals) {
	p.key("summary")
	p.open('{')
	p.key("units")
	p.raw(strconv.Itoa(t.units))
	p.key("by_result")
	p.open('{')
	for _, s := range resultStates {
		p.key(string(s))
		p.raw(strconv.Itoa(t.byResult[s]))
	}
	p.close('}')
	p.key("by_path_state")
	p.open('{')
	for _, s := range pathStates {
		p.key(string(s))
		p.raw(strconv.Itoa(t.byPath[s]))
	}
	p.close('}')
	p.key("missing_or_empty_result_bytes")
	p.raw(strconv.FormatInt(t.lackingB, 10))
	p.key("missing_or_empty_result_units")
	p.raw(strconv.Itoa(t.lacking))
	p.key("unresolved_bytes")
	p.raw(strconv.FormatInt(t.unresolveB, 10))
	p.key("unresolved_units")
	p.raw(strconv.Itoa(t.unresolved))
	p.close('}')
}

// printer writes JSON in the layout of Python's indent=2.
type printer struct {
	w    *bufio.Writer
	used []bool // for each open bracket whether something stands in it
	err  error
}

func (p *printer) raw(text string) {
	if _, err := p.w.WriteString(text); err != nil && p.err == nil {
		p.err = err
	}
}

func (p *printer) open(bracket byte) {
	p.raw(string(bracket))
	p.used = append(p.used, false)
}

func (p *printer) close(bracket byte) {
	last := len(p.used) - 1
	used := p.used[last]
	p.used = p.used[:last]
	if used {
		p.newline()
	}
	p.raw(string(bracket))
}

func (p *printer) newline() {
	p.raw("\n")
	for range p.used {
		p.raw("  ")
	}
}

// item begins an element of the innermost bracket.
func (p *printer) item() {
	if last := len(p.used) - 1; p.used[last] {
		p.raw(",")
	} else {
		p.used[last] = true
	}
	p.newline()
}

func (p *printer) key(name string) {
	p.item()
	p.raw(quote(name) + ": ")
}

func (p *printer) text(name, value string) {
	p.key(name)
	p.raw(quote(value))
}

// orNull prints a text of which the empty one means none.
func (p *printer) orNull(name, value string) {
	p.key(name)
	if value == "" {
		p.raw("null")
		return
	}
	p.raw(quote(value))
}

func (p *printer) number(n *int64) {
	if n == nil {
		p.raw("null")
		return
	}
	p.raw(strconv.FormatInt(*n, 10))
}

// quote is a JSON string in ASCII. A byte that is no UTF-8 becomes a lone
// surrogate \udcXX: that is how Python writes the name of such a file, and what it
// reads back as one.
func quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for len(s) > 0 {
		n := 0 // length of what is printed as it stands
		for n < len(s) && s[n] >= ' ' && s[n] <= '~' && s[n] != '"' && s[n] != '\\' {
			n++
		}
		b.WriteString(s[:n])
		if s = s[n:]; s == "" {
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		switch short := strings.IndexByte("\"\\\n\r\t\b\f", s[0]); {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\nrtbf`[short])
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\udc%02x`, s[0])
		default:
			b.WriteString(escapeRune(r))
		}
		s = s[size:]
	}
	b.WriteByte('"')
	return b.String()
}

func escapeRune(r rune) string {
	if high, low := utf16.EncodeRune(r); r >= 0x10000 {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// ascii rewrites JSON text so that it holds ASCII only. All else can only stand in
// its strings.
func ascii(text string) string {
	if len(text) == utf8.RuneCountInString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteString(escapeRune(r))
		}
	}
	return b.String()
}
