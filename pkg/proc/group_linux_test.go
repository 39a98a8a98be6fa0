package proc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/unix"
)

func init() { rootOnly = append(rootOnly, "root") }

const nobody = 65534

// plan is what a supervisor of the tests is to do: start a worker, wait for
// something, end it.
type plan struct {
	Leaf     string // name of the leaf, "" for subreaper mode
	Script   string // for sh -c; READY and PIDS name files
	Dir      string // for the two files
	Mark     string // PRUN_STATE_DIR of the worker
	Ready    bool   // wait for the file READY before anything
	Signals  []int  // then send these, and wait for the leader's end
	Natural  bool   // or wait for the leader's end
	Stopped  bool   // wait until the leader is stopped
	Freeze   bool   // freeze the leaf before the end
	Bound    time.Duration
	Keep     bool
	Spare    string // spare what has this in its command line
	OOM      int
	Nice     int
	BadLeaf  bool // remove the leaf before the start
	Uid      int
	Env      []string
	Gate     string // wait for this file before the end
	Watchdog bool   // start nothing: be killed while the worker lives
}

// report is what the supervisor says of it.
type report struct {
	Err         string
	Containment Containment
	Note        string
	ID          pid.ID
	Exit        Exit
	Proof       Proof
	Again       Proof // of a second End
	EndTook     time.Duration
	OOM         string // own oom_score_adj after the start
	Leaf        string // its path
	LeafStays   bool
}

var _ = helper("supervise", func([]string) int {
	var p plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := supervise(p)
	json.NewEncoder(os.Stdout).Encode(r)
	return 0
})

func supervise(p plan) (r report) {
	fail := func(err error) report { r.Err = err.Error(); return r }
	s := Spec{
		Path: "/bin/sh", Args: []string{"sh", "-c", p.Script}, Dir: p.Dir,
		Env: append([]string{"PATH=" + os.Getenv("PATH"), "PRUN_STATE_DIR=" + p.Mark,
			"READY=" + p.Dir + "/ready", "PIDS=" + p.Dir + "/pids"}, p.Env...),
		OOMScoreAdj: p.OOM, Nice: p.Nice,
	}
	out, err := os.OpenFile(p.Dir+"/out", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return fail(err)
	}
	s.Stdout, s.Stderr = out, out
	if p.Leaf != "" {
		if s.Leaf, err = NewLeaf(p.Leaf); err != nil {
			return fail(err)
		}
		r.Leaf = s.Leaf.Path()
		if p.BadLeaf {
			os.Remove(r.Leaf)
		}
	}
	g, err := Start(s)
	if err != nil {
		if s.Leaf != nil {
			s.Leaf.Remove()
		}
		return fail(err)
	}
	r.Containment, r.Note, r.ID = g.Containment(), g.Note(), g.ID()
	text, _ := os.ReadFile("/proc/self/oom_score_adj")
	r.OOM = strings.TrimSpace(string(text))
	if _, err := Start(s); !errors.Is(err, ErrBusy) {
		return fail(fmt.Errorf("second Start: %v", err))
	}
	PremakeThreads(8)
	if p.Watchdog {
		os.WriteFile(p.Dir+"/worker", []byte(strconv.Itoa(g.ID().PID)), 0o666)
		select {}
	}
	if p.Ready && !comes(func() bool { return exists(p.Dir+"/ready") || closed(g.Done()) }) {
		g.End(EndOptions{})
		return fail(errors.New("the worker did not get ready"))
	}
	if p.Stopped && !comes(func() bool { yes, _ := pid.Stopped(g.ID().PID); return yes }) {
		g.End(EndOptions{})
		return fail(errors.New("the worker did not stop"))
	}
	if p.Gate != "" && !comes(func() bool { return exists(p.Gate) }) {
		g.End(EndOptions{})
		return fail(errors.New("the gate did not open"))
	}
	for _, sig := range p.Signals {
		if err := g.Signal(syscall.Signal(sig)); err != nil {
			return fail(err)
		}
	}
	if p.Natural || len(p.Signals) > 0 {
		select {
		case <-g.Done():
		case <-time.After(20 * time.Second):
			g.End(EndOptions{})
			return fail(errors.New("the leader did not end"))
		}
		if _, ok := ZombieChild(g.ID().PID); !ok {
			return fail(errors.New("the leader is no zombie before End"))
		}
		if err := g.Signal(0); err != nil {
			return fail(fmt.Errorf("signal after Done: %w", err))
		}
	}
	if p.Freeze {
		if err := writeIn(s.Leaf.fd, "cgroup.freeze", "1"); err != nil {
			return fail(err)
		}
	}
	o := EndOptions{Bound: p.Bound, Keep: p.Keep}
	if p.Spare != "" {
		o.Spare = func(n int) bool {
			text, _ := os.ReadFile("/proc/" + strconv.Itoa(n) + "/cmdline")
			return bytes.Contains(text, []byte(p.Spare))
		}
	}
	begin := time.Now()
	r.Proof = g.End(o)
	r.EndTook = time.Since(begin)
	r.Exit = g.Exit()
	r.Again = g.End(EndOptions{})
	r.LeafStays = r.Leaf != "" && exists(r.Leaf)
	if err := g.Signal(syscall.SIGTERM); r.Proof.Empty && !errors.Is(err, os.ErrProcessDone) {
		return fail(fmt.Errorf("signal after End: %v", err))
	}
	return r
}

