package slots

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
)

// Kinds of files in a pool, the first letter of their names.
const (
	kindSlot   byte = 's' // s-<hash of dir>-<nonce>: a worker that counts
	kindNested byte = 'n' // n-<hash of dir>-<nonce>: one that takes part in its parent's slot
	kindTicket byte = 'w' // w-<number>-<limit>-<bytes>-<nonce>: a caller that waits
)

// entry is the name of a file, which holds all that decides anything: on Windows the
// content of a locked file cannot be read, and a full disk leaves it empty.
type entry struct {
	kind    byte
	dir     string
	number  uint64
	limit   int
	minFree int64
	nonce   string
}

func (e entry) String() string {
	if e.kind == kindTicket {
		return fmt.Sprintf("w-%d-%d-%d-%s", e.number, e.limit, e.minFree, e.nonce)
	}
	return fmt.Sprintf("%c-%s-%s", e.kind, e.dir, e.nonce)
}

// parseEntry is false for every name that String does not make.
func parseEntry(name string) (entry, bool) {
	words := strings.Split(name, "-")
	var e entry
	switch {
	case len(words) == 3 && (words[0] == "s" || words[0] == "n"):
		e = entry{kind: name[0], dir: words[1], nonce: words[2]}
	case len(words) == 5 && words[0] == "w":
		number, err1 := strconv.ParseUint(words[1], 10, 64)
		limit, err2 := strconv.Atoi(words[2])
		minFree, err3 := strconv.ParseInt(words[3], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil || limit < 0 || minFree < 0 {
			return e, false
		}
		e = entry{kind: kindTicket, number: number, limit: limit, minFree: minFree, nonce: words[4]}
	default:
		return e, false
	}
	return e, e.nonce != "" && e.String() == name
}

// admits reports whether a ticket's limit leaves room beside so many workers.
func (e entry) admits(running int) bool { return e.limit == 0 || running < e.limit }

func nonce() string { return fmt.Sprintf("%016x", rand.Uint64()) }

func dirHash(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8])
}

// view is one look at the pool. Locks are asked about when the answer is needed, once.
type view struct {
	pool    *Pool
	slots   []entry
	nested  []entry
	tickets []entry // by number
	held    map[string]bool
	dead    bool // a file was met whose owner is gone
	counted int  // -1 before it is known
	memKnow bool
	memFree int64
}

// maxEntries bounds a look. Nobody has so many units; a directory full of strangers'
// files must not cost more.
const maxEntries = 100_000

// look lists the pool.
func (p *Pool) look() (*view, error) {
	d, err := os.Open(p.dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	v := &view{pool: p, held: make(map[string]bool), counted: -1}
	for n := 0; n < maxEntries; {
		names, err := d.Readdirnames(512)
		n += len(names)
		for _, name := range names {
			e, ok := parseEntry(name)
			if !ok {
				continue
			}
			switch e.kind {
			case kindSlot:
				v.slots = append(v.slots, e)
			case kindNested:
				v.nested = append(v.nested, e)
			case kindTicket:
				v.tickets = append(v.tickets, e)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(v.tickets, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.nonce, b.nonce))
	})
	return v, nil
}

// alive reports whether the owner of a file lives. A lock that cannot be asked about
// counts as held: too few workers are better than too many.
func (v *view) alive(e entry) bool {
	name := e.String()
	held, asked := v.held[name]
	if !asked {
		var err error
		held, err = atomicfile.Held(filepath.Join(v.pool.dir, name))
		if err != nil {
			held = !errors.Is(err, fs.ErrNotExist)
		}
		v.dead = v.dead || err == nil && !held
		v.held[name] = held
	}
	return held
}

// running counts the workers.
func (v *view) running() int {
	if v.counted < 0 {
		v.counted = 0
		for _, e := range v.slots {
			if v.alive(e) {
				v.counted++
			}
		}
	}
	return v.counted
}

// sweep removes the files of the dead. Only inside the gate: outside of it a file that
// is not locked may be one that is just being made.
func (v *view) sweep() {
	live := func(list []entry) []entry {
		return slices.DeleteFunc(list, func(e entry) bool {
			if v.alive(e) {
				return false
			}
			_ = os.Remove(filepath.Join(v.pool.dir, e.String()))
			return true
		})
	}
	v.slots, v.nested, v.tickets = live(v.slots), live(v.nested), live(v.tickets)
	v.counted = len(v.slots)
}

// holds reports whether the unit in dir is counted or takes part in a slot.
func (v *view) holds(dir string) bool {
	hash := dirHash(dir)
	for _, list := range [][]entry{v.slots, v.nested} {
		for _, e := range list {
			if e.dir == hash && v.alive(e) {
				return true
			}
		}
	}
	return false
}

// next is the number of a new ticket. It only has to be above those of who waits.
func (v *view) next() uint64 {
	if n := len(v.tickets); n > 0 {
		return v.tickets[n-1].number + 1
	}
	return 1
}

// A worker that has just started has not taken its memory yet. Until it is so old, so
// much is taken off what is available, or a whole queue would start on the same gigabyte.
const (
	youngAge     = 10 * time.Second
	youngReserve = 256 << 20
)

// memory reports whether at least want bytes are available.
func (v *view) memory(want int64) bool {
	if want <= 0 {
		return true
	}
	if !v.memKnow {
		v.memKnow = true
		free, err := v.pool.free()
		if err != nil {
			free = 1 << 62 // not told: the terms do not apply
		}
		for _, e := range v.slots {
			if fi, err := os.Lstat(filepath.Join(v.pool.dir, e.String())); err == nil && time.Since(fi.ModTime()).Abs() < youngAge {
				free -= youngReserve
			}
		}
		v.memFree = free
	}
	return v.memFree >= want
}

// note is the content of a file, for people and lists.
type note struct {
	Unit  string    `json:"unit,omitempty"`
	Dir   string    `json:"dir,omitempty"`
	Limit int       `json:"limit,omitempty"`
	Owner pid.ID    `json:"owner"`
	Since time.Time `json:"since"`
}

// describe writes it. The lock is what counts, so a failure means nothing.
func describe(lock *atomicfile.Lock, r Request) {
	b, err := json.Marshal(note{Unit: r.Unit, Dir: r.Dir, Limit: r.Limit, Owner: pid.Self(), Since: time.Now().UTC()})
	if err == nil {
		_, _ = lock.File().WriteAt(append(b, '\n'), 0)
	}
}

// Member is one live entry of a pool.
type Member struct {
	// Waiting members are in the order of their turn, before those that are not.
	Waiting bool
	// Counted is false for one that takes part in its parent's slot, and for a waiting one.
	Counted bool
	// The rest is for people, and empty where it could not be read.
	Unit, Dir string
	Limit     int
	Owner     pid.ID
	Since     time.Time
}

// Members lists who waits and who runs. It changes nothing.
func (p *Pool) Members() ([]Member, error) {
	v, err := p.look()
	if err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	var all []Member
	for _, list := range [][]entry{v.tickets, v.slots, v.nested} {
		for _, e := range list {
			if !v.alive(e) {
				continue
			}
			m := Member{Waiting: e.kind == kindTicket, Counted: e.kind == kindSlot, Limit: e.limit}
			if data, err := atomicfile.ReadRegular(filepath.Join(p.dir, e.String()), 64<<10); err == nil {
				var n note
				if json.Unmarshal(data, &n) == nil {
					m.Unit, m.Dir, m.Limit, m.Owner, m.Since = n.Unit, n.Dir, n.Limit, n.Owner, n.Since
				}
			}
			all = append(all, m)
		}
	}
	return all, nil
}
