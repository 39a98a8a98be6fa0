//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// unit is one unit of a round: what its worker will do, what will be done to
// it, and what the checker may therefore expect. Everything in it follows from
// the seed and the round.
type unit struct {
	n     int
	id    string
	token string // in the environment of every process of it
	digit string // in the command line of an escapee that clears its environment

	kind    string // of the worker
	door    string // herd, lane, or prun-dispatch where empty
	farm    *farm  // of a lane
	backend string
	script  script
	base    string // where its state directory lies
	small   bool   // ... on the small file system
	result  string
	before  []byte // what stood at result before
	witness string // directory of the marks that its worker makes
	mode    string // containment
	stall   float64
	hard    float64
	files   int  // limit of open files, 0 for none
	storm   bool // runs under the small limit of processes
	detach  bool
	clocked bool // its wall clock is set while it runs
	ledger  string
	prompt  int // bytes
	delay   time.Duration
	actions []action

	run unitRun
}

// action is one thing that is done to a unit.
type action struct {
	after time.Duration // since its start
	what  string        // kill, stop, TERM, INT, HUP, remove, clock
	whom  []string      // front, keeper, supervisor, worker
	again time.Duration // stop: until continued; clock: how far it is set
}

// script is what a worker does, in the words of fakeagent, and what follows
// from each mark that it makes.
type script struct {
	steps []string
	out   []piece // what has been written so far, plain programs only
	marks []mark
	// result is the worker's: text, or what kind of thing.
	result     string // "", text, slow, late, empty, link, dir, fifo
	resultText string
	resultFrom int  // the mark before it is begun
	resultDone int  // the mark after it is done; 0 never
	noise      bool // a child writes noise lines in between
	endless    bool // x without end after everything else
	exit       int  // scripted exit status; -1 never ends by itself
	signal     int
	endMark    int
	response   string
	fails      bool // a dialect's failure
	escapes    bool // leaves a process that no environment names
}

// piece is a run of output.
type piece struct {
	text []byte
	ys   int
}

func (p piece) len() int { return len(p.text) + p.ys }

type mark struct {
	written int64 // bytes of output before it
	line    string
}

func (s *script) add(step string) { s.steps = append(s.steps, step) }

func (s *script) written() int64 {
	var n int64
	for _, p := range s.out {
		n += int64(p.len())
	}
	return n
}

// mark makes a file by which the worker tells that it has come this far.
func (u *unit) mark() int {
	s := &u.script
	line := ""
	if u.backend != "command" {
		// What a dialect writes is not ours to foretell; a line of our own is.
		line = fmt.Sprintf("mark-%s-%d", u.id, len(s.marks)+1)
		s.add("out " + line)
	}
	s.marks = append(s.marks, mark{s.written(), line})
	s.add("touch " + filepath.Join(u.witness, strconv.Itoa(len(s.marks))))
	return len(s.marks)
}

func (u *unit) out(text string) {
	u.script.add("out " + escape(text))
	u.script.out = append(u.script.out, piece{text: []byte(text + "\n")})
}

func (u *unit) outn(text string) {
	u.script.add("outn " + escape(text))
	u.script.out = append(u.script.out, piece{text: []byte(text)})
}

func (u *unit) flood(n int) {
	u.script.add(fmt.Sprintf("flood %d", n))
	u.script.out = append(u.script.out, piece{ys: n}, piece{text: []byte("\n")})
}

func (u *unit) drip(d time.Duration, n int) {
	u.script.add(fmt.Sprintf("drip %v %d x", d, n))
	u.script.out = append(u.script.out, piece{text: bytes.Repeat([]byte("x"), n)})
}

func (u *unit) pause(d time.Duration) { u.script.add("pause " + d.String()) }

func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (u *unit) exit(code int) {
	u.script.endMark = u.mark()
	u.script.exit = code
	u.script.add("exit " + strconv.Itoa(code))
}

func (u *unit) hang(r *rand.Rand) {
	u.script.exit = -1
	u.script.add("hang")
	if r.IntN(3) == 0 {
		u.hard = 2 + 2*r.Float64()
		return
	}
	u.stall = 2 + 2*r.Float64()
}

