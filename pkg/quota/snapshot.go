package quota

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Snapshot is what agy said about its meters, and when.
type Snapshot struct {
	Cached time.Time // zero when the file does not say
	Tier   string
	Groups []Group // in the file's order
}

// Group is one metered group.
type Group struct {
	Name    string
	Buckets []Bucket
}

// Bucket is the meter of one window of a group.
type Bucket struct {
	Window string // "5h", "weekly", or "" for any other
	// Left is the fraction that remains, 0 to 1, when Known. What is no number, or
	// below nothing, is not known.
	Left  float64
	Known bool
	// Reset is the reset time as agy wrote it, ResetAt the same when it has a date and
	// a zone.
	Reset   string
	ResetAt time.Time
}

// Names of the groups whose rows agent-quota prints.
const (
	GeminiGroup = "Gemini Models"
	SecondGroup = "Claude and GPT models"
)

// maxEntries bounds groups, and buckets of a group; agy has two of each.
const maxEntries = 64

// Read reads the snapshot at path. Whatever is wrong with the file, the error says it
// and nothing is known.
func Read(path string) (*Snapshot, error) {
	data, err := atomicfile.ReadRegular(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	}
	return s, nil
}

// Parse reads the bytes of a snapshot. Members that are missing or of another type are
// not known; only bytes that hold no usage at all are an error (ErrMalformed).
func Parse(data []byte) (*Snapshot, error) {
	top, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	usage := top.object("usage")
	if usage == nil {
		return nil, fmt.Errorf("%w: no usage in it", ErrMalformed)
	}
	s := &Snapshot{Tier: shown(top.text("plan_tier"))}
	if n, ok := top.number("cached_at"); ok {
		s.Cached = epoch(n)
	}
	groups, _ := usage["groups"].([]any)
	for _, g := range head(groups) {
		g, ok := g.(map[string]any)
		if !ok {
			continue
		}
		group := Group{Name: shown(fields(g).text("name"))}
		buckets, _ := g["buckets"].([]any)
		for _, b := range head(buckets) {
			if b, ok := b.(map[string]any); ok {
				group.Buckets = append(group.Buckets, parseBucket(b))
			}
		}
		s.Groups = append(s.Groups, group)
	}
	return s, nil
}

func head(list []any) []any { return list[:min(len(list), maxEntries)] }

func parseBucket(f fields) Bucket {
	b := Bucket{Window: f.text("window")}
	if b.Window == "" {
		id := f.text("id")
		b.Window = id[strings.LastIndexByte(id, '-')+1:]
	}
	if b.Window != "5h" && b.Window != "weekly" {
		b.Window = ""
	}
	if n, ok := f["remaining_fraction"].(json.Number); ok {
		if v, err := strconv.ParseFloat(n.String(), 64); err == nil && v >= 0 {
			b.Left, b.Known = min(v, 1), true
		}
	}
	b.Reset = shown(f.text("reset_time"))
	if t, err := time.Parse(time.RFC3339, b.Reset); err == nil {
		b.ResetAt = t
	}
	return b
}

// State is what a pool has left: that of its emptiest bucket.
type State struct {
	Left    float64
	Reset   string
	ResetAt time.Time
	// Both: the pool reports its short and its long window.
	Both bool
}

// Empty reports whether the pool has nothing left.
func (s State) Empty() bool { return s.Left <= 0 }

// State returns what a pool has left at now; false when the snapshot does not say. A
// bucket that was empty and whose reset has passed since says nothing about now.
func (s *Snapshot) State(p Pool, now time.Time) (State, bool) {
	if s == nil {
		return State{}, false
	}
	var st State
	found := false
	windows := map[string]bool{}
	for _, g := range s.Groups {
		if of, ok := poolOfGroup(g.Name); !ok || of != p {
			continue
		}
		for _, b := range g.Buckets {
			if !b.Known || b.Left <= 0 && !b.ResetAt.IsZero() && !b.ResetAt.After(now) {
				continue
			}
			windows[b.Window] = true
			if !found || b.Left < st.Left {
				st.Left, st.Reset, st.ResetAt = b.Left, b.Reset, b.ResetAt
			}
			found = true
		}
	}
	st.Both = windows["5h"] && windows["weekly"]
	return st, found
}

// Group returns the group of this name, nil when the snapshot has none.
func (s *Snapshot) Group(name string) *Group {
	for i := range s.Groups {
		if s.Groups[i].Name == name {
			return &s.Groups[i]
		}
	}
	return nil
}

// Window returns the bucket of a window, the zero Bucket when there is none.
func (g *Group) Window(name string) Bucket {
	for _, b := range g.Buckets {
		if b.Window == name {
			return b
		}
	}
	return Bucket{}
}

// fields is a JSON object of unknown making.
type fields map[string]any

// parseObject reads one JSON object. Python writes NaN and Infinity, which are no
// JSON; they are read as null, so that one of them does not hide the rest.
func parseObject(data []byte) (fields, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var top any
	if err := decode(data, &top); err != nil {
		if err = decode(withoutNaN(data), &top); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	object, ok := top.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	return object, nil
}

func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		return errors.New("text after the value")
	}
	return nil
}

// withoutNaN replaces the words NaN, Infinity and -Infinity outside of strings.
func withoutNaN(data []byte) []byte {
	out := make([]byte, 0, len(data))
	quoted := false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if quoted && c == '\\' && i+1 < len(data) {
			out = append(out, c, data[i+1])
			i++
			continue
		}
		if c == '"' {
			quoted = !quoted
		}
		if !quoted {
			rest := data[i:]
			word := ""
			for _, w := range []string{"NaN", "-Infinity", "Infinity"} {
				if bytes.HasPrefix(rest, []byte(w)) {
					word = w
					break
				}
			}
			if word != "" {
				out = append(out, "null"...)
				i += len(word) - 1
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

func (f fields) text(key string) string {
	s, _ := f[key].(string)
	return strings.TrimSpace(s)
}

func (f fields) object(key string) fields {
	o, _ := f[key].(map[string]any)
	return o
}

// number reads a finite number, also one that stands in quotes.
func (f fields) number(key string) (float64, bool) {
	var text string
	switch v := f[key].(type) {
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
	default:
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// epoch turns seconds since 1970 into a time, zero for what no clock shows.
func epoch(seconds float64) time.Time {
	const last = 253402300799 // the end of year 9999
	if !(seconds > 0 && seconds < last) {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}

// shown refuses a text that is too long to be what it claims to be.
func shown(s string) string {
	if len(s) > maxText || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// modTime returns when path was last written, zero when there is no such file.
func modTime(path string) time.Time {
	fi, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}
