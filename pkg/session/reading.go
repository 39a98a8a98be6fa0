package session

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/prun-suite/prun/pkg/agent"
	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/eventlog"
)

// reading drains the worker's two outputs into the task's files and the backend's parser. The worker writes to pipes,
// because only whoever writes a file can keep a cap on it; the pipes are emptied by goroutines of their own, so that
// neither a slow disk nor anything else that the supervisor does makes the worker wait.
type reading struct {
	turn   Turn
	events *eventlog.Log
	stderr *eventlog.Bounded
	pipes  [2]*os.File
	drains sync.WaitGroup

	mu       sync.Mutex // everything below, and the writing of the files
	tr       agent.Transcript
	feeds    [2]*agent.Feed
	total    int64 // bytes of standard output
	lines    int64 // ... in lines that are whole
	grown    int64
	bytes    int64 // of both
	told     string
	written  string
	wrote    time.Time
	finished bool
}

// reportPause is how often report.md is written at most while messages come.
const reportPause = 250 * time.Millisecond

// endPause is how long a pipe that something else still holds open is listened to after the worker's end.
const endPause = 50 * time.Millisecond

// newReading opens the files of a turn and the pipes for its worker.
func newReading(t Turn, l agent.Parser, limit int64) (r *reading, stdout, stderr *os.File, err error) {
	r = &reading{turn: t}
	var open []io.Closer
	defer func() {
		if err != nil {
			for _, c := range open {
				c.Close()
			}
		}
	}()
	if r.events, err = eventlog.Open(t.Task.Path(FileEvents), limit); err != nil {
		return nil, nil, nil, err
	}
	open = append(open, r.events)
	if r.stderr, err = eventlog.OpenBounded(t.Task.Path(FileStderr), limit/4); err != nil {
		return nil, nil, nil, err
	}
	open = append(open, r.stderr)
	var ends [2]*os.File
	for i := range ends {
		if r.pipes[i], ends[i], err = os.Pipe(); err != nil {
			return nil, nil, nil, err
		}
		open = append(open, r.pipes[i], ends[i])
	}
	from := r.events.Position()
	if err = swap(t.Path(FileFrom), Pairs{{"segment", from.Segment}, {"offset", from.Offset}}.Object().File()); err != nil {
		return nil, nil, nil, err
	}
	for i, stream := range []agent.Stream{agent.Stdout, agent.Stderr} {
		r.feeds[i] = agent.NewFeed(l, &r.tr, stream)
	}
	for i := range r.pipes {
		r.drains.Go(func() { r.drain(i) })
	}
	return r, ends[0], ends[1], nil
}

// keep writes and parses what came. The caller holds mu.
func (r *reading) keep(i int, p []byte) {
	r.bytes += int64(len(p))
	if i == 0 {
		_, _ = r.events.Write(p)
		r.total += int64(len(p))
		for j := len(p) - 1; j >= 0; j-- {
			if p[j] == '\n' {
				r.lines = r.total - int64(len(p)-1-j)
				break
			}
		}
	} else {
		_, _ = r.stderr.Write(p)
	}
	_, _ = r.feeds[i].Write(p)
	r.session()
	if time.Since(r.wrote) >= reportPause {
		r.report()
	}
}

// session records a session's id the moment the stream names it: it is what a killed turn is continued with.
func (r *reading) session() {
	id := r.tr.Session
	if n := len(r.tr.Sessions); n > 0 && r.tr.Sessions[n-1] != id {
		id = r.tr.Sessions[n-1]
	}
	if id == "" || id == r.told {
		return
	}
	r.told = id
	_ = r.turn.Task.UpdateMeta(r.turn.Number, false, func(m *Object) bool { return recordSession(m, id) })
}

// recordSession notes an id. The first one is the one to resume: clients have printed later ones with nothing behind
// them. The later ones are kept beside it.
func recordSession(m *Object, id string) bool {
	switch m.Text("session_id") {
	case id:
		return false
	case "":
		m.Set("session_id", id)
		return true
	}
	const most = 16
	ids := texts(*m, "session_history")
	for _, known := range ids {
		if known == id {
			return false
		}
	}
	if len(ids) == most {
		ids = ids[1:]
	}
	m.Set("session_history", append(ids, id))
	return true
}

