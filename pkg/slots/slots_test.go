package slots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func newPool(t *testing.T) *Pool {
	t.Helper()
	dir := filepath.Join(scratch(t), "slots")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func join(t *testing.T, p *Pool, r Request) *Slot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := p.Join(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Release() })
	return s
}

// joining joins in the background, once the caller waits.
func joining(t *testing.T, p *Pool, r Request) <-chan *Slot {
	t.Helper()
	waits := make(chan struct{})
	var once sync.Once
	r.Waiting = func(Position) { once.Do(func() { close(waits) }) }
	got := make(chan *Slot, 1)
	go func() {
		s, err := p.Join(t.Context(), r)
		if err == nil {
			got <- s
		}
	}()
	select {
	case <-waits:
	case <-got:
		t.Fatal("it did not have to wait")
	case <-time.After(20 * time.Second):
		t.Fatal("it neither waits nor starts")
	}
	return got
}

func release(t *testing.T, s *Slot) {
	t.Helper()
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c <-chan *Slot) *Slot {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(time.Minute):
		t.Fatal("no slot")
	}
	return nil
}

func empty(t *testing.T, c <-chan *Slot, why string) {
	t.Helper()
	select {
	case <-c:
		t.Errorf("started although %s", why)
	case <-time.After(150 * time.Millisecond):
	}
}

