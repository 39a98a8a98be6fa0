package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// longest is what a larger number of seconds is cut to: a hundred years. Twice
// of it still fits a time.Duration, so that sums of limits cannot overflow.
const longest = 100 * 365 * 24 * time.Hour

// Seconds is a number of whole seconds, decimal only: "010" is ten. The text that
// was given is kept, because start lines print it. The zero value is 0 seconds.
type Seconds struct {
	d   time.Duration
	raw string
}

// Fraction is a number of seconds that may have a decimal fraction ("0.5"), for
// polls and windows.
type Fraction struct {
	d   time.Duration
	raw string
}

var (
	errSeconds  = errors.New("not a number of whole seconds")
	errFraction = errors.New("not a number of seconds")
)

// ParseSeconds reads digits and nothing else: no sign, no blanks, no unit. A
// number too large for a duration is cut to a hundred years, its text kept.
func ParseSeconds(text string) (Seconds, error) {
	if !digits(text) {
		return Seconds{}, errSeconds
	}
	return Seconds{d: whole(text), raw: text}, nil
}

// ParseFraction reads digits with at most one decimal point ("2", "0.25", ".5").
func ParseFraction(text string) (Fraction, error) {
	before, after, point := strings.Cut(text, ".")
	if !digits("0"+before) || !digits("0"+after) || (before == "" && after == "") || (point && after == "") {
		return Fraction{}, errFraction
	}
	d := whole("0" + before)
	if len(after) > 9 {
		after = after[:9]
	}
	unit := time.Second
	var part time.Duration
	for _, c := range after {
		unit /= 10
		part += time.Duration(c-'0') * unit
	}
	return Fraction{d: min(d+part, longest), raw: text}, nil
}

// SecondsOf is the Seconds of a duration, cut to whole seconds; for literals in code and tests.
func SecondsOf(d time.Duration) Seconds {
	d = d.Truncate(time.Second)
	return Seconds{d: d, raw: fmt.Sprint(int64(d / time.Second))}
}

// FractionOf is the Fraction of a duration; for literals in code and tests.
func FractionOf(d time.Duration) Fraction {
	return Fraction{d: d, raw: strings.TrimSuffix(fmt.Sprintf("%g", d.Seconds()), ".0")}
}

// Duration returns the value.
func (s Seconds) Duration() time.Duration { return s.d }

// Raw returns the text as it was given.
func (s Seconds) Raw() string {
	if s.raw == "" {
		return "0"
	}
	return s.raw
}

// String is Raw.
func (s Seconds) String() string { return s.Raw() }

// UnmarshalFlag is ParseSeconds for go-flags.
func (s *Seconds) UnmarshalFlag(text string) (err error) {
	*s, err = ParseSeconds(text)
	return err
}

// Duration returns the value.
func (f Fraction) Duration() time.Duration { return f.d }

// Raw returns the text as it was given.
func (f Fraction) Raw() string {
	if f.raw == "" {
		return "0"
	}
	return f.raw
}

// String is Raw.
func (f Fraction) String() string { return f.Raw() }

// UnmarshalFlag is ParseFraction for go-flags.
func (f *Fraction) UnmarshalFlag(text string) (err error) {
	*f, err = ParseFraction(text)
	return err
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// whole reads digits, however many.
func whole(text string) time.Duration {
	var n int64
	for _, c := range text {
		if n > math.MaxInt64/100 {
			return longest
		}
		n = n*10 + int64(c-'0')
	}
	if n > int64(longest/time.Second) {
		return longest
	}
	return time.Duration(n) * time.Second
}
