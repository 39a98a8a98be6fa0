package line

import (
	"bytes"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	tests := []struct{ in, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"dos\r\nlines\r\n", "dos\nlines\n"},
		{"over\rwritten\n", "over\\x0dwritten\n"},
		{"\x1b]0;title\a\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"},
		{"\u2603\xff\x00\u009b", "\u2603\\xff\\x00\\xc2\\x9b"},
		{"", ""},
	}
	for _, tt := range tests {
		if got := EscapeText(tt.in); got != tt.want {
			t.Errorf("EscapeText(%q) = %q, want %q", tt.in, got, tt.want)
		}
		for n := 1; n <= 4; n++ {
			var out bytes.Buffer
			w := Text(&out)
			for rest := []byte(tt.in); len(rest) > 0; {
				k := min(n, len(rest))
				if m, err := w.Write(rest[:k]); m != k || err != nil {
					t.Fatalf("Write: %d, %v", m, err)
				}
				rest = rest[k:]
			}
			if got := out.String(); got != tt.want {
				t.Errorf("pieces of %d: %q, want %q", n, got, tt.want)
			}
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("a\r\n\x1b[2J\xe2\x98"), byte(1))
	f.Fuzz(func(t *testing.T, data []byte, step byte) {
		var out bytes.Buffer
		w := Text(&out)
		for rest := data; len(rest) > 0; {
			k := min(int(step)%7+1, len(rest))
			w.Write(rest[:k])
			rest = rest[k:]
		}
		for _, line := range strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' || r == '\t' }) {
			if Escape(line) != line {
				t.Fatalf("%q comes out as %q", data, out.String())
			}
		}
		if whole := EscapeText(string(data)); !strings.HasPrefix(whole, out.String()) {
			t.Fatalf("%q in pieces: %q, whole: %q", data, out.String(), whole)
		}
	})
}