// way is a kind of supervisor: who it is and what it has.
type way struct {
	name string
	uid  int
	leaf bool
}

// ways returns root and nobody, each with and without a cgroup, as far as this
// machine allows.
func ways(t *testing.T) []way {
	t.Helper()
	uids := []int{os.Geteuid()}
	if os.Geteuid() == 0 {
		uids = append(uids, nobody)
	} else {
		t.Log("not root: no second user")
	}
	var list []way
	for _, uid := range uids {
		who := "uid" + strconv.Itoa(uid)
		list = append(list, way{who + "/subreaper", uid, false})
		if canLeaf() {
			list = append(list, way{who + "/cgroup", uid, true})
		} else {
			t.Log("no usable cgroup: subreaper only")
		}
	}
	return list
}

func canLeaf() bool {
	l, err := NewLeaf("prun-test-probe-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		return false
	}
	defer l.Close()
	return l.Remove() == nil
}

func eachWay(t *testing.T, run func(t *testing.T, w way)) {
	for _, w := range ways(t) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			run(t, w)
		})
	}
}

// testBinary returns the test binary where uid may execute it.
func testBinary(t testing.TB, uid int) string {
	if uid == os.Geteuid() {
		return self()
	}
	return everybodys()
}

var everybodys = sync.OnceValue(func() string {
	text, err := os.ReadFile(self())
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "prun-proc-bin-")
	if err != nil {
		panic(err)
	}
	atEnd = append(atEnd, func() { os.RemoveAll(dir) })
	name := dir + "/test"
	if err := errors.Join(os.Chmod(dir, 0o755), writeProgram(name, text), os.Chmod(name, 0o755)); err != nil {
		panic(err)
	}
	return name
})

// delegate makes a cgroup that belongs to uid and returns its directory.
func delegate(t testing.TB, uid int) string {
	t.Helper()
	l, err := NewLeaf(fmt.Sprintf("prun-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Skipf("needs a cgroup: %v", err)
	}
	t.Cleanup(func() {
		l.Kill(5 * time.Second)
		if !comes(func() bool { return l.Remove() == nil }) {
			t.Errorf("%s stays", l.Path())
		}
		l.Close()
	})
	for _, name := range []string{"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"} {
		if err := os.Chown(l.Path()+name, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	return l.Path()
}

// limited makes a cgroup that holds at most n processes.
func limited(t testing.TB, n int) string {
	t.Helper()
	base := ""
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(text)) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), ":pids:"); ok {
				base = filepath.Join("/sys/fs/cgroup/pids", path)
			}
		}
	}
	if base == "" {
		t.Skip("needs the pids controller of cgroup v1 to bound a storm")
	}
	dir := filepath.Join(base, fmt.Sprintf("prun-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("needs a pids cgroup to bound a storm: %v", err)
	}
	t.Cleanup(func() {
		if !comes(func() bool {
			// Whatever a failed test left: it is ours, since we made the cgroup.
			text, _ := os.ReadFile(dir + "/cgroup.procs")
			for f := range strings.FieldsSeq(string(text)) {
				if p, err := pid.Parse(f); err == nil {
					syscall.Kill(p, syscall.SIGKILL)
				}
			}
			return os.Remove(dir) == nil
		}) {
			t.Errorf("%s stays", dir)
		}
	})
	if err := os.WriteFile(dir+"/pids.max", []byte(strconv.Itoa(n)), 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// launch prepares a supervisor in the given way; send gives it its plan.
func launch(t testing.TB, w way, p plan, cgroups ...string) (c *exec.Cmd, out *bytes.Buffer, send func()) {
	t.Helper()
	c = exec.Command(testBinary(t, w.uid))
	c.Env = helperEnv("supervise")
	c.Dir = p.Dir
	c.SysProcAttr = &syscall.SysProcAttr{}
	if w.uid != os.Geteuid() {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}
		if w.leaf {
			cgroups = append(cgroups, delegate(t, w.uid))
		}
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out = new(bytes.Buffer)
	c.Stdout, c.Stderr = out, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Process.Kill(); c.Wait() })
	for _, dir := range cgroups {
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
			t.Fatalf("move the supervisor: %v", err)
		}
	}
	return c, out, func() { json.NewEncoder(in).Encode(p) }
}

