package lane

import (
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A watcher looks for changes in a worktree: it walks it again and again, never
// faster than a small part of a core allows, and counts the rounds that found
// something different. git is not asked: it knows nothing of ignored files,
// among them a build's output, and a supervisor starts nothing beside its
// worker.
type watcher struct {
	root    string
	changes atomic.Int64
	first   chan struct{}
}

// Pace of the walks. A tree of 200,000 files takes about a second.
const (
	restAtLeast = 2 * time.Second
	restFactor  = 25
	// baseline bounds how long a start waits for the first walk; what changes
	// before a slower one is through counts as having been there.
	baseline = 100 * time.Millisecond
)

// watch begins the walks and waits, within a bound, for the first one.
func watch(root string) *watcher {
	w := &watcher{root: root, first: make(chan struct{})}
	go w.run()
	timer := time.NewTimer(baseline)
	defer timer.Stop()
	select {
	case <-w.first:
	case <-timer.C:
	}
	return w
}

func (w *watcher) run() {
	last := uint64(0)
	for round := 0; ; round++ {
		began := time.Now()
		sum := walk(w.root, true)
		if round == 0 {
			close(w.first)
		} else if sum != last {
			w.changes.Add(1)
		}
		last = sum
		// For the life of the supervisor, which ends soon after its worker.
		rest := time.NewTimer(max(restAtLeast, restFactor*time.Since(began)))
		<-rest.C
	}
}

// walk adds up what can be seen of a tree without opening a file. A sum does
// not depend on the order in which a directory lists its names.
func walk(dir string, top bool) uint64 {
	f, err := os.Open(dir)
	if err != nil {
		return 1
	}
	defer f.Close()
	var sum uint64
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if top && (e.Name() == ".git" || e.Name() == ".worktrees") {
				// git's own files change when anybody asks it something.
				continue
			}
			name := filepath.Join(dir, e.Name())
			fi, err := e.Info()
			if err != nil {
				sum += stamp(name, nil)
				continue
			}
			sum += stamp(name, fi)
			if fi.IsDir() {
				sum += walk(name, false)
			}
		}
		if err != nil {
			if err != io.EOF {
				sum++
			}
			return sum
		}
	}
}

func stamp(name string, fi fs.FileInfo) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	if fi == nil {
		return h.Sum64()
	}
	var b [20]byte
	put := func(at int, n uint64) {
		for i := range 8 {
			b[at+i] = byte(n >> (8 * i))
		}
	}
	put(0, uint64(fi.Size()))
	put(8, uint64(fi.ModTime().UnixNano()))
	b[16], b[17], b[18], b[19] = byte(fi.Mode()), byte(fi.Mode()>>8), byte(fi.Mode()>>16), byte(fi.Mode()>>24)
	h.Write(b[:])
	return h.Sum64()
}
