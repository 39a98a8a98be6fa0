package result

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Form is the text of a FALLBACK. Callers of the old scripts read these texts, so
// they are kept byte for byte.
type Form int

const (
	FormCodex Form = iota // of dispatch-task: the whole tail, raw
	FormAgy               // of the Agy dispatcher: fenced blocks
	FormNamed             // FormAgy for another backend, named in line 1
)

// Salvage is the FALLBACK of a unit whose worker left no result: what it said, as
// far as it was captured, under a header that says what it is.
type Salvage struct {
	Form    Form
	Unit    string
	Tool    string // who signs a FormCodex: "dispatch-task" or "prun-dispatch" ("")
	Backend string // who is named in line 1 of a FormNamed
	// Reason why there is no result. FormCodex has a text of its own for ""; else it
	// is the conclusion. Put on one line, with bytes that are no UTF-8 replaced.
	Reason string
	Reaped bool   // FormCodex: the worker was ended by us, for Reason
	Tail   string // path of what the worker said, "" for none
	Stderr string // path of what it said on stderr, if kept apart
	Note   string // for a line of its own at the end of the header, "" for none
}

const (
	bodyMax   = 4 << 20 // captured bytes in a FALLBACK
	stderrMin = 1 << 20 // of these, what stderr may have however long the tail is
	chunk     = 64 << 10
)

// WriteTo writes the FALLBACK to w with memory that does not depend on how much
// was captured. Captured bytes are not changed, but agy's blocks lose the blanks
// at both ends. When there are more than 4 MiB of them each file that is too long for
// its share gives its first and last bytes, a tail without stderr 2 MiB each, cut
// between characters, with a line between that says what is left out and where the
// whole is. A file that is missing counts as empty; one that cannot be read is
// named in the text. The error is w's alone.
func (s Salvage) WriteTo(w io.Writer) (int64, error) {
	out := &counter{w: w}
	b := bufio.NewWriterSize(out, chunk)
	b.WriteString(s.header())
	if err := b.Flush(); err != nil { // whoever only wants the header pays for no more
		return out.n, err
	}
	tail, stderr := capture(s.Tail), capture(s.Stderr)
	defer tail.close()
	defer stderr.close()
	if s.Form == FormCodex {
		stderr.limit = min(stderr.size, max(bodyMax-tail.size, stderrMin))
		tail.limit = min(tail.size, bodyMax-stderr.limit)
		tail.copyTo(b)
		if stderr.size > 0 || stderr.trouble != "" {
			b.WriteString("\n## stderr\n\n")
			stderr.copyTo(b)
		}
		err := b.Flush()
		return out.n, err
	}
	tail.trim()
	stderr.trim()
	stderr.limit = min(stderr.size, max(bodyMax-tail.size, stderrMin))
	tail.limit = min(tail.size, bodyMax-stderr.limit)
	any := tail.blockTo(b, "stdout events", false)
	any = stderr.blockTo(b, "stderr", any) || any
	if !any {
		b.WriteString("No worker output was captured.\n")
	}
	err := b.Flush()
	return out.n, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (s Salvage) header() string {
	reason := oneLine(s.Reason)
	tool := s.Tool
	if tool == "" {
		tool = "prun-dispatch"
	}
	const review = "review the raw output below or re-dispatch this unit."
	var why, conclusion, open, verification string
	switch s.Form {
	case FormCodex:
		why = "worker wrote no result file"
		conclusion = "structured result missing, raw worker output salvaged from the dispatch tail below."
		open = "worker did not write its result file; " + review
		verification = "none (salvaged by " + tool + ", not by the worker)"
		if s.Reaped {
			reaped := "worker was reaped by " + tool + " (" + reason + ")"
			conclusion = reaped + " before writing a result; raw worker output salvaged from the dispatch tail below."
			open = reaped + "; " + review
			verification = "none (worker reaped by " + tool + "; tail salvaged by " + tool + ")"
		} else if reason != "" {
			conclusion = reason
			open = reason + "; " + review
		}
	default:
		who := "Agy"
		if s.Form == FormNamed {
			who = oneLine(s.Backend)
		}
		why = who + " wrote no final result"
		if reason == "" {
			reason = why
		}
		conclusion, open, verification = reason, reason, "none (dispatcher fallback)"
	}
	var h strings.Builder
	fmt.Fprintf(&h, "# %s result (FALLBACK, %s)\n", s.Unit, why)
	fmt.Fprintf(&h, "Conclusion: INCOMPLETE; %s\nFiles: unknown\nOpen items: %s\nVerification: %s\n", conclusion, open, verification)
	if note := oneLine(s.Note); note != "" {
		fmt.Fprintf(&h, "Note: %s\n", note)
	}
	h.WriteByte('\n')
	return h.String()
}

// oneLine makes foreign text fit for a header: blanks collapsed, no control
// characters, valid UTF-8.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return utf8.RuneError
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// captured is the part of a file that a FALLBACK may show.
type captured struct {
	path    string
	f       *os.File
	from    int64 // of size bytes: what is there when we look, without agy's blanks
	size    int64
	limit   int64  // how many of them are shown
	trouble string // why it cannot be read
}

// capture opens path. The file may still grow: only what it holds now counts.
func capture(path string) *captured {
	c := &captured{path: path}
	if path == "" {
		return c
	}
	f, err := atomicfile.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c
	}
	if err == nil {
		var fi fs.FileInfo
		if fi, err = f.Stat(); err == nil {
			c.f, c.size = f, fi.Size()
			return c
		}
		f.Close()
	}
	c.trouble = oneLine(err.Error())
	return c
}

