package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// lines is a parser that remembers what it was given.
type lines struct {
	got   []string
	paths []string
}

func (l *lines) Line(_ Stream, line []byte, _ *Transcript) bool {
	l.got = append(l.got, string(line))
	return bytes.HasPrefix(line, []byte("quiet"))
}
func (l *lines) answerPaths() []string          { return l.paths }
func (l *lines) quietSoFar(partial []byte) bool { return bytes.HasPrefix([]byte("quiet"), partial) }

func feed(p Parser, tr *Transcript, text string, step int) *Feed {
	f := NewFeed(p, tr, Stdout)
	for i := 0; i < len(text); i += step {
		f.Write([]byte(text[i:min(i+step, len(text))]))
	}
	return f
}

func TestFeedSplitsLines(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"plain", "a\nb\n", []string{"a", "b"}},
		{"no last newline", "a\nb", []string{"a", "b"}},
		{"carriage returns", "a\r\nb\r\n", []string{"a", "b"}},
		{"blank lines are nothing", "\n\na\n\r\n", []string{"a"}},
		{"byte order mark", "\xef\xbb\xbfa\n\xef\xbb\xbfb\n", []string{"a", "\xef\xbb\xbfb"}},
		{"NUL and bad UTF-8 pass", "\x00\x00nul\r\n\xff\xfe\n", []string{"\x00\x00nul", "\xff\xfe"}},
		{"other line ends do not split", "a\u0085b\u2028c\rd\n", []string{"a\u0085b\u2028c\rd"}},
		{"split rune", "caf\xc3\xa9 \U0001F600\n", []string{"café \U0001F600"}},
	} {
		for step := 1; step <= 4; step++ {
			p := &lines{}
			feed(p, &Transcript{}, c.text, step).Close()
			if fmt.Sprint(p.got) != fmt.Sprint(c.want) || len(p.got) != len(c.want) {
				t.Errorf("%s, step %d: got %q, want %q", c.name, step, p.got, c.want)
			}
		}
	}
}

func TestFeedResyncsAfterTruncation(t *testing.T) {
	p := &lines{}
	f := NewFeed(p, &Transcript{}, Stdout)
	io.WriteString(f, "whole\nhalf of a li")
	f.Truncated()
	io.WriteString(f, "ne that was cut\nnext\n")
	f.Truncated()
	io.WriteString(f, "torn")
	f.Close()
	if got := strings.Join(p.got, "|"); got != "whole|next" {
		t.Errorf("got %q", got)
	}
	io.WriteString(f, "\nquiet\n")
	if f.Quiet() != 6 {
		t.Errorf("quiet %d", f.Quiet())
	}
	if f.Truncated(); f.Quiet() != 0 {
		t.Errorf("quiet %d of an empty file", f.Quiet())
	}
}

func TestQuietCountsNoticesAndTheirBeginnings(t *testing.T) {
	f := NewFeed(&lines{}, &Transcript{}, Stdout)
	for _, c := range []struct {
		write string
		want  int64
	}{
		{"loud\n", 0},
		{"qui", 3},
		{"et 1\n", 8},
		{"qu", 10},
		{"arter\n", 8},
		{"loud", 8},
	} {
		io.WriteString(f, c.write)
		if got := f.Quiet(); got != c.want {
			t.Errorf("after %q: quiet %d, want %d", c.write, got, c.want)
		}
	}
}

