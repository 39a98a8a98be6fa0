package session

import (
	"io/fs"
	"os"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

// A Snapshot is what is known about a task at one moment.
type Snapshot struct {
	Task Task
	Meta Object
	// Err says why meta.json cannot be read; the other fields are empty then.
	Err error
	// Done: the turn is over and the recorded state is believed.
	Done  bool
	State string
	// Detail says more about a failure; Reason is the stall_reason.
	Reason, Detail string

	Helper, Backend           int
	HelperAlive, BackendAlive bool
	// written is when the record was.
	written time.Time
	// Output is when the worker last said something, as far as files show; zero when nothing does.
	Output time.Time
	// changed is the newest of all times, the record's own included.
	changed time.Time
}

// Turn is the number of the current turn.
func (s Snapshot) Turn() int { return TurnNumber(s.Meta) }

// Look reads a task and changes nothing.
func (t Task) Look() Snapshot {
	s := Snapshot{Task: t, State: Unreadable}
	// The marker is looked at before the record: it is written after it.
	_, err := os.Lstat(t.Path(FileDone))
	s.Done = err == nil
	if s.Meta, s.written, s.Err = t.meta(); s.Err != nil {
		return s
	}
	s.State = first(s.Meta.Text("state"), Working)
	s.Reason, s.Detail = s.Meta.Text("stall_reason"), s.Meta.Text("detail")
	return s
}

// Fill adds what takes more than the record to know: processes and times.
func (s *Snapshot) Fill() {
	s.FillTimes()
	if s.Err != nil {
		return
	}
	helper, _ := readObject(s.Task.Path(FileHelper))
	child, _ := readObject(s.Task.Path(FileChild))
	s.Helper = number(helper, "helper_pid")
	if s.Helper == 0 {
		s.Helper = number(s.Meta, "pid")
	}
	s.Backend = number(child, "backend_pid")
	if s.Helper > 1 && running(s.Helper) {
		s.HelperAlive = s.alive(s.Helper, helper, true)
	}
	if s.Backend > 1 && running(s.Backend) {
		s.BackendAlive = s.alive(s.Backend, child, false)
	}
}

func number(o Object, key string) int {
	n, ok := o.Int(key)
	if !ok || n < 1 || n > 1<<31-1 {
		return 0
	}
	return int(n)
}

// alive tells whether the process that has a recorded number is the one that was recorded.
func (s *Snapshot) alive(p int, record Object, helper bool) bool {
	if n := s.Turn(); n > 0 {
		u := s.Task.Turn(n).Unit()
		if helper {
			id, err := u.ReadIdentity()
			if err == nil && id != nil && id.Supervisor.PID == p {
				alive, err := id.Supervisor.Alive()
				return alive || err != nil
			}
			return false
		}
		w, err := u.ReadWorker()
		if err == nil && w != nil && w.Worker.PID == p {
			alive, err := w.Worker.Alive()
			return alive || err != nil
		}
		return false
	}
	return legacyAlive(p, record)
}

// legacyAlive applies to directories that the original made, which hold a number and when it was written down. A
// process that began at another time is another process.
func legacyAlive(p int, record Object) bool {
	id, err := pid.Of(p)
	if err != nil {
		return false
	}
	if alive, err := id.Alive(); err == nil && !alive {
		return false
	}
	at, ok := record.Number("started_utc")
	began, known := startTime(id)
	if !ok || !known {
		return true
	}
	gap := began.Sub(fromEpoch(at))
	// The number was written within moments of the start; the clock's step between the two readings is not.
	return gap > -legacySlack && gap < legacySlack
}

const legacySlack = 15 * time.Second

// FillTimes finds the newest traces of the task; Fill does it, too.
func (s *Snapshot) FillTimes() {
	s.changed = s.written
	for _, name := range []string{FileEvents, FileReport} {
		fi, err := os.Lstat(s.Task.Path(name))
		if err != nil || fi.Mode()&fs.ModeType != 0 {
			continue
		}
		if at := fi.ModTime(); at.After(s.Output) {
			s.Output = at
		}
	}
	if s.Output.After(s.changed) {
		s.changed = s.Output
	}
	if s.Err != nil && s.written.IsZero() {
		// Without a record its directory says how old it is.
		if fi, err := os.Lstat(s.Task.Dir); err == nil && fi.ModTime().After(s.changed) {
			s.changed = fi.ModTime()
		}
	}
}

// Age is the time since the newest trace; false when there is none. It is never negative.
func (s Snapshot) Age(now time.Time) (time.Duration, bool) {
	if s.changed.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(s.changed)), true
}

// Idle is the time since the worker last said something, else since the record was written.
func (s Snapshot) Idle(now time.Time) time.Duration {
	at := s.Output
	if at.IsZero() {
		at = s.changed
	}
	return max(0, now.Sub(at))
}

// Payload is the task as --json and status.json show it: the original's keys in its order, then ours.
func (s Snapshot) Payload(now time.Time) Pairs {
	m := s.Meta
	text := func(key string) any { return m.Member(key) }
	var age any
	if d, ok := s.Age(now); ok {
		age = int64(d / time.Second)
	}
	p := Pairs{
		{"task", s.Task.Name}, {"state", s.State}, {"backend", text("backend")}, {"model", text("model")},
		{"access", text("access")}, {"repo", text("repo")}, {"owner", text("owner")},
		{"pid", positive(s.Helper)}, {"pid_alive", s.HelperAlive}, {"session_id", text("session_id")},
		{"backend_pid", positive(s.Backend)}, {"backend_pid_alive", s.BackendAlive},
		{"created_utc", text("created_utc")}, {"last_output_age_s", age},
	}
	if s.Reason != "" {
		p = append(p, Pair{"stall_reason", s.Reason})
	}
	p = append(p, Pair{"turn", positive(s.Turn())}, Pair{"usage", usageOf(m)})
	if s.Err != nil {
		p = append(p, Pair{"detail", s.Err.Error()})
		return p
	}
	if s.Detail != "" {
		p = append(p, Pair{"detail", s.Detail})
	}
	for _, key := range []string{"exit_code", "leftovers", "worktree_commit"} {
		if m.Has(key) {
			p = append(p, Pair{key, m.Member(key)})
		}
	}
	return p
}

// usageOf is what the task has used in all turns together; null where the stream said nothing.
func usageOf(m Object) Pairs {
	u := m.Object("usage")
	var p Pairs
	for _, key := range []string{"input", "output", "cached", "total", "cost_usd"} {
		p = append(p, Pair{key, u.Member(key)})
	}
	return p
}

func positive(n int) any {
	if n <= 0 {
		return nil
	}
	return n
}

// WriteStatus writes status.json.
func (s Snapshot) WriteStatus(now time.Time) error {
	return swap(s.Task.Path(FileStatus), s.Payload(now).Object().File())
}
