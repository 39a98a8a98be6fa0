package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/slots"
	"github.com/prun-suite/prun/pkg/state"
)

// crowd is a number of units on one count of workers, and a look at who lives.
type crowd struct {
	t     *testing.T
	env   []string
	limit int
	units []*unitRun
}

func newCrowd(t *testing.T, limit int) *crowd {
	t.Helper()
	return &crowd{t: t, env: queue(t), limit: limit}
}

func (c *crowd) add(script string, args ...string) *unitRun {
	c.t.Helper()
	u := begin(c.t, c.env, append([]string{"--max-workers", strconv.Itoa(c.limit)}, args...), script)
	c.units = append(c.units, u)
	return u
}

// working reports whether the unit has a living worker.
func working(u *unitRun) bool {
	w, _ := u.unit().ReadWorker()
	if w == nil {
		return false
	}
	alive, _ := w.Worker.Alive()
	return alive
}

func waiting(u *unitRun) bool { _, q := u.unit().Queued(); return q }

// look counts the living workers, and fails when there are too many.
func (c *crowd) look() int {
	c.t.Helper()
	idle := func(u *unitRun) bool { return !working(u) }
	alive := slices.DeleteFunc(slices.Clone(c.units), idle)
	if len(alive) > c.limit {
		// The first of them may have ended before the last was looked at. Those who
		// still live were all alive at one moment, that between the two looks.
		alive = slices.DeleteFunc(alive, idle)
	}
	if len(alive) > c.limit {
		c.t.Fatalf("%d workers are alive, the limit is %d", len(alive), c.limit)
	}
	return len(alive)
}

