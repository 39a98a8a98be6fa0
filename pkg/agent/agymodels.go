package agent

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Probes prove that agy runs and that this account may use the turn's model.
func (agy) Probes(Turn) []Probe {
	return []Probe{
		{Name: "agy --version", Args: []string{"--version"}},
		{Name: "agy models", Args: []string{"models"}, Check: checkAgyModels},
	}
}

// checkAgyModels looks for the turn's model among those listed. A model that the caller named runs verbatim or
// fails. The built-in default may have been retired under our feet: it floats to the newest of its family, and a
// default of the second pool without a family falls back to the first pool's.
func checkAgyModels(t *Turn, stdout, _ []byte) ([]string, error) {
	listed := AgyListed(stdout)
	model := first(t.Model, AgyModel)
	if slices.Contains(listed, model) {
		return nil, nil
	}
	if !t.ModelNamed {
		if newest := AgyNewest(model, listed); newest != "" {
			t.Model = newest
			return []string{fmt.Sprintf("MODEL-RESOLVE from=%s to=%s reason=newest-in-family", model, newest)}, nil
		}
		if model != AgyModel {
			fallback := AgyModel
			if !slices.Contains(listed, fallback) {
				fallback = AgyNewest(AgyModel, listed)
			}
			if fallback != "" {
				t.Model = fallback
				return []string{fmt.Sprintf("MODEL-FALLBACK from=%s to=%s reason=template-unlisted", model, fallback)}, nil
			}
		}
	}
	return nil, fmt.Errorf("model '%s' is unavailable to this Antigravity account", model)
}

// slugStart matches a model's name at the start of a line of `agy models`: a table with tabs when piped, "  slug - Name"
// under a heading or a display name without any separator on other accounts. Display names begin with a capital.
var slugStart = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*`)

// maxModels bounds how many lines of `agy models` are read.
const maxModels = 1000

// AgyListed returns the models that the output of `agy models` names, in its order.
func AgyListed(output []byte) []string {
	var listed []string
	for line := range bytes.Lines(bytes.TrimPrefix(output, []byte("\xef\xbb\xbf"))) {
		if len(listed) == maxModels {
			break
		}
		line = bytes.TrimLeft(bytes.TrimSpace(line), "*-> \t")
		if name := slugStart.Find(line); len(name) > 0 && len(name) <= maxID {
			listed = append(listed, string(name))
		}
	}
	return listed
}

// A slug is a model's name taken apart: prefix words, a version, more words, a tier.
type slug struct {
	family  string // prefix and words
	version []int
	tier    string
}

var slugTiers = []string{"low", "medium", "high", "xhigh", "max", "thinking"}

func parseSlug(name string) (slug, bool) {
	parts := strings.Split(name, "-")
	s := slug{}
	if slices.Contains(slugTiers, parts[len(parts)-1]) {
		s.tier = parts[len(parts)-1]
		parts = parts[:len(parts)-1]
	}
	start := slices.IndexFunc(parts, isVersion)
	if start < 1 {
		return slug{}, false
	}
	end := start
	for end < len(parts) && isVersion(parts[end]) {
		for n := range strings.SplitSeq(parts[end], ".") {
			v, err := strconv.Atoi(n)
			if err != nil {
				return slug{}, false
			}
			s.version = append(s.version, v)
		}
		end++
	}
	s.family = strings.Join(parts[:start], "-") + "|" + strings.Join(parts[end:], "-")
	return s, true
}

var versionWord = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})*$`)

func isVersion(s string) bool { return versionWord.MatchString(s) }

// AgyNewest returns the newest listed model of the template's family, "" when there is none. The template's tier
// (or high) is preferred, then high, then no tier, then any; among equals the first listed.
func AgyNewest(template string, listed []string) string {
	want, ok := parseSlug(template)
	if !ok {
		return ""
	}
	tiers := []string{first(want.tier, "high"), "high", ""}
	best, bestRank := "", 0
	var bestVersion []int
	for _, name := range listed {
		s, ok := parseSlug(name)
		if !ok || s.family != want.family {
			continue
		}
		rank := slices.Index(tiers, s.tier)
		if rank < 0 {
			rank = len(tiers)
		}
		if best == "" || rank < bestRank || rank == bestRank && slices.Compare(s.version, bestVersion) > 0 {
			best, bestRank, bestVersion = name, rank, s.version
		}
	}
	return best
}
