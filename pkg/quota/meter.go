package quota

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Reading is what a client's own files say about its account.
type Reading struct {
	// Model is what the client runs by default, or the meter's name when Side.
	Model string
	// Side: the meter of one model, shown for want of the plan's. It says nothing about
	// the plan.
	Side    bool
	Windows []Window
	// Credits is a balance beside the windows, as the client wrote it; HasCredits without
	// a text means that there is some.
	Credits    string
	HasCredits bool
	// Taken is when the client wrote it; zero when that cannot be said honestly.
	Taken time.Time
}

// Window is one metered span of time.
type Window struct {
	Label string // "5h", "7d"
	// Left is what remains in percent, 0 to 100, when Known.
	Left    float64
	Known   bool
	ResetAt time.Time // zero when not known
}

// Verdict is whether a meter has something left.
type Verdict int

// The verdicts. The zero value is the one that promises nothing.
const (
	Unknown Verdict = iota
	Has
	Exhausted
)

// String returns the word for v.
func (v Verdict) String() string {
	switch v {
	case Has:
		return "has quota"
	case Exhausted:
		return "empty"
	}
	return "unknown"
}

// Lowest returns the window that decides at now: of those whose level still holds the
// one with the least left. A window that was reset since says nothing about now.
func (r Reading) Lowest(now time.Time) (Window, Verdict) {
	var lowest Window
	verdict := Unknown
	if r.Side {
		return lowest, verdict
	}
	for _, w := range r.Windows {
		if !w.Known || !w.ResetAt.IsZero() && !w.ResetAt.After(now) {
			continue
		}
		if verdict == Unknown || w.Left < lowest.Left {
			lowest, verdict = w, Has
		}
	}
	if verdict == Has && lowest.Left <= 0 {
		verdict = Exhausted
	}
	return lowest, verdict
}

// windowOf reads a window of either client.
func windowOf(f fields, label, usedKey string) Window {
	w := Window{Label: label}
	if used, ok := f.number(usedKey); ok {
		w.Left, w.Known = min(max(100-used, 0), 100), true
	}
	if at, ok := f.number("resets_at"); ok {
		w.ResetAt = epoch(at)
	}
	return w
}

// ClaudeCache is the file that Claude's status line keeps, CLAUDE_RL_CACHE or the one
// in the home directory.
func ClaudeCache(getenv func(string) string, home string) string {
	if path := getenv("CLAUDE_RL_CACHE"); strings.TrimSpace(path) != "" {
		return path
	}
	return filepath.Join(home, ".claude", "rate-limits-cache.json")
}

// ReadClaude reads Claude's status line cache. Both windows are there, known or not.
func ReadClaude(path string, now time.Time) (Reading, error) {
	data, err := atomicfile.ReadRegular(path, maxFile)
	if err != nil {
		return Reading{}, fmt.Errorf("read Claude's rate limits: %w", err)
	}
	r, err := parseClaude(data, now)
	if err != nil {
		return r, fmt.Errorf("read Claude's rate limits %s: %w", path, err)
	}
	return r, nil
}

func parseClaude(data []byte, now time.Time) (Reading, error) {
	top, err := parseObject(data)
	if err != nil {
		return Reading{}, err
	}
	r := Reading{Model: shown(top.text("model"))}
	// "Opus 4.6 (1M context)": the row has no room for it.
	if i := strings.LastIndex(r.Model, " ("); i > 0 && strings.HasSuffix(r.Model, " context)") {
		r.Model = r.Model[:i]
	}
	limits := top.object("rate_limits")
	r.Windows = []Window{
		windowOf(limits.object("five_hour"), "5h", "used_percentage"),
		windowOf(limits.object("seven_day"), "7d", "used_percentage"),
	}
	if ts, ok := top.number("ts"); ok {
		r.Taken = honest(epoch(ts), now)
	}
	return r, nil
}

// honest drops a time that is ahead of the clock: an age computed from it would show the
// stalest reading as the freshest.
func honest(t, now time.Time) time.Time {
	if _, ok := age(t, now); !ok {
		return time.Time{}
	}
	return t
}
