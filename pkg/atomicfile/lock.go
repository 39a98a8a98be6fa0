package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Lock is an exclusive lock on a file, held until it is released or its last
// holder is gone; the kernel frees it then, however the process ended. The lock
// is on one byte or the whole of an otherwise empty file of its own: its
// existence means nothing, and it is never removed.
//
// Linux uses open-file-description locks, macOS flock, Windows LockFileEx.
// On the first two the lock belongs to the open file: a descriptor handed to
// another process, even one still in flight in a socket, keeps it. No child
// inherits it (close-on-exec). A Lock that nothing refers to any more is closed by
// the garbage collector like every file: whoever holds one for life keeps it.
type Lock struct{ f *os.File }

// TryLock takes the lock on name, creating the file (0600) when there is none.
// ErrLocked: somebody holds it. On Windows and macOS a reader that asks (see
// Held) takes the lock for an instant, so there it tries for 200 ms.
func TryLock(name string) (*Lock, error) {
	const window = 200 * time.Millisecond
	deadline := time.Now().Add(window)
	for {
		l, err := tryLock(name)
		if askingTakes && errors.Is(err, ErrLocked) && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		return l, nil
	}
}

// tryLock makes one attempt and answers with bare causes.
func tryLock(name string) (*Lock, error) {
	for range 16 {
		f, err := openLock(name)
		if err != nil {
			return nil, err
		}
		if err := takeLock(f); err != nil {
			f.Close()
			return nil, err
		}
		// Whoever locks a file that has just lost its name locks nothing.
		same, err := stillNamed(f, name)
		if err != nil {
			f.Close()
			return nil, err
		}
		if same {
			return &Lock{f}, nil
		}
		f.Close()
	}
	return nil, errors.New("file is replaced again and again")
}

// WaitLock takes the lock on name as soon as it is free. When ctx ends first
// the error matches both ErrLocked and the cause of ctx. It asks again after 1
// ms, then less often, at least 20 times a second.
func WaitLock(ctx context.Context, name string) (*Lock, error) {
	pause := time.Millisecond
	for {
		l, err := tryLock(name)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("lock %s: %w: %w", name, err, context.Cause(ctx))
		case <-t.C:
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// AdoptLock makes a Lock of a locked descriptor that came from another process.
// It does not look whether f is locked.
func AdoptLock(f *os.File) *Lock { return &Lock{f} }

// File returns the locked file, for handing its descriptor to another process.
// It stays the Lock's: do not close it.
func (l *Lock) File() *os.File { return l.f }

// Unlock frees the lock, also for every other process that shares this open
// file. The file stays.
func (l *Lock) Unlock() error {
	err := dropLock(l.f)
	if cerr := l.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Close gives up this process's share only: the lock lives on while another
// process holds a descriptor of the same open file.
func (l *Lock) Close() error { return l.f.Close() }

// Held reports whether somebody, this process included, holds the lock on name.
// On Linux it asks and never takes, so it cannot make an owner fail. No file:
// fs.ErrNotExist. Not a regular file: ErrNotRegular.
func Held(name string) (bool, error) {
	held, err := lockHeld(name)
	if err != nil {
		return false, fmt.Errorf("ask for lock %s: %w", name, err)
	}
	return held, nil
}

// stillNamed reports whether name still means the file f.
func stillNamed(f *os.File, name string) (bool, error) {
	have, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(have, there), nil
}
