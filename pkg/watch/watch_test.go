package watch

import (
	"testing"
	"time"
)

const second = time.Second

func TestGrowth(t *testing.T) {
	type look struct {
		at   time.Duration
		size int64
		want Verdict
		idle time.Duration
	}
	for _, c := range []struct {
		name                string
		threshold, interval time.Duration
		looks               []look
	}{
		{"bytes at the first look have grown", 10 * second, second, []look{{0, 5, Grew, 0}, {second, 5, Quiet, second}}},
		{"no bytes have not, and the clock started at the origin", 3 * second, second, []look{
			{second, 0, Quiet, second}, {2 * second, 0, Quiet, 2 * second}, {3 * second, 0, Stalled, 3 * second}}},
		{"one byte is enough, whatever its time", 2 * second, second, []look{
			{second, 1, Grew, 0}, {2 * second, 1, Quiet, second}, {3 * second, 2, Grew, 0}, {4 * second, 2, Quiet, second}, {5 * second, 2, Stalled, 2 * second}}},
		{"silence below the threshold lives (E33)", 30 * second, second, []look{{2 * second, 0, Quiet, 2 * second}, {4 * second, 0, Quiet, 4 * second}}},
		{"no threshold, no stall", 0, second, []look{{second, 0, Quiet, second}, {3 * second, 0, Quiet, 3 * second}}},
		{"a rotated file grows from its new size", 5 * second, second, []look{
			{second, 100, Grew, 0}, {2 * second, 10, Quiet, second}, {3 * second, 11, Grew, 0}}},
		{"a late tick is credited two intervals: suspend, SIGSTOP, starvation", 10 * second, second, []look{
			{second, 0, Quiet, second}, {3600 * second, 0, Quiet, 3 * second}, {3601 * second, 0, Quiet, 4 * second}}},
		{"and a machine that wakes up again and again still ends a hung worker", 6 * second, second, []look{
			{1000 * second, 0, Quiet, 2 * second}, {2000 * second, 0, Quiet, 4 * second}, {3000 * second, 0, Stalled, 6 * second}}},
		{"a clock that goes back takes nothing away (E37)", 3 * second, second, []look{
			{2 * second, 0, Quiet, 2 * second}, {second, 0, Quiet, 2 * second}, {2 * second, 0, Stalled, 3 * second}}},
		{"many looks in one interval", second, second, []look{
			{second / 4, 0, Quiet, second / 4}, {second / 2, 0, Quiet, second / 2}, {second, 0, Stalled, second}}},
	} {
		g := NewGrowth(c.threshold, c.interval)
		for i, l := range c.looks {
			if got := g.Observe(l.at, l.size); got != l.want || g.Idle() != l.idle {
				t.Errorf("%s: look %d: %v after %v, want %v after %v", c.name, i, got, g.Idle(), l.want, l.idle)
			}
		}
	}
}

func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit time.Duration
		looks []time.Duration
		want  []bool
	}{
		{"in time", 3 * second, []time.Duration{second, 2 * second, 3 * second}, []bool{false, false, true}},
		{"growth does not matter and neither does a drip (E34)", 2 * second, []time.Duration{second, 2 * second}, []bool{false, true}},
		{"0 is off", 0, []time.Duration{second, 1e6 * second}, []bool{false, false}},
		{"negative is off", -second, []time.Duration{second}, []bool{false}},
		{"a night's sleep is two ticks", 5 * second, []time.Duration{second, 30000 * second, 30001 * second, 30002 * second}, []bool{false, false, false, true}},
		{"backwards", 2 * second, []time.Duration{second, 0, second}, []bool{false, false, true}},
	} {
		d := NewDeadline(c.limit, second)
		for i, at := range c.looks {
			if got := d.Observe(at); got != c.want[i] {
				t.Errorf("%s: look %d: %v after %v", c.name, i, got, d.Elapsed())
			}
		}
	}
}

