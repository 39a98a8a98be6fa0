package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// There is no PowerShell where these tests run, so its fronts are only read: quotes, brackets and comments must close,
// and every byte must be ASCII, because Windows PowerShell 5 takes a file without a byte order mark for one in the
// system's old code page.
func TestPowerShellFrontsParse(t *testing.T) {
	names, err := filepath.Glob("../../shims/*.ps1")
	if err != nil || len(names) == 0 {
		t.Fatalf("no PowerShell fronts: %v", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexFunc(text, func(r rune) bool { return r > 126 || r < 32 && r != '\n' && r != '\t' }); i >= 0 {
			t.Errorf("%s: byte %d is not plain ASCII", name, i)
		}
		if err := closes(string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.HasSuffix(strings.TrimSpace(string(text)), "exit $LASTEXITCODE") {
			t.Errorf("%s does not end with the exit status of what it runs", name)
		}
	}
}

func TestClosesFindsWhatIsOpen(t *testing.T) {
	for text, good := range map[string]bool{
		"":                                   true,
		"if ($a) { 'it''s' } # }\n":          true,
		"\"a $(if (1) { \"b`\"\" }) {\"":     true,
		"<# ( #> @('x')[0]":                  true,
		"'@{' + \"`$(\" # '":                 true,
		"if ($a) { 'x' ":                     false,
		"if ($a] {}":                         false,
		"'it's'":                             false,
		"\"a":                                false,
		"<# never":                           false,
		"}":                                  false,
		"\"$(if (1) { )\"":                   false,
		"Write-Output \"$('a')\" ; ('b'))\n": false,
	} {
		if err := closes(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// closes reports the first bracket, quote or comment of a PowerShell text that does not fit. Here-strings are not
// known: the fronts have none.
func closes(text string) error {
	line := 1
	// The stack holds brackets, and a quote for each "..." whose $( ) is open.
	var open []byte
	partner := map[byte]byte{')': '(', ']': '[', '}': '{'}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\n' {
			line++
		}
		if len(open) > 0 && open[len(open)-1] == '"' {
			switch {
			case c == '`':
				i++
			case c == '"':
				open = open[:len(open)-1]
			case c == '$' && i+1 < len(text) && text[i+1] == '(':
				open = append(open, '(')
				i++
			}
			continue
		}
		switch c {
		case '`':
			i++
		case '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case '<':
			if strings.HasPrefix(text[i:], "<#") {
				n := strings.Index(text[i:], "#>")
				if n < 0 {
					return fmt.Errorf("line %d: the comment does not end", line)
				}
				line += strings.Count(text[i:i+n], "\n")
				i += n + 1
			}
		case '\'':
			n := strings.IndexByte(text[i+1:], '\'')
			if n < 0 {
				return fmt.Errorf("line %d: the quote does not end", line)
			}
			line += strings.Count(text[i+1:i+1+n], "\n")
			i += n + 1
		case '"', '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != partner[c] {
				return fmt.Errorf("line %d: %c closes nothing", line, c)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("at the end %q is still open", open)
	}
	return nil
}
