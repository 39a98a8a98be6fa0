package proc

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shell returns a short command of the shell in dir.
func shell(dir, script string) RunSpec {
	return RunSpec{Path: "sh", Args: []string{"sh", "-c", script}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "PIDS=" + dir + "/pids"}}
}

// A child in the background that holds the output must not delay the end
// (golang/go#23019), nor turn success into an error (mostlygeek/llama-swap#807),
// nor live on, wherever it went.
func TestRunLeavesNothing(t *testing.T) {
	for name, script := range map[string]string{
		"pipe holder":    child + ` & while [ ! -s $PIDS ]; do :; done; echo kept; exit 3`,
		"setsid":         `setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done; echo kept; exit 3`,
		"double fork":    `(setsid sh -c '` + strings.ReplaceAll(child, "'", `"`) + ` &' &); while [ ! -s $PIDS ]; do :; done; echo kept; exit 3`,
		"talker":         `sh -c 'echo $$ >>$PIDS; while :; do echo more; done' >&2 & while [ ! -s $PIDS ]; do :; done; echo kept; exit 3`,
		"stopped":        `setsid sh -c 'echo $$ >>$PIDS; kill -s STOP $$' & while [ ! -s $PIDS ]; do :; done; echo kept; exit 3`,
		"no environment": `env -i PIDS=$PIDS setsid ` + child + ` & while [ ! -s $PIDS ]; do :; done; echo kept; kill -s KILL $$`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			limit := 30 * time.Second
			if name == "double fork" {
				script = `(setsid sh -c "` + strings.ReplaceAll(child, "$", `\$`) + ` &" &); while [ ! -s $PIDS ]; do :; done; echo kept; exit 3`
			}
			if name == "no environment" {
				// It still has its parent when the limit comes: that is how it is found.
				script = strings.Replace(script, `kill -s KILL $$`, `sleep 1000`, 1)
				limit = 5 * time.Second
			}
			s := shell(dir, script)
			s.Limit = limit
			begin := time.Now()
			r, err := Run(t.Context(), s)
			if err != nil || string(r.Stdout) != "kept\n" || r.Remaining != nil {
				t.Errorf("%q, %v, remaining %v", r.Stdout, err, r.Remaining)
			}
			if name != "no environment" && (r.Exit.Code != 3 || r.TimedOut || time.Since(begin) > 10*time.Second) {
				t.Errorf("exit %+v, timed out %v, after %v", r.Exit, r.TimedOut, time.Since(begin))
			}
			for _, p := range listed(dir) {
				if f := look(p); f.state != 0 {
					t.Errorf("%d is there, state %c", p, f.state)
				}
			}
			if len(listed(dir)) == 0 {
				t.Error("the command listed nobody: the case tests nothing")
			}
		})
	}
}

