package line

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table is aligned text for a person at a terminal. Programs get lines or JSON,
// never this.
type Table struct {
	header []string
	right  []bool
	rows   [][]string
}

// NewTable returns a table with these column names. A name that begins with '>'
// names a column that is aligned to the right (numbers).
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, c := range columns {
		name, right := strings.CutPrefix(c, ">")
		t.header = append(t.header, name)
		t.right = append(t.right, right)
	}
	return t
}

// Row adds a row; missing cells are empty, cells beyond the columns are dropped.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.header))
	for i := range row {
		if i < len(cells) {
			row[i] = Escape(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

// WriteTo prints the header and the rows, two blanks between columns, no blanks
// at the end of a line. It writes once.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	width := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], Width(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var text strings.Builder
		for i, cell := range row {
			if i > 0 {
				text.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-Width(cell))
			if t.right[i] {
				text.WriteString(pad + cell)
			} else {
				text.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " "))
		b.WriteByte('\n')
	}
	n, err := io.WriteString(w, b.String())
	if err != nil {
		err = fmt.Errorf("write table: %w", err)
	}
	return int64(n), err
}

// Width is the number of terminal columns that s takes: marks that combine take
// none, the wide scripts of East Asia and emoji take two.
func Width(s string) int {
	if len(s) == utf8.RuneCountInString(s) {
		return len(s)
	}
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
			r >= 0x3000 && r <= 0x303E, r >= 0xFF01 && r <= 0xFF60, r >= 0x1F300 && r <= 0x1FAFF:
			n += 2
		default:
			n++
		}
	}
	return n
}
