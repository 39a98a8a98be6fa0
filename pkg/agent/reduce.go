package agent

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Bounds of what a reducer keeps of one line.
const (
	maxAnswer = 8 << 20   // of the texts at the answer's places, together
	maxRest   = 256 << 10 // of everything else
	maxString = 4 << 10   // of any other text
	maxKey    = 256       // a longer key drops its member
	maxNumber = 64        // a longer number becomes null
	maxDepth  = 16        // deeper containers become null
)

// A reducer reads one huge line while it passes by and keeps a small JSON object with the same structure: members in
// their order, short texts whole, long texts cut, the answer's text up to 8 MiB, and members beyond the bounds left
// out. A line that is no JSON object is kept as its first 64 KiB; a broken or unfinished object is kept as nothing,
// since half an event proves nothing. Its memory does not depend on the line.
type reducer struct {
	paths map[string]bool
	out   []byte
	mode  mode
	state state
	stack []frame
	key   []byte
	lit   []byte // the current number or word
	unit  []byte // the current escape sequence
	room  int    // what is left for the current text
	whole bool   // the current text is an answer
	cut   bool   // the current text is being cut

	skipDepth int
	skipStr   bool
	skipEsc   bool

	answerLeft int
}

// A frame is an open container. It may keep at most half of what its parent had left, so that a crowd in one member
// cannot push out a "type" or "usage" that comes after it.
type frame struct {
	object bool
	count  int    // members kept
	path   string // dotted keys that lead here; arrays add nothing
	share  int    // what it was given
	left   int    // what it has left of that
}

type mode int

const (
	undecided mode = iota
	object
	plain
	broken
)

type state int

const (
	wantValue   state = iota // the value of a member, or an element
	wantElement              // an element, or the end of an empty array
	wantKey                  // a key after a comma
	wantMember               // a key, or the end of an empty object
	wantColon
	wantComma // a comma or an end
	inKey
	inString
	inLiteral
	skipping
	done
)

func newReducer(paths []string) *reducer {
	r := &reducer{paths: make(map[string]bool, len(paths)), answerLeft: maxAnswer}
	for _, p := range paths {
		r.paths[p] = true
	}
	if len(paths) == 0 {
		r.mode = plain
	}
	return r
}

// reduced returns what was kept, nil when that is nothing.
func (r *reducer) reduced() []byte {
	if r.mode == plain || r.mode == object && r.state == done {
		return r.out
	}
	return nil
}

func (r *reducer) write(p []byte) {
	if r.mode == undecided {
		p = bytes.TrimLeft(p, " \t\r")
		if len(p) == 0 {
			return
		}
		r.mode = plain
		if p[0] == '{' {
			r.mode = object
		}
	}
	switch r.mode {
	case plain:
		r.out = append(r.out, p[:min(len(p), maxPlain-len(r.out))]...)
	case object:
		for len(p) > 0 && r.mode == object {
			p = p[r.step(p):]
		}
		if r.mode == broken {
			r.out, r.stack = nil, nil
		}
	}
}

// step reads at least one byte of p, except where a literal ends, and returns how many.
func (r *reducer) step(p []byte) int {
	c := p[0]
	switch r.state {
	case inString:
		return r.text(p)
	case inKey:
		return r.keyText(p)
	case skipping:
		return r.skip(p)
	case inLiteral:
		if isLiteral(c) {
			if len(r.lit) <= maxNumber {
				r.lit = append(r.lit, c)
			}
			return 1
		}
		r.endLiteral()
		return 0
	}
	if c == ' ' || c == '\t' || c == '\r' {
		return 1
	}
	switch r.state {
	case wantValue:
		return r.value(c)
	case wantElement:
		if c == ']' {
			r.close(c)
			return 1
		}
		return r.value(c)
	case wantMember, wantKey:
		switch {
		case c == '"':
			r.key, r.unit, r.state = r.key[:0], r.unit[:0], inKey
		case c == '}' && r.state == wantMember:
			r.close(c)
		default:
			r.mode = broken
		}
	case wantColon:
		if c != ':' {
			r.mode = broken
		}
		r.state = wantValue
	case wantComma:
		switch c {
		case ',':
			r.state = wantValue
			if r.top().object {
				r.state = wantKey
			}
		case '}', ']':
			r.close(c)
		default:
			r.mode = broken
		}
	case done:
		r.mode = broken
	}
	return 1
}

// value begins a value with its first byte.
func (r *reducer) value(c byte) int {
	if len(r.stack) == 0 { // the whole line
		r.out = append(r.out, c)
		r.push(true, "", maxRest)
		return 1
	}
	top := r.top()
	need := 2 + maxNumber
	if top.object {
		need += len(r.key)
	}
	if top.object && len(r.key) > maxKey || top.left < need {
		r.startSkip(c)
		return 1
	}
	if c != '"' && c != '{' && c != '[' && !isLiteral(c) {
		r.mode = broken
		return 1
	}
	path := top.path
	if top.object {
		if path != "" {
			path += "."
		}
		path += string(r.key)
	}
	before := len(r.out)
	if top.count > 0 {
		r.out = append(r.out, ',')
	}
	top.count++
	if top.object {
		r.out = append(append(append(r.out, '"'), r.key...), '"', ':')
	}
	top.left -= len(r.out) - before
	switch c {
	case '"':
		r.out = append(r.out, c)
		top.left -= 2
		r.state, r.cut, r.unit = inString, false, r.unit[:0]
		r.whole = r.paths[path]
		if r.whole {
			r.room = r.answerLeft
		} else {
			r.room = max(0, min(maxString, top.left))
		}
	case '{', '[':
		if len(r.stack) == maxDepth || top.left/2 < need {
			r.out = append(r.out, "null"...)
			top.left -= 4
			r.startSkip(c)
		} else {
			r.out = append(r.out, c)
			r.push(c == '{', path, top.left/2)
		}
	default:
		r.lit, r.state = append(r.lit[:0], c), inLiteral
	}
	return 1
}