// Commands at the same time, and children of this process that are none of
// theirs, do not end each other.
func TestRunsSideBySide(t *testing.T) {
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	d, err := Detach(DetachSpec{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, NewSession: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.ID().Signal(syscall.SIGKILL); d.Await(); d.Reap() }()
	var all sync.WaitGroup
	for i := range 12 {
		all.Add(1)
		dir := t.TempDir()
		go func() {
			defer all.Done()
			r, err := Run(t.Context(), shell(dir, `setsid `+child+` & (setsid `+child+` &)
while [ $(cat $PIDS 2>/dev/null | wc -l) -lt 2 ]; do :; done; sleep 0.0`+strconv.Itoa(i%5)+`; exit `+strconv.Itoa(i)))
			if err != nil || r.Exit.Code != i || r.Remaining != nil {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
			for _, p := range listed(dir) {
				if f := look(p); !f.ended() {
					t.Errorf("%d: %d is alive", i, p)
				}
			}
		}()
	}
	all.Wait()
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil || look(bystander.Process.Pid).ended() {
		t.Errorf("the bystander was hit: %v", err)
	}
	if alive, err := d.ID().Alive(); !alive || err != nil {
		t.Errorf("the detached process was hit: %v", err)
	}
}

func TestRunInALeaf(t *testing.T) {
	l, err := NewLeaf("prun-leaf-run-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Skipf("needs a cgroup: %v", err)
	}
	dir := t.TempDir()
	s := shell(dir, `(env -i PIDS=$PIDS setsid sh -c 'echo $$ >>$PIDS; exec sleep 1000' &); while [ ! -s $PIDS ]; do :; done; exit 3`)
	s.Leaf = l
	r, err := Run(t.Context(), s)
	if err != nil || r.Exit.Code != 3 || r.Remaining != nil || exists(l.Path()) {
		t.Errorf("%+v, %v, leaf stays: %v", r, err, exists(l.Path()))
	}
	for _, p := range listed(dir) {
		if f := look(p); !f.ended() {
			t.Errorf("%d is alive", p)
		}
		zombieChild(p)
		take(p)
	}
}

func TestNothingElseBesideAGroup(t *testing.T) {
	// What other tests left behind has come to this process: Run made it a
	// subreaper.
	if p := Sweep(nil, EndOptions{}); !p.Empty {
		t.Fatalf("%+v", p)
	}
	g, err := Start(Spec{Path: "/bin/sleep", Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), RunSpec{Path: "/bin/true"}); !errors.Is(err, ErrBusy) {
		t.Errorf("Run: %v", err)
	}
	if _, err := Detach(DetachSpec{Path: "/bin/true"}); !errors.Is(err, ErrBusy) {
		t.Errorf("Detach: %v", err)
	}
	if p := Sweep(nil, EndOptions{}); p.Empty || p.Note == "" {
		t.Errorf("Sweep: %+v", p)
	}
	if p := g.End(EndOptions{}); !p.Empty || p.Leftovers != 0 {
		t.Errorf("%+v", p)
	}
	if _, err := Run(t.Context(), RunSpec{Path: "/bin/true"}); err != nil {
		t.Errorf("Run after End: %v", err)
	}
}

func TestDetach(t *testing.T) {
	dir := t.TempDir()
	out, err := os.Create(dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	c, err := Detach(DetachSpec{
		Path: "/bin/sh", Args: []string{"other-name", "-c", `for f in /proc/$$/fd/*; do echo "${f##*/} -> $(readlink $f)"; done; cut -d' ' -f 1,5,6 /proc/$$/stat; read x <&3; echo "$0 $X"; exit 11`},
		Env: []string{"X=y", "PATH=" + os.Getenv("PATH")}, Dir: dir, Files: []*os.File{nil, out, nil, gate}, NewSession: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	gate.Close()
	if _, ended := c.AwaitTimeout(20 * time.Millisecond); ended {
		t.Error("ended while it waits")
	}
	if _, zombie := ZombieChild(c.ID().PID); zombie {
		t.Error("a zombie while it waits")
	}
	c2 := c.ID()
	if alive, err := c2.Alive(); !alive || err != nil {
		t.Errorf("Alive() = %v, %v", alive, err)
	}
	open.Close()
	if e, ended := c.AwaitTimeout(10 * time.Second); !ended || e.Code != 11 {
		t.Errorf("AwaitTimeout() = %+v, %v", e, ended)
	}
	for range 2 {
		if e := c.Await(); e != (Exit{Code: 11}) {
			t.Errorf("Await() = %+v", e)
		}
	}
	if e, zombie := ZombieChild(c.ID().PID); !zombie || e.Code != 11 {
		t.Errorf("ZombieChild() = %+v, %v", e, zombie)
	}
	c.Reap()
	if _, zombie := ZombieChild(c2.PID); zombie {
		t.Error("a zombie after Reap")
	}
	text, err := os.ReadFile(dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 -> /dev/null", "1 -> " + dir + "/out", "2 -> /dev/null", "3 -> pipe:", "other-name y"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	p := strconv.Itoa(c2.PID)
	if !strings.Contains(string(text), p+" "+p+" "+p+"\n") {
		t.Errorf("not the leader of a session:\n%s", text)
	}
}

func TestDetachErrors(t *testing.T) {
	_, err := Detach(DetachSpec{Path: "/no/such/program"})
	var e *StartError
	if !errors.As(err, &e) || !e.NotFound {
		t.Errorf("%v", err)
	}
}