func TestSettle(t *testing.T) {
	wall := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	file := func(age time.Duration) Mark {
		return Mark{Size: 1, MTime: wall.Add(-age), CTime: wall.Add(-age), Ino: 1}
	}
	changed := func(m Mark, f func(*Mark)) Mark { f(&m); return m }
	type look struct {
		at   time.Duration
		step time.Duration // of the wall clock, beside at
		mark Mark
		want bool
	}
	old, fresh, future := file(11*second), file(0), file(-24*3600*second)
	for _, c := range []struct {
		name   string
		window time.Duration
		looks  []look
	}{
		{"landed before we came", 10 * second, []look{{0, 0, old, true}}},
		{"exactly the window", 10 * second, []look{{0, 0, file(10 * second), true}}},
		{"not one nanosecond less", 10 * second, []look{{0, 0, file(10*second - 1), false}, {1, 0, file(10*second - 1), true}}},
		{"fresh", 10 * second, []look{{0, 0, fresh, false}, {9 * second, 0, fresh, false}, {10 * second, 0, fresh, true}}},
		{"no window", 0, []look{{0, 0, future, true}}},
		{"from the future: watched (E37)", 10 * second, []look{{0, 0, future, false}, {9 * second, 0, future, false}, {10 * second, 0, future, true}}},
		{"from 1970, changed just now: the change counts", 10 * second, []look{
			{0, 0, changed(fresh, func(m *Mark) { m.MTime = time.Unix(0, 0) }), false},
			{10 * second, 0, changed(fresh, func(m *Mark) { m.MTime = time.Unix(0, 0) }), true}}},
		{"no change time: the modification time", 10 * second, []look{{0, 0, changed(old, func(m *Mark) { m.CTime = time.Time{} }), true}}},
		{"another inode of the same age: its own times count", 10 * second, []look{
			{0, 0, fresh, false}, {9 * second, 0, changed(fresh, func(m *Mark) { m.Ino = 2 }), false}, {10 * second, 0, changed(fresh, func(m *Mark) { m.Ino = 2 }), true}}},
		{"rewritten within the second with equal size", 10 * second, []look{
			{0, 0, fresh, false},
			{9 * second, 0, changed(fresh, func(m *Mark) { m.MTime = m.MTime.Add(1); m.CTime = m.MTime }), false}}},
		{"still being written", 10 * second, []look{
			{0, 0, fresh, false},
			{6 * second, 0, Mark{Size: 2, MTime: wall.Add(6 * second), Ino: 1}, false},
			{12 * second, 0, Mark{Size: 3, MTime: wall.Add(12 * second), Ino: 1}, false},
			{22 * second, 0, Mark{Size: 3, MTime: wall.Add(12 * second), Ino: 1}, true}}},
		{"the wall clock jumps an hour ahead", 10 * second, []look{{0, 0, fresh, false}, {second, 3600 * second, fresh, false}, {10 * second, 3600 * second, fresh, true}}},
		{"and an hour back", 10 * second, []look{{0, 0, fresh, false}, {second, -3600 * second, fresh, false}, {10 * second, -3600 * second, fresh, true}}},
	} {
		s := NewSettle(c.window)
		for i, l := range c.looks {
			if got := s.Observe(l.at, wall.Add(l.at+l.step), l.mark); got != l.want {
				t.Errorf("%s: look %d: %v", c.name, i, got)
			}
		}
	}
}

func TestSettleDue(t *testing.T) {
	wall := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := NewSettle(10 * second)
	m := Mark{Size: 1, MTime: wall.Add(-4 * second)}
	if got := s.Due(0, wall, m); got != 6*second {
		t.Errorf("due in %v", got)
	}
	if got := s.Due(5*second, wall.Add(5*second), m); got != second {
		t.Errorf("due in %v", got)
	}
	s.Forget()
	if got := s.Due(5*second, wall.Add(-time.Hour), m); got != 10*second {
		t.Errorf("after it was gone, due in %v", got)
	}
}
