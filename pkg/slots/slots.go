// Package slots owns admission: how many workers of this user run on this machine, and
// who may start the next one.
//
// Every supervised worker holds a kernel lock on a file of its own in one directory. A
// worker counts while its lock is held, so a slot is free the moment its holder is gone,
// however it went, and nothing that is left on the disk can take one. Whoever asks with a
// limit waits, in the order of asking, until fewer workers than its own limit are
// counted; whoever asks without one is counted and never waits.
//
// It does not own what a worker is, ends nobody, and does not choose the directory (see
// pkg/userdir).
//
// Invariant: at the moment of an admission with limit N fewer than N locks were held. All
// that adds or removes a file happens under one short lock (the gate), so that no two
// callers can count the same free slot.
package slots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/wake"
)

// ErrTimeout: no slot was free within the time that the caller gave.
var ErrTimeout = errors.New("no slot in time")

const (
	gateName = "gate"
	// maxLimit bounds a limit, so that it fits the name of a ticket.
	maxLimit = 1_000_000
	// gatePatience is how long one try to enter the gate may take. The gate is held for
	// a few milliseconds; longer means that its holder is stopped.
	gatePatience = 2 * time.Second
	// overtakeAfter is how long a caller in front may leave a slot that it could have. It
	// is stopped then, and a stopped process must not hold up the others.
	overtakeAfter = 5 * time.Second
	// nearby is how many callers from the front watch the directory. The others look now
	// and then: a user has 128 watches, and a thousand who wake for each other cost more
	// than the workers.
	nearby = 16
)

// Waits between two looks of a caller. What frees a slot also changes the directory, so
// the long ones only matter where changes are not told.
const (
	lookMemory   = 500 * time.Millisecond
	lookFar      = time.Second
	lookFarEach  = 10 * time.Millisecond // more for each caller in front
	lookPolling  = 100 * time.Millisecond
	lookWatching = time.Second
)

// afterChange are the looks that follow a change which let nobody in: the kernel tells
// that a file was closed a moment before it frees the lock on it.
var afterChange = []time.Duration{10 * time.Millisecond, 60 * time.Millisecond}

// Pool is the directory in which the workers are counted.
type Pool struct {
	dir string
	// Tests replace these: what reads the available memory, and overtakeAfter.
	free    func() (int64, error)
	overdue time.Duration
}

// Open returns the pool in dir, which must exist and be private.
func Open(dir string) (*Pool, error) {
	fi, err := os.Lstat(dir)
	if err == nil && !fi.IsDir() {
		err = errors.New("not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("open slots: %w", err)
	}
	return &Pool{dir: dir, free: FreeMemory, overdue: overtakeAfter}, nil
}

// Request is who asks and on which terms.
type Request struct {
	// Limit: wait until fewer than so many workers are counted. 0 means no limit.
	Limit int
	// MinFree: wait while less memory is available, in bytes. 0 means not to ask. It is
	// ignored where the system does not say (see FreeMemory).
	MinFree int64
	// Unit and Dir are the unit's name and state directory, for lists; Dir is also how
	// a unit inside it finds it.
	Unit, Dir string
	// Parent is the state directory of the live unit inside which this one runs. While
	// that one is counted, this one takes part in its slot: it neither waits, which could
	// be for its own parent, nor counts.
	Parent string
	// Outlives: this unit goes on when its parent ends. It does not wait either, but is
	// counted.
	Outlives bool
	// Timeout gives up after so long, with ErrTimeout. 0 means never.
	Timeout time.Duration
	// Waiting is called from Join when the caller has to wait, and again whenever the
	// answer changes.
	Waiting func(Position)
}

// Position is what a waiting caller can be told.
type Position struct {
	// Ahead is how many wait in front of it, Running how many are counted.
	Ahead, Running int
	// Memory: a slot is free, memory is not.
	Memory bool
}

// Slot is one admission. It is for one goroutine.
type Slot struct {
	name string
	lock *atomicfile.Lock
}

// Join waits for a slot and takes it. Without limit and MinFree it takes one at once.
// The error is ErrTimeout, ctx's, or why the pool cannot be used; after an error nothing
// is left that counts.
func (p *Pool) Join(ctx context.Context, r Request) (*Slot, error) {
	if r.Limit < 0 || r.Limit > maxLimit {
		return nil, fmt.Errorf("join slots: limit %d is not between 0 and %d", r.Limit, maxLimit)
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, fmt.Errorf("%w (%v)", ErrTimeout, r.Timeout))
		defer cancel()
	}
	if r.Limit == 0 && r.MinFree == 0 {
		return p.register(ctx, r)
	}
	c := &caller{pool: p, request: r}
	slot, err := c.wait(ctx)
	if err != nil {
		c.leave()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("join slots: %w", err)
	}
	return slot, nil
}

