package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/line"
	"github.com/prun-suite/prun/pkg/quota"
)

func (r *readout) claude() (quota.Reading, error) {
	return quota.ReadClaude(quota.ClaudeCache(r.env.Getenv, r.home), r.now)
}

func (r *readout) codex() (quota.Reading, error) {
	return quota.ReadCodex(quota.CodexHome(r.env.Getenv, r.home), r.now)
}

func (r *readout) rows() []string {
	return append([]string{r.claudeRow(), r.codexRow()}, r.agyRows()...)
}

func (r *readout) claudeRow() string {
	reading, err := r.claude()
	if err != nil {
		return "Claude   (no statusLine cache yet — open Claude Code once to populate)"
	}
	model := reading.Model
	if model == "" {
		model = "?"
	}
	return r.row("Claude", model, r.window(reading.Windows[0]), r.window(reading.Windows[1]), reading.Taken)
}

// row is the form with two fixed windows.
func (r *readout) row(name, model, short, long string, taken time.Time) string {
	return fmt.Sprintf("%s%s  5h %s  7d %s  [%s]", pad(name, 9), pad(model, 12), pad(short, 20), pad(long, 20), r.age(taken))
}

func (r *readout) codexRow() string {
	reading, err := r.codex()
	switch {
	case errors.Is(err, quota.ErrNoRollouts):
		dir := "~/.codex"
		if given := r.env.Getenv("CODEX_HOME"); given != "" {
			dir = given
		}
		return "Codex    (no session rollout found under " + dir + "/sessions/)"
	case err != nil:
		return "Codex    (no rate_limits in recent rollouts)"
	}
	var parts []string
	for _, w := range reading.Windows {
		parts = append(parts, w.Label+" "+r.window(w))
	}
	if reading.HasCredits {
		parts = append(parts, strings.TrimSpace("credits "+reading.Credits))
	}
	if len(parts) == 0 {
		parts = []string{"(no windows)"}
	}
	model := reading.Model
	if reading.Side {
		model = "[" + model + "]"
	}
	return fmt.Sprintf("%s%s  %s  [%s]", pad("Codex", 9), pad(model, 12), strings.Join(parts, "   "), r.age(reading.Taken))
}

func (r *readout) agyRows() []string {
	s, err := quota.Read(r.keeper.Source.Path)
	if err != nil {
		why := "quota cache unavailable"
		switch {
		case r.started:
			why = "refresh started"
		case r.noAgy:
			why = "agy not installed; install the Antigravity CLI or set ANTIGRAVITY_BIN"
		}
		return []string{"Agy      (" + why + ")"}
	}
	gemini := "Gemini"
	if s.Tier != "" {
		gemini += "/" + s.Tier
	}
	var rows []string
	for _, g := range []struct{ name, label string }{{quota.GeminiGroup, gemini}, {quota.SecondGroup, "Claude/GPT"}} {
		if group := s.Group(g.name); group != nil {
			rows = append(rows, r.row("Agy", g.label, r.bucket(group.Window("5h")), r.bucket(group.Window("weekly")), s.Cached))
		}
	}
	if rows == nil {
		rows = []string{"Agy      (quota groups unavailable)"}
	}
	return rows
}

func (r *readout) bucket(b quota.Bucket) string {
	return r.window(quota.Window{Left: b.Left * 100, Known: b.Known, ResetAt: b.ResetAt})
}

// window words what is left. "left" is said because a bare percentage was read as what
// is used.
func (r *readout) window(w quota.Window) string {
	if !w.Known {
		return "—"
	}
	text := fmt.Sprintf("%.0f%% left", w.Left)
	if reset := r.reset(w.ResetAt); reset != "" {
		text += " (" + reset + ")"
	}
	return text
}

func (r *readout) reset(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	switch s := int64(at.Sub(r.now) / time.Second); {
	case s <= 0:
		return "resetting"
	case s >= 86400:
		return fmt.Sprintf("resets %dd%dh", s/86400, s%86400/3600)
	case s >= 3600:
		return fmt.Sprintf("resets %dh%dm", s/3600, s%3600/60)
	case s >= 60:
		return fmt.Sprintf("resets %dm", s/60)
	}
	return "resets <1m"
}