func (u *unit) land(r *rand.Rand, how string) {
	s := &u.script
	s.result = how
	s.resultFrom = u.mark()
	s.resultText = fmt.Sprintf("# %s result\\nConclusion: done\\nFiles: none\\nOpen items: none\\nVerification: none\\n\\nbody %s\\n", u.id, u.token)
	switch how {
	case "text":
		s.add("result " + s.resultText)
	case "slow", "late":
		// These write the text that fakeagent itself makes.
		s.resultText = fmt.Sprintf("# %s result\\nConclusion: done\\nFiles: none (read-only)\\nOpen items: none\\nVerification: none\\n\\nbody\\n", u.id)
		s.add("result-" + how + " " + (time.Duration(r.IntN(1500)) * time.Millisecond).String())
	case "empty":
		s.add("result-empty")
	case "link":
		s.add("result-link " + u.result + ".target")
	default:
		s.add("result-" + how)
	}
	s.resultText = strings.ReplaceAll(s.resultText, `\n`, "\n")
	s.resultDone = u.mark()
}

// workers are the kinds of worker. Each is a script; what follows of it is
// computed while it is written.
var workers = []struct {
	name  string
	build func(u *unit, r *rand.Rand)
}{
	{"good", func(u *unit, r *rand.Rand) {
		u.out("begin")
		u.mark()
		u.wait(r)
		u.land(r, "text")
		u.exit(0)
	}},
	{"no result", func(u *unit, r *rand.Rand) { u.out("all done"); u.wait(r); u.exit(0) }},
	{"code", func(u *unit, r *rand.Rand) {
		u.out("begin")
		u.wait(r)
		u.exit([]int{1, 2, 3, 70, 75, 124, 126, 127, 137, 143, 255}[r.IntN(11)])
	}},
	{"result then code", func(u *unit, r *rand.Rand) { u.wait(r); u.land(r, "text"); u.exit(5) }},
	{"early exit", func(u *unit, r *rand.Rand) { u.exit(r.IntN(2)) }},
	{"signal", func(u *unit, r *rand.Rand) {
		u.out("begin")
		u.wait(r)
		u.script.endMark = u.mark()
		one := []struct {
			name string
			n    int
		}{{"SEGV", 11}, {"KILL", 9}, {"TERM", 15}, {"ABRT", 6}}[r.IntN(4)]
		u.script.signal = one.n
		u.script.add("kill " + one.name)
	}},
	{"flood", func(u *unit, r *rand.Rand) {
		for range 1 + r.IntN(4) {
			u.flood(1 << (10 + r.IntN(12)))
			u.mark()
		}
		u.wait(r)
		u.land(r, "text")
		u.exit(0)
	}},
	{"flood without a result", func(u *unit, r *rand.Rand) {
		for range 3 {
			u.flood(100_000 + r.IntN(2_000_000))
			u.mark()
		}
		u.exit(r.IntN(2))
	}},
	{"huge line", func(u *unit, r *rand.Rand) { u.flood(3<<20 + r.IntN(3<<20)); u.mark(); u.out("after"); u.exit(0) }},
	{"silence", func(u *unit, r *rand.Rand) { u.mark(); u.hang(r) }},
	{"words then silence", func(u *unit, r *rand.Rand) { u.out("I will now think"); u.mark(); u.hang(r) }},
	{"result then silence", func(u *unit, r *rand.Rand) { u.land(r, "text"); u.hang(r) }},
	{"drip", func(u *unit, r *rand.Rand) {
		for range 5 {
			u.drip(time.Duration(20+r.IntN(80))*time.Millisecond, 10)
			u.mark()
		}
		u.exit(0)
	}},
	{"drip for ever", func(u *unit, r *rand.Rand) {
		u.hard = 2 + 2*r.Float64()
		u.mark()
		u.script.add("drip 100ms 0 x")
		u.script.endless, u.script.exit = true, -1
	}},
	{"escapees", func(u *unit, r *rand.Rand) {
		for range 1 + r.IntN(3) {
			u.script.add([]string{"child", "child-setsid", "child-double", "child-stubborn", "child-quiet"}[r.IntN(5)])
		}
		u.out("left some behind")
		u.mark()
		u.wait(r)
		u.exit(r.IntN(2))
	}},
	{"nameless escapee", func(u *unit, r *rand.Rand) {
		u.script.escapes = true
		u.script.add("sh (setsid env -i sleep " + u.digit + " &)")
		u.mark()
		u.wait(r)
		u.land(r, "text")
		u.exit(0)
	}},
	{"talking child", func(u *unit, r *rand.Rand) {
		u.script.noise = true
		u.script.add("child-talk")
		u.out("the child goes on talking")
		u.mark()
		u.wait(r)
		u.exit(0)
	}},
	{"stubborn", func(u *unit, r *rand.Rand) {
		u.script.add("ignore TERM INT HUP")
		u.script.add("child-stubborn")
		u.out("will not go")
		u.mark()
		u.hang(r)
	}},
	{"stops itself", func(u *unit, r *rand.Rand) { u.out("x"); u.mark(); u.script.add("kill STOP"); u.hang(r) }},
	{"partial line", func(u *unit, r *rand.Rand) { u.outn("no newline at the e"); u.mark(); u.wait(r); u.exit(0) }},
	{"bad bytes", func(u *unit, r *rand.Rand) {
		b := make([]byte, 300)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		u.outn(string(b))
		u.mark()
		u.outn("\x1b]0;title\x07\x1b[2J\r\x00\xef\xbb\xbf{\"type\":")
		u.mark()
		u.wait(r)
		u.exit(1)
	}},
	{"descriptor hog", func(u *unit, r *rand.Rand) {
		u.mark()
		u.script.add("sh ulimit -n 4096; exec " + self() + " " + hogCommand + " 1s")
		u.land(r, "text")
		u.exit(0)
	}},
	{"slow result", func(u *unit, r *rand.Rand) { u.land(r, "slow"); u.exit(0) }},
	{"late result", func(u *unit, r *rand.Rand) { u.land(r, "late"); u.exit(0) }},
	{"empty result", func(u *unit, r *rand.Rand) { u.land(r, "empty"); u.wait(r); u.exit(r.IntN(2)) }},
	{"result is a link", func(u *unit, r *rand.Rand) { u.land(r, "link"); u.wait(r); u.exit(0) }},
	{"result is a directory", func(u *unit, r *rand.Rand) { u.land(r, "dir"); u.wait(r); u.exit(0) }},
	{"result is a FIFO", func(u *unit, r *rand.Rand) { u.land(r, "fifo"); u.wait(r); u.exit(0) }},
	{"fork storm", func(u *unit, r *rand.Rand) {
		u.storm = true
		u.hard = 2
		u.mark()
		// Contained by the limit of processes that it is started under.
		u.script.add("sh while :; do (setsid sh -c 'sleep 0.2' &) 2>/dev/null; done")
		u.script.exit = -1
	}},
	{"work directory removed", func(u *unit, r *rand.Rand) { u.script.add("rmcwd"); u.out("gone"); u.mark(); u.wait(r); u.exit(0) }},
	{"agy", func(u *unit, r *rand.Rand) {
		u.backend = "agy"
		u.mark()
		u.wait(r)
		if r.IntN(3) == 0 {
			u.land(r, "text")
		}
		switch r.IntN(5) {
		case 0:
			u.script.endMark, u.script.fails = u.mark(), true
			u.script.add("fail0 it broke")
		case 1:
			u.script.endMark, u.script.fails = u.mark(), true
			u.script.add("quota")
		default:
			u.script.response = "the whole answer of unit " + u.id + ", more than twenty bytes"
			u.script.add("line " + strconv.Itoa(1<<(5+r.IntN(16))))
			u.script.endMark = u.mark()
			u.script.add("text " + u.script.response)
		}
	}},
	{"codex", func(u *unit, r *rand.Rand) {
		u.backend = "codex"
		u.mark()
		u.wait(r)
		if r.IntN(2) == 0 {
			u.land(r, "text")
		}
		if r.IntN(4) == 0 {
			u.script.endMark, u.script.fails = u.mark(), true
			u.script.add("fail no such model")
			return
		}
		u.script.endMark = u.mark()
		u.script.add("text done")
	}},
	{"claude", func(u *unit, r *rand.Rand) {
		u.backend = "claude"
		u.mark()
		u.wait(r)
		u.script.add("session " + []string{"a b;$(id)\x1b[2J", "-", "../../x", "0f0e0d0c-1111-4222-8333-444455556666"}[r.IntN(4)])
		if r.IntN(4) == 0 {
			u.script.endMark, u.script.fails = u.mark(), true
			u.script.add("fail0 overloaded")
			return
		}
		u.script.response = "the answer of " + u.id + " which is long enough to count"
		u.script.endMark = u.mark()
		u.script.add("text " + u.script.response)
	}},
}

