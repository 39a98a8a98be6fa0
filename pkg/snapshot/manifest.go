package snapshot

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// What a capture may be called.
const (
	// CompleteRead: the reader got as many bytes as the file had when it was
	// opened. No more is claimed.
	CompleteRead = "complete_bounded_read"
	// ShortRead: the file ended earlier.
	ShortRead = "short_read"
)

const (
	schemaVersion = 1
	note          = "Equal counts do not prove that the source held still: a file that is written, cut or replaced while it is read can yield the same number of bytes."
	stampLayout   = "2006-01-02T15:04:05Z"
	// manifestMax bounds what is read of a foreign manifest, in bytes.
	manifestMax = 1 << 20
)

// Manifest is what the archive says about its copy. The keys and their order are
// schema 1 and never change.
type Manifest struct {
	SchemaVersion int `json:"schema_version"`
	// CapturedAt is when the source was opened, UTC, to the second.
	CapturedAt string `json:"captured_at"`
	// SourcePath is absolute.
	SourcePath string `json:"source_path"`
	// SourceSizeAtOpen is the size of the open file, BytesCopied what was read of
	// it; more was never asked for.
	SourceSizeAtOpen int64  `json:"source_size_at_open"`
	BytesCopied      int64  `json:"bytes_copied"`
	SHA256           string `json:"sha256"`
	// SourceMayBeLive is always true: nothing here can tell.
	SourceMayBeLive bool   `json:"source_may_be_live"`
	CaptureOutcome  string `json:"capture_outcome"`
	Note            string `json:"note"`
}

func newManifest(source string, at time.Time, size, copied int64, sum []byte) Manifest {
	m := Manifest{
		SchemaVersion:    schemaVersion,
		CapturedAt:       at.UTC().Format(stampLayout),
		SourcePath:       source,
		SourceSizeAtOpen: size,
		BytesCopied:      copied,
		SHA256:           hex.EncodeToString(sum),
		SourceMayBeLive:  true,
		CaptureOutcome:   CompleteRead,
		Note:             note,
	}
	if copied != size {
		m.CaptureOutcome = ShortRead
	}
	return m
}

// JSON returns the manifest as an object, two blanks deep per level, every line
// but the first behind prefix, without a newline at its end. It is pure ASCII; a
// byte of the path that is no UTF-8 becomes a lone surrogate \udcXX, which is how
// Python writes such a path and reads it back.
func (m Manifest) JSON(prefix string) string {
	var b strings.Builder
	b.WriteString("{")
	for i, f := range []struct{ key, value string }{
		{"schema_version", strconv.Itoa(m.SchemaVersion)},
		{"captured_at", Quote(m.CapturedAt)},
		{"source_path", Quote(m.SourcePath)},
		{"source_size_at_open", strconv.FormatInt(m.SourceSizeAtOpen, 10)},
		{"bytes_copied", strconv.FormatInt(m.BytesCopied, 10)},
		{"sha256", Quote(m.SHA256)},
		{"source_may_be_live", strconv.FormatBool(m.SourceMayBeLive)},
		{"capture_outcome", Quote(m.CaptureOutcome)},
		{"note", Quote(m.Note)},
	} {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n" + prefix + "  " + Quote(f.key) + ": " + f.value)
	}
	b.WriteString("\n" + prefix + "}")
	return b.String()
}

// Quote returns s as a JSON string in ASCII, as Manifest.JSON writes its own.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\udc%02x`, s[i])
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		case r < ' ' || r > '~':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

// readManifest reads a manifest of any origin and checks that its statements fit
// each other.
func readManifest(data []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest unreadable: %w", err)
	}
	outcome := CompleteRead
	if m.BytesCopied != m.SourceSizeAtOpen {
		outcome = ShortRead
	}
	switch {
	case m.SchemaVersion != schemaVersion:
		return m, fmt.Errorf("manifest unreadable: schema_version is %d", m.SchemaVersion)
	case m.BytesCopied < 0 || m.BytesCopied > m.SourceSizeAtOpen:
		return m, errors.New("manifest unreadable: its counts contradict each other")
	case m.CaptureOutcome != outcome:
		return m, errors.New("manifest unreadable: its outcome contradicts its counts")
	}
	return m, nil
}
