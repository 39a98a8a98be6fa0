package quota

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// ErrNoRollouts: codex has left no session behind.
var ErrNoRollouts = errors.New("no session rollout found")

const (
	// maxRollouts is how many rollouts are looked into: enough to see past a run of
	// sessions on a side meter, few enough that a readout stays a handful of short reads.
	maxRollouts = 12
	// A rollout grows to hundreds of megabytes; its meter stands near its end. The second
	// size is for a last turn whose output fills the first.
	shortTail, longTail = 64 << 10, 1 << 20
	// maxMeterLines bounds what is parsed of one tail.
	maxMeterLines = 200
	// The walk over the sessions ends at so many entries; days are taken newest first, so
	// what is left out is the oldest.
	maxSessionEntries, maxSessionDepth = 100_000, 8
	maxSettings                        = 256 << 10
)

// CodexHome is codex's directory, CODEX_HOME or the one in the home directory.
func CodexHome(getenv func(string) string, home string) string {
	if path := getenv("CODEX_HOME"); strings.TrimSpace(path) != "" {
		return path
	}
	return filepath.Join(home, ".codex")
}

// ReadCodex returns the newest meter that the latest rollouts below dir hold, that of
// the plan if there is one: the meter of a single model sits near full while the plan
// is half spent. ErrNoRollouts, or ErrNoMeter when there are rollouts without any.
//
// Which files are read goes by their times, which reading wins goes by the times in the
// records: a live session keeps its file open, and some systems then hold its time back.
func ReadCodex(dir string, now time.Time) (Reading, error) {
	files := rollouts(filepath.Join(dir, "sessions"))
	if len(files) == 0 {
		return Reading{}, ErrNoRollouts
	}
	var best meter
	found := false
	for _, f := range files {
		for _, m := range metersOf(f, now) {
			if !found || m.beats(best) {
				best, found = m, true
			}
		}
	}
	if !found {
		return Reading{}, ErrNoMeter
	}
	r := best.reading()
	if !r.Side {
		r.Model = codexModel(filepath.Join(dir, "config.toml"))
	}
	return r, nil
}

// rollout is a file and its time.
type rollout struct {
	path string
	mod  time.Time
}

// rollouts returns the newest rollouts below root, newest first. It opens none, keeps
// no more than it returns, follows no link and passes over what it cannot read: codex
// writes this tree while we look.
func rollouts(root string) []rollout {
	var newest []rollout
	budget := maxSessionEntries
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		d, err := os.Open(dir)
		if err != nil {
			return
		}
		defer d.Close()
		var below []string
		for budget > 0 {
			entries, err := d.ReadDir(256)
			for _, e := range entries {
				budget--
				switch name := e.Name(); {
				case e.IsDir():
					below = append(below, name)
				case e.Type().IsRegular() && strings.HasPrefix(name, "rollout-") && strings.HasSuffix(name, ".jsonl"):
					if fi, err := e.Info(); err == nil {
						newest = insert(newest, rollout{filepath.Join(dir, name), fi.ModTime()})
					}
				}
			}
			if err != nil {
				break
			}
		}
		if depth == maxSessionDepth {
			return
		}
		slices.SortFunc(below, func(a, b string) int { return cmp.Compare(b, a) })
		for _, name := range below {
			if budget <= 0 {
				return
			}
			walk(filepath.Join(dir, name), depth+1)
		}
	}
	walk(root, 0)
	return newest
}

// insert keeps the list sorted, newest first, and short.
func insert(list []rollout, r rollout) []rollout {
	at, _ := slices.BinarySearchFunc(list, r, func(a, b rollout) int {
		if c := b.mod.Compare(a.mod); c != 0 {
			return c
		}
		return cmp.Compare(b.path, a.path)
	})
	if at == maxRollouts {
		return list
	}
	list = slices.Insert(list, at, r)
	return list[:min(len(list), maxRollouts)]
}

// meter is one record of rate limits.
type meter struct {
	limits fields
	taken  time.Time // zero when the record has no honest time
	plan   bool
}

// beats: the plan's meter before any other, then the newer one.
func (m meter) beats(than meter) bool {
	if m.plan != than.plan {
		return m.plan
	}
	return m.taken.After(than.taken)
}

