package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/eventlog"
	"github.com/prun-suite/prun/pkg/session"
)

// F19: the events never exceed their cap, every line of them is whole, and what our processes hold of memory depends
// neither on the stream nor on a line.
func TestF19Bounded(t *testing.T) {
	if testing.Short() {
		t.Skip("condition not met: time for a long stream")
	}
	b := newBed(t, "DELEGATE_EVENTS_MAX_MB=1")
	huge := rounds(t, 20)
	b.spawn("big", fmt.Sprintf("start\nline %dm\nflood %dm\nflood-err 4m\ntext done\npause 0.5", huge, huge))
	b.until(10*time.Second, "born", func() bool { return b.exists("big", "turns", "1", "worker.json") })
	id, err := b.unit("big", 1).Unit().ReadIdentity()
	if err != nil || id == nil {
		t.Fatal(err)
	}
	var most int
	b.until(60*time.Second, "settled", func() bool {
		for _, name := range []string{session.FileEvents, session.FileStderr} {
			if fi, err := os.Stat(b.path("big", name)); err == nil && fi.Size() > 1<<20 {
				t.Fatalf("%s holds %d bytes", name, fi.Size())
			}
		}
		most = max(most, resident(id.Supervisor.PID)+resident(id.Keeper.PID))
		return b.exists("big", session.FileDone)
	})
	if out := b.ok("result", "big"); out != "done\n" {
		t.Errorf("%q", out)
	}
	t.Logf("supervisor and keeper held %d KiB", most)
	if most > 48<<10 {
		t.Errorf("supervisor and keeper held %d KiB", most)
	}
	var packed int64
	for _, s := range eventlog.Segments(b.path("big", session.FileEvents)) {
		if filepath.Base(s.Name) != session.FileEvents {
			packed += s.Size
		}
	}
	if packed > 1<<20 {
		t.Errorf("rotated segments hold %d bytes", packed)
	}
}

// resident is what a process holds in memory, in KiB.
func resident(p int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// F23: how long things take. The bounds of the contract are asserted with room for a loaded machine; PRUN_TEST_STRICT
// asserts them as they are.
func TestF23Latency(t *testing.T) {
	b := newBed(t)
	slack := time.Duration(100)
	if os.Getenv("PRUN_TEST_STRICT") != "" {
		slack = 1
	}
	within := func(what string, limit time.Duration, got []time.Duration) {
		t.Helper()
		slices.Sort(got)
		t.Logf("%s: median %v, best %v, worst %v", what, got[len(got)/2], got[0], got[len(got)-1])
		if got[len(got)/2] > limit*slack {
			t.Errorf("%s takes %v, the bound is %v", what, got[len(got)/2], limit)
		}
	}
	timed := func(args ...string) time.Duration {
		begun := time.Now()
		b.ok(args...)
		return time.Since(begun)
	}
	n := rounds(t, 5)
	var spawns, ends, wakes []time.Duration
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		spawns = append(spawns, timed("spawn", "workspace", steps("start\npause 0.15\ntext done"), "--name", name))
		a := b.run("result", name, "--wait")
		woken := time.Now()
		if a.out != "done\n" {
			t.Fatalf("%+v", a)
		}
		fi, err := os.Stat(b.path(name, session.FileDone))
		if err != nil {
			t.Fatal(err)
		}
		x, err := b.unit(name, 1).Unit().ReadWorkerExit()
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, fi.ModTime().Sub(x.Ended))
		wakes = append(wakes, woken.Sub(fi.ModTime()))
	}
	within("spawn", 40*time.Millisecond, spawns)
	within("backend's exit to .done", 30*time.Millisecond, ends)
	within(".done to the end of result --wait", 50*time.Millisecond, wakes)

	thousand := 1000
	if testing.Short() {
		thousand = 100
	}
	meta := b.read("s0", session.FileMeta)
	for i := range thousand {
		name := fmt.Sprintf("old%d", i)
		b.write(meta, name, session.FileMeta)
		b.write(b.read("s0", session.FileHelper), name, session.FileHelper)
		b.write(b.read("s0", session.FileChild), name, session.FileChild)
		b.write("words", name, session.FileReport)
		b.write("{}\n", name, session.FileEvents)
		b.write("", name, session.FileDone)
	}
	var lists, all, statuses []time.Duration
	for range n {
		lists = append(lists, timed("list"))
		all = append(all, timed("list", "--all", "--any-owner", "--json"))
		statuses = append(statuses, timed("status", "s1"))
	}
	within("list", 25*time.Millisecond, lists)
	within("list --all --json", 50*time.Millisecond, all)
	within("status", 8*time.Millisecond, statuses)
	for i := range thousand {
		name := fmt.Sprintf("old%d", i)
		os.Remove(b.path(name, session.FileDone))
		b.write(`{"state":"working","backend":"codex","owner":"x","created_utc":1790000000.5,"deadline_utc":99999999999,"stall_after_s":3600}`, name, session.FileMeta)
		b.write(`{"helper_pid": 4194303, "mode": "spawn", "started_utc": 1790000000.1}`, name, session.FileHelper)
	}
	within("first list over dead workers", 400*time.Millisecond, []time.Duration{timed("list")})
	if p := b.payload("old5"); p["state"] != "failed" {
		t.Errorf("%v", p)
	}
}