// wait lets the unit live for a while, so that many do at once.
func (u *unit) wait(r *rand.Rand) {
	d := time.Duration(r.IntN(4000)) * time.Millisecond
	if r.IntN(3) == 0 {
		d = time.Duration(r.IntN(60)) * time.Millisecond
	}
	if d < 500*time.Millisecond {
		u.pause(d)
		return
	}
	if u.script.noise || u.backend != "command" || r.IntN(2) == 0 {
		u.pause(d)
		return
	}
	for range 4 {
		u.pause(d / 4)
		u.out("still here")
		u.mark()
	}
}

// What would load the machine more than the suite: a few of each in a round do.
const (
	maxLanes = 8
	maxHeavy = 2
)

var heavyKinds = []string{"fork storm", "descriptor hog"}

// plan makes the units of a round.
func (m *mill) plan(r *rand.Rand, dir string, f *farm) []*unit {
	var units []*unit
	lanes, heavy := 0, map[string]int{}
	for n := range m.units {
		u := &unit{
			n: n, id: fmt.Sprintf("u%03d", n), token: fmt.Sprintf("SOAK=%s-%03d", filepath.Base(dir), n),
			backend: "command", witness: filepath.Join(dir, "w", strconv.Itoa(n)),
			base: filepath.Join(dir, "s"), result: filepath.Join(dir, "r", strconv.Itoa(n), "r.md"),
			digit: fmt.Sprintf("21.%06d%03d", r.IntN(1e6), n),
		}
		u.mode = []string{"auto", "subreaper"}[r.IntN(2)]
		if r.IntN(20) == 0 {
			if lanes++; f.ready && lanes <= maxLanes {
				u.planLane(r, f)
				units = append(units, u)
			}
			continue
		}
		if m.bin["herd"] != "" && r.IntN(7) == 0 {
			u.planTask(r, dir)
			units = append(units, u)
			continue
		}
		k := workers[r.IntN(len(workers))]
		if heavy[k.name]++; slices.Contains(heavyKinds, k.name) && heavy[k.name] > maxHeavy {
			k = workers[0]
		}
		u.kind = k.name
		k.build(u, r)
		if u.backend != "command" && u.hard == 0 {
			u.hard = 12
		}
		if u.stall == 0 && r.IntN(4) == 0 {
			u.stall = 8
		}
		u.delay = time.Duration(r.IntN(int(m.ramp)))
		if u.kind == "fork storm" && m.stormGroup == "" {
			continue
		}
		switch r.IntN(12) {
		case 0:
			if m.smallDir != "" && !u.storm {
				u.base, u.small = filepath.Join(m.smallDir, filepath.Base(dir)), true
			}
		case 1:
			if !u.storm {
				u.files = 8 + r.IntN(60)
			}
		case 2:
			u.detach = true
		case 3:
			if u.backend == "command" && u.script.result == "" {
				u.before = []byte("# an older result\nthat nobody touched\n")
			}
		}
		if r.IntN(3) > 0 && !u.small {
			u.ledger = filepath.Join(dir, "ledger.jsonl")
		}
		u.prompt = 1 << r.IntN(17)
		u.afflict(r)
		units = append(units, u)
	}
	for _, u := range units {
		if m.bin["clocked"] != "" && r.IntN(6) == 0 {
			u.unsteady(r)
		}
	}
	return units
}