// age words how old a reading is. A time ahead of the clock has no age.
func (r *readout) age(taken time.Time) string {
	if taken.IsZero() || taken.Sub(r.now) > time.Minute {
		return "?"
	}
	switch s := int64(r.now.Sub(taken) / time.Second); {
	case s < 60:
		return "just now"
	case s < 3600:
		return fmt.Sprintf("%dm ago", s/60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm ago", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%dd ago", s/86400)
	}
}

// pad fills a cell of a row; what other programs named there is escaped first, so that
// its width is what is printed.
func pad(s string, width int) string {
	s = line.Escape(s)
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

// The readout as one object. Keys are only ever added.
type (
	object struct {
		SchemaVersion int     `json:"schema_version"`
		At            string  `json:"at"`
		Claude        account `json:"claude"`
		Codex         account `json:"codex"`
		Agy           agyInfo `json:"agy"`
	}
	account struct {
		Verdict   string       `json:"verdict"`
		Model     string       `json:"model,omitempty"`
		SideMeter bool         `json:"side_meter,omitempty"`
		TakenAt   string       `json:"taken_at,omitempty"`
		AgeS      *int64       `json:"age_s"`
		Windows   []windowInfo `json:"windows"`
		Credits   string       `json:"credits,omitempty"`
		Error     string       `json:"error,omitempty"`
	}
	windowInfo struct {
		Window    string   `json:"window"`
		Left      *float64 `json:"left_percent"`
		ResetTime string   `json:"reset_time,omitempty"` // as it was written
		ResetsAt  string   `json:"resets_at,omitempty"`
	}
	agyInfo struct {
		PlanTier       string      `json:"plan_tier,omitempty"`
		TakenAt        string      `json:"taken_at,omitempty"`
		AgeS           *int64      `json:"age_s"`
		Groups         []groupInfo `json:"groups"`
		RefreshStarted bool        `json:"refresh_started"`
		Error          string      `json:"error,omitempty"`
	}
	groupInfo struct {
		Name    string       `json:"name"`
		Windows []windowInfo `json:"windows"`
	}
)

func (r *readout) object() object {
	o := object{SchemaVersion: 1, At: clock(r.now), Agy: agyInfo{Groups: []groupInfo{}, RefreshStarted: r.started}}
	o.Claude = r.account(r.claude())
	o.Codex = r.account(r.codex())
	s, err := quota.Read(r.keeper.Source.Path)
	if err != nil {
		o.Agy.Error = err.Error()
		return o
	}
	o.Agy.PlanTier, o.Agy.TakenAt, o.Agy.AgeS = s.Tier, clock(s.Cached), r.seconds(s.Cached)
	for _, g := range s.Groups {
		info := groupInfo{Name: g.Name, Windows: []windowInfo{}}
		for _, b := range g.Buckets {
			w := windowOf(b.Window, b.Left*100, b.Known, b.ResetAt)
			w.ResetTime = b.Reset
			info.Windows = append(info.Windows, w)
		}
		o.Agy.Groups = append(o.Agy.Groups, info)
	}
	return o
}

func (r *readout) account(reading quota.Reading, err error) account {
	_, verdict := reading.Lowest(r.now)
	a := account{
		Verdict: word(verdict), Model: reading.Model, SideMeter: reading.Side, TakenAt: clock(reading.Taken),
		AgeS: r.seconds(reading.Taken), Windows: []windowInfo{}, Credits: reading.Credits,
	}
	if err != nil {
		a.Error = err.Error()
	}
	for _, w := range reading.Windows {
		a.Windows = append(a.Windows, windowOf(w.Label, w.Left, w.Known, w.ResetAt))
	}
	return a
}

func windowOf(label string, left float64, known bool, at time.Time) windowInfo {
	w := windowInfo{Window: label, ResetsAt: clock(at)}
	if known {
		w.Left = &left
	}
	return w
}

// seconds is an age, nil when there is none.
func (r *readout) seconds(taken time.Time) *int64 {
	if taken.IsZero() || taken.Sub(r.now) > time.Minute {
		return nil
	}
	s := max(int64(r.now.Sub(taken)/time.Second), 0)
	return &s
}