// carry runs the plan and returns the report.
func carry(t testing.TB, w way, p plan, cgroups ...string) report {
	t.Helper()
	if p.Dir == "" {
		p.Dir = sharedDir(t)
	}
	p.Mark = p.Dir
	if w.leaf {
		p.Leaf = "prun-leaf-" + filepath.Base(p.Dir)
	}
	c, out, send := launch(t, w, p, cgroups...)
	send()
	var r report
	if err := c.Wait(); err != nil {
		t.Fatalf("supervisor: %v", err)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("report %q: %v", out, err)
	}
	if r.Err != "" {
		t.Fatalf("supervisor: %s", r.Err)
	}
	want := Subreaper
	if w.leaf && !p.BadLeaf {
		want = Cgroup
	}
	if r.Containment != want || r.Proof.Containment != want {
		t.Errorf("containment %s, in the proof %s, want %s (%s)", r.Containment, r.Proof.Containment, want, r.Note)
	}
	if fmt.Sprint(r.Again) != fmt.Sprint(r.Proof) {
		t.Errorf("a second End says %+v, not %+v", r.Again, r.Proof)
	}
	return r
}

// alive returns what lives with the mark, or is named in PIDS.
func alive(t testing.TB, dir string) []int {
	t.Helper()
	// Not Orphans, which looks for processes of this user only.
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, p := range all {
		if yes, _ := marked(p, "PRUN_STATE_DIR="+dir); yes {
			list = append(list, p)
		}
	}
	for _, p := range listed(dir) {
		if f := look(p); !f.ended() {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// listed returns what the worker wrote into PIDS.
func listed(dir string) []int {
	text, _ := os.ReadFile(dir + "/pids")
	var list []int
	for f := range strings.FieldsSeq(string(text)) {
		if p, err := pid.Parse(f); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func proven(t testing.TB, r report, dir string) {
	t.Helper()
	if !r.Proof.Empty || len(r.Proof.Remaining) > 0 || r.LeafStays {
		t.Errorf("not proven empty: %+v, leaf stays: %v", r.Proof, r.LeafStays)
	}
	if left := alive(t, dir); len(left) > 0 {
		t.Errorf("alive after the end: %v", left)
	}
}

// begun are the first lines of a script that starts children in the
// background: the child's own number is written by the child.
const child = `sh -c 'echo $$ >>$PIDS; exec sleep 1000'`

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name      string
		plan      plan
		exit      Exit
		leftovers int // at least
		most      int // at most, -1 for any
	}{
		{"nothing left", plan{Natural: true, Script: `exit 7`}, Exit{Code: 7}, 0, 0},
		{"its zombies are no leftovers", plan{Natural: true, Script: `sh -c 'sleep 0.01 & exec sh -c "sleep 0.1; exit 3"'`}, Exit{Code: 3}, 0, 0},
		{"code 137 is no signal", plan{Natural: true, Script: `exit 137`}, Exit{Code: 137}, 0, 0},
		{"segv", plan{Natural: true, Script: `kill -s SEGV $$`}, Exit{Code: 139, Signal: 11}, 0, 0},
		{"child left", plan{Natural: true, Script: child + ` & while [ ! -s $PIDS ]; do :; done`}, Exit{}, 1, 1},
		{"setsid", plan{Natural: true, Script: `setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done`}, Exit{}, 1, 1},
		{"double fork", plan{Natural: true, Script: `(setsid sh -c "` + strings.ReplaceAll(child, "$", `\$`) + ` &" &); while [ ! -s $PIDS ]; do :; done; exit 5`}, Exit{Code: 5}, 1, 2}, // the one between may still be leaving
		{"orphan dies first", plan{Natural: true, Script: `(setsid sleep 0.02 &); (setsid sleep 0.03 &); sleep 0.3; exit 1`}, Exit{Code: 1}, 0, 0},
		{"killed alive", plan{Ready: true, Script: `setsid ` + child + ` & ` + child + ` & while [ $(cat $PIDS 2>/dev/null | wc -l) -lt 2 ]; do :; done; >$READY; wait`}, Exit{Code: 137, Signal: 9}, 2, -1},
		{"term-proof", plan{Ready: true, Signals: nil, Script: `trap '' TERM INT HUP; ` + child + ` & while [ ! -s $PIDS ]; do :; done; >$READY; while :; do sleep 1; done`}, Exit{Code: 137, Signal: 9}, 1, -1},
		{"leader obeys, child does not", plan{Ready: true, Signals: []int{15}, Script: `trap 'exit 9' TERM; sh -c "trap '' TERM; echo \$\$ >>\$PIDS; >\$READY; while :; do sleep 1; done" & while :; do sleep 0.01; done`}, Exit{Code: 9}, 1, -1},
		{"stopped leader gets TERM", plan{Stopped: true, Signals: []int{15}, Script: `kill -s STOP $$; sleep 1000`}, Exit{Code: 143, Signal: 15}, 0, 0},
		{"stopped leader is killed", plan{Stopped: true, Script: `setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done; kill -s STOP $$`}, Exit{Code: 137, Signal: 9}, 1, -1},
		{"stopped escapee", plan{Natural: true, Script: `setsid sh -c 'echo $$ >>$PIDS; kill -s STOP $$; sleep 1000' & while [ ! -s $PIDS ]; do :; done`}, Exit{}, 1, 1},
		{"own namespace", plan{Ready: true, Script: `unshare -Urpf sh -c '>$READY; setsid sleep 1000 & sleep 1000' || >$READY; sleep 1000`}, Exit{Code: 137, Signal: 9}, 0, -1},
		{"a chain of sessions", plan{Ready: true, Script: `N=60; export N; cat >chain <<'X'
echo $$ >>$PIDS
N=$((N-1)); export N
if [ $N -gt 0 ]; then setsid sh chain; else >$READY; fi
exec sleep 1000
X
setsid sh chain & wait`}, Exit{Code: 137, Signal: 9}, 2, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				p := c.plan
				p.Dir = sharedDir(t)
				r := carry(t, w, p)
				if r.Exit != c.exit {
					t.Errorf("exit %+v, want %+v", r.Exit, c.exit)
				}
				if n := r.Proof.Leftovers; n < c.leftovers || c.most >= 0 && n > c.most {
					t.Errorf("%d leftovers, want %d to %d", n, c.leftovers, c.most)
				}
				proven(t, r, p.Dir)
				if len(c.name) > 0 && c.leftovers > 0 && len(listed(p.Dir)) == 0 {
					t.Error("the worker listed nobody: the case tests nothing")
				}
			})
		})
	}
}

