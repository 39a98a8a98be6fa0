package session

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/eventlog"
)

// ErrNoTurn: the task has no turn of that number.
var ErrNoTurn = errors.New("no such turn")

// Report is the last message of a turn, "" when it has none yet. Turn 0 is what the original left.
func (s Snapshot) Report(n int) (string, error) {
	name := s.Task.Path(FileReport)
	if n != s.Turn() {
		turn := s.Task.Turn(n)
		if fi, err := os.Lstat(turn.Dir); err != nil || !fi.IsDir() {
			return "", ErrNoTurn
		}
		name = turn.Path(FileReport)
	}
	b, err := readFile(name, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}

// Record is how a turn ended; nil while it goes on.
func (t Turn) Record() any {
	o, err := readObject(t.Path(FileTurn))
	if err != nil {
		return nil
	}
	return o
}

// Why says in one line why a turn that did not end well did not.
func (s Snapshot) Why() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	if s.State == Done || s.State == AwaitingReply || s.Reason == "" && s.Detail == "" {
		return ""
	}
	return strings.Trim(s.Reason+": "+OneLine(s.Detail), ": ")
}

// Since is when the turn that is last began, by the record.
func (s Snapshot) Since() time.Time {
	if at, ok := s.Meta.Number("created_utc"); ok {
		return fromEpoch(at)
	}
	return s.changed
}

// LastWords is the last line of the last message.
func (s Snapshot) LastWords() string {
	return OneLine(lastLine(s.Task.Path(FileReport)))
}

// Stderr is the end of the worker's standard error.
func (s Snapshot) Stderr(lines int) string {
	var b bytes.Buffer
	err := eventlog.Copy(&capped{w: &b, left: 64 << 10}, s.Task.Path(FileStderr), lines)
	if err != nil && b.Len() == 0 {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimRight(b.String(), "\n"), "\uFFFD")
}

// capped takes no more than it has room for, and says nothing.
type capped struct {
	w    io.Writer
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if _, err := c.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Span is the part of the event log that is a turn's: to is nil for the last one.
func (t Task) Span(n int) (from eventlog.Position, to *eventlog.Position, ok bool) {
	turn := t.Turn(n)
	if fi, err := os.Lstat(turn.Dir); err != nil || !fi.IsDir() {
		return from, nil, false
	}
	from, _ = turn.From()
	for _, later := range t.turns() {
		if later <= n {
			continue
		}
		if at, known := t.Turn(later).From(); known {
			return from, &at, true
		}
	}
	return from, nil, true
}

// mostThought bounds what is looked at of one event, and mostThoughts how many are kept.
const (
	mostThought  = 1 << 20
	mostThoughts = 10_000
)

// Thoughts writes the last n thoughts of a task, a line or more each. Which events hold thoughts is its backend's to
// say.
func (t Task) Thoughts(w io.Writer, n int, from eventlog.Position, to *eventlog.Position) error {
	meta, err := t.Meta()
	if err != nil {
		return nil
	}
	b, ok := agent.Lookup(meta.Text("backend"))
	if !ok || n <= 0 {
		return nil
	}
	n = min(n, mostThoughts)
	var ring []string
	held := 0
	parser := b.NewParser(agent.Turn{Door: agent.DoorHerd})
	err = eventlog.Each(t.Path(FileEvents), from, to, mostThought, func(line []byte) {
		var tr agent.Transcript
		parser.Line(agent.Stdout, line, &tr)
		if tr.Thinking == "" {
			return
		}
		ring = append(ring, tr.Thinking)
		held += len(tr.Thinking)
		// The newest ones count, within a bound on all of them together.
		for len(ring) > n || held > 8<<20 && len(ring) > 1 {
			held -= len(ring[0])
			ring = ring[1:]
		}
	})
	for _, thought := range ring {
		if _, werr := io.WriteString(w, strings.TrimRight(thought, "\n")+"\n"); werr != nil {
			return werr
		}
	}
	return err
}