// Release gives the slot back. The worker must be gone.
func (s *Slot) Release() error {
	if s == nil || s.lock == nil {
		return nil
	}
	err := discard(s.name, s.lock)
	s.lock = nil
	return err
}

// Counted reports whether the slot is one of its own and not a part of the parent's.
func (s *Slot) Counted() bool {
	e, ok := parseEntry(filepath.Base(s.name))
	return ok && e.kind == kindSlot
}

// File is the locked file. Whoever else holds its descriptor keeps the slot taken, which
// is how a guard can keep it until a dead supervisor's worker is gone too.
func (s *Slot) File() *os.File { return s.lock.File() }

// discard removes a file that we hold the lock on. The name goes first, so that whoever
// finds the lock free finds no file; Windows lets nobody remove an open file.
func discard(name string, lock *atomicfile.Lock) error {
	if runtime.GOOS == "windows" {
		return errors.Join(lock.Unlock(), ignoreMissing(atomicfile.Remove(name)))
	}
	return errors.Join(ignoreMissing(os.Remove(name)), lock.Unlock())
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// register takes a slot for somebody without terms. It goes without the gate rather than
// wait for a stopped holder of it.
func (p *Pool) register(ctx context.Context, r Request) (*Slot, error) {
	gate, err := p.gate(ctx, true)
	if err == nil {
		defer gate.Unlock()
	} else if !errors.Is(err, atomicfile.ErrLocked) || ctx.Err() != nil {
		return nil, fmt.Errorf("join slots: %w", err)
	}
	v, err := p.look()
	if err != nil {
		return nil, fmt.Errorf("join slots: %w", err)
	}
	if gate != nil {
		v.sweep()
	}
	return p.take(r, v)
}

// gate enters the gate, or fails with ErrLocked: at once, or when patience has ended.
func (p *Pool) gate(ctx context.Context, wait bool) (*atomicfile.Lock, error) {
	name := filepath.Join(p.dir, gateName)
	if !wait {
		return atomicfile.TryLock(name)
	}
	ctx, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	return atomicfile.WaitLock(ctx, name)
}

// take makes the caller a holder.
func (p *Pool) take(r Request, v *view) (*Slot, error) {
	kind := kindSlot
	if r.Parent != "" && !r.Outlives && v.holds(r.Parent) {
		kind = kindNested
	}
	name := filepath.Join(p.dir, entry{kind: kind, dir: dirHash(r.Dir), nonce: nonce()}.String())
	lock, err := atomicfile.TryLock(name)
	if err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	describe(lock, r)
	return &Slot{name, lock}, nil
}

// caller is one that may have to wait.
type caller struct {
	pool    *Pool
	request Request
	ticket  entry
	lock    *atomicfile.Lock // of the ticket, nil before there is one
	told    *Position
	// idlers are those in front that leave a slot which they could have.
	idlers map[string]idler
	watch  *wake.Watcher
	looks  []time.Duration
}

// idler is since when, and in how many looks in a row.
type idler struct {
	since time.Time
	looks int
}

// overtaken: both are asked for, because our own looks can be seconds apart.
func (i idler) overtaken(now time.Time, overdue time.Duration) bool {
	return i.looks >= 3 && now.Sub(i.since) >= overdue
}

func (c *caller) wait(ctx context.Context) (*Slot, error) {
	defer func() {
		if c.watch != nil {
			c.watch.Close()
		}
	}()
	for {
		// Mostly it is not our turn, which can be seen without disturbing anybody.
		turn := c.lock == nil
		v, err := c.pool.look()
		if err != nil {
			return nil, err
		}
		pos, may := c.judge(v)
		if turn || may || v.dead {
			slot, now, err := c.enter(ctx, turn || may)
			if slot != nil || err != nil {
				return slot, err
			}
			if now != nil {
				pos = *now
			}
		}
		c.tell(pos)
		if err := c.pause(ctx, pos); err != nil {
			return nil, err
		}
	}
}

// enter looks again inside the gate, clears away who died, and takes a slot if it is
// our turn; otherwise we have a ticket afterwards. A gate that is shut is no error: there
// will be another look. To clear away only, it is not waited for.
func (c *caller) enter(ctx context.Context, wait bool) (*Slot, *Position, error) {
	gate, err := c.pool.gate(ctx, wait)
	if errors.Is(err, atomicfile.ErrLocked) && ctx.Err() == nil {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer gate.Unlock()
	v, err := c.pool.look()
	if err != nil {
		return nil, nil, err
	}
	v.sweep()
	pos, may := c.judge(v)
	if may || c.request.Parent != "" && v.holds(c.request.Parent) {
		slot, err := c.pool.take(c.request, v)
		if err != nil {
			return nil, nil, err
		}
		c.leave()
		return slot, nil, nil
	}
	if c.lock == nil {
		c.ticket = entry{kind: kindTicket, number: v.next(), limit: c.request.Limit, minFree: c.request.MinFree, nonce: nonce()}
		c.lock, err = atomicfile.TryLock(c.path())
		if err != nil {
			return nil, nil, fmt.Errorf("take ticket: %w", err)
		}
		describe(c.lock, c.request)
	}
	return nil, &pos, nil
}

func (c *caller) path() string { return filepath.Join(c.pool.dir, c.ticket.String()) }

// leave gives the ticket up.
func (c *caller) leave() {
	if c.lock != nil {
		_ = discard(c.path(), c.lock)
		c.lock = nil
	}
}

// judge says whether it is our turn: there is room by our own terms, and nobody in front
// could use it. One in front whose limit is lower than ours is not waited for while it
// could not start anyway.
func (c *caller) judge(v *view) (Position, bool) {
	pos := Position{Running: v.running()}
	room := c.request.Limit == 0 || pos.Running < c.request.Limit
	pos.Memory = room && !v.memory(c.request.MinFree)
	may, now := room && !pos.Memory, time.Now()
	idlers := make(map[string]idler)
	for _, t := range v.tickets {
		if c.lock != nil && t.number >= c.ticket.number {
			break
		}
		if pos.Ahead < nearby && !v.alive(t) {
			continue
		}
		pos.Ahead++
		if !room || pos.Memory || !t.admits(pos.Running) || !v.memory(t.minFree) || !v.alive(t) {
			continue
		}
		i, known := c.idlers[t.String()]
		if !known {
			i.since = now
		}
		i.looks++
		idlers[t.String()] = i
		may = may && i.overtaken(now, c.pool.overdue)
	}
	c.idlers = idlers
	return pos, may
}

func (c *caller) tell(pos Position) {
	if c.request.Waiting == nil || c.told != nil && *c.told == pos {
		return
	}
	c.told = &pos
	c.request.Waiting(pos)
}

// pause waits until another look can bring something.
func (c *caller) pause(ctx context.Context, pos Position) error {
	if pos.Ahead >= max(nearby, 2*c.request.Limit) {
		return sleep(ctx, lookFar+time.Duration(pos.Ahead)*lookFarEach)
	}
	if c.watch == nil {
		c.watch = wake.New(lookWatching)
		c.watch.Add(c.pool.dir)
		// What changed before the watch began is seen at once.
		return ctx.Err()
	}
	limit := lookWatching
	if runtime.GOOS != "linux" {
		limit = lookPolling
	}
	if pos.Memory {
		limit = lookMemory
	}
	quick := len(c.looks) > 0
	if quick {
		limit, c.looks = c.looks[0], c.looks[1:]
	}
	c.watch.SetInterval(limit)
	start := time.Now()
	if err := c.watch.Wait(ctx); err != nil {
		return err
	}
	if !quick && time.Since(start) < limit {
		c.looks = afterChange
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