func TestThousand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: bounds the tree with a pids cgroup")
	}
	for name, script := range map[string]string{
		"flat":     `i=0; while [ $i -lt 1000 ]; do sleep 1000 & i=$((i+1)); done; >$READY; wait`,
		"sessions": `i=0; while [ $i -lt 1000 ]; do setsid sleep 1000 & i=$((i+1)); done; while [ $(ls -d /proc/[0-9]* | wc -l) -lt 1000 ]; do sleep 0.05; done; >$READY; wait`,
		"orphans":  `i=0; while [ $i -lt 1000 ]; do (setsid sleep 1000 &); i=$((i+1)); done; >$READY; exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				if name != "flat" && w.uid != 0 {
					t.Skip("the second user takes part in the flat one only: a thousand forks take seconds")
				}
				p := plan{Dir: sharedDir(t), Ready: true, Script: script, Natural: name == "orphans"}
				r := carry(t, w, p, limited(t, 1500))
				t.Logf("ended in %v", r.EndTook)
				if r.Proof.Leftovers < 990 {
					t.Errorf("%d leftovers, want about 1000", r.Proof.Leftovers)
				}
				proven(t, r, p.Dir)
			})
		})
	}
}

// A worker that forks faster than one can look, inside a limit that it fills.
func TestStorm(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: bounds the storm with a pids cgroup")
	}
	for name, script := range map[string]string{
		"one session": `f() { while :; do sleep 0.01 & sleep 0.01 & wait; done; }; for i in 1 2 3 4 5 6 7 8; do f & done 2>/dev/null; >$READY; wait`,
		"sessions": `cat >storm <<'X'
setsid sh storm 2>/dev/null &
sleep 0.02
exec setsid sh storm 2>/dev/null
X
setsid sh storm & sleep 0.2; >$READY; wait; sleep 1000`,
		"runner": `cat >run <<'X'
setsid sh run &
exit 0
X
for i in 1 2 3 4; do sh run & done; >$READY; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				p := plan{Dir: sharedDir(t), Ready: true, Script: script}
				r := carry(t, w, p, limited(t, 250))
				t.Logf("ended in %v", r.EndTook)
				proven(t, r, p.Dir)
			})
		})
	}
}

func TestWorkerMakesCgroups(t *testing.T) {
	if os.Geteuid() != 0 || !canLeaf() {
		t.Skip("needs root and a cgroup")
	}
	mine, err := ownCgroup()
	if err != nil {
		t.Fatal(err)
	}
	w := way{uid: 0, leaf: true}
	dir := sharedDir(t)
	leaf := mine + "/prun-leaf-" + filepath.Base(dir)
	p := plan{Dir: dir, Ready: true, Script: `mkdir -p ` + leaf + `/a/b ` + leaf + `/c
(echo 0 >` + leaf + `/a/b/cgroup.procs; setsid ` + child + ` &)
while [ ! -s $PIDS ]; do :; done; >$READY; sleep 1000`}
	r := carry(t, w, p)
	if n := r.Proof.Leftovers; n < 1 {
		t.Errorf("%d leftovers", n)
	}
	proven(t, r, dir)
}

