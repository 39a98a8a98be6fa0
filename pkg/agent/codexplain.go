package agent

import (
	"bytes"
	"strconv"
	"strings"
)

// bannerBytes is how much of the tail is searched for codex's banner. What follows is the echoed prompt, the
// output of commands and the answer: foreign words that may look like a banner.
const bannerBytes = 64 << 10

const (
	codexSession = "session id: "
	codexTokens  = "tokens used"
	codexError   = "ERROR: "
	// codexRetry begins the retry notices of the plain dialect. Without a network codex prints one every 63 s for
	// ever, so they must not count as life.
	codexRetry = codexError + "Reconnecting..."
)

// codexPlain reads the plain dialect: a banner, then text that is not meant for programs.
type codexPlain struct {
	seen   int64 // bytes of the tail before the current line
	tokens bool  // the last line was "tokens used"
}

func (p *codexPlain) Line(_ Stream, line []byte, tr *Transcript) bool {
	before := p.seen
	p.seen += int64(len(line)) + 1
	wasTokens := p.tokens
	p.tokens = string(line) == codexTokens
	switch {
	case wasTokens:
		if n, ok := grouped(line); ok {
			tr.Usage.Total = &n
		}
	case bytes.HasPrefix(line, []byte(codexSession)):
		id := strings.TrimSpace(string(line[len(codexSession):min(len(line), 100)]))
		if tr.Session == "" && before < bannerBytes && isUUID(id) {
			tr.Session = id
			tr.sawSession(id)
		}
	case bytes.HasPrefix(line, []byte(codexRetry)):
		tr.LastErrorLine = short(string(line[len(codexError):min(len(line), maxPlain)]))
		return true
	case bytes.HasPrefix(line, []byte(codexError)):
		tr.LastErrorLine = short(string(line[len(codexError):min(len(line), maxPlain)]))
	case bytes.HasPrefix(line, []byte("Error: ")) && tr.LastErrorLine == "":
		// What stops codex before its first turn (an unknown thread, a bad option value) is spelled this way.
		tr.LastErrorLine = short(string(line[:min(len(line), maxPlain)]))
	}
	return false
}

func (*codexPlain) quietSoFar(partial []byte) bool {
	n := min(len(partial), len(codexRetry))
	return string(partial[:n]) == codexRetry[:n]
}

// grouped reads a number with commas between its thousands.
func grouped(line []byte) (int64, bool) {
	if len(line) == 0 || len(line) > 32 {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(string(line)), ",", ""), 10, 64)
	return n, err == nil && n >= 0
}
