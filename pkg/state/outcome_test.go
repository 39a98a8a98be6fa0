package state

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

func TestOutcomeKeys(t *testing.T) {
	o := Outcome{Unit: "u", Cause: Exited, ExitCode: new(0), StartedAt: time.Unix(0, 0).In(time.FixedZone("x", 3600))}
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema_version":0,"unit":"u","backend":"","model":"","cause":"exited","exit_code":0,"signal":0,"reason":"",` +
		`"started_at":"1970-01-01T00:00:00Z","ended_at":"0001-01-01T00:00:00Z","duration_ms":0,"result":"","session_id":"",` +
		`"usage":{"input":null,"output":null,"cached":null,"total":null,"cost_usd":null},"tail_bytes":0,"containment":"",` +
		`"proven_empty":false,"leftovers":0,"parent_unit":"","notes":[],"exit_status":0}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
}

func TestPublishOutcome(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	if err := u.ReserveOutcome(); err != nil {
		t.Fatal(err)
	}
	if err := u.ReserveOutcome(); err == nil {
		t.Error("reserved twice")
	}
	if o, err := u.ReadOutcome(); o != nil || err != nil {
		t.Errorf("an outcome before there is one: %v, %v", o, err)
	}
	first := Outcome{Unit: "u", Cause: Exited, Notes: []string{"a <b>"}}
	if err := u.PublishOutcome(first); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(u.Path(FileOutcome))
	if err != nil {
		t.Fatal(err)
	}
	if whole[len(whole)-1] != '\n' || !strings.Contains(string(whole), "a <b>") {
		t.Errorf("outcome %q", whole)
	}
	if m := mode(t, u.Path(FileOutcome)); m != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("mode %o", m)
	}
	if !u.Unfinished() {
		t.Error("nothing says that the conclusion goes on")
	}
	u.SweepOutcome()
	if u.Unfinished() {
		t.Error("the reserve is still there")
	}
	err = u.PublishOutcome(Outcome{Unit: "u", Cause: Lost, Reason: strings.Repeat("x", 4000)})
	if !errors.Is(err, ErrExists) || !errors.Is(err, atomicfile.ErrExists) {
		t.Errorf("a second outcome: %v", err)
	}
	if now, _ := os.ReadFile(u.Path(FileOutcome)); string(now) != string(whole) {
		t.Errorf("the first outcome became %q", now)
	}
	if got, err := u.ReadOutcome(); err != nil || got.Cause != Exited || got.SchemaVersion != SchemaVersion {
		t.Errorf("read %+v, %v", got, err)
	}
}

// A supervisor killed between the link and the removal of the reserve leaves
// two names of one file. Nobody may write into it then.
func TestPublishAfterAKilledPublisher(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	writeFile(t, u.Path(FileOutcomeReserve), "{\"cause\":\"exited\"}\n")
	if err := os.Link(u.Path(FileOutcomeReserve), u.Path(FileOutcome)); err != nil {
		t.Fatal(err)
	}
	if err := u.PublishOutcome(Outcome{Cause: Lost}); !errors.Is(err, ErrExists) {
		t.Errorf("published: %v", err)
	}
	if o, err := u.ReadOutcome(); err != nil || o.Cause != Exited {
		t.Errorf("read %+v, %v", o, err)
	}
	u.SweepOutcome()
	if _, err := os.Lstat(u.Path(FileOutcomeReserve)); !isMissing(err) {
		t.Error("the second name is still there")
	}
}

// A longer text that a killed publisher had begun must not show behind ours.
func TestPublishOverAnUnfinishedReserve(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	writeFile(t, u.Path(FileOutcomeReserve), strings.Repeat("x", 6000))
	if err := u.PublishOutcome(Outcome{Cause: Lost}); err != nil {
		t.Fatal(err)
	}
	if o, err := u.ReadOutcome(); err != nil || o.Cause != Lost {
		t.Errorf("read %+v, %v", o, err)
	}
}

func TestPublishThroughNoLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making a link takes a privilege here")
	}
	u := Unit{Dir: t.TempDir()}
	writeFile(t, u.Path("victim"), "mine")
	if err := os.Symlink("victim", u.Path(FileOutcomeReserve)); err != nil {
		t.Fatal(err)
	}
	if err := u.PublishOutcome(Outcome{Cause: Lost}); err == nil {
		t.Error("published through a link")
	}
	if text, _ := os.ReadFile(u.Path("victim")); string(text) != "mine" {
		t.Errorf("the target became %q", text)
	}
}

// Readers see no outcome or a whole one, and of six publishers one wins. (The
// lock keeps them apart in life; the link must when it does not.)
func TestSixPublishers(t *testing.T) {
	for range 20 {
		u := Unit{Dir: t.TempDir()}
		var won atomic.Int32
		stop := make(chan struct{})
		var readers, writers sync.WaitGroup
		readers.Go(func() {
			for {
				if _, err := u.ReadOutcome(); err != nil {
					t.Errorf("read: %v", err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		if err := u.PublishOutcome(Outcome{Cause: Exited}); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			writers.Go(func() {
				if err := u.PublishOutcome(Outcome{Cause: Lost}); err == nil {
					won.Add(1)
				} else if !errors.Is(err, ErrExists) {
					t.Errorf("publish: %v", err)
				}
			})
		}
		writers.Wait()
		close(stop)
		readers.Wait()
		if won.Load() != 0 {
			t.Errorf("%d published over the first", won.Load())
		}
	}
}

func TestOutcomeAlwaysFits(t *testing.T) {
	long := strings.Repeat("é\x00", 6000)
	for name, o := range map[string]Outcome{
		"reason": {Cause: Failed, Reason: long},
		"note":   {Cause: Failed, Reason: "why", Notes: []string{"first", long}},
		"notes":  {Cause: Failed, Reason: "why", Notes: strings.Split(strings.Repeat("note,", 5000), ",")},
		"all":    {Cause: Failed, Reason: long, Notes: []string{long, long}},
		"extra":  {Cause: Failed, Extra: Extra{"k": json.RawMessage(`"` + strings.Repeat("x", 9000) + `"`)}},
	} {
		data, err := fitOutcome(o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var back Outcome
		if len(data) > OutcomeReserve {
			t.Errorf("%s: %d bytes", name, len(data))
		}
		if err := json.Unmarshal(data, &back); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "note" && (back.Reason != "why" || back.Notes[0] != "first" || !strings.HasSuffix(back.Notes[1], "(shortened)")) {
			t.Errorf("%s: %.60q %.60q", name, back.Reason, back.Notes)
		}
		if name == "reason" && len(back.Reason) < 1000 {
			t.Errorf("%s: shortened to %d bytes", name, len(back.Reason))
		}
	}
	if _, err := fitOutcome(Outcome{Unit: long}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an outcome that cannot fit: %v", err)
	}
}

func TestTornOutcome(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	for _, text := range []string{"", "{", `{"cause":`, "null", "[]", "7", `{"cause":7}`, "\x00\x00\x00"} {
		writeFile(t, u.Path(FileOutcome), text)
		if o, err := u.ReadOutcome(); !errors.Is(err, ErrMalformed) {
			t.Errorf("outcome %q read as %+v, %v", text, o, err)
		}
		if l, _ := u.Liveness(); l != Unknown {
			t.Errorf("a unit with the outcome %q is %v", text, l)
		}
	}
	writeFile(t, u.Path(FileOutcome), `{"cause":"`+strings.Repeat("x", recordMax)+`"}`)
	if _, err := u.ReadOutcome(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a huge outcome: %v", err)
	}
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		o    Outcome
		want int
	}{
		{Outcome{Cause: Exited}, 0},
		{Outcome{Cause: Exited, ExitCode: new(0)}, 0},
		{Outcome{Cause: Exited, ExitStatus: 74}, 74},
		{Outcome{Cause: Failed}, 70},
		{Outcome{Cause: Failed, ExitCode: new(0)}, 70},
		{Outcome{Cause: Failed, ExitCode: new(124)}, 124},
		{Outcome{Cause: Failed, ExitCode: new(75)}, 75},
		{Outcome{Cause: Failed, Signal: 9}, 137},
		{Outcome{Cause: IdleStall, Signal: 15}, 124},
		{Outcome{Cause: HardTimeout}, 124},
		{Outcome{Cause: DeadStart}, 124},
		{Outcome{Cause: Interrupted, Signal: 2}, 130},
		{Outcome{Cause: Interrupted}, 143},
		{Outcome{Cause: Killed, Signal: 9}, 137},
		{Outcome{Cause: Blocked}, 75},
		{Outcome{Cause: LaunchFailed}, 70},
		{Outcome{Cause: LaunchFailed, ExitCode: new(127)}, 127},
		{Outcome{Cause: Lost}, 70},
		{Outcome{Cause: "from a later version"}, 70},
	} {
		if got := ExitStatus(c.o); got != c.want {
			t.Errorf("ExitStatus(%s %v %d) = %d, want %d", c.o.Cause, c.o.ExitCode, c.o.Signal, got, c.want)
		}
	}
	for _, c := range Causes() {
		if c.OK() != (ExitStatus(Outcome{Cause: c}) == 0) {
			t.Errorf("%s: OK and exit status disagree", c)
		}
	}
}

func TestWorkerExit(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	writeFile(t, u.Path(FileWorkerExit), "7 ")
	if x, err := u.ReadWorkerExit(); !errors.Is(err, ErrMalformed) {
		t.Errorf("half a line read as %+v, %v", x, err)
	}
	if err := u.WriteWorkerExit(0, 15); err != nil {
		t.Fatal(err)
	}
	x, err := u.ReadWorkerExit()
	if err != nil || x.Code != 0 || x.Signal != 15 || time.Since(x.Ended) > time.Minute {
		t.Errorf("read %+v, %v", x, err)
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"cause":"failed","exit_code":null,"usage":{"total":3},"notes":["a"],"later":{"x":1}}`))
	f.Add([]byte(`{"CAUSE":1}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o Outcome
		if o.UnmarshalJSON(data) != nil {
			return
		}
		again, err := o.MarshalJSON()
		if err != nil {
			t.Fatalf("read %q, cannot write %+v: %v", data, o, err)
		}
		var back Outcome
		if err := back.UnmarshalJSON(again); err != nil {
			t.Fatalf("wrote %q, cannot read it: %v", again, err)
		}
		if back.Cause != o.Cause || len(back.Extra) != len(o.Extra) || len(back.Notes) != len(o.Notes) {
			t.Fatalf("%q became %q", data, again)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"unit":"u","front":{"pid":1},"result_before":{"size":1},"created":"2026-11-29T12:00:00Z","x":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var id Identity
		if id.UnmarshalJSON(data) != nil {
			return
		}
		again, err := id.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var back Identity
		if err := back.UnmarshalJSON(again); err != nil {
			t.Fatalf("wrote %q: %v", again, err)
		}
	})
}

func FuzzWorker(f *testing.F) {
	f.Add([]byte(`{"worker":{"pid":7,"start":9},"started":"2026-11-29T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var w WorkerRecord
		if w.UnmarshalJSON(data) != nil {
			return
		}
		if _, err := w.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzWorkerExit(f *testing.F) {
	f.Add("7 0 2026-11-29T12:00:00Z\n")
	f.Add("0 9\n")
	f.Fuzz(func(t *testing.T, text string) {
		if x, err := parseWorkerExit(text); err == nil && x.Signal < 0 {
			t.Errorf("%q gave %+v", text, x)
		}
	})
}