// The leaf alone would call this tree empty; being its reaper tells.
func TestWorkerLeavesItsCgroup(t *testing.T) {
	if os.Geteuid() != 0 || !canLeaf() {
		t.Skip("needs root and a cgroup")
	}
	mine, err := ownCgroup()
	if err != nil {
		t.Fatal(err)
	}
	dir := sharedDir(t)
	r := carry(t, way{uid: 0, leaf: true}, plan{Dir: dir, Natural: true,
		Script: `echo 0 >` + mine + `/cgroup.procs; setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done`})
	if r.Proof.Leftovers != 1 {
		t.Errorf("%d leftovers, want 1", r.Proof.Leftovers)
	}
	proven(t, r, dir)
}

func TestFrozenLeaf(t *testing.T) {
	for _, w := range ways(t) {
		if !w.leaf {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			dir := sharedDir(t)
			r := carry(t, w, plan{Dir: dir, Ready: true, Freeze: true, Script: `setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done; >$READY; sleep 1000`})
			proven(t, r, dir)
		})
	}
}

func TestLeafThatFailsFallsBack(t *testing.T) {
	for _, w := range ways(t) {
		if !w.leaf {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			dir := sharedDir(t)
			r := carry(t, w, plan{Dir: dir, BadLeaf: true, Natural: true, Script: `setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done; exit 4`})
			if r.Note == "" || r.Exit.Code != 4 {
				t.Errorf("note %q, exit %+v", r.Note, r.Exit)
			}
			proven(t, r, dir)
		})
	}
}

var _ = helper("root", func([]string) int {
	// A setuid program that makes root its real user too, as sudo does: from
	// then on its caller may not signal it.
	if err := syscall.Setreuid(0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.WriteFile(os.Getenv("PIDS"), []byte(strconv.Itoa(os.Getpid())), 0o666)
	syscall.Exec("/bin/sleep", []string{"sleep", "1000"}, os.Environ())
	return 1
})

// What a signal may not touch, a cgroup ends all the same; without one the
// proof has to say that something is left.
func TestSetuidChild(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a setuid program")
	}
	for _, w := range ways(t) {
		if w.uid == 0 {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			dir := sharedDir(t)
			text, err := os.ReadFile(self())
			if err != nil {
				t.Fatal(err)
			}
			var st unix.Statfs_t
			if unix.Statfs(dir, &st); st.Flags&unix.ST_NOSUID != 0 {
				t.Skip("needs a temporary directory that honours setuid")
			}
			tool := dir + "/become-root"
			if err := errors.Join(writeProgram(tool, text), os.Chmod(tool, 0o755|os.ModeSetuid)); err != nil {
				t.Fatal(err)
			}
			r := carry(t, w, plan{Dir: dir, Natural: true, Bound: 300 * time.Millisecond,

				Env:    slices.DeleteFunc(helperEnv("root"), func(e string) bool { return !strings.HasPrefix(e, helperVariable) }),
				Script: `setsid ./become-root & while [ ! -s $PIDS ]; do :; done`})
			if w.leaf {
				proven(t, r, dir)
				return
			}
			left := listed(dir)
			if r.Proof.Empty || r.Proof.Note == "" || !slices.Equal(r.Proof.Remaining, left) {
				t.Errorf("proof %+v, want %v named", r.Proof, left)
			}
			for _, p := range left {
				syscall.Kill(p, syscall.SIGKILL)
			}
		})
	}
}

