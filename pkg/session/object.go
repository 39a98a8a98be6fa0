package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"unicode/utf8"
)

// An Object is a JSON object of which only the members that somebody asks for are decoded: a list of a thousand tasks
// reads a thousand of them. Members that this version does not know are kept as they are.
type Object struct {
	members []member
}

type member struct {
	key string
	raw []byte
}

var errNotObject = errors.New("not a JSON object")

// ParseObject reads a JSON object. It looks at the members' extent, not into them.
func ParseObject(data []byte) (Object, error) {
	var o Object
	i := skipBlanks(data, 0)
	if i >= len(data) || data[i] != '{' {
		return o, errNotObject
	}
	i = skipBlanks(data, i+1)
	if i < len(data) && data[i] == '}' {
		return o, trailing(data, i+1)
	}
	o.members = make([]member, 0, 32)
	for {
		end := skipValue(data, i)
		if end < 0 || data[i] != '"' {
			return Object{}, errNotObject
		}
		key, ok := decodeText(data[i:end])
		if !ok {
			return Object{}, errNotObject
		}
		if i = skipBlanks(data, end); i >= len(data) || data[i] != ':' {
			return Object{}, errNotObject
		}
		i = skipBlanks(data, i+1)
		if end = skipValue(data, i); end < 0 {
			return Object{}, errNotObject
		}
		o.members = append(o.members, member{key, data[i:end:end]})
		if i = skipBlanks(data, end); i >= len(data) {
			return Object{}, errNotObject
		}
		switch data[i] {
		case ',':
			i = skipBlanks(data, i+1)
		case '}':
			if err := trailing(data, i+1); err != nil {
				return Object{}, err
			}
			return o, nil
		default:
			return Object{}, errNotObject
		}
	}
}

func trailing(data []byte, i int) error {
	if skipBlanks(data, i) != len(data) {
		return errNotObject
	}
	return nil
}

