package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// Create makes a task: whole under a hidden name, then under its own, in one step that only one of several can take.
// The returned lock is held from before the name exists, so that no sweep takes the newborn for a dead one. The error
// wraps ErrExists.
func (r Root) Create(name string, meta Object) (Task, *atomicfile.Lock, error) {
	t := r.Task(name)
	fail := func(err error) (Task, *atomicfile.Lock, error) {
		return t, nil, fmt.Errorf("create task: %w", err)
	}
	if _, err := os.Lstat(t.Dir); err == nil {
		return t, nil, ErrExists
	}
	if err := os.MkdirAll(r.Sessions(), dirPerm); err != nil {
		return fail(err)
	}
	nonce, err := state.NewNonce()
	if err != nil {
		return fail(err)
	}
	made := Task{Root: r, Name: name, Dir: filepath.Join(r.Sessions(), hiddenNew+strconv.Itoa(os.Getpid())+"-"+nonce)}
	if runtime.GOOS == "windows" {
		// A directory that holds an open file cannot be renamed there.
		made = t
	}
	if err := atomicfile.Mkdir(made.Dir, dirPerm); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return t, nil, ErrExists
		}
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	lock, err := atomicfile.WaitLock(ctx, made.Path(FileLock))
	if err != nil {
		_ = os.RemoveAll(made.Dir)
		return fail(err)
	}
	err = func() error {
		if err := atomicfile.Mkdir(made.Path(DirTurns), dirPerm); err != nil {
			return err
		}
		if err := atomicfile.Write(made.Path(FilePrompt), []byte(meta.Text("prompt")), filePerm); err != nil {
			return err
		}
		if err := replace(made.Path(FileMeta), meta.File()); err != nil {
			return err
		}
		s := made.Look()
		s.FillTimes()
		if err := s.WriteStatus(time.Now()); err != nil || made.Dir == t.Dir {
			return err
		}
		err := atomicfile.RenameNoReplace(made.Dir, t.Dir)
		if errors.Is(err, atomicfile.ErrUnsupported) {
			// A task's directory is never empty, and such a one is not replaced.
			err = os.Rename(made.Dir, t.Dir)
		}
		if _, serr := os.Lstat(t.Dir); err != nil && serr == nil {
			return ErrExists
		}
		return err
	}()
	if err != nil {
		_ = os.RemoveAll(made.Dir)
		_ = lock.Unlock()
		if errors.Is(err, ErrExists) {
			return t, nil, ErrExists
		}
		return fail(err)
	}
	if err := atomicfile.SyncDir(r.Sessions()); err != nil {
		return t, lock, nil
	}
	return t, lock, nil
}

// Begin opens a further turn in the record; the task's lock is held and no turn runs. What the last one left stays in
// its own directory. After a kill at any step the task is settled as it was, or is one whose new turn never started.
func (t Task) Begin(prompt string, change func(*Object)) (Turn, error) {
	meta, err := t.Meta()
	if err != nil {
		return Turn{}, err
	}
	last := TurnNumber(meta)
	if last == 0 {
		// The original kept only the last message: that is turn 1.
		if last, err = 1, t.keepFirst(); err != nil {
			return Turn{}, fmt.Errorf("begin turn: %w", err)
		}
	}
	turn := t.Turn(last + 1)
	if err := remove(t.Path(FileDone)); err != nil {
		return turn, fmt.Errorf("begin turn: %w", err)
	}
	err = t.UpdateMeta(0, true, func(m *Object) bool {
		m.Set("state", Working)
		m.Set("turn", turn.Number)
		m.Set("prompt", prompt)
		for _, key := range []string{"stall_reason", "detail", "exit_code", "worktree_commit"} {
			m.Delete(key)
		}
		change(m)
		return true
	})
	if err != nil {
		return turn, err
	}
	err = errors.Join(
		remove(t.Path(FileReport), t.Path(FileChild), t.Path(FileHelper)),
		swap(t.Path(FilePrompt), []byte(prompt)))
	s := t.Look()
	s.FillTimes()
	if err = errors.Join(err, s.WriteStatus(time.Now())); err != nil {
		return turn, fmt.Errorf("begin turn: %w", err)
	}
	return turn, nil
}

// keepFirst makes a turn's directory of what the original left.
func (t Task) keepFirst() error {
	dir := t.Turn(1).Dir
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := atomicfile.Mkdir(d, dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, name := range []string{FileReport, FilePrompt} {
		b, err := readFile(t.Path(name), maxRecord)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = swap(filepath.Join(dir, name), b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unbegun settles a turn that was opened and then refused before anything was started.
func (t Turn) Unbegun(why string) error {
	v := Pairs{{"state", Failed}, {"stall_reason", ReasonLaunch}, {"detail", why}}
	return settle(t, v.Object())
}