// A process in state D cannot be ended by anybody; a frozen one of cgroup v1
// stands in for it. The end is bounded, and says what it could not end.
func TestUnkillable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: freezes a process")
	}
	var fst unix.Statfs_t
	base := "/sys/fs/cgroup/freezer"
	if unix.Statfs(base, &fst) != nil || fst.Type != unix.CGROUP_SUPER_MAGIC {
		t.Skip("needs the freezer of cgroup v1")
	}
	for _, w := range ways(t) {
		for _, who := range []string{"leader", "child"} {
			t.Run(w.name+"/"+who, func(t *testing.T) {
				dir := sharedDir(t)
				ice := fmt.Sprintf("%s/prun-test-%d-%d", base, os.Getpid(), time.Now().UnixNano())
				if err := os.Mkdir(ice, 0o755); err != nil {
					t.Skipf("needs the freezer of cgroup v1: %v", err)
				}
				thaw := func() { os.WriteFile(ice+"/freezer.state", []byte("THAWED"), 0) }
				t.Cleanup(func() {
					thaw()
					until(t, ice+" goes", func() bool { return os.Remove(ice) == nil })
				})
				p := plan{Dir: dir, Ready: true, Bound: 500 * time.Millisecond, Script: `echo $$ >leader; setsid ` + child + ` & (setsid ` + child + ` &)
while [ $(cat $PIDS 2>/dev/null | wc -l) -lt 2 ]; do :; done; >asked; while [ ! -e go ]; do sleep 0.01; done; >$READY; exec sleep 1000`}
				frozen := make(chan int, 1)
				go func() {
					defer close(frozen)
					if !comes(func() bool { return exists(dir + "/asked") }) {
						return
					}
					n := listed(dir)[0]
					if who == "leader" {
						text, _ := os.ReadFile(dir + "/leader")
						n, _ = pid.Parse(strings.TrimSpace(string(text)))
						// It has to become ready before it freezes.
						os.WriteFile(dir+"/go", nil, 0o666)
						comes(func() bool { return exists(dir + "/ready") })
					}
					os.WriteFile(ice+"/cgroup.procs", []byte(strconv.Itoa(n)), 0)
					os.WriteFile(ice+"/freezer.state", []byte("FROZEN"), 0)
					comes(func() bool {
						text, _ := os.ReadFile(ice + "/freezer.state")
						return strings.HasPrefix(string(text), "FROZEN")
					})
					frozen <- n
					os.WriteFile(dir+"/go", nil, 0o666)
					os.WriteFile(dir+"/frozen", nil, 0o666)
				}()
				p.Gate = dir + "/frozen"
				r := carry(t, w, p)
				n := <-frozen
				if r.Proof.Empty || r.Proof.Note == "" || !slices.Contains(r.Proof.Remaining, n) || r.LeafStays != w.leaf || r.EndTook > 3*time.Second {
					t.Errorf("%+v after %v, leaf stays %v, want %d named", r.Proof, r.EndTook, r.LeafStays, n)
				}
				if who == "child" && len(r.Proof.Remaining) != 1 {
					t.Errorf("remaining %v, want %d only", r.Proof.Remaining, n)
				}
				thaw()
				until(t, "it dies at the thaw", func() bool { return look(n).ended() })
				until(t, "all die", func() bool { return len(alive(t, dir)) == 0 })
				if w.leaf {
					l, err := OpenLeaf(r.Leaf, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					until(t, "the leaf goes", func() bool { return l.Remove() == nil })
				}
			})
		}
	}
}

func TestKeep(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dir := sharedDir(t)
		r := carry(t, w, plan{Dir: dir, Natural: true, Keep: true, Script: `setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done`})
		left := listed(dir)
		if r.Proof.Empty || r.Proof.Leftovers != 1 || !slices.Equal(r.Proof.Remaining, left) || r.LeafStays != w.leaf {
			t.Errorf("proof %+v, leaf stays %v, want %v left", r.Proof, r.LeafStays, left)
		}
		if got := alive(t, dir); !slices.Equal(got, left) {
			t.Errorf("alive %v, want %v", got, left)
		}
		for _, p := range left {
			syscall.Kill(p, syscall.SIGKILL)
		}
		if w.leaf {
			l, err := OpenLeaf(r.Leaf, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			until(t, "the leaf goes", func() bool { return l.Remove() == nil })
		}
	})
}

func TestKeepWithNothingLeft(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dir := sharedDir(t)
		r := carry(t, w, plan{Dir: dir, Natural: true, Keep: true, Script: `exit 2`})
		if r.Proof.Leftovers != 0 {
			t.Errorf("%d leftovers", r.Proof.Leftovers)
		}
		proven(t, r, dir)
	})
}

// A detached unit below this one: its keeper and all below it live on.
func TestSpare(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, how := range []string{"natural", "killed"} {
			t.Run(how, func(t *testing.T) {
				dir := sharedDir(t)
				r := carry(t, w, plan{Dir: dir, Ready: true, Natural: how == "natural", Spare: "the-keeper", Env: []string{"NAME=keeper"}, Script: `
(setsid sh -c 'echo $$ >keeper; sh -c "echo \$\$ >below; exec sleep 1000" & setsid sleep 1000 & wait' the-$NAME &)
setsid ` + child + ` & (setsid ` + child + ` &)
while [ ! -s keeper ] || [ ! -s below ] || [ $(cat $PIDS 2>/dev/null | wc -l) -lt 2 ]; do :; done; >$READY
` + map[string]string{"natural": "exit 0", "killed": "sleep 1000"}[how]})
				keeper := number(t, dir+"/keeper")
				below := number(t, dir+"/below")
				if !r.Proof.Empty || !slices.Equal(r.Proof.Spared, []int{keeper}) || len(r.Proof.Remaining) > 0 {
					t.Errorf("proof %+v, want %d spared", r.Proof, keeper)
				}
				if how == "natural" && r.Proof.Leftovers != 2 {
					t.Errorf("%d leftovers, want 2", r.Proof.Leftovers)
				}
				if look(keeper).ended() || look(below).ended() {
					t.Error("the spared were hit")
				}
				for _, p := range listed(dir) {
					if f := look(p); !f.ended() {
						t.Errorf("%d is alive", p)
					}
				}
				for _, p := range alive(t, dir) {
					syscall.Kill(p, syscall.SIGKILL)
				}
				if w.leaf {
					l, err := OpenLeaf(r.Leaf, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					until(t, "the leaf goes", func() bool { return l.Remove() == nil })
				}
			})
		}
	})
}

