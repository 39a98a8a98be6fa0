package session

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"testing"
)

func TestObject(t *testing.T) {
	o, err := ParseObject([]byte(` {"a": "x\u00e9\n", "n": 12.50, "b": true, "l": [1, {"k": null}], "o": {"z": 1, "a": "\ud83d\ude00"}, "e": {}, "f": 1795961279.2474308} `))
	if err != nil {
		t.Fatal(err)
	}
	if o.Text("a") != "xé\n" || !o.True("b") || o.Text("n") != "" || o.Has("x") || o.Object("o").Text("a") != "😀" {
		t.Error("members")
	}
	if n, ok := o.Number("n"); !ok || n != 12.5 {
		t.Error("number")
	}
	o.Set("new", 3)
	o.Set("b", nil)
	o.Delete("l")
	want := "{\n  \"a\": \"x\\u00e9\\n\",\n  \"b\": null,\n  \"e\": {},\n  \"f\": 1795961279.2474308,\n  \"n\": 12.50,\n  \"new\": 3,\n  \"o\": {\n    \"a\": \"\\ud83d\\ude00\",\n    \"z\": 1\n  }\n}\n"
	if got := string(o.File()); got != want {
		t.Errorf("got\n%s", got)
	}
	p := Pairs{{"s", "\"\\/\x7f\u2028\x01"}, {"f", 1.0}, {"g", 1e22}, {"h", 0.00001}, {"l", []any{1, "x", nil, true}}, {"e", []any{}}}
	if got := p.Line(); got != `{"s": "\"\\/\u007f\u2028\u0001", "f": 1.0, "g": 1e+22, "h": 1e-05, "l": [1, "x", null, true], "e": []}` {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{"", "[]", "null", `{"a":1`, `{"a":1}x`, `{a:1}`, `{"a":}`, `{"a":1,}`, `{"a":[1}`, `{"a" 1}`, `{"a":tru}`, `{"a":"x}`} {
		if _, err := ParseObject([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// Python, where there is one, writes the same bytes.
func TestLikePython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("condition not met: python3")
	}
	text := []byte(`{"z": [1, 2.5, [], {}, {"y": [], "x": "\u00e9\u007f\ud83d\ude00\b\f"}], "a": 1e-7, "k": -0.1, "t": 1790000000.0, "q": {"d": {"e": {}}}, "m": 123456789012345678901234567890}`)
	for _, c := range []struct {
		program string
		ours    func(Object) []byte
	}{
		{"json.dumps(json.load(sys.stdin), sort_keys=True, indent=2) + '\\n'", Object.File},
		{"json.dumps(json.load(sys.stdin))", func(o Object) []byte { return appendValue(nil, o, flat) }},
	} {
		cmd := exec.Command(python, "-c", "import json,sys; sys.stdout.write("+c.program+")")
		cmd.Stdin = bytes.NewReader(text)
		want, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		o, err := ParseObject(text)
		if err != nil {
			t.Fatal(err)
		}
		// A foreign number keeps its own spelling.
		want = bytes.ReplaceAll(want, []byte("1e-07"), []byte("1e-7"))
		if got := c.ours(o); !bytes.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// FuzzObjectMeaning: what is read as an object is written as JSON with the same meaning, and nothing panics.
func FuzzObjectMeaning(f *testing.F) {
	f.Add([]byte(`{"a": 1, "b": ["\ud83d", {"c": null}], "d": "\u0000"}`))
	f.Add([]byte(`{"a":{"a":{"a":[[[[]]]]}},"a":2}`))
	f.Add(bytes.Repeat([]byte(`{"a":`), 300))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := ParseObject(text)
		var want map[string]any
		valid := json.Unmarshal(text, &want) == nil && want != nil
		if valid && err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err != nil || !valid {
			return
		}
		for _, out := range [][]byte{o.File(), appendValue(nil, o, flat)} {
			var got map[string]any
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%q became %q: %v", text, out, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q became %q", text, out)
			}
			for _, c := range out {
				if c >= 0x7f {
					t.Fatalf("%q is not ASCII", out)
				}
			}
		}
	})
}

func TestQuestion(t *testing.T) {
	for text, want := range map[string]bool{
		"QUESTION: which?": true, "done\n  question: now?": true, "Question: none.": false, "QUESTION:": false, "QUESTION: -": false,
		"QUESTION: No": false, "QUESTION: \u2014": false, "QUESTION:\n\nWhich file?": true, "a QUESTION: inside": false,
		"**QUESTION: x**": false, "QUESTION: none of the tests pass, what now?": true, "Question: none\nQUESTION: really?": true,
	} {
		if Question(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{"a b": "a-b", "--x--": "x", "é": "", "a/../b": "a-..-b", "..": "..", "ok._-1": "ok._-1"} {
		if got := Sanitize(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	env := func(set map[string]string) func(string) string { return func(n string) string { return set[n] } }
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/delekit", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/delekit/device.env", []byte("# x\nOTHER=1\nDELEKIT_DEVICE_ID=\"my mac\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Device(env(map[string]string{"XDG_CONFIG_HOME": dir})); got != "my-mac" {
		t.Errorf("%q", got)
	}
	if got := Device(env(map[string]string{"DELEKIT_DEVICE_ID": "..", "XDG_CONFIG_HOME": dir})); got != "dev-unknown" {
		t.Errorf("%q", got)
	}
	if got := Device(env(map[string]string{"HOME": "/nowhere"})); len(got) != 12 || got[:4] != "dev-" {
		t.Errorf("%q", got)
	}
}
