package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/proc"
)

// Names beside the snapshot. The first two are the original's and mean to it what they
// mean to us; the third is ours, and its kernel lock is what the order of our own
// programs rests on.
const (
	attemptSuffix = ".last-attempt"
	foreignSuffix = ".refresh.lock"
	lockSuffix    = ".prun-lock"
)

// ourMark is what we write into the original's lock file, which it leaves empty. Whoever
// finds it while holding our kernel lock knows that its writer is dead.
const ourMark = "prun\n"

// ShimMark is a text in the first lines of our own agent-quota.py. A deployed script
// that holds it is this program again and is not run.
const ShimMark = "the old name of agent-quota"

// Config is what a Keeper needs to know of the world.
type Config struct {
	Source Source
	// Home is the directory in which the query runs.
	Home string
	// Agy returns the program to ask. It is called when a query is due.
	Agy func() (string, error)
	// Env is the environment of the query.
	Env []string
	// TTL and Timeout are AGY_QUOTA_TTL_SECONDS and AGY_QUOTA_TIMEOUT_SECONDS; 0 means the
	// default.
	TTL, Timeout time.Duration
	// Script is a deployed agent-quota.py that a dispatch runs instead of asking itself,
	// Python the interpreter for it. Either may be empty.
	Script, Python string
	// Now is the wall clock, for tests; nil means time.Now.
	Now func() time.Time
}

// Keeper reads and refreshes one snapshot.
type Keeper struct {
	Config
	// run is proc.Run; tests count its calls.
	run func(context.Context, proc.RunSpec) (proc.RunResult, error)
}

// NewKeeper returns a Keeper. It touches nothing.
func NewKeeper(c Config) *Keeper {
	if c.TTL <= 0 {
		c.TTL = DefaultTTL
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	c.Timeout = min(c.Timeout, maxTimeout)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Keeper{Config: c, run: proc.Run}
}

func (k *Keeper) attempt() string { return k.Source.Path + attemptSuffix }
func (k *Keeper) foreign() string { return k.Source.Path + foreignSuffix }

// within reports whether path was written at most limit ago. A file from the future is
// as good as none.
func (k *Keeper) within(path string, limit time.Duration) bool {
	d, ok := age(modTime(path), k.Now())
	return ok && d < limit
}

// Due reports whether snapshot and last attempt, the failed ones too, are both so old
// that a refresh may be started.
func (k *Keeper) Due() bool {
	return !k.within(k.Source.Path, k.TTL) && !k.within(k.attempt(), k.TTL)
}

// Snapshot returns what a dispatch goes by. A managed snapshot that is out of date is
// refreshed once, or waited for while another process refreshes it. An error says why
// nothing is known; it never means that a pool is empty.
func (k *Keeper) Snapshot(ctx context.Context) (*Snapshot, error) {
	if !k.Source.Managed {
		return Read(k.Source.Path)
	}
	if s, err := k.current(); !errors.Is(err, ErrStale) {
		return s, err
	}
	_, why := k.refresh(ctx, refreshing{
		due: func() bool {
			return !k.within(k.Source.Path, MaxAge) && !k.within(k.attempt(), min(k.TTL, MaxAge))
		},
		wait: true, script: []string{"--refresh-agy"},
	})
	s, err := k.current()
	if errors.Is(err, ErrStale) && why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return s, err
}

// current reads the managed snapshot if it is recent enough.
func (k *Keeper) current() (*Snapshot, error) {
	d, ok := age(modTime(k.Source.Path), k.Now())
	if !ok || d > MaxAge {
		return nil, ErrStale
	}
	s, err := Read(k.Source.Path)
	if err != nil {
		return nil, err
	}
	if _, ok := age(s.Cached, k.Now()); !ok && !s.Cached.IsZero() {
		return nil, ErrStale
	}
	return s, nil
}

// Refresh is agent-quota --refresh-agy: it asks agy and writes the snapshot, unless
// somebody is at it or, without force, snapshot or attempt are recent. It reports
// whether it asked. The error says why an attempt failed.
func (k *Keeper) Refresh(ctx context.Context, force bool) (bool, error) {
	due := k.Due
	if force {
		due = func() bool { return true }
	}
	return k.refresh(ctx, refreshing{due: due})
}

// Renew refreshes the managed snapshot after a run that the backend ended at failed:
// the meter that it hit is newer evidence than the snapshot. It waits its turn, and
// does nothing when an attempt was begun after that time.
func (k *Keeper) Renew(ctx context.Context, failed time.Time) (bool, error) {
	if !k.Source.Managed {
		return false, nil
	}
	// The times of files lag behind the clock by up to a tick of the kernel.
	since := failed.Add(-20 * time.Millisecond)
	return k.refresh(ctx, refreshing{
		due:  func() bool { return !modTime(k.attempt()).After(since) || !k.within(k.attempt(), k.TTL) },
		wait: true, script: []string{"--refresh-agy", "--force"},
	})
}

// refreshing is one way to refresh.
type refreshing struct {
	// due is asked again whenever somebody else may have refreshed.
	due func() bool
	// wait for whoever is at it instead of declining. An attempt that is under way has
	// its stamp already, so due alone does not tell it from one that failed.
	wait bool
	// script are the words for a deployed script; none: ask in process.
	script []string
}

// refresh reports whether agy was asked. Of all our processes one is inside at a time.
func (k *Keeper) refresh(ctx context.Context, r refreshing) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, scriptLimit+k.Timeout+timeoutMargin)
	defer cancel()
	if !filepath.IsAbs(k.Source.Path) {
		// It would be made in whatever directory this process happens to be in.
		return false, fmt.Errorf("refresh snapshot: %w", ErrNoHome)
	}
	if !r.wait && !r.due() {
		return false, nil
	}
	agy, err := k.Agy()
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(k.Source.Path), 0o700); err != nil {
		return false, fmt.Errorf("refresh snapshot: %w", err)
	}
	lock, err := k.lock(ctx, r.wait)
	if errors.Is(err, atomicfile.ErrLocked) && ctx.Err() == nil {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("refresh snapshot: %w", err)
	}
	defer lock.Unlock()
	for r.wait && k.occupied(k.Timeout+timeoutMargin) {
		if err := sleep(ctx, foreignPoll); err != nil {
			return false, fmt.Errorf("refresh snapshot: %w", err)
		}
	}
	if !r.due() {
		return false, nil
	}
	if len(r.script) > 0 && k.deployed() {
		before, attempted := modTime(k.Source.Path), modTime(k.attempt())
		_, err := k.run(ctx, proc.RunSpec{
			Path: k.Python, Args: append([]string{k.Python, k.Script}, r.script...), Env: k.Env, Dir: k.Home, Limit: scriptLimit,
		})
		if !modTime(k.Source.Path).Equal(before) || !modTime(k.attempt()).Equal(attempted) {
			return true, err
		}
		// It did nothing: it cannot run here, or is too old to know the words.
	}
	release, err := k.claim()
	if release == nil || err != nil {
		return false, err
	}
	defer release()
	if !r.due() {
		return false, nil
	}
	stamp := fmt.Sprintf(`{"ts": %s}`, seconds(k.Now()))
	if err := atomicfile.Replace(k.attempt(), []byte(stamp), 0o600); err != nil {
		return false, fmt.Errorf("refresh snapshot: %w", err)
	}
	if err := k.ask(ctx, agy); err != nil {
		return true, fmt.Errorf("refresh snapshot: %w", err)
	}
	return true, nil
}