func files(t *testing.T, p *Pool) []string {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != gateName {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestWithoutLimit(t *testing.T) {
	p := newPool(t)
	var held []*Slot
	for i := range 20 {
		held = append(held, join(t, p, Request{Dir: fmt.Sprint(i)}))
	}
	members, err := p.Members()
	if err != nil || len(members) != 20 {
		t.Fatalf("%d members, %v", len(members), err)
	}
	for _, s := range held {
		if !s.Counted() {
			t.Error("a slot does not count")
		}
		release(t, s)
		release(t, s)
	}
	if left := files(t, p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestLimit(t *testing.T) {
	p := newPool(t)
	a := join(t, p, Request{Limit: 2, Dir: "a"})
	b := join(t, p, Request{Dir: "b"}) // counts although it never waits
	c := joining(t, p, Request{Limit: 2, Dir: "c"})
	empty(t, c, "two run")
	release(t, b)
	s := receive(t, c)
	release(t, a)
	release(t, s)
	if left := files(t, p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Whoever has a larger limit does not wait for one that could not start anyway; among
// those that could, the first one goes first.
func TestDifferentLimits(t *testing.T) {
	p := newPool(t)
	a := join(t, p, Request{Dir: "a"})
	one := joining(t, p, Request{Limit: 1, Dir: "one"})
	b := join(t, p, Request{Limit: 3, Dir: "b"})
	empty(t, one, "two run")
	c := join(t, p, Request{Dir: "c"})
	first := joining(t, p, Request{Limit: 3, Dir: "first"})
	second := joining(t, p, Request{Limit: 3, Dir: "second"})
	release(t, c)
	first3 := receive(t, first)
	empty(t, second, "three run")
	for _, s := range []*Slot{a, b, first3} {
		release(t, s)
	}
	// Now both could; the older ticket goes first, and then the other still can.
	oldest := receive(t, one)
	release(t, receive(t, second))
	release(t, oldest)
}

func TestTimeout(t *testing.T) {
	p := newPool(t)
	join(t, p, Request{Dir: "a"})
	start := time.Now()
	_, err := p.Join(t.Context(), Request{Limit: 1, Timeout: 80 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) || time.Since(start) < 80*time.Millisecond {
		t.Errorf("Join: %v after %v", err, time.Since(start))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to stop")
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if _, err := p.Join(ctx, Request{Limit: 1}); !errors.Is(err, why) {
		t.Errorf("Join: %v", err)
	}
	if left := files(t, p); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestPositions(t *testing.T) {
	p := newPool(t)
	a := join(t, p, Request{Dir: "a"})
	var waiting []<-chan *Slot
	for i := range 3 {
		waiting = append(waiting, joining(t, p, Request{Limit: 1, Dir: fmt.Sprint(i)}))
	}
	told := make(chan Position, 100)
	last := make(chan *Slot, 1)
	go func() {
		s, err := p.Join(t.Context(), Request{Limit: 1, Dir: "last", Waiting: func(pos Position) { told <- pos }})
		if err == nil {
			last <- s
		}
	}()
	next := func() int {
		select {
		case pos := <-told:
			return pos.Ahead
		case <-time.After(20 * time.Second):
			t.Fatal("no position")
			return 0
		}
	}
	if got := next(); got != 3 {
		t.Errorf("first position: %d ahead", got)
	}
	release(t, a)
	for i, w := range waiting {
		release(t, receive(t, w))
		for got := 3 - i; got > 2-i && i < 2; {
			got = next()
		}
	}
	release(t, receive(t, last))
}

func TestNested(t *testing.T) {
	p := newPool(t)
	parent := join(t, p, Request{Limit: 1, Unit: "outer", Dir: "/units/outer"})
	child := join(t, p, Request{Limit: 1, Dir: "/units/child", Parent: "/units/outer"})
	grandchild := join(t, p, Request{Limit: 1, Dir: "/units/grandchild", Parent: "/units/child"})
	for _, s := range []*Slot{child, grandchild} {
		if s.Counted() {
			t.Error("a nested unit counts")
		}
	}
	free := join(t, p, Request{Dir: "/units/free", Parent: "/units/outer"})
	if free.Counted() {
		t.Error("a nested unit without a limit counts")
	}
	outliving := join(t, p, Request{Limit: 1, Dir: "/units/detached", Parent: "/units/outer", Outlives: true})
	if !outliving.Counted() {
		t.Error("a unit that outlives its parent does not count")
	}
	next := joining(t, p, Request{Limit: 1, Dir: "/units/next"})
	release(t, grandchild)
	release(t, child)
	release(t, parent)
	empty(t, next, "a detached one runs")
	release(t, outliving)
	release(t, receive(t, next))

	// A parent that is not counted helps nobody.
	a := join(t, p, Request{Dir: "a"})
	stranger := joining(t, p, Request{Limit: 1, Dir: "b", Parent: "/units/outer"})
	empty(t, stranger, "its parent is gone")
	release(t, a)
	release(t, receive(t, stranger))
}

func TestMemory(t *testing.T) {
	p := newPool(t)
	var mu sync.Mutex
	free, failure := int64(1<<30), error(nil)
	p.free = func() (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		return free, failure
	}
	set := func(n int64, err error) {
		mu.Lock()
		defer mu.Unlock()
		free, failure = n, err
	}
	waiting := joining(t, p, Request{MinFree: 2 << 30, Dir: "a"})
	// Who does not ask for memory does not wait for it.
	release(t, join(t, p, Request{Limit: 5, Dir: "b"}))
	set(2<<30, nil)
	a := receive(t, waiting)
	// The one that has just started will take some.
	second := joining(t, p, Request{MinFree: 2 << 30, Dir: "c"})
	empty(t, second, "the last one is young")
	set(2<<30+youngReserve, nil)
	c := receive(t, second)
	set(0, errors.ErrUnsupported)
	release(t, join(t, p, Request{MinFree: 2 << 30, Dir: "d"}))
	release(t, a)
	release(t, c)
}

// Whatever lies about in the directory counts for nothing.
func TestLeftovers(t *testing.T) {
	p := newPool(t)
	for _, name := range []string{
		"s-0011223344556677-00", "n-0011223344556677-00", "w-0-1-0-00", "w-7-1-0-00", "w-18446744073709551615-1-0-00",
		"w-99999999999999999999-1-0-0", "w--1-1-0-0", "s-", "w", "", "README",
	} {
		if name != "" {
			if err := os.WriteFile(filepath.Join(p.dir, name), []byte("torn {"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(p.dir, "s-0011223344556677-dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A directory cannot be asked about, so it counts: too few workers are better.
	a := join(t, p, Request{Limit: 2, Dir: "a"})
	b := joining(t, p, Request{Limit: 2, Dir: "b"})
	if err := os.Remove(filepath.Join(p.dir, "s-0011223344556677-dir")); err != nil {
		t.Fatal(err)
	}
	release(t, receive(t, b))
	release(t, a)
	left := files(t, p)
	if slices.ContainsFunc(left, func(name string) bool { _, ok := parseEntry(name); return ok }) {
		t.Errorf("left: %v", left)
	}
}

func TestOpen(t *testing.T) {
	dir := scratch(t)
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of nothing: %v", err)
	}
	p := newPool(t)
	for _, limit := range []int{-1, maxLimit + 1} {
		if _, err := p.Join(t.Context(), Request{Limit: limit}); err == nil {
			t.Errorf("limit %d is taken", limit)
		}
	}
	if err := removeTree(p.dir); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{0, 3} {
		if _, err := p.Join(t.Context(), Request{Limit: limit}); err == nil {
			t.Error("a slot in a directory that is gone")
		}
	}
}

func TestMembers(t *testing.T) {
	p := newPool(t)
	first := join(t, p, Request{Unit: "u1", Dir: "/units/u1"})
	second := joining(t, p, Request{Limit: 1, Unit: "u2", Dir: "/units/u2"})
	members, err := p.Members()
	if err != nil || len(members) != 2 {
		t.Fatalf("%v, %v", members, err)
	}
	if m := members[0]; !m.Waiting || m.Unit != "u2" || m.Limit != 1 || m.Owner.PID != os.Getpid() || m.Since.IsZero() {
		t.Errorf("waiting: %+v", m)
	}
	if m := members[1]; m.Waiting || !m.Counted || m.Unit != "u1" || m.Dir != "/units/u1" {
		t.Errorf("running: %+v", m)
	}
	release(t, first)
	release(t, receive(t, second))
}

func TestEntry(t *testing.T) {
	for name, ok := range map[string]bool{
		"s-00-11": true, "n-00-11": true, "w-1-2-3-ab": true, "w-01-2-3-ab": false, "w-1-2-3": false, "w-1-2-3-": false,
		"w-1--2-3-ab": false, "s-00": false, "s-00-11-22": false, "x-00-11": false, "gate": false, "S-00-11": false,
	} {
		if e, got := parseEntry(name); got != ok {
			t.Errorf("parseEntry(%q) = %+v, %t", name, e, got)
		}
	}
}

func FuzzEntry(f *testing.F) {
	for _, s := range []string{"s-00-11", "w-1-2-3-ab", "w-18446744073709551615-9-9-x", "w-1-2-3-", "--", "n-a-b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if e, ok := parseEntry(name); ok && e.String() != name {
			t.Errorf("%q became %q", name, e.String())
		}
	})
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "2GiB": 2 << 30, "512MiB": 512 << 20, " 1.5 gib ": 3 << 29, "10kb": 10_000, "7 B": 7, "1TiB": 1 << 40, "0.5KiB": 512,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "GiB", "2GiBs", "-1", "+1", "1e9", "NaN", "Inf", "0x10", "1.2.3", "99999999999999999999", "8388608TiB", "2 G iB", "."} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d", text, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"2GiB", "512MiB", "1.5 gb", "", "9e99", "-1B", "0x1p4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseSize(text); err == nil && n < 0 {
			t.Errorf("ParseSize(%q) = %d", text, n)
		}
	})
}

func TestMeminfo(t *testing.T) {
	if n, err := parseMeminfo([]byte("MemTotal: 1 kB\nMemAvailable:   2048 kB\n")); err != nil || n != 2<<20 {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: -1 kB", "MemAvailable: 99999999999999999999 kB", "MemAvailable: 1 MB", strings.Repeat("x", 10000)} {
		if n, err := parseMeminfo([]byte(text)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func FuzzMeminfo(f *testing.F) {
	f.Add([]byte("MemAvailable:   2048 kB\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := parseMeminfo(data); err == nil && n < 0 {
			t.Errorf("%q: %d", data, n)
		}
	})
}
