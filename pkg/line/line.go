// Package line owns the grammar of the lines that our tools print for programs.
//
// It owns every composed line (its words, the order of its fields, its escaping),
// the writer that prints whole lines, the parser that reads them back, and the
// aligned tables that a person sees on a terminal. It does not decide when a line
// is printed, and it knows no exit code.
//
// Invariant: one line is one Write call and holds exactly one newline, its last
// byte, whatever bytes a path or a name has. Parse(l.String()) gives l again, as
// long as no field but the last (of UNIT, REAPED, TERMINATED and LEFT: but the first) holds a blank.
package line

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The first words of the lines.
const (
	WordStateDir      = "STATE-DIR"
	WordGatherStart   = "GATHER-START"
	WordDone          = "DONE"
	WordTimeout       = "TIMEOUT"
	WordUnreconciled  = "UNRECONCILED"
	WordMonitorStart  = "MONITOR-START"
	WordMonitorEvent  = "MONITOR-EVENT"
	WordUnit          = "UNIT"
	WordOutcome       = "OUTCOME"
	WordModelFallback = "MODEL-FALLBACK"
	WordModelResolve  = "MODEL-RESOLVE"
	WordModelBalance  = "MODEL-BALANCE"
	WordReapStart     = "REAP-START"
	WordReapDone      = "REAP-DONE"
	WordTerminated    = "TERMINATED"
	WordWouldReap     = "WOULD-REAP"
	WordReaped        = "REAPED"
	WordLeft          = "LEFT"
)

// shape is how the words after the first one are cut.
type shape int

const (
	shapeRest  shape = iota // one field: all that follows
	shapeLast               // fields are cut at the last blanks, the first takes the rest
	shapeFirst              // fields are cut at the first blanks, the last takes the rest
	shapePairs              // name=value, in the order of the table
)

// grammar has one row a word; String and Parse read nothing else.
var grammar = []struct {
	word  string
	shape shape
	names []string // of the fields
	tail  string   // printed after the value of a pair whose name is in seconds
	units []string // names of the pairs that carry tail
	min   int      // pairs that must be there; the later ones are optional
}{
	{word: WordStateDir, shape: shapeRest, names: []string{"path"}},
	{word: WordGatherStart, shape: shapePairs, names: []string{"count", "timeout"}, tail: "s", units: []string{"timeout"}, min: 2},
	{word: WordDone, shape: shapeRest, names: []string{"path"}},
	{word: WordTimeout, shape: shapePairs, names: []string{"remaining"}, min: 1},
	{word: WordUnreconciled, shape: shapeFirst, names: []string{"id", "kind", "path"}},
	{word: WordMonitorStart, shape: shapePairs, names: []string{"units", "stall-threshold", "timeout"}, tail: "s",
		units: []string{"stall-threshold", "timeout"}, min: 3},
	{word: WordMonitorEvent, shape: shapeRest, names: []string{"event"}},
	{word: WordUnit, shape: shapeLast, names: []string{"name", "status"}},
	{word: WordOutcome, shape: shapeRest, names: []string{"json"}},
	{word: WordModelFallback, shape: shapePairs, names: []string{"from", "to", "reason", "resets"}, min: 3},
	{word: WordModelResolve, shape: shapePairs, names: []string{"from", "to", "reason"}, min: 3},
	{word: WordModelBalance, shape: shapePairs, names: []string{"from", "to", "reason", "own", "other"}, min: 3},
	{word: WordReapStart, shape: shapePairs, names: []string{"base", "candidates"}, min: 2},
	{word: WordReapDone, shape: shapePairs, names: []string{"reaped", "terminated", "left"}, min: 3},
	{word: WordTerminated, shape: shapeLast, names: []string{"unit", "worker"}},
	{word: WordWouldReap, shape: shapeRest, names: []string{"unit"}},
	{word: WordReaped, shape: shapeLast, names: []string{"unit", "how"}},
	{word: WordLeft, shape: shapeLast, names: []string{"unit", "why"}},
}

// ErrNotLine is wrapped by every error of Parse.
var ErrNotLine = errors.New("not a line of the suite")