func (k *Keeper) lock(ctx context.Context, wait bool) (*atomicfile.Lock, error) {
	if wait {
		return atomicfile.WaitLock(ctx, k.Source.Path+lockSuffix)
	}
	return atomicfile.TryLock(k.Source.Path + lockSuffix)
}

// deployed reports whether there is a script to run that is not this program.
func (k *Keeper) deployed() bool {
	if k.Script == "" || k.Python == "" {
		return false
	}
	f, err := atomicfile.OpenRegular(k.Script)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 4<<10)
	n, _ := f.Read(start)
	return n > 0 && !bytes.Contains(start[:n], []byte(ShimMark))
}

// occupied reports whether the original is at it: its lock file is there, younger than
// limit, and not ours. We hold our kernel lock, so a file with our mark was left behind.
func (k *Keeper) occupied(limit time.Duration) bool {
	d, ok := age(modTime(k.foreign()), k.Now())
	if !ok || d >= limit {
		return false
	}
	text, err := atomicfile.ReadRegular(k.foreign(), 64)
	return err != nil || string(text) != ourMark
}

// claim takes the original's lock, whose meaning is that its file exists. release is
// nil when somebody else has it. One that is as old as the original bears is removed.
func (k *Keeper) claim() (release func(), err error) {
	name := k.foreign()
	for range 2 {
		err = atomicfile.Write(name, []byte(ourMark), 0o600)
		if err == nil {
			mine, err := os.Lstat(name)
			return func() {
				if now, serr := os.Lstat(name); err == nil && serr == nil && os.SameFile(mine, now) {
					_ = atomicfile.Remove(name)
				}
			}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("refresh snapshot: %w", err)
		}
		if k.occupied(k.Timeout + foreignStale) {
			return nil, nil
		}
		if err := atomicfile.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("refresh snapshot: remove a lock that was left behind: %w", err)
		}
	}
	return nil, nil
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

// foreignPoll is how often the original's lock is looked at; nothing tells us of it.
const foreignPoll = 100 * time.Millisecond