// report writes the last message so far.
func (r *reading) report() {
	text := reportText(r.tr.Response)
	if text == "" || text == r.written {
		return
	}
	if swap(r.turn.Task.Path(FileReport), []byte(text)) == nil {
		r.written, r.wrote = text, time.Now()
	}
}

// Transcript implements supervise.Reading; it is a copy, since the draining goes on.
func (r *reading) Transcript() *agent.Transcript {
	r.mu.Lock()
	defer r.mu.Unlock()
	tr := r.tr
	return &tr
}

// wholeLine is what an unfinished line counts for: one that is growing by megabytes is progress, a few bytes are not.
const wholeLine = 1 << 20

// Look implements supervise.Reading: only standard output's lines count, without the notices of retries.
func (r *reading) Look(int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report()
	r.grown = max(r.grown, r.lines+(r.total-r.lines)/wholeLine*wholeLine-r.feeds[0].Quiet())
	return r.grown
}

// Finish implements supervise.Reading. The worker is gone; its output ends at once, unless something that was left
// alive holds it.
func (r *reading) Finish() {
	if r.finished {
		return
	}
	r.finished = true
	bounded := true
	for _, p := range r.pipes {
		if p.SetReadDeadline(time.Now().Add(endPause)) != nil {
			bounded = false
		}
	}
	done := make(chan struct{})
	go func() { r.drains.Wait(); close(done) }()
	patience := time.Minute
	if !bounded {
		patience = 2 * time.Second
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		// Not every system can give up a read; what is still held there has said enough.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.feeds {
		f.Close()
	}
	r.session()
	if err := r.events.Close(); err != nil {
		r.tr.Note("%v", err)
	}
	if err := r.stderr.Close(); err != nil {
		r.tr.Note("%v", err)
	}
}

// Bytes implements supervise.Reading.
func (r *reading) Bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Close implements supervise.Reading.
func (r *reading) Close() {
	r.Finish()
	for _, p := range r.pipes {
		letGo(p)
	}
}

// reread is the reading of a turn whose supervisor is dead: the part of the event log that is the turn's.
type reread struct {
	turn   Turn
	parser agent.Parser
	tr     agent.Transcript
	bytes  int64
}

// Transcript implements supervise.Reading.
func (r *reread) Transcript() *agent.Transcript { return &r.tr }

// Look implements supervise.Reading.
func (r *reread) Look(int64) int64 { return 0 }

// Finish implements supervise.Reading.
func (r *reread) Finish() {
	from, ok := r.turn.From()
	if !ok {
		return
	}
	feed := agent.NewFeed(r.parser, &r.tr, agent.Stdout)
	count := writerFunc(func(p []byte) (int, error) {
		r.bytes += int64(len(p))
		return feed.Write(p)
	})
	if err := eventlog.CopyRange(count, r.turn.Task.Path(FileEvents), 0, from, nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.tr.Note("%v", err)
	}
	feed.Close()
	if r.tr.Session != "" {
		id := r.tr.Session
		_ = r.turn.Task.UpdateMeta(r.turn.Number, false, func(m *Object) bool { return recordSession(m, id) })
	}
}

// Bytes implements supervise.Reading.
func (r *reread) Bytes() int64 { return r.bytes }

// Close implements supervise.Reading.
func (r *reread) Close() {}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// From is where the turn's events begin; false when none were kept apart.
func (t Turn) From() (eventlog.Position, bool) {
	o, err := readObject(t.Path(FileFrom))
	if err != nil {
		return eventlog.Position{}, false
	}
	segment, _ := o.Int("segment")
	offset, _ := o.Int("offset")
	return eventlog.Position{Segment: int(segment), Offset: offset}, true
}

// lastLine reads the end of a small log, for people.
func lastLine(name string) string {
	f, err := atomicfile.OpenRegular(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, min(fi.Size(), 4096))
	if _, err := f.ReadAt(buf, fi.Size()-int64(len(buf))); err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return lastOf(string(buf))
}