// Line is one composed line. The fields hold escaped text, as it is printed;
// which field means what follows from the word (Field gives them by name).
type Line struct {
	Word   string
	Fields []string
}

// StateDir is the one stdout line of a dispatcher.
func StateDir(path string) Line { return compose(WordStateDir, path) }

// GatherStart announces how many files are waited for; timeout is the raw text
// of the limit in seconds, as the caller wrote it.
func GatherStart(count int, timeout string) Line {
	return compose(WordGatherStart, strconv.Itoa(count), timeout)
}

// Done says that the file at path has landed.
func Done(path string) Line { return compose(WordDone, path) }

// Timeout says how many files had not landed at the limit.
func Timeout(remaining int) Line { return compose(WordTimeout, strconv.Itoa(remaining)) }

// Unreconciled names a unit whose result a ledger cannot accept; kind is one of
// missing, empty, fallback, malformed, stale, failed.
func Unreconciled(id, kind, path string) Line { return compose(WordUnreconciled, id, kind, path) }

// MonitorStart announces a watch; stall and timeout are the raw texts in seconds.
func MonitorStart(units int, stall, timeout string) Line {
	return compose(WordMonitorStart, strconv.Itoa(units), stall, timeout)
}

// MonitorEvent is the verdict of a monitor: all-done, any-done, fail, stall,
// timeout or usage-error.
func MonitorEvent(event string) Line { return compose(WordMonitorEvent, event) }

// UnitStatus is the state of one unit. A status holds no blank, a name may.
func UnitStatus(name, status string) Line { return compose(WordUnit, name, status) }

// Outcome carries an outcome record as one line of JSON.
func Outcome(json string) Line { return compose(WordOutcome, json) }

// ModelFallback says that another model runs than the one asked for; resets is
// left out when empty.
func ModelFallback(from, to, reason, resets string) Line {
	return composePairs(WordModelFallback, from, to, reason, resets)
}

// ModelResolve says that a newer model of the same family runs.
func ModelResolve(from, to, reason string) Line {
	return compose(WordModelResolve, from, to, reason)
}

// ModelBalance says that the group with the freer meter runs; own and other are
// percentages ("0%") and are left out when empty.
func ModelBalance(from, to, reason, own, other string) Line {
	return composePairs(WordModelBalance, from, to, reason, own, other)
}

// ReapStart opens the answer of prun-reap: where it looks, and how many units
// are to be looked at.
func ReapStart(base string, candidates int) Line {
	return compose(WordReapStart, base, strconv.Itoa(candidates))
}

// ReapDone closes it.
func ReapDone(reaped, terminated, left int) Line {
	return compose(WordReapDone, strconv.Itoa(reaped), strconv.Itoa(terminated), strconv.Itoa(left))
}

// Terminated says that every process of a unit that could be verified is gone,
// with the number its worker had, and that nothing proves that none escaped.
func Terminated(unit string, pid int) Line {
	return compose(WordTerminated, unit, "pid="+strconv.Itoa(pid))
}

// WouldReap says what a dry run would do.
func WouldReap(unit string) Line { return compose(WordWouldReap, unit) }

// Reaped says that nothing of a unit is left and how that is known (one word).
func Reaped(unit, how string) Line { return compose(WordReaped, unit, how) }

// Left says that a unit was left as it is and why (one word).
func Left(unit, why string) Line { return compose(WordLeft, unit, why) }

func compose(word string, fields ...string) Line {
	l := Line{Word: word, Fields: make([]string, len(fields))}
	for i, f := range fields {
		l.Fields[i] = Escape(f)
	}
	return l
}

// composePairs drops the empty fields at the end, which the grammar has as optional.
func composePairs(word string, fields ...string) Line {
	for len(fields) > 3 && fields[len(fields)-1] == "" {
		fields = fields[:len(fields)-1]
	}
	return compose(word, fields...)
}

// Field returns a field by the name that the grammar gives it, and "" for a name
// the word does not have.
func (l Line) Field(name string) string {
	for _, row := range grammar {
		if row.word != l.Word {
			continue
		}
		for i, n := range row.names {
			if n == name && i < len(l.Fields) {
				return l.Fields[i]
			}
		}
	}
	return ""
}