var parties = []string{"front", "keeper", "supervisor", "worker"}

// afflict decides what is done to the unit.
func (u *unit) afflict(r *rand.Rand) {
	if r.IntN(10) < 4 {
		return
	}
	for range 1 + r.IntN(3) {
		a := action{after: time.Duration(r.IntN(4000)) * time.Millisecond}
		if r.IntN(5) == 0 {
			a.after = time.Duration(r.IntN(120)) * time.Millisecond
		}
		switch r.IntN(12) {
		case 0, 1, 2:
			a.what, a.whom = "kill", []string{parties[r.IntN(4)]}
		case 3:
			a.what, a.whom = "kill", []string{"keeper", "supervisor"}
		case 4:
			a.what, a.whom = "kill", []string{"front", "supervisor"}
		case 5:
			a.what, a.whom = "kill", []string{"front", "keeper", "supervisor"}
		case 6:
			a.what, a.whom = "kill", []string{"front", "keeper", "supervisor", "worker"}
		case 7, 8:
			a.what, a.whom, a.again = "stop", []string{parties[r.IntN(4)]}, time.Duration(r.IntN(2500))*time.Millisecond
		case 9, 10:
			a.what, a.whom = []string{"TERM", "INT", "HUP"}[r.IntN(3)], []string{[]string{"front", "supervisor"}[r.IntN(2)]}
		case 11:
			if r.IntN(3) > 0 {
				continue
			}
			a.what = "remove"
		}
		u.actions = append(u.actions, a)
	}
}