func number(t testing.TB, name string) int {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := pid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var _ = helper("hostile", func(args []string) int {
	// A caller that ignores and blocks signals and leaks a descriptor.
	var set unix.Sigset_t
	for i := range set.Val {
		set.Val[i] = ^set.Val[i]
	}
	fd, err := unix.Open("/", unix.O_RDONLY, 0) // no O_CLOEXEC
	if err == nil {
		err = unix.Dup2(fd, 9)
	}
	if err == nil {
		err = unix.PthreadSigmask(unix.SIG_SETMASK, &set, nil)
	}
	if err == nil {
		err = syscall.Exec("/bin/sh", []string{"sh", "-c", `trap '' HUP INT QUIT TERM PIPE CHLD TSTP TTIN TTOU USR1; umask 027; exec "$0"`, args[0]},
			otherwise("supervise"))
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
})

func TestWorkerIsBornClean(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dir := sharedDir(t)
		p := plan{Dir: dir, Mark: dir, Natural: true, OOM: 321, Nice: 3, Script: `
while read -r k v; do case $k in SigBlk: | SigIgn:) echo $k $v ;; esac; done </proc/self/status >status
ls /proc/self/fd >fds
umask >umask
cat /proc/self/oom_score_adj >oom
cut -d' ' -f 19 /proc/self/stat >nice
cut -d' ' -f 5-8 /proc/$$/stat >session; echo $$ >>session
(: </dev/tty) 2>/dev/null && echo has a tty >tty
exit 6`}
		if w.leaf {
			p.Leaf = "prun-leaf-" + filepath.Base(dir)
		}
		binary := testBinary(t, w.uid)
		c := exec.Command(binary, binary)
		c.Env = helperEnv("hostile")
		c.Dir = dir
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c.Stdout = &out
		c.SysProcAttr = &syscall.SysProcAttr{}
		var cgroup string
		if w.uid != os.Geteuid() {
			c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			if w.leaf {
				cgroup = delegate(t, w.uid)
			}
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if cgroup != "" {
			if err := os.WriteFile(cgroup+"/cgroup.procs", []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
		json.NewEncoder(in).Encode(p)
		in.Close()
		var r report
		if err := errors.Join(c.Wait(), json.Unmarshal(out.Bytes(), &r)); err != nil || r.Err != "" {
			t.Fatalf("%v %s %s", err, r.Err, out.Bytes())
		}
		if r.Exit.Code != 6 || !r.Proof.Empty || r.OOM == "321" {
			t.Errorf("report %+v", r)
		}
		read := func(name string) string {
			text, _ := os.ReadFile(dir + "/" + name)
			return strings.Join(strings.Fields(string(text)), " ")
		}
		// The runtime never touches signals 32 and 33, which belong to the C
		// library's threads: what our caller made of them stays.
		status := strings.Replace(read("status"), "SigIgn: 0000000080000000", "SigIgn: 0000000000000000", 1)
		if want := "SigBlk: 0000000000000000 SigIgn: 0000000000000000"; status != want {
			t.Errorf("status: %q, want %q", status, want)
		}
		own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"fds":   "0 1 2 3", // 3 is ls reading the directory
			"umask": "0027",
			"oom":   "321",
			// The system call tells 20 less the niceness.
			"nice": strconv.Itoa(min(20-own+3, 19)),
		} {
			if got := read(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		f := strings.Fields(read("session"))
		if len(f) != 5 || f[0] != f[4] || f[1] != f[4] || f[2] != "0" {
			t.Errorf("group, session, tty, pid: %v", f)
		}
		if exists(dir + "/tty") {
			t.Error("the worker has a terminal")
		}
	})
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"plain": "no shebang", "script": "#!/no/such/interpreter\n", "ok": "#!/bin/sh\nexit 0\n"} {
		if err := writeProgram(filepath.Join(dir, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "denied"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		spec   Spec
		status int
	}{
		{"no such file", Spec{Path: dir + "/nothing"}, 127},
		{"nothing named", Spec{}, 127},
		{"not in PATH", Spec{Path: "no-such-program", Env: []string{"PATH=/bin:" + dir}}, 127},
		{"below a file", Spec{Path: dir + "/plain/x"}, 127},
		{"not executable", Spec{Path: dir + "/denied"}, 126},
		{"not executable in PATH", Spec{Path: "denied", Env: []string{"PATH=" + dir}}, 126},
		{"a directory", Spec{Path: dir}, 126},
		{"no format", Spec{Path: dir + "/plain"}, 126},
		{"no interpreter", Spec{Path: dir + "/script"}, 126},
		{"no directory", Spec{Path: "/bin/sh", Dir: dir + "/nothing"}, 0},
		{"directory is a file", Spec{Path: "/bin/sh", Dir: dir + "/plain"}, 0},
		{"too long", Spec{Path: "/bin/sh", Args: []string{"sh", strings.Repeat("x", 1<<20)}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Start(c.spec)
			var e *StartError
			if !errors.As(err, &e) {
				if g != nil {
					g.End(EndOptions{})
				}
				t.Fatalf("error %v, want a *StartError", err)
			}
			if e.Status() != c.status || e.Errno == 0 {
				t.Errorf("status %d, errno %d (%v), want %d", e.Status(), e.Errno, err, c.status)
			}
			if _, err := Run(t.Context(), RunSpec{Path: c.spec.Path, Args: c.spec.Args, Env: c.spec.Env, Dir: c.spec.Dir}); !errors.As(err, &e) || e.Status() != c.status {
				t.Errorf("Run: %v, want status %d", err, c.status)
			}
		})
	}
	// A failed start leaves room for the next, and a relative path counts
	// from the worker's directory.
	g, err := Start(Spec{Path: "./ok", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-g.Done()
	if p := g.End(EndOptions{}); !p.Empty || g.Exit() != (Exit{}) {
		t.Errorf("%+v, %+v", p, g.Exit())
	}
}

var _ = helper("keep", func(args []string) int {
	// Starts a supervisor, outlives it, sweeps what it leaves.
	if err := BecomeReaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !comes(func() bool { return exists(args[2]) }) {
		return 1
	}
	c, err := Detach(DetachSpec{Path: self(), Env: otherwise("supervise"), Files: []*os.File{os.Stdin, nil, os.Stderr}, NewSession: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	PremakeThreads(4)
	os.WriteFile(args[0], []byte(strconv.Itoa(c.ID().PID)), 0o666)
	var r struct {
		Exit   Exit
		Worker bool // it was a zombie, or alive, below us
		Proof  Proof
		Took   time.Duration
	}
	r.Exit = c.Await()
	begin := time.Now()
	var leaf *Leaf
	if args[1] != "" {
		if leaf, err = OpenLeaf(args[1], 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	r.Proof = Sweep(leaf, EndOptions{})
	r.Took = time.Since(begin)
	c.Reap()
	json.NewEncoder(os.Stdout).Encode(r)
	return 0
})

func TestKeeperSweepsADeadSupervisor(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dir := sharedDir(t)
		p := plan{Dir: dir, Mark: dir, Watchdog: true, Script: `
setsid ` + child + ` & (setsid ` + child + ` &) ; trap '' TERM INT HUP
while [ $(cat $PIDS 2>/dev/null | wc -l) -lt 2 ]; do :; done; >$READY; while :; do sleep 1; done`}
		var path, cgroup string
		if w.leaf {
			p.Leaf = "prun-leaf-" + filepath.Base(dir)
			mine, err := ownCgroup()
			if err != nil {
				t.Fatal(err)
			}
			if w.uid != os.Geteuid() {
				cgroup = delegate(t, w.uid)
				mine = cgroup
			}
			path = mine + "/" + p.Leaf
		}
		c := exec.Command(testBinary(t, w.uid), dir+"/supervisor", path, dir+"/go")
		c.Env = helperEnv("keep")
		c.SysProcAttr = &syscall.SysProcAttr{}
		if w.uid != os.Geteuid() {
			c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		}
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill() })
		if cgroup != "" {
			if err := os.WriteFile(cgroup+"/cgroup.procs", []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
		// The keeper must be where it belongs before it starts a supervisor.
		if err := os.WriteFile(dir+"/go", nil, 0o666); err != nil {
			t.Fatal(err)
		}
		json.NewEncoder(in).Encode(p)
		in.Close()
		until(t, "the worker is ready", func() bool { return exists(dir+"/ready") && exists(dir+"/worker") && exists(dir+"/supervisor") })
		syscall.Kill(number(t, dir+"/supervisor"), syscall.SIGKILL)
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
		var r struct {
			Exit  Exit
			Proof Proof
			Took  time.Duration
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		t.Logf("swept in %v", r.Took)
		if r.Exit != (Exit{Code: 137, Signal: 9}) || !r.Proof.Empty || r.Proof.Leftovers < 3 {
			t.Errorf("%+v", r)
		}
		if left := alive(t, dir); len(left) > 0 {
			t.Errorf("alive after the sweep: %v", left)
		}
		if path != "" && exists(path) {
			t.Error("the leaf stays")
		}
	})
}

// writeProgram writes a file that is to be executed. A fork while it is open for
// writing would make it "busy" for whoever executes it next.
func writeProgram(name string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, text, 0o755)
}