// members are the live entries of the count itself.
func (c *crowd) members() []slots.Member {
	c.t.Helper()
	_, dir, _ := strings.Cut(c.env[0], "=")
	pool, err := slots.Open(filepath.Join(dir, "slots"))
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := pool.Members()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// Forty units on five slots: never more than five live, all finish, first come
// first served.
func TestFortyOnFiveSlots(t *testing.T) {
	c := newCrowd(t, 5)
	dir := t.TempDir()
	gate, alive, order := filepath.Join(dir, "gate"), filepath.Join(dir, "alive"), filepath.Join(dir, "order")
	if err := os.Mkdir(alive, 0o755); err != nil {
		t.Fatal(err)
	}
	const all = 40
	for i := range all {
		// Each worker also counts for itself, at every start.
		u := c.add(fmt.Sprintf(`: >%[1]s/%[2]d; echo %[2]d >>%[3]s; ls %[1]s | wc -l >>%[3]s.counts
while ! [ -e %[4]s ]; do sleep 0.05; done; sleep 0.05; rm %[1]s/%[2]d; echo '# u result' >"$PRUN_RESULT_FILE"`, alive, i, order, gate))
		u.until(20*time.Second, "it runs or waits", func() bool { return working(u) || waiting(u) })
	}
	if n := c.look(); n != 5 {
		t.Fatalf("%d workers run before the gate opens", n)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.units[0].until(60*time.Second, "all have a result", func() bool {
		entries, err := os.ReadDir(alive)
		if err != nil || len(entries) > 5 {
			t.Fatalf("%d workers are alive (%v)", len(entries), err)
		}
		c.look()
		return !slices.ContainsFunc(c.units, func(u *unitRun) bool {
			_, err := os.Stat(u.result)
			return err != nil
		})
	})
	for _, u := range c.units {
		if got := u.wait(); got != 0 {
			t.Errorf("exit %d\n%s", got, u.describe())
		}
	}
	for i, n := range numbers(t, order) {
		// Five start at once, so that many may pass each other on the way to the file.
		if n-i >= 5 || i-n >= 5 {
			t.Errorf("unit %d started as number %d", n, i)
		}
	}
	if counts := numbers(t, order+".counts"); len(counts) != all || slices.Max(counts) > 5 {
		t.Errorf("workers saw beside each other: %v", counts)
	}
	if left := c.members(); len(left) > 0 {
		t.Errorf("still counted: %+v", left)
	}
}

func numbers(t *testing.T, name string) []int {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, w := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(w)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// On one slot the order is exact, and the next worker is there soon after the
// one before it has gone.
func TestOneSlotInOrder(t *testing.T) {
	c := newCrowd(t, 1)
	dir := t.TempDir()
	gate, order := filepath.Join(dir, "gate"), filepath.Join(dir, "order")
	for i := range 8 {
		u := c.add(fmt.Sprintf(`echo %d >>%s; while ! [ -e %s ]; do sleep 0.05; done`, i, order, gate))
		u.until(20*time.Second, "it runs or waits", func() bool { return working(u) || waiting(u) })
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	best := time.Hour
	for i, u := range c.units {
		if got := u.wait(); got != 0 {
			t.Errorf("exit %d\n%s", got, u.describe())
		}
		if i == 0 {
			continue
		}
		exit, err := c.units[i-1].unit().ReadWorkerExit()
		w, werr := u.unit().ReadWorker()
		if exit == nil || w == nil {
			t.Fatalf("records: %v, %v", err, werr)
		}
		d := w.Started.Sub(exit.Ended)
		t.Logf("the next worker started %v after the one before it had ended", d)
		best = min(best, d)
	}
	if got := numbers(t, order); !slices.IsSorted(got) || len(got) != 8 {
		t.Errorf("order %v", got)
	}
	// The machine may be busy with others; the best says what we take.
	if best > 100*time.Millisecond {
		t.Errorf("the quickest wake-up took %v", best)
	}
}

// Whoever is killed, holder or waiter, with its guards or without: the slots
// that are free are taken, and none is ever lost.
func TestHoldersAndWaitersKilled(t *testing.T) {
	c := newCrowd(t, 2)
	gate := filepath.Join(t.TempDir(), "gate")
	script := `while ! [ -e ` + gate + ` ]; do sleep 0.1; done; echo '# u result' >"$PRUN_RESULT_FILE"`
	for range 5 {
		c.add(script)
	}
	settled := func() {
		t.Helper()
		c.units[0].until(20*time.Second, "two run and the others wait", func() bool {
			running, queued := c.look(), 0
			for _, u := range c.units {
				if waiting(u) && !working(u) {
					queued++
				}
			}
			return running == 2 && running+queued == len(c.units)
		})
	}
	for range rounds(t, 15) {
		settled()
		i := rand.IntN(len(c.units))
		u := c.units[i]
		id := u.identity()
		victims := map[string][]pid.ID{
			"supervisor":            {id.Supervisor},
			"supervisor and front":  {id.Supervisor, id.Front},
			"front":                 {id.Front},
			"keeper and supervisor": {id.Keeper, id.Supervisor},
			"all":                   {id.Front, id.Keeper, id.Supervisor},
		}
		who := slices.Sorted(func(yield func(string) bool) {
			for k := range victims {
				if !yield(k) {
					return
				}
			}
		})[rand.IntN(len(victims))]
		t.Logf("kill %s of unit %d, which waits: %t", who, i, waiting(u))
		for _, v := range victims[who] {
			u.kill(v)
		}
		if who == "front" {
			// The unit goes on, waiting or not.
			continue
		}
		if heir, err := id.Front.Alive(); slices.Contains(victims[who], id.Keeper) && (err != nil || !heir || who == "all") {
			// Nobody is left to end the worker; its slot is free all the same.
			u.clear()
		}
		c.units = slices.Delete(c.units, i, i+1)
		u.empty(20 * time.Second)
		c.add(script)
	}
	settled()
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, u := range c.units {
		if o := u.outcome(); o.Cause != state.Exited {
			t.Errorf("outcome %+v\n%s", o, u.describe())
		}
	}
	c.units[0].until(10*time.Second, "nobody is counted", func() bool { return len(c.members()) == 0 })
}

// A unit inside another takes part in its slot: it neither waits for its own
// parent nor counts. One that detaches outlives it and counts, without waiting.
func TestNestedUnitSharesTheSlot(t *testing.T) {
	modes(t, func(t *testing.T, env []string) {
		c := newCrowd(t, 1)
		c.env = append(c.env, env...)
		inner := binary + ` --max-workers 1 --backend command --prompt-file "$P" --result-file "$PRUN_STATE_DIR/in%d" --unit-id in%d %s -- sh -c '%s'`
		dir := t.TempDir()
		prompt := filepath.Join(dir, "p")
		if err := os.WriteFile(prompt, []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		c.env = append(c.env, "P="+prompt)
		u := c.add(fmt.Sprintf(inner, 1, 1, "", fmt.Sprintf(inner, 2, 2, "", "echo innermost")) + `; echo status $?; ` +
			fmt.Sprintf(inner, 3, 3, "--detach", "while ! [ -e "+dir+"/go ]; do sleep 0.05; done") + `; echo '# u result' >"$PRUN_RESULT_FILE"`)
		if got := u.wait(); got != 0 {
			t.Fatalf("exit %d\n%s", got, u.describe())
		}
		b, _ := os.ReadFile(filepath.Join(u.base, filepath.Base(c.top(u)), state.FileTail))
		if !strings.Contains(string(b), "status 0") {
			t.Errorf("tail %q", b)
		}
		m := c.members()
		if len(m) != 1 || m[0].Unit != "in3" || !m[0].Counted {
			t.Errorf("counted after the outer unit's end: %+v", m)
		}
		next := begin(t, c.env, []string{"--max-workers", "1"}, "echo next")
		next.until(10*time.Second, "it waits for the detached one", func() bool { return waiting(next) })
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := next.wait(); got != 0 {
			t.Errorf("exit %d\n%s", got, next.describe())
		}
	})
}

// top is the directory of the outermost unit below a base that holds others.
func (c *crowd) top(u *unitRun) string {
	c.t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(u.base, state.Prefix+"*-u-*"))
	if len(dirs) != 1 {
		c.t.Fatalf("state directories: %v", dirs)
	}
	return dirs[0]
}

// A unit that waits costs nothing to speak of.
func TestWaitingIsCheap(t *testing.T) {
	c := newCrowd(t, 1)
	c.add(`echo started; sleep 60`).says("started")
	for range 5 {
		u := c.add(`echo never`)
		u.until(20*time.Second, "it waits", func() bool { return waiting(u) })
	}
	spent := func() (ticks int) {
		for _, u := range c.units[1:] {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", u.identity().Supervisor.PID))
			if err != nil {
				t.Fatal(err)
			}
			// After the name, which may hold blanks: utime and stime are 14 and 15.
			f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
			for _, s := range f[11:13] {
				n, err := strconv.Atoi(s)
				if err != nil {
					t.Fatal(err)
				}
				ticks += n
			}
		}
		return ticks
	}
	before, start := spent(), time.Now()
	<-time.After(3 * time.Second)
	cost := time.Duration(spent()-before) * 10 * time.Millisecond
	t.Logf("five waiting units took %v of %v", cost, time.Since(start))
	if cost > 300*time.Millisecond {
		t.Errorf("five waiting units took %v in three seconds", cost)
	}
}

// The kernel is to take a worker before its guards, and --nice is the worker's.
func TestWorkerPriority(t *testing.T) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	u := begin(t, append(queue(t), "PRUN_NICE=7"), nil, `cat /proc/self/oom_score_adj; echo "nice $(nice)"; echo ready; sleep 60`)
	u.says("ready")
	base, _ := strconv.Atoi(niceOf(t, os.Getpid()))
	b, _ := os.ReadFile(u.unit().Path(state.FileTail))
	want := fmt.Sprintf("%d\nnice %d\n", max(score, 300), min(base+7, 19))
	if !strings.HasPrefix(string(b), want) {
		t.Errorf("tail %q, want %q", b, want)
	}
	id := u.identity()
	for _, p := range []pid.ID{id.Supervisor, id.Keeper, id.Front} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID))
		if err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(score) {
			t.Errorf("guard %d: %q %v, want %d", p.PID, b, err, score)
		}
		if n := niceOf(t, p.PID); n != strconv.Itoa(base) {
			t.Errorf("guard %d has niceness %s", p.PID, n)
		}
	}
}

