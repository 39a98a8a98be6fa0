package slots

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// order returns the names in the log, in the order of their admission.
func order(t *testing.T, p *Pool) []string {
	t.Helper()
	data, err := os.ReadFile(p.dir + "-log")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for text := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(text), "in "); ok {
			names = append(names, name)
		}
	}
	return names
}

// Forty callers with a limit of five: the seats prove that no sixth ever holds.
func TestForty(t *testing.T) {
	p := newPool(t)
	const limit, callers = 5, 40
	var first, all []*process
	for i := range limit {
		first = append(first, start(t, p.dir, limit, 0, fmt.Sprintf("first%d", i)))
		first[i].hears("in")
	}
	for i := range callers {
		q := start(t, p.dir, limit, 10*time.Millisecond, fmt.Sprint(i))
		q.hears("waiting")
		all = append(all, q)
	}
	for _, q := range first {
		q.stdin.Close()
	}
	for _, q := range slices.Concat(first, all) {
		q.finish()
	}
	names := order(t, p)[limit:]
	if len(names) != callers {
		t.Fatalf("%d were in", len(names))
	}
	for at, name := range names {
		// Five may be in at once, and write the log in any order.
		var i int
		fmt.Sscan(name, &i)
		if at-i >= limit || i-at >= limit {
			t.Errorf("caller %d was number %d: %v", i, at, names)
		}
	}
}

func TestOrder(t *testing.T) {
	p := newPool(t)
	first := start(t, p.dir, 1, 0, "first")
	first.hears("in")
	want := []string{"first"}
	var all []*process
	for i := range 10 {
		q := start(t, p.dir, 1, time.Millisecond, fmt.Sprint(i))
		q.hears("waiting")
		all, want = append(all, q), append(want, fmt.Sprint(i))
	}
	first.finish()
	for _, q := range all {
		q.finish()
	}
	if got := order(t, p); !slices.Equal(got, want) {
		t.Errorf("order: %v", got)
	}
}

// E90: two hundred kill -9 of holders and of waiters at any moment, and at the end not a
// slot is stuck or lost.
func TestKilled(t *testing.T) {
	p := newPool(t)
	const limit, crowd, kills = 3, 8, 200
	var all []*process
	heard := make(map[*process]bool)
	for n := range kills {
		for len(all) < crowd {
			all = append(all, start(t, p.dir, limit, 0, fmt.Sprint(n)))
		}
		// Some die before they are anything, some as waiters, some as holders.
		if q := all[rand.IntN(len(all))]; n%4 == 0 && !heard[q] {
			heard[q] = true
			select {
			case <-q.says:
			case <-time.After(20 * time.Second):
				t.Fatalf("after %d kills nobody says anything: %v", n, files(t, p))
			}
		}
		victim := rand.IntN(len(all))
		all[victim].kill()
		all = slices.Delete(all, victim, victim+1)
	}
	// Who is left gets in, three at a time.
	for _, q := range all {
		q.stdin.Close()
	}
	for _, q := range all {
		q.finish()
	}
	for i := range limit {
		release(t, join(t, p, Request{Limit: 1, Dir: fmt.Sprint(i)}))
	}
	if left := files(t, p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A slot is taken within 100 ms of its holder's death.
func TestWakeUp(t *testing.T) {
	p := newPool(t)
	const rounds = 10
	var took []time.Duration
	for i := range rounds {
		holder := start(t, p.dir, 1, 0, fmt.Sprint(i))
		holder.hears("in")
		next := joining(t, p, Request{Limit: 1, Dir: "next"})
		begin := time.Now()
		_ = holder.cmd.Process.Kill()
		s := receive(t, next)
		took = append(took, time.Since(begin))
		release(t, s)
	}
	slices.Sort(took)
	t.Logf("median %v, worst %v", took[rounds/2], took[rounds-1])
	if took[rounds/2] > 100*time.Millisecond {
		t.Errorf("median %v", took[rounds/2])
	}
}

// A waiting caller that is stopped must not hold up those behind it, and has not lost its
// place.
func TestStopped(t *testing.T) {
	p := newPool(t)
	p.overdue = 300 * time.Millisecond
	a := join(t, p, Request{Dir: "a"})
	stopped := start(t, p.dir, 1, 0, "stopped")
	stopped.hears("waiting")
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	behind := joining(t, p, Request{Limit: 1, Dir: "behind"})
	release(t, a)
	b := receive(t, behind)
	last := joining(t, p, Request{Limit: 1, Dir: "last"})
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	release(t, b)
	stopped.hears("in")
	empty(t, last, "one runs")
	stopped.finish()
	release(t, receive(t, last))
}

// E96: callers that wait cost next to nothing.
func TestIdle(t *testing.T) {
	p := newPool(t)
	a := join(t, p, Request{Dir: "a"})
	var waiting []<-chan *Slot
	for i := range 40 {
		waiting = append(waiting, joining(t, p, Request{Limit: 1, Dir: fmt.Sprint(i)}))
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	// The last looks that follow their own arrival.
	<-time.After(300 * time.Millisecond)
	before := used()
	<-time.After(2 * time.Second)
	cost := (used() - before) / 2
	t.Logf("40 callers cost %v CPU a second", cost)
	if cost > 250*time.Millisecond {
		t.Errorf("40 callers cost %v CPU a second", cost)
	}
	release(t, a)
	for _, w := range waiting {
		release(t, receive(t, w))
	}
}

// A file that a strange hand has made a FIFO, link or device of blocks nobody.
func TestStrangeFiles(t *testing.T) {
	p := newPool(t)
	if err := syscall.Mkfifo(p.dir+"/s-0011223344556677-fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", p.dir+"/s-0011223344556677-link"); err != nil {
		t.Fatal(err)
	}
	// They cannot be asked about and count.
	s := join(t, p, Request{Limit: 3, Dir: "a"})
	if _, err := p.Join(t.Context(), Request{Limit: 3, Timeout: 50 * time.Millisecond}); err == nil {
		t.Error("they do not count")
	}
	release(t, s)
	if data, err := os.ReadFile(p.dir + "/" + gateName); err != nil || !bytes.Equal(data, nil) {
		t.Errorf("gate: %q, %v", data, err)
	}
}
