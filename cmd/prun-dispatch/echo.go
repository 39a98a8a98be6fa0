package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/line"
)

// How much of a capture is shown at the end.
const (
	echoLines = 80
	echoBytes = 256 << 10
)

// echo copies the last lines of a capture, found from its end: a tail may be
// larger than memory, and one line of it too. Nothing is copied when the capture
// holds only what is told anyway.
func echo(w io.Writer, name, told string) {
	f, err := atomicfile.OpenRegular(name)
	if err != nil {
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() == 0 {
		return
	}
	from, cut := lastLines(f, fi.Size(), echoLines, echoBytes)
	if cut {
		io.WriteString(w, "[...]")
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
	if err != nil {
		return
	}
	if told != "" && !cut && strings.TrimSpace(string(text)) == told {
		return
	}
	shown := line.EscapeText(string(text))
	if !strings.HasSuffix(shown, "\n") {
		shown += "\n"
	}
	// The tail has every byte as it was; here none moves a cursor.
	io.WriteString(w, shown)
}

// lastLines returns the offset where the last n lines begin, no further than
// limit bytes from the end; cut reports that it lies inside a line.
func lastLines(f io.ReaderAt, size int64, n int, limit int64) (from int64, cut bool) {
	buf := make([]byte, 32<<10)
	end := size
	// The newline that ends the last line begins no other.
	newlines := -1
	if one := buf[:1]; size > 0 {
		if _, err := f.ReadAt(one, size-1); err == nil && one[0] != '\n' {
			newlines = 0
		}
	}
	for end > 0 && size-end < limit {
		start := max(end-int64(len(buf)), 0, size-limit)
		part := buf[:end-start]
		if _, err := f.ReadAt(part, start); err != nil && err != io.EOF {
			return end, true
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			if newlines++; newlines == n {
				return start + int64(i) + 1, false
			}
		}
		end = start
	}
	return end, end > 0
}