// A line above the bound must neither end the stream nor hide what follows it or what it says itself.
func TestLongLinesKeepTheirEssentials(t *testing.T) {
	pad := strings.Repeat("x", 1200<<10)
	crowd := strings.Repeat(`{"a":[1,2,{"b":"c"}]},`, 60_000)
	deep := strings.Repeat(`[`, 600<<10) + strings.Repeat(`]`, 600<<10)
	for _, c := range []struct {
		name, line string
		check      func(fields) string
	}{
		{"output before type", `{"output":"` + pad + `","type":"result","id":"i-1","usage":{"n":3}}`,
			func(f fields) string { return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n")) }},
		{"a crowd of elements before type", `{"items":[` + crowd + `0],"type":"result","id":"i-1","usage":{"n":3}}`,
			func(f fields) string { return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n")) }},
		{"nesting without end", `{"items":` + deep + `,"type":"result","id":"i-1","usage":{"n":3}}`,
			func(f fields) string { return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n")) }},
		{"spaces and escapes", ` { "output" : "\"\\\u00e9` + pad + `\\\"" , "type" : "res\u0075lt" ,` + "\r" + `"id" : "i-1" , "usage" : { "n" : 3 } } `,
			func(f fields) string { return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n")) }},
		{"the answer", `{"type":"result","id":"i-1","body":{"answer":"` + pad + `"},"usage":{"n":3}}`,
			func(f fields) string {
				if f.object("body").text("answer") != pad {
					return fmt.Sprintf("answer of %d bytes", len(f.object("body").text("answer")))
				}
				return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n"))
			}},
		{"the answer in a list", `{"type":"result","id":"i-1","list":[{"answer":"` + pad + `"}],"usage":{"n":3}}`,
			func(f fields) string {
				m, _ := f.list("list")[0].(map[string]any)
				if fields(m).text("answer") != pad {
					return "answer cut"
				}
				return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n"))
			}},
		{"an answer above its bound", `{"type":"result","body":{"answer":"` + strings.Repeat("é", maxAnswer/2+1000) + `"},"id":"i-1","usage":{"n":3}}`,
			func(f fields) string {
				a := f.object("body").text("answer")
				if len(a) > maxAnswer || len(a) < maxAnswer-4 || !utf8.ValidString(a) || strings.ContainsRune(a, utf8.RuneError) {
					return fmt.Sprintf("answer of %d bytes", len(a))
				}
				return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n"))
			}},
		{"odd numbers", `{"type":"result","big":1` + strings.Repeat("0", 1200<<10) + `,"x":[true,false,null,-1.5e3],"id":"i-1","usage":{"n":3}}`,
			func(f fields) string {
				if f["big"] != nil || fmt.Sprint(f.list("x")) != "[true false <nil> -1500]" {
					return fmt.Sprint(f["big"], f.list("x"))
				}
				return fmt.Sprint(f.text("type"), f.text("id"), *f.object("usage").count("n"))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, p := &Transcript{}, &lines{paths: []string{"body.answer", "list.answer"}}
			feed(p, tr, "before\n"+c.line+"\nafter\n", 40_093).Close()
			if len(p.got) != 3 || p.got[2] != "after" {
				t.Fatalf("%d lines", len(p.got))
			}
			if len(p.got[1]) > maxAnswer+maxRest+1024 {
				t.Errorf("kept %d bytes", len(p.got[1]))
			}
			f := parseObject([]byte(p.got[1]))
			if f == nil {
				t.Fatalf("not an object: %.200q ... %.200q", p.got[1], p.got[1][max(0, len(p.got[1])-200):])
			}
			if got := c.check(f); got != "resulti-13" {
				t.Errorf("got %q", got)
			}
			want := fmt.Sprintf("a line of %d bytes at offset 7 was read only in part", len(c.line))
			if len(tr.Notes) != 1 || tr.Notes[0] != want {
				t.Errorf("notes %q, want %q", tr.Notes, want)
			}
		})
	}
}

func TestLongLinesThatProveNothing(t *testing.T) {
	pad := strings.Repeat("x", 1200<<10)
	for name, line := range map[string]string{
		"unfinished":        `{"type":"result","output":"` + pad,
		"unfinished object": `{"type":"result","output":"` + pad + `"`,
		"two objects":       `{"type":"result","output":"` + pad + `"}{}`,
		"bad escape":        `{"type":"result","output":"` + pad + `\q"}`,
		"control character": `{"type":"result","output":"` + pad + "\x01" + `"}`,
		"wrong bracket":     `{"type":"result","output":["` + pad + `"}}`,
		"no comma":          `{"type":"result" "output":"` + pad + `"}`,
		"no colon":          `{"type" "result","output":"` + pad + `"}`,
		"bad word":          `{"type":trre,"output":"` + pad + `"}`,
		"bad value":         `{"type":?,"output":"` + pad + `"}`,
	} {
		p := &lines{paths: []string{"answer"}}
		feed(p, &Transcript{}, line+"\nafter\n", 64<<10).Close()
		if len(p.got) != 1 || p.got[0] != "after" {
			t.Errorf("%s: %d lines, the first %.80q", name, len(p.got), p.got[0])
		}
	}
	for name, c := range map[string]struct {
		parser *lines
		line   string
	}{
		"text for a parser of events": {&lines{paths: []string{"answer"}}, "ERROR: " + pad},
		"an object for one of text":   {&lines{}, `{"` + pad},
		"an array":                    {&lines{paths: []string{"answer"}}, `["` + pad},
	} {
		feed(c.parser, &Transcript{}, c.line+"\n", 64<<10)
		if len(c.parser.got) != 1 || c.parser.got[0] != c.line[:maxPlain] {
			t.Errorf("%s: %d lines", name, len(c.parser.got))
		}
	}
}

// Memory must not follow the line (orders of magnitude: 100 MiB were 340 MiB elsewhere).
func TestHugeLineHasFlatMemory(t *testing.T) {
	tr := &Transcript{}
	f := NewFeed(codexEvents{}, tr, Stdout)
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	before := allocated()
	io.WriteString(f, `{"type":"item.completed","item":{"type":"command_execution","aggregated_output":"`)
	for range 1600 {
		f.Write(chunk)
	}
	io.WriteString(f, "\"}}\n"+`{"type":"item.completed","item":{"type":"agent_message","text":"the answer"}}`+"\n")
	if tr.Response != "the answer" {
		t.Errorf("response %q", tr.Response)
	}
	if n := allocated() - before; n > 8<<20 {
		t.Errorf("a line of 100 MiB cost %d KiB", n>>10)
	}
}

// allocated returns how many bytes have been allocated since the start, freed ones included.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Whatever the reducer keeps of an object within its bounds is what a whole parse would have read.
func TestReducerAgreesWithTheDecoder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		v := map[string]any{"type": "t", "v": randomValue(rng, 4)}
		line, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		line = bytes.ReplaceAll(line, []byte("\n"), []byte(" "))
		r := newReducer([]string{"v"})
		for i := 0; i < len(line); i += 3 {
			r.write(line[i:min(i+3, len(line))])
		}
		var got any
		if err := json.Unmarshal(r.reduced(), &got); err != nil {
			t.Fatalf("%s\n%s\n%v", line, r.reduced(), err)
		}
		again, _ := json.Marshal(got)
		want, _ := json.Marshal(v)
		if !bytes.Equal(again, want) {
			t.Fatalf("got  %s\nwant %s", again, want)
		}
	}
}

func randomValue(rng *rand.Rand, depth int) any {
	switch n := rng.IntN(8); {
	case n == 0 && depth > 0:
		m := map[string]any{}
		for range rng.IntN(4) {
			m[randomText(rng)] = randomValue(rng, depth-1)
		}
		return m
	case n == 1 && depth > 0:
		l := []any{}
		for range rng.IntN(4) {
			l = append(l, randomValue(rng, depth-1))
		}
		return l
	case n == 2:
		return rng.IntN(2) == 0
	case n == 3:
		return float64(rng.IntN(1 << 30))
	case n == 4:
		return nil
	default:
		return randomText(rng)
	}
}

func randomText(rng *rand.Rand) string {
	alphabet := []rune("ab\"\\/\n\t\u00e9\u2028\U0001F600<>{}[]:, ")
	out := make([]rune, rng.IntN(12))
	for i := range out {
		out[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(out)
}

func FuzzReducer(f *testing.F) {
	seedLines(f)
	f.Fuzz(func(t *testing.T, line []byte, step byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		r := newReducer([]string{"item.text", "response", "message.content.text"})
		for rest := line; len(rest) > 0; {
			n := min(int(step)%7+1, len(rest))
			r.write(rest[:n])
			rest = rest[n:]
		}
		got := r.reduced()
		if r.mode == object && got != nil {
			if !json.Valid(got) {
				t.Fatalf("%q became %q, which is no JSON", line, got)
			}
			if !json.Valid(line) {
				// Only what was left out may hide a mistake; the values kept were checked.
				return
			}
		}
		if f := parseObject(line); f != nil && got == nil {
			t.Fatalf("%q is an object and was dropped", line)
		}
	})
}

func FuzzFeed(f *testing.F) {
	seedLines(f)
	f.Fuzz(func(t *testing.T, text []byte, step byte) {
		for _, stream := range []Stream{Stdout, Stderr} {
			var whole *Transcript
			for _, n := range []int{len(text), int(step)%5 + 1} {
				tr := &Transcript{}
				p := &lines{paths: []string{"a"}}
				fd := NewFeed(p, tr, stream)
				for rest := text; len(rest) > 0; {
					k := min(n, len(rest))
					fd.Write(rest[:k])
					rest = rest[k:]
				}
				fd.Close()
				if q := fd.Quiet(); q < 0 || q > int64(len(text)) {
					t.Fatalf("quiet %d of %d", q, len(text))
				}
				tr.Response = strings.Join(p.got, "\n")
				if whole != nil && whole.Response != tr.Response {
					t.Fatalf("pieces of %d give %q, the whole %q", n, tr.Response, whole.Response)
				}
				whole = tr
			}
		}
	})
}
