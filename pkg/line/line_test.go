package line

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		line Line
		want string
	}{
		{StateDir("/tmp/prun-task-0a-u-1-ff"), "STATE-DIR /tmp/prun-task-0a-u-1-ff"},
		{StateDir(`C:\Temp\x41`), `STATE-DIR C:\Temp\x41`},
		{StateDir("/tmp/a\nSTATE-DIR /evil"), `STATE-DIR /tmp/a\x0aSTATE-DIR /evil`},
		{GatherStart(2, "3600"), "GATHER-START count=2 timeout=3600s"},
		{GatherStart(2, "010"), "GATHER-START count=2 timeout=010s"},
		{Done("/tmp/with blank/é.md"), "DONE /tmp/with blank/é.md"},
		{Done("/tmp/\xff\x1b[31m\u0085"), `DONE /tmp/\xff\x1b[31m\xc2\x85`},
		{Timeout(3), "TIMEOUT remaining=3"},
		{Unreconciled("u-1", "malformed", "/tmp/a b"), "UNRECONCILED u-1 malformed /tmp/a b"},
		{MonitorStart(4, "600", "3600"), "MONITOR-START units=4 stall-threshold=600s timeout=3600s"},
		{MonitorEvent("all-done"), "MONITOR-EVENT all-done"},
		{UnitStatus("prun-task-0a-u-1-ff", "stalled(612s)"), "UNIT prun-task-0a-u-1-ff stalled(612s)"},
		{UnitStatus("my unit", "done"), "UNIT my unit done"},
		{Outcome(`{"unit":"a b"}`), `OUTCOME {"unit":"a b"}`},
		{ModelFallback("a", "b", "claude-and-gpt-quota-exhausted", "2026-11-29 10:00"),
			"MODEL-FALLBACK from=a to=b reason=claude-and-gpt-quota-exhausted resets=2026-11-29 10:00"},
		{ModelFallback("a", "b", "template-unlisted", ""), "MODEL-FALLBACK from=a to=b reason=template-unlisted"},
		{ModelResolve("a", "b", "newest-in-family"), "MODEL-RESOLVE from=a to=b reason=newest-in-family"},
		{ModelBalance("a", "b", "freer-meter", "0%", "10%"), "MODEL-BALANCE from=a to=b reason=freer-meter own=0% other=10%"},
		{Reaped("u", "boot"), "REAPED u boot"},
		{Left("u", "foreign-host"), "LEFT u foreign-host"},
	} {
		if got := c.line.String(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
		back, err := Parse(c.want + "\n")
		if err != nil || !reflect.DeepEqual(back, c.line) {
			t.Errorf("%q: %+v %v", c.want, back, err)
		}
	}
	l, _ := Parse("UNIT a b failed(fallback)")
	if l.Field("name") != "a b" || l.Field("status") != "failed(fallback)" || l.Field("nothing") != "" {
		t.Errorf("%+v", l)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "\n", "DONE", "done /x", "DONE /x\n\n", "NOTE x", "UNIT a", "TIMEOUT remaining", "TIMEOUT 3",
		"GATHER-START count=1", "GATHER-START count=1 timeout=3600", "GATHER-START timeout=1s count=2",
		"UNRECONCILED a b", "DONE /x\x1b", "DONE /\xff", "MODEL-FALLBACK from=a to=b",
	} {
		if l, err := Parse(text); !errors.Is(err, ErrNotLine) {
			t.Errorf("%q: %+v %v", text, l, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"STATE-DIR /x", "GATHER-START count=1 timeout=2s", "UNIT a b", "UNRECONCILED a b c",
		"MODEL-BALANCE from=a to=b reason=c own=1 other=2", "DONE /\xff\x00", "MODEL-FALLBACK from= to= to= reason="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := Escape(text)
		if Escape(once) != once || !utf8.ValidString(once) || strings.ContainsAny(once, "\n\r\x1b\x00") {
			t.Fatalf("escape %q: %q", text, once)
		}
		for _, l := range []Line{StateDir(text), Done(text), MonitorEvent(text), Outcome(text)} {
			back, err := Parse(l.String())
			if err != nil || !reflect.DeepEqual(back, l) {
				t.Fatalf("%q: %+v %v", l.String(), back, err)
			}
		}
		l, err := Parse(text)
		if err != nil {
			return
		}
		if got := l.String(); got != strings.TrimSuffix(text, "\n") {
			t.Fatalf("%q came back as %q", text, got)
		}
	})
}

// counter counts Write calls.
type counter struct {
	mu    sync.Mutex
	calls []string
	err   error
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, string(p))
	return len(p), c.err
}

func TestWriter(t *testing.T) {
	c := &counter{}
	w := NewWriter(c)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if err := w.Print(Done("/a\nb")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := w.Text("free\rtext"); err != nil {
		t.Error(err)
	}
	for i, call := range c.calls {
		if want := []string{"DONE /a\\x0ab\n", "free\\x0dtext\n"}[i/50]; call != want {
			t.Errorf("%d: %q", i, call)
		}
	}
	c.err = errors.New("full")
	if err := w.Print(Timeout(1)); !errors.Is(err, c.err) {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	table := NewTable("unit", ">bytes", "state")
	table.Row("a", "1,234", "done")
	table.Row("日本", "5", "ok\x1b", "dropped")
	table.Row("e\u0301e")
	var b bytes.Buffer
	n, err := table.WriteTo(&b)
	want := "unit  bytes  state\na     1,234  done\n日本      5  ok\\x1b\ne\u0301e\n"
	if err != nil || b.String() != want || n != int64(len(want)) {
		t.Errorf("%d %v\n%s", n, err, b.String())
	}
}
