package agent

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// fields is a JSON object as foreign programs write them: any member may be absent or of another type.
type fields map[string]any

// parseObject reads a line as a JSON object; nil when it is anything else. Invalid UTF-8 becomes U+FFFD.
func parseObject(line []byte) fields {
	line = bytes.TrimLeft(line, " \t\r\x00")
	if len(line) == 0 || line[0] != '{' {
		return nil
	}
	var f fields
	if json.Unmarshal(line, &f) != nil {
		return nil
	}
	return f
}

// text returns a member that is a string, or "".
func (f fields) text(key string) string {
	s, _ := f[key].(string)
	return s
}

// object returns a member that is an object, or nil, from which every read is empty.
func (f fields) object(key string) fields {
	m, _ := f[key].(map[string]any)
	return m
}

// list returns a member that is an array, or nil.
func (f fields) list(key string) []any {
	l, _ := f[key].([]any)
	return l
}

// has reports whether a member is there, whatever its type.
func (f fields) has(key string) bool {
	_, ok := f[key]
	return ok
}

// count returns a member that is a whole number of at least zero, or nil.
func (f fields) count(key string) *int64 {
	n, ok := f[key].(float64)
	if !ok || n < 0 || n != math.Trunc(n) || n > 1<<53 {
		return nil
	}
	v := int64(n)
	return &v
}

// message words an error member, which may be a text or an object with a message.
func (f fields) message(key string) string {
	if o := f.object(key); o != nil {
		return o.text("message")
	}
	return f.text(key)
}

// retryNotice reports whether text is one of codex's retry notices.
func retryNotice(text string) bool {
	return strings.HasPrefix(text, "Reconnecting...")
}