func skipBlanks(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index after the value that begins at i, or -1.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch c := data[i]; {
		case c == '"':
			if i = skipText(data, i); i < 0 {
				return -1
			}
		case c == '{' || c == '[':
			depth++
			i++
		case c == '}' || c == ']':
			if depth == 0 {
				return -1
			}
			depth--
			i++
		case depth > 0 && (c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			i++
			continue
		default:
			start := i
			for i < len(data) && literal(data[i]) {
				i++
			}
			if i == start || !json.Valid(data[start:i]) {
				return -1
			}
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

func literal(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// skipText returns the index after the text that begins at i, or -1.
func skipText(data []byte, i int) int {
	for i++; i < len(data); {
		n := bytes.IndexAny(data[i:], `"\`)
		if n < 0 {
			return -1
		}
		if i += n; data[i] == '"' {
			return i + 1
		}
		i += 2
	}
	return -1
}

func decodeText(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	plain := raw[1 : len(raw)-1]
	if bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) && !bytes.ContainsFunc(plain, func(r rune) bool { return r < ' ' }) {
		return string(plain), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

func (o Object) raw(key string) []byte {
	for i := len(o.members) - 1; i >= 0; i-- {
		if o.members[i].key == key {
			return o.members[i].raw
		}
	}
	return nil
}

// Has reports whether there is such a member, null included.
func (o Object) Has(key string) bool { return o.raw(key) != nil }

// Text returns a member that is a text, else "".
func (o Object) Text(key string) string {
	s, _ := decodeText(o.raw(key))
	return s
}

// Number returns a member that is a number within reason.
func (o Object) Number(key string) (float64, bool) {
	raw := o.raw(key)
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	return n, err == nil && !math.IsInf(n, 0) && math.Abs(n) < 1<<53
}

// Int is Number cut to a whole number.
func (o Object) Int(key string) (int64, bool) {
	n, ok := o.Number(key)
	return int64(n), ok
}

// True reports whether a member is true.
func (o Object) True(key string) bool { return string(o.raw(key)) == "true" }

// Member returns a member as a value that can be put into [Pairs]; nil when it is absent.
func (o Object) Member(key string) any {
	if raw := o.raw(key); raw != nil {
		return json.RawMessage(raw)
	}
	return nil
}

// Object returns a member that is an object, else an empty one.
func (o Object) Object(key string) Object {
	sub, _ := ParseObject(o.raw(key))
	return sub
}

// Set replaces or adds a member.
func (o *Object) Set(key string, value any) {
	raw := appendValue(nil, value, flat)
	for i := range o.members {
		if o.members[i].key == key {
			o.members[i].raw = raw
			return
		}
	}
	o.members = append(o.members, member{key, raw})
}

// Delete removes a member.
func (o *Object) Delete(key string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.key == key })
}

// File returns the object as the state files hold it: keys sorted, two blanks of indent, ASCII only, a final newline.
func (o Object) File() []byte {
	return append(appendValue(nil, o, style{indent: true, sorted: true}, 0), '\n')
}

// Pairs is a JSON object whose members keep their order.
type Pairs []Pair

// Pair is one member. Value is a text, a bool, nil, a number, a list of values, Pairs, an Object or a json.RawMessage.
type Pair struct {
	Key   string
	Value any
}

// Line returns the object on one line in the form that the original printed: ", " and ": ", ASCII only.
func (p Pairs) Line() string { return string(appendValue(nil, p, flat)) }

// List returns a JSON array of values on one line.
func List(values []any) string { return string(appendValue(nil, values, flat)) }

// Object returns the same members as an Object.
func (p Pairs) Object() Object {
	var o Object
	for _, one := range p {
		o.Set(one.Key, one.Value)
	}
	return o
}

type style struct{ indent, sorted bool }

var flat = style{}

// appendValue writes v as Python's json module does, whose output these files and lines have always had.
func appendValue(b []byte, v any, s style, depth ...int) []byte {
	level := 0
	if len(depth) > 0 {
		level = depth[0]
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendText(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case *int64:
		if v == nil {
			return append(b, "null"...)
		}
		return strconv.AppendInt(b, *v, 10)
	case float64:
		return appendFloat(b, v)
	case *float64:
		if v == nil {
			return append(b, "null"...)
		}
		return appendFloat(b, *v)
	case json.Number:
		return append(b, v...)
	case []string:
		list := make([]any, len(v))
		for i, one := range v {
			list[i] = one
		}
		return appendValue(b, list, s, level)
	case []any:
		return appendBlock(b, '[', ']', len(v), s, level, func(b []byte, i int) []byte {
			return appendValue(b, v[i], s, level+1)
		})
	case Pairs:
		pairs := v
		if s.sorted {
			pairs = slices.Clone(v)
			sort.SliceStable(pairs, func(i, j int) bool { return pairs[i].Key < pairs[j].Key })
		}
		return appendBlock(b, '{', '}', len(pairs), s, level, func(b []byte, i int) []byte {
			b = append(appendText(b, pairs[i].Key), ": "...)
			return appendValue(b, pairs[i].Value, s, level+1)
		})
	case Object:
		pairs := make(Pairs, len(v.members))
		for i, m := range v.members {
			pairs[i] = Pair{m.key, json.RawMessage(m.raw)}
		}
		return appendValue(b, pairs, s, level)
	case json.RawMessage:
		return appendRaw(b, v, s, level)
	case map[string]any:
		pairs := make(Pairs, 0, len(v))
		for key, value := range v {
			pairs = append(pairs, Pair{key, value})
		}
		return appendValue(b, pairs, style{s.indent, true}, level)
	}
	// Any other value is a mistake of this package's callers.
	return appendText(b, fmt.Sprint(v))
}

func appendBlock(b []byte, open, end byte, n int, s style, level int, one func([]byte, int) []byte) []byte {
	b = append(b, open)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
			if !s.indent {
				b = append(b, ' ')
			}
		}
		if s.indent {
			b = newLine(b, level+1)
		}
		b = one(b, i)
	}
	if s.indent && n > 0 {
		b = newLine(b, level)
	}
	return append(b, end)
}

func newLine(b []byte, level int) []byte {
	b = append(b, '\n')
	for range level {
		b = append(b, "  "...)
	}
	return b
}

// maxNested is how deep a foreign member is taken apart; a deeper one is written as it is.
const maxNested = 100

func appendRaw(b []byte, raw json.RawMessage, s style, level int) []byte {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	switch raw[0] {
	case '"':
		if text, ok := decodeText(raw); ok {
			return appendText(b, text)
		}
	case '{', '[':
		if level > maxNested {
			return append(b, raw...)
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if raw[0] == '{' {
			if o, err := ParseObject(raw); err == nil {
				return appendValue(b, o, s, level)
			}
		}
		var list []json.RawMessage
		if dec.Decode(&list) == nil {
			values := make([]any, len(list))
			for i, one := range list {
				values[i] = one
			}
			return appendValue(b, values, s, level)
		}
	}
	return append(b, raw...)
}

// appendFloat writes the shortest text that reads back as f, always recognisable as a float.
func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if bytes.IndexByte(b[start:], '.') < 0 {
		b = append(b, ".0"...)
	}
	return b
}

const hexDigits = "0123456789abcdef"

func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r < 0x7f:
			b = append(b, byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r > 0xffff:
			r -= 0x10000
			b = appendUnit(b, 0xd800+(r>>10))
			b = appendUnit(b, 0xdc00+(r&0x3ff))
		default:
			b = appendUnit(b, r)
		}
	}
	return append(b, '"')
}

func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
