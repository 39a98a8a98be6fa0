package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/state"
)

// The widths of the plain table, in characters.
const (
	widthUnit   = 52
	widthResult = 9
	widthPath   = 13
	widthTail   = 11
)

const legacyColumn = "legacy_pid_unverified"

// printPlain prints the table that scripts read: the columns of the original, byte
// for byte.
func (o *options) printPlain(w *bufio.Writer, s *sweep) error {
	head := left("unit", widthUnit) + " " + left("result", widthResult) + " " + left("path", widthPath) + " " + right("tail bytes", widthTail)
	if o.LegacyPID {
		head += " " + legacyColumn
	}
	w.WriteString(head + "\n" + strings.Repeat("-", len(head)) + "\n")
	err := s.each(o, func(r row) error {
		name := cut(escape(state.Unit{Dir: r.Unit}.Name()), widthUnit)
		w.WriteString(left(name, widthUnit) + " " + left(string(r.Result), widthResult) + " " + left(string(r.PathState), widthPath) + " " + right(grouped(r.TailBytes), widthTail))
		if o.LegacyPID {
			w.WriteString(" " + legacyCell(r))
		}
		w.WriteByte('\n')
		for _, l := range errorLines(r) {
			w.WriteString(l + "\n")
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.printEnd(w, s)
	return nil
}

// printEnd prints what stands under every table.
func (o *options) printEnd(w *bufio.Writer, s *sweep) {
	if o.Summary {
		t := s.totals
		w.WriteString("\nsummary\n")
		fmt.Fprintf(w, "  units inspected          %d\n", t.units)
		for _, r := range resultStates {
			fmt.Fprintf(w, "  result %-17s %d\n", r, t.byResult[r])
		}
		for _, p := range pathStates {
			fmt.Fprintf(w, "  path %-19s %d\n", p, t.byPath[p])
		}
		fmt.Fprintf(w, "  missing or empty result  %s, %s of tail\n", count(t.lacking, "unit"), mebibytes(t.lackingB))
		fmt.Fprintf(w, "  unresolved               %s, %s of tail\n", count(t.unresolved, "unit"), mebibytes(t.unresolveB))
	}
	w.WriteString("\n")
	for _, l := range safetyLines() {
		w.WriteString(l + "\n")
	}
}

// safetyLines breaks the sentence into the three lines of the text form.
func safetyLines() []string {
	const width = 62
	var lines []string
	for word := range strings.FieldsSeq(safety) {
		last := len(lines) - 1
		if last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

func errorLines(r row) []string {
	var lines []string
	for _, e := range r.Errors {
		lines = append(lines, "    error ["+e.Stage+"]: "+e.Error)
	}
	return lines
}

func legacyCell(r row) string {
	if r.LegacyPID == nil {
		return "-"
	}
	return escape(*r.LegacyPID)
}

// escape makes a foreign text one line.
func escape(text string) string { return line.Escape(text) }

func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width])
}

func left(text string, width int) string {
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

func right(text string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0)) + text
}

// grouped is a number with commas between thousands, a question mark for none.
func grouped(n *int64) string {
	if n == nil {
		return "?"
	}
	text := strconv.FormatInt(*n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
