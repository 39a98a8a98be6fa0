// Package watch owns the arithmetic of waiting: has it grown, has it settled,
// is the time up. It looks at nothing and sleeps never: callers measure and pass
// in what they saw and when.
//
// Invariant: time comes from a monotonic clock, as the time since an origin the
// caller chose. Idle time and limits are credited per look, at most two
// intervals for each, so that a machine that was asleep, a process that was
// stopped or starved, and a clock that was set neither end a healthy worker nor
// keep a hung one for ever.
package watch

import "time"

// Verdict is what a look at a growing file says.
type Verdict int

// The verdicts.
const (
	// Grew: more bytes than at the last look.
	Grew Verdict = iota
	// Quiet: not more bytes, and the threshold is not reached.
	Quiet
	// Stalled: not more bytes for at least the threshold.
	Stalled
)

// credit is a clock that believes a look only so far.
type credit struct {
	last, most time.Duration
}

func newCredit(interval time.Duration) credit {
	if interval <= 0 {
		interval = time.Second
	}
	return credit{most: 2 * interval}
}

// take returns how much of the time since the last look counts.
func (c *credit) take(now time.Duration) time.Duration {
	elapsed := now - c.last
	c.last = now
	return min(max(elapsed, 0), c.most)
}

// Growth is the stall clock of one file. Bytes are growth and nothing else is:
// a touched file has not said anything.
type Growth struct {
	credit    credit
	threshold time.Duration
	size      int64
	idle      time.Duration
}

// NewGrowth returns a clock that starts at the origin, idle for 0, with a file
// of size 0: one that has bytes at the first look has grown. A threshold of 0 or
// less never stalls. interval is how often the caller means to look.
func NewGrowth(threshold, interval time.Duration) *Growth {
	return &Growth{credit: newCredit(interval), threshold: threshold}
}

// Observe takes in one look. A file that shrank has not grown, and grows from
// its new size: it was rotated.
func (g *Growth) Observe(now time.Duration, size int64) Verdict {
	elapsed := g.credit.take(now)
	grew := size > g.size
	g.size = size
	if grew {
		g.idle = 0
		return Grew
	}
	g.idle += elapsed
	if g.threshold > 0 && g.idle >= g.threshold {
		return Stalled
	}
	return Quiet
}

// Idle returns for how long the file has not grown, as credited.
func (g *Growth) Idle() time.Duration { return g.idle }

// Restart makes the clock one that starts at now, with the file as it is: what
// came before counts for nothing.
func (g *Growth) Restart(now time.Duration, size int64) {
	g.credit.last, g.size, g.idle = now, size, 0
}

// Threshold returns the threshold, 0 or less for none.
func (g *Growth) Threshold() time.Duration { return g.threshold }

// Deadline is a limit on time as credited.
type Deadline struct {
	credit  credit
	limit   time.Duration
	elapsed time.Duration
}

// NewDeadline returns a limit that starts at the origin. A limit of 0 or less
// never comes; a caller whose 0 means "at once" does not make one.
func NewDeadline(limit, interval time.Duration) *Deadline {
	return &Deadline{credit: newCredit(interval), limit: limit}
}

// Observe takes in one look and reports whether the time is up.
func (d *Deadline) Observe(now time.Duration) bool {
	d.elapsed += d.credit.take(now)
	return d.limit > 0 && d.elapsed >= d.limit
}

// Elapsed returns the time credited so far.
func (d *Deadline) Elapsed() time.Duration { return d.elapsed }

// Mark is a file's content as far as a look without reading can tell.
type Mark struct {
	// Size is in bytes.
	Size int64
	// MTime and CTime are its modification and change times; CTime is zero
	// where there is none.
	MTime, CTime time.Time
	// Ino is its inode, 0 where there is none.
	Ino uint64
}

func (m Mark) same(n Mark) bool {
	return m.Size == n.Size && m.Ino == n.Ino && m.MTime.Equal(n.MTime) && m.CTime.Equal(n.CTime)
}

// Settle tells whether a file has been quiet for a window.
type Settle struct {
	window time.Duration
	seen   bool
	mark   Mark
	// since is when this mark was first seen, age how old it was then.
	since, age time.Duration
}

// NewSettle returns a judge that has seen nothing. A window of 0 or less makes
// everything quiet at once.
func NewSettle(window time.Duration) *Settle { return &Settle{window: window} }

// Observe takes in one look, at now on the monotonic and at wall on the wall
// clock, and reports whether the file is quiet. Two things make it so, and the
// first that shows counts: its own times say that it is older than the window,
// neither of them in the future; or it was watched unchanged for the window,
// whatever the clocks of the writer and of the file system say. The wall clock
// is asked once for each content, so that setting it does not end a wait.
func (s *Settle) Observe(now time.Duration, wall time.Time, m Mark) bool {
	return s.Due(now, wall, m) <= 0
}

// Due takes in one look like Observe and returns how long the file must stay as
// it is to be quiet, 0 or less when it is.
func (s *Settle) Due(now time.Duration, wall time.Time, m Mark) time.Duration {
	if !s.seen || !s.mark.same(m) {
		newest := m.MTime
		if m.CTime.After(newest) {
			newest = m.CTime
		}
		*s = Settle{window: s.window, seen: true, mark: m, since: now, age: max(wall.Sub(newest), 0)}
	}
	return s.window - s.age - (now - s.since)
}

// Forget makes the judge one that has seen nothing: the file is gone.
func (s *Settle) Forget() { s.seen = false }
