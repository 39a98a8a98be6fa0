// Package quota owns what is known about how much the agents' accounts have left:
// it reads the snapshot of agy's two metered groups, decides what it means for one
// dispatch, and refreshes it, one query at a time on this machine; and it reads the
// meters that the other clients leave behind (Claude's status line cache, Codex's
// rollouts).
//
// It does not own who is told what: a Route is a value, and the door words it. It
// does not find agy and does not build environments; both are handed in.
//
// Invariant: what it cannot read it does not know, and nothing unknown is ever taken
// for empty. No content of these files, which other programs write, can crash it,
// block it or cost more than a megabyte.
package quota

import (
	"errors"
	"path/filepath"
	"strings"
	"time"
)

// ModelVariable is the variable by which an operator names a model. Every message
// that stops a dispatch names it, because it is the way round.
const ModelVariable = "ANTIGRAVITY_DISPATCH_MODEL"

// SecondModel is the model of the second group that an unnamed unit moves to when
// the newer routing was asked for. The preflight lets it float to the newest of its
// family.
const SecondModel = "claude-sonnet-5-5-high"

// Defaults and limits of the original, in the wall clock's time.
const (
	// DefaultTTL is how old snapshot and last attempt must be before a refresh is due.
	DefaultTTL = 300 * time.Second
	// DefaultTimeout is agy's own limit for the usage query.
	DefaultTimeout = 30 * time.Second
	// MaxAge is how old the managed snapshot may be for a dispatch to go by it.
	MaxAge = 900 * time.Second

	// timeoutMargin is what the query gets beyond agy's own limit before it is ended.
	timeoutMargin = 5 * time.Second
	// foreignStale is how much older than the query's limit a lock file of the original
	// must be before it counts as left behind.
	foreignStale = 30 * time.Second
	// scriptLimit bounds a deployed agent-quota.py.
	scriptLimit = 90 * time.Second
	// maxTimeout is the most that AGY_QUOTA_TIMEOUT_SECONDS can ask for.
	maxTimeout = 10 * time.Minute
	// skew is how far ahead of our clock a time may be and still count as now. Clocks
	// of a file server differ by so much; anything beyond it would stay the freshest
	// reading until the world catches up.
	skew = 60 * time.Second
	// maxFile bounds every file that is read whole.
	maxFile = 1 << 20
	// maxText bounds a text that is shown: reset times, names.
	maxText = 256
)

// Pool is one of agy's two groups, metered separately.
type Pool string

// The pools, by the words that notes and records use.
const (
	Gemini Pool = "gemini"
	Second Pool = "claude-and-gpt"
)

// Title is the pool's name in a sentence.
func (p Pool) Title() string {
	if p == Second {
		return "Claude and GPT"
	}
	return "Gemini"
}

func (p Pool) other() Pool {
	if p == Second {
		return Gemini
	}
	return Second
}

// PoolOf returns the pool that a model is metered in. A model that is in neither, as
// far as its name says, is never gated.
func PoolOf(model string) (Pool, bool) {
	switch m := strings.ToLower(model); {
	case strings.HasPrefix(m, "gemini"):
		return Gemini, true
	case strings.HasPrefix(m, "claude"), strings.HasPrefix(m, "gpt"):
		return Second, true
	}
	return "", false
}

// poolOfGroup is PoolOf for the display name of a group.
func poolOfGroup(name string) (Pool, bool) {
	n := strings.ToLower(name)
	switch {
	case strings.Contains(n, "gemini"):
		return Gemini, true
	case strings.Contains(n, "claude"), strings.Contains(n, "gpt"):
		return Second, true
	}
	return "", false
}

// GateOff reports whether the value of PRUN_AGY_QUOTA_GATE turns the gate off.
func GateOff(value string) bool { return isWord(value, "0", "off", "false", "disabled", "no") }

// BalanceOn reports whether the value of PRUN_AGY_BALANCE asks for the newer routing.
func BalanceOn(value string) bool { return isWord(value, "1", "on", "true", "yes") }

func isWord(value string, words ...string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	for _, w := range words {
		if value == w {
			return true
		}
	}
	return false
}

// Source is where the snapshot stands.
type Source struct {
	Path string
	// Managed: it is the file that agent-quota keeps. A file that the caller named is
	// taken as it is: a dispatch neither asks how old it is nor refreshes it.
	Managed bool
}

// SourceOf applies AGY_QUOTA_CACHE, of which blank is unset, and the home directory.
func SourceOf(getenv func(string) string, home string) Source {
	if path := getenv("AGY_QUOTA_CACHE"); strings.TrimSpace(path) != "" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		return Source{Path: path}
	}
	return Source{Path: filepath.Join(home, ".claude", "agy-quota-cache.json"), Managed: true}
}

// Errors that say why nothing is known.
var (
	// ErrStale: the managed snapshot is too old, or from the future, and could not be
	// refreshed.
	ErrStale = errors.New("snapshot is out of date")
	// ErrMalformed: the bytes are no snapshot.
	ErrMalformed = errors.New("not a usage snapshot")
	// ErrRejected: agy's answer is not one to the usage query.
	ErrRejected = errors.New("usage query was not answered")
	// ErrNoHome: the managed snapshot is in the home directory, and there is none.
	ErrNoHome = errors.New("no home directory")
	// ErrNoMeter: the file is fine and holds no meter.
	ErrNoMeter = errors.New("no rate limits recorded")
)

// age returns how long ago t was; false when t is unset or ahead of the clock by more
// than clocks differ, which says nothing about how old a thing is.
func age(t, now time.Time) (time.Duration, bool) {
	d := now.Sub(t)
	if t.IsZero() || d < -skew {
		return 0, false
	}
	return max(d, 0), true
}