func niceOf(t *testing.T, p int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))[16]
}

// Short memory holds a new unit back, ends none that runs, and a bad value is
// the default and one warning.
func TestMemoryAndBadValues(t *testing.T) {
	env := queue(t)
	first := begin(t, append(env, "PRUN_MIN_FREE_MEMORY=1"), nil, `echo started; sleep 60`)
	first.says("started")
	u := begin(t, append(env, "PRUN_MIN_FREE_MEMORY=4096TiB"), []string{"--queue-timeout", "1"}, `echo never`)
	if got := u.wait(); got != 75 {
		t.Errorf("exit %d, want 75\n%s", got, u.describe())
	}
	o := u.outcome()
	if o.Cause != state.Blocked || !strings.Contains(o.Reason, "memory") || !strings.Contains(o.Reason, "1 s") {
		t.Errorf("outcome %+v", o)
	}
	if !working(first) {
		t.Error("the running unit is gone")
	}
	for _, c := range []struct{ setting, warning string }{
		{"PRUN_MIN_FREE_MEMORY=lots", "PRUN_MIN_FREE_MEMORY=lots"},
		{"PRUN_MIN_FREE_MEMORY=-1", "PRUN_MIN_FREE_MEMORY=-1"},
		{"PRUN_MAX_WORKERS=abc", "PRUN_MAX_WORKERS"},
		{"PRUN_MAX_WORKERS=-1", "PRUN_MAX_WORKERS"},
		{"PRUN_MAX_WORKERS=99999999999999999999", "PRUN_MAX_WORKERS"},
		{"PRUN_MAX_WORKERS=2000000", "PRUN_MAX_WORKERS"},
		{"PRUN_NICE=20", "PRUN_NICE=20"},
		{"PRUN_NICE=-5", "PRUN_NICE=-5"},
		{"PRUN_NICE=x", "PRUN_NICE=x"},
	} {
		u := begin(t, append(env, c.setting), nil, `echo '# u result' >"$PRUN_RESULT_FILE"`)
		if got := u.wait(); got != 0 {
			t.Errorf("%s: exit %d\n%s", c.setting, got, u.describe())
		}
		if n := strings.Count(u.stderr.String(), "warning: "); n != 1 || !strings.Contains(u.stderr.String(), "warning: "+c.warning) {
			t.Errorf("%s: %d warnings: %s", c.setting, n, u.stderr.String())
		}
	}
	for _, blank := range []string{"PRUN_MIN_FREE_MEMORY=", "PRUN_MAX_WORKERS= ", "PRUN_NICE= "} {
		u := begin(t, append(env, blank), nil, `echo '# u result' >"$PRUN_RESULT_FILE"`)
		if got := u.wait(); got != 0 || strings.Contains(u.stderr.String(), "warning") {
			t.Errorf("%q: exit %d: %s", blank, got, u.stderr.String())
		}
	}
}

