package line

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// EscapeText is Escape for text of several lines: newlines and tabs stay what they
// are, and so does the end of a line that is CR LF.
func EscapeText(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		n := strings.IndexAny(text, "\n\t")
		if n < 0 {
			b.WriteString(Escape(text))
			break
		}
		cell := text[:n]
		if text[n] == '\n' {
			cell = strings.TrimSuffix(cell, "\r")
		}
		b.WriteString(Escape(cell))
		b.WriteByte(text[n])
		text = text[n+1:]
	}
	return b.String()
}

// Text is a writer that passes text of several lines on with EscapeText: what a
// worker said cannot move the cursor of whoever looks at it, set a title or hide
// what stands before it. Half a character, and a CR that may yet be the first half
// of a line's end, wait for the next Write; at the very end they are not shown.
func Text(w io.Writer) io.Writer { return &textWriter{w: w} }

type textWriter struct {
	w    io.Writer
	rest []byte
}

func (t *textWriter) Write(p []byte) (int, error) {
	data := append(t.rest, p...)
	end := len(data)
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if c := data[len(data)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(data[len(data)-i:]) {
				end = len(data) - i
			}
			break
		}
	}
	if end == len(data) && bytes.HasSuffix(data, []byte("\r")) {
		end--
	}
	t.rest = append([]byte(nil), data[end:]...)
	if _, err := io.WriteString(t.w, EscapeText(string(data[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