func (r *reducer) push(isObject bool, path string, share int) {
	r.stack = append(r.stack, frame{object: isObject, path: path, share: share, left: share - 2})
	r.state = wantElement
	if isObject {
		r.state = wantMember
	}
}

// top is the innermost open container.
func (r *reducer) top() *frame { return &r.stack[len(r.stack)-1] }

func (r *reducer) close(c byte) {
	top := *r.top()
	if top.object != (c == '}') {
		r.mode = broken
		return
	}
	r.out = append(r.out, c)
	r.stack = r.stack[:len(r.stack)-1]
	r.state = wantComma
	if len(r.stack) == 0 {
		r.state = done
		return
	}
	r.top().left -= top.share - top.left
}

func isLiteral(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func (r *reducer) endLiteral() {
	switch {
	case len(r.lit) > maxNumber:
		r.lit = append(r.lit[:0], "null"...)
	case !json.Valid(r.lit):
		r.mode = broken
	}
	r.out = append(r.out, r.lit...)
	r.top().left -= len(r.lit)
	r.state = wantComma
}

// text takes bytes of a text value: one escape sequence, the end, or a run of ordinary bytes.
func (r *reducer) text(p []byte) int {
	if len(r.unit) > 0 || p[0] == '\\' {
		if r.escape(p[0]) {
			r.keep(r.unit)
			r.unit = r.unit[:0]
		}
		return 1
	}
	if p[0] == '"' {
		r.out = append(r.out, '"')
		r.state = wantComma
		return 1
	}
	n := run(p)
	if n == 0 { // a control character
		r.mode = broken
		return 1
	}
	r.keep(p[:n])
	return n
}

// keep appends bytes of the current text as far as there is room for them.
func (r *reducer) keep(p []byte) {
	if r.cut {
		return
	}
	if len(p) > r.room {
		r.cut = true
		if p[0] == '\\' {
			return
		}
		p = p[:r.room]
	}
	r.out = append(r.out, p...)
	r.room -= len(p)
	if r.whole {
		r.answerLeft -= len(p)
	} else {
		r.top().left -= len(p)
	}
	if r.cut {
		r.out = wholeRunes(r.out)
	}
}

// wholeRunes drops the beginning of a character from the end.
func wholeRunes(p []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i <= len(p); i++ {
		if b := p[len(p)-i]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-i:]) {
				return p[:len(p)-i]
			}
			break
		}
	}
	return p
}

func (r *reducer) keyText(p []byte) int {
	if len(r.unit) > 0 || p[0] == '\\' {
		if r.escape(p[0]) {
			r.addKey(r.unit)
			r.unit = r.unit[:0]
		}
		return 1
	}
	if p[0] == '"' {
		r.state = wantColon
		return 1
	}
	n := run(p)
	if n == 0 {
		r.mode = broken
		return 1
	}
	r.addKey(p[:n])
	return n
}

// addKey appends to the current key, up to one byte more than a key that is kept may have.
func (r *reducer) addKey(p []byte) {
	r.key = append(r.key, p[:min(len(p), maxKey+1-min(len(r.key), maxKey+1))]...)
}

// escape takes one byte of an escape sequence and reports whether it is complete.
func (r *reducer) escape(c byte) bool {
	r.unit = append(r.unit, c)
	switch n := len(r.unit); {
	case n == 1:
		return false
	case n == 2:
		if bytes.IndexByte([]byte(`"\/bfnrtu`), c) < 0 {
			r.mode = broken
		}
		return c != 'u'
	default:
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			r.mode = broken
		}
		return n == 6
	}
}

// run returns how many bytes at the start of p are ordinary text.
func run(p []byte) int {
	for i, c := range p {
		if c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return len(p)
}

// startSkip begins a value that is not kept.
func (r *reducer) startSkip(c byte) {
	r.state, r.skipDepth, r.skipStr, r.skipEsc = skipping, 0, c == '"', false
	if c == '{' || c == '[' {
		r.skipDepth = 1
	}
}

// skip reads on in a value that is not kept. Only texts and nesting matter for finding its end.
func (r *reducer) skip(p []byte) int {
	c := p[0]
	switch {
	case r.skipEsc:
		r.skipEsc = false
	case r.skipStr && c == '\\':
		r.skipEsc = true
	case r.skipStr && c == '"':
		r.skipStr = false
		if r.skipDepth == 0 {
			r.state = wantComma
		}
	case r.skipStr:
		return max(1, run(p))
	case r.skipDepth == 0: // a number or a word
		if !isLiteral(c) {
			r.state = wantComma
			return 0
		}
	case c == '"':
		r.skipStr = true
	case c == '{' || c == '[':
		r.skipDepth++
	case c == '}' || c == ']':
		if r.skipDepth--; r.skipDepth == 0 {
			r.state = wantComma
		}
	}
	return 1
}
