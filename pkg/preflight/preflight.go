// Package preflight owns the memory that a client's probes went well: a fan-out of
// twenty units asks the same program the same questions twenty times within seconds.
//
// It does not know what a probe is or what its answer means: it keeps the output, so
// that each unit judges it by its own model. Only successes are kept, for a minute.
//
// Invariant: an answer is reused only for the same program file, home directory and
// settings. Anything wrong with the memory means to probe, never to fail.
package preflight

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Lifetime is how long an answer is reused.
const Lifetime = time.Minute

// maxKept bounds a kept answer; `agy models` says a few kilobytes.
const maxKept = 4 << 20

// Answer is what one probe said.
type Answer struct {
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
}

// Cache keeps answers in a directory.
type Cache struct {
	dir string
	now func() time.Time
}

// Open returns the cache in dir, which must exist and be private (see pkg/userdir): what
// it says decides whether a probe is made.
func Open(dir string) *Cache { return &Cache{dir: dir, now: time.Now} }

// Off reports whether the value of PRUN_PREFLIGHT_CACHE turns the cache off.
func Off(value string) bool {
	return slices.Contains([]string{"0", "off", "false", "no"}, strings.ToLower(strings.TrimSpace(value)))
}

// Key names the questions put to a program: who is asked, with which words, and what in
// the environment can change the answer. It is "" when the program is not a file that
// can be told from a later one.
func Key(program string, probes [][]string, env []string) string {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	info, err := atomicfile.Look(path)
	if err != nil || !info.Mode.IsRegular() {
		return ""
	}
	words := []string{"1", path, fmt.Sprint(info.Size), fmt.Sprint(info.ModTime.UnixNano()), fmt.Sprint(info.Dev), fmt.Sprint(info.Ino)}
	for _, p := range probes {
		words = append(append(words, p...), "\x00")
	}
	var settings []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if name == "HOME" || name == "USERPROFILE" || strings.HasPrefix(name, "ANTIGRAVITY_") {
			settings = append(settings, entry)
		}
	}
	slices.Sort(settings)
	h := sha256.New()
	for _, w := range append(words, settings...) {
		// With its length, so that no two lists run into the same bytes.
		_ = binary.Write(h, binary.BigEndian, uint64(len(w)))
		h.Write([]byte(w))
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// kept is the content of a file.
type kept struct {
	SchemaVersion int       `json:"schema_version"`
	At            time.Time `json:"at"`
	Answers       []Answer  `json:"answers"`
}

// Do returns the answers of the probes: remembered ones, or those of run. Of several
// callers with one key the first runs and the others wait for it; whoever waited in vain
// runs on its own, so that one program that hangs does not make them wait in a row. Only
// run's own error is returned, and an error is not remembered.
func (c *Cache) Do(ctx context.Context, key string, run func() ([]Answer, error)) (answers []Answer, reused bool, err error) {
	if c == nil || key == "" {
		answers, err = run()
		return answers, false, err
	}
	if answers, ok := c.load(key); ok {
		return answers, true, nil
	}
	name := filepath.Join(c.dir, key+".lock")
	lock, err := atomicfile.TryLock(name)
	if errors.Is(err, atomicfile.ErrLocked) {
		if lock, err = atomicfile.WaitLock(ctx, name); err == nil {
			_ = lock.Unlock()
		}
		lock = nil
		if answers, ok := c.load(key); ok {
			return answers, true, nil
		}
	}
	if lock != nil {
		defer lock.Unlock()
		// Somebody may have been done between the look and the lock.
		if answers, ok := c.load(key); ok {
			return answers, true, nil
		}
	}
	if answers, err = run(); err == nil {
		c.store(key, answers)
	}
	return answers, false, err
}

func (c *Cache) path(key string) string { return filepath.Join(c.dir, key+".json") }

func (c *Cache) load(key string) ([]Answer, bool) {
	data, err := atomicfile.ReadRegular(c.path(key), 2*maxKept)
	if err != nil {
		return nil, false
	}
	var k kept
	if json.Unmarshal(data, &k) != nil || k.SchemaVersion != 1 {
		return nil, false
	}
	if age := c.now().Sub(k.At); age < 0 || age >= Lifetime {
		return nil, false
	}
	return k.Answers, true
}

// store remembers, and forgets what is too old for anybody.
func (c *Cache) store(key string, answers []Answer) {
	size := 0
	for _, a := range answers {
		size += len(a.Stdout) + len(a.Stderr)
	}
	if size > maxKept {
		return
	}
	data, err := json.Marshal(kept{1, c.now().UTC(), answers})
	if err == nil {
		_ = atomicfile.Replace(c.path(key), data, 0o600)
	}
	c.prune()
}

// prune removes what is older than an hour. A lock file that somebody is just about to
// lock may go too: the worst of it is one more probe.
func (c *Cache) prune() {
	const old = time.Hour
	d, err := os.Open(c.dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(1000)
	for _, name := range names {
		path := filepath.Join(c.dir, name)
		if ext := filepath.Ext(name); ext != ".json" && ext != ".lock" {
			continue
		}
		if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() && c.now().Sub(fi.ModTime()) > old {
			_ = os.Remove(path)
		}
	}
}