// String returns the line without its newline.
func (l Line) String() string {
	for _, row := range grammar {
		if row.word != l.Word {
			continue
		}
		var b strings.Builder
		b.WriteString(l.Word)
		for i, f := range l.Fields {
			b.WriteByte(' ')
			if row.shape == shapePairs {
				b.WriteString(row.names[i])
				b.WriteByte('=')
			}
			b.WriteString(f)
			if row.shape == shapePairs && inSeconds(row.units, row.names[i]) {
				b.WriteString(row.tail)
			}
		}
		return b.String()
	}
	return l.Word
}

func inSeconds(units []string, name string) bool {
	for _, u := range units {
		if u == name {
			return true
		}
	}
	return false
}

// Parse reads one line, with or without its newline. It accepts exactly what
// String can print; the error wraps ErrNotLine and says what was found instead.
func Parse(text string) (Line, error) {
	text = strings.TrimSuffix(text, "\n")
	if Escape(text) != text {
		return Line{}, fmt.Errorf("parse %s: a control byte or bad UTF-8: %w", strconv.Quote(clip(text)), ErrNotLine)
	}
	word, rest, found := strings.Cut(text, " ")
	for _, row := range grammar {
		if row.word != word {
			continue
		}
		if !found {
			return Line{}, fmt.Errorf("parse %s: nothing after the word: %w", word, ErrNotLine)
		}
		var fields []string
		var ok bool
		switch row.shape {
		case shapeRest:
			fields, ok = []string{rest}, true
		case shapeFirst:
			fields = strings.SplitN(rest, " ", len(row.names))
			ok = len(fields) == len(row.names)
		case shapeLast:
			if i := strings.LastIndexByte(rest, ' '); i >= 0 {
				fields, ok = []string{rest[:i], rest[i+1:]}, true
			}
		case shapePairs:
			fields, ok = cutPairs(rest, row.names, row.units, row.tail, row.min)
		}
		if !ok {
			return Line{}, fmt.Errorf("parse %s: fields are not %s: %w", word, strings.Join(row.names, ", "), ErrNotLine)
		}
		return Line{Word: word, Fields: fields}, nil
	}
	return Line{}, fmt.Errorf("parse %s: unknown word: %w", strconv.Quote(clip(word)), ErrNotLine)
}

// cutPairs reads name=value pairs in order. A value may hold blanks, so each ends
// where the next name begins.
func cutPairs(rest string, names, units []string, tail string, least int) ([]string, bool) {
	var fields []string
	for i, name := range names {
		rest2, ok := strings.CutPrefix(rest, name+"=")
		if !ok {
			return nil, false
		}
		value, more := rest2, false
		if i+1 < len(names) {
			if at := strings.Index(rest2, " "+names[i+1]+"="); at >= 0 {
				value, rest, more = rest2[:at], rest2[at+1:], true
			}
		}
		if inSeconds(units, name) {
			if value, ok = strings.CutSuffix(value, tail); !ok {
				return nil, false
			}
		}
		fields = append(fields, value)
		if !more {
			return fields, len(fields) >= least
		}
	}
	return fields, true
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80]
	}
	return s
}

// Escape makes any text safe inside a line: every control character (C0, DEL,
// C1) and every byte that is not valid UTF-8 becomes \xNN, one for each byte. All else, the
// backslash included, stays as it is, so that an ordinary path, of Windows too, is
// printed byte for byte. Escaping twice changes nothing.
func Escape(s string) string {
	clean := true
	for i, r := range s {
		if unicode.IsControl(r) || (r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD")) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsControl(r) || (r == utf8.RuneError && n == 1) {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Writer prints whole lines: one Write call each, so that lines of several
// processes on one pipe do not mix (up to the pipe's atomic size, 4 KiB on Linux).
// It may be used by several goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer on w; w must not buffer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Print writes the line and its newline. After an error the line may have been
// written in part.
func (w *Writer) Print(l Line) error { return w.Text(l.String()) }

// Text writes free text (a row of a report) as one line, escaped.
func (w *Writer) Text(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := io.WriteString(w.w, Escape(text)+"\n"); err != nil {
		return fmt.Errorf("write line: %w", err)
	}
	return nil
}