// metersOf returns the newest record of each meter in the tail of one rollout.
func metersOf(r rollout, now time.Time) []meter {
	f, err := atomicfile.OpenRegular(r.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	for _, want := range []int64{shortTail, longTail} {
		start := max(size-want, 0)
		tail := make([]byte, size-start)
		n, err := f.ReadAt(tail, start)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		found := parseRollout(tail[:n], r.mod, now)
		if len(found) > 0 || start == 0 {
			return found
		}
	}
	return nil
}

// parseRollout reads a tail from its end. Lines are in the order of time, so the first
// record of a meter that is met is its newest. A first line that was cut is no JSON.
func parseRollout(tail []byte, mod, now time.Time) []meter {
	var found []meter
	seen := map[string]bool{}
	for examined := 0; len(tail) > 0 && examined < maxMeterLines; {
		at := bytes.LastIndexByte(tail, '\n')
		text := tail[at+1:]
		tail = tail[:max(at, 0)]
		if !bytes.Contains(text, []byte("rate_limits")) {
			continue
		}
		examined++
		record, err := parseObject(text)
		if err != nil {
			continue
		}
		limits := record.object("payload").object("rate_limits")
		id := limits.text("limit_id")
		if len(limits) == 0 || seen[id] {
			continue
		}
		seen[id] = true
		m := meter{limits: limits, plan: id == "" || id == "codex"}
		switch stamp, given := record["timestamp"]; {
		case !given || stamp == "":
			// Rollouts from before the member was written.
			m.taken = honest(mod, now)
		default:
			text, _ := stamp.(string)
			if t, err := time.Parse(time.RFC3339, text); err == nil {
				m.taken = honest(t, now)
			}
		}
		found = append(found, m)
	}
	return found
}

// reading makes a row of a record.
func (m meter) reading() Reading {
	r := Reading{Taken: m.taken, Side: !m.plan}
	if r.Side {
		name := shown(m.limits.text("limit_name"))
		if name == "" {
			name = shown(m.limits.text("limit_id"))
		}
		// "GPT-5.3-Codex-Spark" is known as Spark.
		r.Model = name[strings.LastIndexByte(name, '-')+1:]
	}
	for _, key := range []string{"primary", "secondary"} {
		w := m.limits.object(key)
		if w == nil {
			continue
		}
		label := key
		if minutes, ok := w.number("window_minutes"); ok {
			if text := span(minutes); text != "" {
				label = text
			}
		}
		r.Windows = append(r.Windows, windowOf(w, label, "used_percent"))
	}
	credits := m.limits.object("credits")
	r.HasCredits, _ = credits["has_credits"].(bool)
	r.Credits = shown(credits.text("balance"))
	if n, ok := credits.number("balance"); ok && r.Credits == "" {
		r.Credits = strconv.FormatFloat(n, 'f', -1, 64)
	}
	if r.Credits != "" && (r.Credits != "0" || r.HasCredits) {
		r.HasCredits = true
	} else {
		r.Credits = ""
	}
	return r
}

// span names a window by its length: 300 minutes are 5h, 10080 are 7d. Codex has
// changed which window comes first.
func span(minutes float64) string {
	m := int64(minutes)
	switch {
	case m <= 0 || float64(m) != minutes || m > 1<<40:
		return ""
	case m%1440 == 0:
		return fmt.Sprintf("%dd", m/1440)
	case m%60 == 0:
		return fmt.Sprintf("%dh", m/60)
	}
	return fmt.Sprintf("%dm", m)
}

// codexModel returns the model that codex's settings name at their top, "codex" when
// they name none.
func codexModel(path string) string {
	const none = "codex"
	data, err := atomicfile.ReadRegular(path, maxSettings)
	if err != nil {
		return none
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxSettings+1)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(text, "[") {
			return none
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok || strings.Trim(strings.TrimSpace(key), `"'`) != "model" {
			continue
		}
		value = strings.TrimSpace(value)
		if len(value) < 2 || value[0] != '"' && value[0] != '\'' {
			return none
		}
		end := strings.IndexByte(value[1:], value[0])
		if end < 1 {
			return none
		}
		if name := shown(value[1 : 1+end]); name != "" {
			return name
		}
		return none
	}
	return none
}
