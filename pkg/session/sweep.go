package session

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prun-suite/prun/pkg/eventlog"
)

// sweepers is how many tasks are looked at together: what takes time is the disk's syncing and the ending of trees,
// not the processor.
func sweepers() int { return max(8, 2*runtime.GOMAXPROCS(0)) }

// each calls fn for every task, several at once.
func each(tasks []Task, fn func(i int, t Task)) {
	workers := min(runtime.GOMAXPROCS(0), (len(tasks)+15)/16)
	if workers <= 1 {
		for i, t := range tasks {
			fn(i, t)
		}
		return
	}
	var next struct {
		sync.Mutex
		i int
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				next.Lock()
				from := next.i
				next.i += 8
				next.Unlock()
				if from >= len(tasks) {
					return
				}
				for i := from; i < min(from+8, len(tasks)); i++ {
					fn(i, tasks[i])
				}
			}
		})
	}
	all.Wait()
}

// sweepLimit bounds what a verb spends on other tasks before it does its own work.
const sweepLimit = 20 * time.Second

// Sweep reconciles every task that has no marker of its end. It is what every verb does first, so that no dead worker
// is taken for a live one; it never waits for another verb, and one task that cannot be read stops nobody.
func (r Root) Sweep() []Task {
	tasks, err := r.Tasks()
	if err != nil {
		return nil
	}
	open := make([]bool, len(tasks))
	each(tasks, func(i int, t Task) { open[i] = !t.marked() })
	var pending []Task
	for i, t := range tasks {
		if open[i] {
			pending = append(pending, t)
		}
	}
	bounded(func() { each2(pending, func(t Task) { t.Reconcile() }) })
	return tasks
}

// each2 is each for work that takes long: one task is a worker's whole portion.
func each2(tasks []Task, fn func(Task)) {
	slots := make(chan struct{}, sweepers())
	var all sync.WaitGroup
	for _, t := range tasks {
		slots <- struct{}{}
		all.Go(func() { fn(t); <-slots })
	}
	all.Wait()
}

func bounded(fn func()) {
	done := make(chan struct{})
	go func() { fn(); close(done) }()
	timer := time.NewTimer(sweepLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// marked is the cheap look at whether a turn is over.
func (t Task) marked() bool {
	_, err := os.Lstat(t.Path(FileDone))
	return err == nil
}

// LookAll reads every task, in the order of names. more is called for each of them, from several goroutines, to add
// what the caller needs beyond the record.
func LookAll(tasks []Task, more func(*Snapshot)) []Snapshot {
	list := make([]Snapshot, len(tasks))
	each(tasks, func(i int, t Task) {
		list[i] = t.Look()
		more(&list[i])
	})
	return list
}

// Tidy does what only a look at every record can: kept leftovers whose task's last deadline has passed end, and the
// events of tasks that have long been over go.
func (s Snapshot) Tidy(ttl time.Duration, now time.Time) {
	if s.Err != nil || !s.Done {
		return
	}
	if n, ok := s.Meta.Int("leftovers"); ok && n > 0 {
		if at, ok := s.Meta.Number("deadline_utc"); ok && Epoch(now) > at {
			if lock, err := s.Task.TryLock(); err == nil {
				s.Task.EndKept()
				_ = lock.Unlock()
			}
		}
	}
	if ttl > 0 && !s.Output.IsZero() && now.Sub(s.Output) > ttl && !s.Task.Changing() {
		name := s.Task.Path(FileEvents)
		for _, segment := range eventlog.Segments(name) {
			_ = remove(segment.Name)
		}
	}
}

// EndKept ends what the task's turns left alive and says so in the record.
func (t Task) EndKept() error {
	if err := t.EndLeftovers(1 << 30); err != nil {
		return err
	}
	return t.UpdateMeta(0, false, func(m *Object) bool {
		if !m.Has("leftovers") && !m.Has("leaf") {
			return false
		}
		m.Delete("leftovers")
		m.Delete("leaf")
		return true
	})
}

// ClearHidden removes what a killed verb left half made or half removed.
func (r Root) ClearHidden() {
	entries, err := os.ReadDir(r.Sessions())
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(r.Sessions(), e.Name())
		switch {
		case !hidden(e.Name()):
		case strings.HasPrefix(e.Name(), hiddenGone):
			_ = os.RemoveAll(dir)
		default:
			lock, err := Task{Root: r, Name: e.Name(), Dir: dir}.TryLock()
			if err != nil {
				continue
			}
			if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > time.Minute {
				_ = os.RemoveAll(dir)
			}
			_ = lock.Unlock()
		}
	}
}
