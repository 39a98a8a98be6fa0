package session

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzObject compares the reader of members with the decoder of encoding/json:
// what that takes is read the same, and nothing that it takes is refused.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{}`, ` {"a":1,"b":[{"c":"}"}],"a":"twice"} `, `{"a\u0062":-1.5e3,"\ud800":null,"":true}`, `{"a":{"b":{"c":[1,2,{"d":"\\\""}]}}}`,
		`{"a":1}x`, `{"a":}`, `{"a" 1}`, `{"a":1,}`, `[1]`, `{"a":"unterminated`, "{\"a\":\"\x00\"}", "{\"\xff\":1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := ParseObject(data)
		var want map[string]json.RawMessage
		whole := json.Unmarshal(data, &want) == nil && want != nil
		if whole && err != nil {
			t.Fatalf("%q is refused: %v", data, err)
		}
		if err != nil || !whole {
			return
		}
		for key, raw := range want {
			if !o.Has(key) {
				t.Fatalf("%q lacks %q", data, key)
			}
			var text string
			if json.Unmarshal(raw, &text) == nil && string(raw) != "null" && o.Text(key) != text {
				t.Fatalf("%q: %q is %q, want %q", data, key, o.Text(key), text)
			}
			o.Number(key)
			o.Int(key)
			o.True(key)
			o.Member(key)
			o.Object(key)
		}
		again, err := ParseObject(o.File())
		if err != nil || len(again.members) != len(o.members) {
			t.Fatalf("%q is written as %q: %v", data, o.File(), err)
		}
		if !json.Valid(o.File()) {
			t.Fatalf("%q is written as %q, which is no JSON", data, o.File())
		}
		o.Set("added", "x\n\x1b")
		o.Delete("a")
		if !json.Valid(o.File()) || o.Has("a") || o.Text("added") != "x\n\x1b" {
			t.Fatalf("%q with a change is %q", data, o.File())
		}
	})
}

// FuzzAssignments: models.env is read, never run.
func FuzzAssignments(f *testing.F) {
	f.Add([]byte("DELEGATE_MODEL_TERRA=gpt-5.6-terra\nexport A='b c' # d\nB=\"$(id)\"\n"))
	f.Add([]byte("=x\nA\n A = b \r\nA=\x00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set := Assignments(text)
		if len(set) > bytes.Count(text, []byte("=")) {
			t.Errorf("%q gives %v", text, set)
		}
		for name, value := range set {
			if name == "" || !bytes.Contains(text, []byte(value)) {
				t.Errorf("%q gives %q the value %q", text, name, value)
			}
		}
	})
}