func (c *captured) close() {
	if c.f != nil {
		c.f.Close()
	}
}

func blank(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

// trim narrows the part to what is not blank at its ends.
func (c *captured) trim() {
	buf := make([]byte, chunk)
	for c.size > 0 {
		n, err := c.f.ReadAt(buf[:min(c.size, chunk)], c.from)
		rest := bytes.TrimLeftFunc(buf[:n], func(r rune) bool { return r < utf8.RuneSelf && blank(byte(r)) })
		c.from += int64(n - len(rest))
		c.size -= int64(n - len(rest))
		if len(rest) > 0 || n == 0 || err != nil {
			break
		}
	}
	for c.size > 0 {
		piece := buf[:min(c.size, chunk)]
		n, err := c.f.ReadAt(piece, c.from+c.size-int64(len(piece)))
		if n < len(piece) {
			c.fail(c.from+c.size-int64(len(piece)), err)
			return
		}
		for n > 0 && blank(piece[n-1]) {
			n--
		}
		c.size -= int64(len(piece) - n)
		if n > 0 {
			break
		}
	}
}

// fail: the file ends at offset at, sooner than it said, or cannot be read on.
// What comes before is still shown, with a word about the rest.
func (c *captured) fail(at int64, err error) {
	if err == nil || err == io.EOF {
		err = errors.New("it became shorter")
	}
	c.trouble = oneLine(err.Error())
	c.size = max(0, at-c.from)
	c.limit = min(c.limit, c.size)
}

// ranges returns what is shown of the part: one range, or two when bytes between
// them are left out.
func (c *captured) ranges() [][2]int64 {
	end := c.from + c.size
	if c.limit >= c.size {
		return [][2]int64{{c.from, end}}
	}
	half := c.limit / 2
	return [][2]int64{{c.from, c.whole(c.from+half, -1)}, {c.whole(end-half, 1), end}}
}

// whole moves an offset off the middle of a UTF-8 character, by at most three
// bytes. Where there is no character, in binary output, it stays.
func (c *captured) whole(at int64, step int64) int64 {
	var around [2 * utf8.UTFMax]byte // centred on at
	n, _ := c.f.ReadAt(around[:], at-utf8.UTFMax)
	if n < len(around) {
		return at
	}
	for start := utf8.UTFMax - 1; start > 0; start-- {
		if !utf8.RuneStart(around[start]) {
			continue
		}
		r, size := utf8.DecodeRune(around[start:])
		if r == utf8.RuneError || start+size <= utf8.UTFMax {
			return at // ends before, or is none
		}
		if step < 0 {
			return at - int64(utf8.UTFMax-start)
		}
		return at + int64(start+size-utf8.UTFMax)
	}
	return at
}

// each reads what is shown, range by range, in pieces.
func (c *captured) each(gap func(from, to int64), piece func([]byte) error) error {
	buf := make([]byte, chunk)
	last := int64(-1)
	for _, r := range c.ranges() {
		if last >= 0 && gap != nil {
			gap(last, r[0])
		}
		for at := r[0]; at < r[1]; {
			n, err := c.f.ReadAt(buf[:min(int64(chunk), r[1]-at)], at)
			if n == 0 {
				c.fail(at, err)
				return nil
			}
			if err := piece(buf[:n]); err != nil {
				return err
			}
			at += int64(n)
		}
		last = r[1]
	}
	return nil
}

// copyTo writes what is shown, with a line for what is not.
func (c *captured) copyTo(b *bufio.Writer) {
	lineEnded := true
	if c.f != nil {
		c.each(func(from, to int64) {
			if !lineEnded {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "[prun: %d of %d bytes are left out here, from offset %d; all of it is in %s]\n",
				to-from, c.size, from, oneLine(c.path))
		}, func(p []byte) error {
			lineEnded = p[len(p)-1] == '\n'
			_, err := b.Write(p)
			return err
		})
	}
	if c.trouble != "" {
		if !lineEnded {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "[prun: %s cannot be read further: %s]\n", oneLine(c.path), c.trouble)
	}
}

// blockTo writes the part as a fenced block with a heading, and reports whether
// there was anything to write. The fence is longer than any run of backticks in
// the part, so that nothing in it can end the block.
func (c *captured) blockTo(b *bufio.Writer, heading string, again bool) bool {
	if c.size == 0 && c.trouble == "" {
		return false
	}
	longest, run := 0, 0
	if c.f != nil {
		c.each(nil, func(p []byte) error {
			for _, x := range p {
				if x == '`' {
					run++
					longest = max(longest, run)
				} else {
					run = 0
				}
			}
			return nil
		})
	}
	if again {
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "## %s\n\n", heading)
	fence(b, max(3, longest+1))
	b.WriteString("text\n")
	last := &lastByte{w: b}
	inner := bufio.NewWriterSize(last, chunk)
	c.copyTo(inner)
	inner.Flush()
	if last.b != '\n' {
		b.WriteByte('\n')
	}
	fence(b, max(3, longest+1))
	b.WriteByte('\n')
	return true
}

// fence writes n backticks; n may be millions.
func fence(b *bufio.Writer, n int) {
	for range n {
		b.WriteByte('`')
	}
}

type lastByte struct {
	w io.Writer
	b byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.b = p[len(p)-1]
	}
	return l.w.Write(p)
}
