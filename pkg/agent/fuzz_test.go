package agent

import (
	"slices"
	"testing"
)

// FuzzModels: the list that a client prints holds anything; what is taken from
// it is a name, and the newest of a family is one that was listed.
func FuzzModels(f *testing.F) {
	f.Add("gemini-3.8-flash-high\tGemini 3.8 Flash (High)\ngemini-3.10-flash-high\tx\n", "gemini-3.8-flash-high")
	f.Add("\ufeffModels:\n  gemini-3-pro-low - Gemini\n * claude-opus-4-6-thinking\n", "gemini-3-pro-low")
	f.Add("gemini-99999999999999999999-flash-high\n", "gemini-3-flash-high")
	f.Fuzz(func(t *testing.T, output, template string) {
		listed := AgyListed([]byte(output))
		if len(listed) > maxModels {
			t.Errorf("%d models", len(listed))
		}
		for _, name := range listed {
			if name == "" || len(name) > maxID || slugStart.FindString(name) != name {
				t.Errorf("%q is listed", name)
			}
		}
		if newest := AgyNewest(template, listed); newest != "" && !slices.Contains(listed, newest) {
			t.Errorf("newest %q of %q", newest, listed)
		}
	})
}