// Whatever happens to a unit that waits, the ledger has two lines of it and its
// directory does not say that it still waits.
func TestQueuedUnitsBooks(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(u *unitRun)
		exit int
		last string
	}{
		{"stopped", func(u *unitRun) { u.cmd.Process.Signal(os.Interrupt) }, 130, `"cause":"interrupted","exit_code":130`},
		{"supervisor killed", func(u *unitRun) { u.kill(u.identity().Supervisor) }, 70, `"cause":"lost","exit_code":70`},
		{"both guards killed", func(u *unitRun) {
			id := u.identity()
			u.kill(id.Keeper)
			u.kill(id.Supervisor)
		}, 70, `"cause":"lost","exit_code":70`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := queue(t)
			first := begin(t, env, []string{"--max-workers", "1"}, `echo started; sleep 60`)
			first.says("started")
			ledger := filepath.Join(t.TempDir(), "led")
			u := begin(t, env, []string{"--max-workers", "1", "--ledger", ledger}, `echo never`)
			u.until(10*time.Second, "queued", func() bool { return waiting(u) })
			c.end(u)
			if got := u.wait(); got != c.exit {
				t.Errorf("exit %d, want %d\n%s", got, c.exit, u.describe())
			}
			b, _ := os.ReadFile(ledger)
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			if len(lines) != 2 || !strings.Contains(lines[0], `"status":"queued"`) || !strings.Contains(lines[1], c.last) {
				t.Errorf("ledger:\n%s", b)
			}
			if waiting(u) {
				t.Error("its directory says that it waits")
			}
			if w, _ := u.unit().ReadWorker(); w != nil {
				t.Errorf("a worker was started: %+v", w)
			}
		})
	}
}
