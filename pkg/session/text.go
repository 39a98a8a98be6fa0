package session

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync/atomic"
)

// counter tells the temporary names of one process apart.
var counter atomic.Uint64

// texts returns a member that is a list of texts.
func texts(o Object, key string) []string {
	var list []string
	if json.Unmarshal(o.raw(key), &list) != nil {
		return nil
	}
	return list
}

// reportText is a message as report.md holds it.
func reportText(s string) string {
	return strings.TrimRight(strings.ToValidUTF8(s, "\uFFFD"), " \t\r\n")
}

var sentinel = regexp.MustCompile(`(?im)^\s*QUESTION:`)

// Question reports whether a turn's final message asks something: a line that begins with the sentinel, in any case,
// with more than "none" or a dash behind it.
func Question(message string) bool {
	for _, at := range sentinel.FindAllStringIndex(message, -1) {
		rest := strings.TrimSpace(message[at[1]:])
		line, _, _ := strings.Cut(rest, "\n")
		word := strings.ToLower(strings.Trim(line, " \t\r.*_`!?,;:()[]"))
		switch strings.Trim(word, "-\u2013\u2014") {
		case "", "none", "no", "n/a", "nothing":
			continue
		}
		return true
	}
	return false
}

// lastOf returns the last line of a text that holds something.
func lastOf(text string) string {
	list := strings.Split(strings.TrimRight(text, " \t\r\n"), "\n")
	return strings.TrimSpace(list[len(list)-1])
}

// OneLine makes a text fit for a row of a table.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
