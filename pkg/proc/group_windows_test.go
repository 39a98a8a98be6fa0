package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
)

var _ = helper("family", func(args []string) int {
	// Starts a child that starts nothing, writes both identities, and lives
	// on, or ends with a code when told.
	file := args[0]
	if len(args) > 2 {
		id, _ := json.Marshal(pid.Self())
		os.WriteFile(file, id, 0o666)
		time.Sleep(time.Hour)
	}
	c := exec.Command(self(), file+".child", "", "child")
	if err := c.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	if !comes(func() bool { return exists(file + ".child") }) {
		return 1
	}
	id, _ := json.Marshal(pid.Self())
	os.WriteFile(file, id, 0o666)
	if args[1] != "" {
		code, _ := strconv.Atoi(args[1])
		return code
	}
	time.Sleep(time.Hour)
	return 0
})

// read returns the identity in a file, once it is there.
func read(t *testing.T, file string) (id pid.ID) {
	t.Helper()
	until(t, file, func() bool {
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &id) == nil
	})
	return id
}

func dead(t *testing.T, ids ...pid.ID) {
	t.Helper()
	for _, id := range ids {
		until(t, "the end of "+id.String(), func() bool { return id.Verdict() == pid.Gone })
	}
}

func TestEndKillsTheGrandchild(t *testing.T) {
	for _, code := range []string{"", "7"} {
		file := filepath.Join(sharedDir(t), "ids")
		g, err := Start(Spec{Path: self(), Args: []string{"family", file, code}, Env: helperEnv("family")})
		if err != nil {
			t.Fatal(err)
		}
		leader := read(t, file)
		kid := read(t, file+".child")
		if leader != g.ID() || g.Containment() != Job {
			t.Errorf("leader %v, group of %v, %s", leader, g.ID(), g.Containment())
		}
		want := Exit{Code: 137}
		if code != "" {
			<-g.Done()
			want.Code = 7
		}
		p := g.End(EndOptions{})
		if !p.Empty || p.Leftovers != 1 || g.Exit() != want {
			t.Errorf("%+v, exit %+v", p, g.Exit())
		}
		if again := g.End(EndOptions{}); !again.Empty {
			t.Errorf("a second End: %+v", again)
		}
		dead(t, leader, kid)
		if err := g.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after End: %v", err)
		}
	}
}

func TestKeepAndSpare(t *testing.T) {
	for _, o := range []EndOptions{{Keep: true}, {Spare: func(int) bool { return true }}} {
		file := filepath.Join(sharedDir(t), "ids")
		g, err := Start(Spec{Path: self(), Args: []string{"family", file, "3"}, Env: helperEnv("family")})
		if err != nil {
			t.Fatal(err)
		}
		<-g.Done()
		kid := read(t, file+".child")
		p := g.End(o)
		if p.Empty == o.Keep || len(p.Remaining)+len(p.Spared) != 1 {
			t.Errorf("%+v", p)
		}
		if kid.Verdict() != pid.Alive {
			t.Errorf("the child is %v", kid.Verdict())
		}
		kid.Signal(syscall.SIGKILL)
		dead(t, kid)
	}
}

var _ = helper("boss", func(args []string) int {
	g, err := Start(Spec{Path: self(), Args: []string{"family", args[0], ""}, Env: otherwise("family")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	<-g.Done()
	return 0
})

// The closing job is what ends the tree of a supervisor that was killed.
func TestTreeEndsWithItsSupervisor(t *testing.T) {
	file := filepath.Join(sharedDir(t), "ids")
	c := helperCommand("boss", file)
	helperEnv("family")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	leader, kid := read(t, file), read(t, file+".child")
	c.Process.Kill()
	c.Wait()
	dead(t, leader, kid)
}

var _ = helper("polite", func(args []string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt)
	id, _ := json.Marshal(pid.Self())
	os.WriteFile(args[0], id, 0o666)
	<-asked
	return 5
})

var _ = helper("asking", func(args []string) int {
	// Has no console, as a supervisor.
	g, err := Start(Spec{Path: self(), Args: []string{"polite", args[0]}, Env: otherwise("polite")})
	if err != nil {
		return 1
	}
	if !comes(func() bool { return exists(args[0]) }) {
		return 2
	}
	if err := g.Signal(syscall.SIGTERM); err != nil {
		return 3
	}
	select {
	case <-g.Done():
	case <-time.After(10 * time.Second):
		return 4
	}
	g.End(EndOptions{})
	return 100 + g.Exit().Code
})

func TestSignalFromADetachedSupervisor(t *testing.T) {
	helperEnv("polite")
	file := filepath.Join(sharedDir(t), "ids")
	c, err := Detach(DetachSpec{Path: self(), Args: []string{"asking", file}, Env: helperEnv("asking"), NewSession: true, Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Reap()
	e, ended := c.AwaitTimeout(30 * time.Second)
	// 105: asked and obeyed. 243: the console could not be reached, so the job
	// was ended, which is the contract's second way.
	if !ended || e.Code != 105 && e.Code != 100+128+15 {
		t.Errorf("%+v, ended %v", e, ended)
	}
	t.Logf("the worker's exit: %d", e.Code-100)
}

func TestDetachMapsFiles(t *testing.T) {
	dir := sharedDir(t)
	in, err := os.Create(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.WriteString("input")
	in.Seek(0, 0)
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c, err := Detach(DetachSpec{Path: self(), Args: []string{"talk", "x"}, Env: helperEnv("talk"), Files: []*os.File{in, out, nil}, NewSession: true, BreakAway: true})
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Await(); e.Code != 7 {
		t.Errorf("exit %+v (%s)", e, c.Note())
	}
	c.Reap()
	text, _ := os.ReadFile(filepath.Join(dir, "out"))
	if !strings.Contains(string(text), "[input]") {
		t.Errorf("%q", text)
	}
	if _, err := Detach(DetachSpec{Path: self(), Files: make([]*os.File, 4)}); err == nil {
		t.Error("four files were accepted")
	}
}

func TestStartErrors(t *testing.T) {
	dir := sharedDir(t)
	text := filepath.Join(dir, "text.exe")
	os.WriteFile(text, []byte("no program"), 0o666)
	for name, status := range map[string]int{filepath.Join(dir, "nothing"): 127, "no-such-program": 127, "": 127, text: 126, dir: 126} {
		g, err := Start(Spec{Path: name, Env: os.Environ()})
		var e *StartError
		if !errors.As(err, &e) {
			if g != nil {
				g.End(EndOptions{})
			}
			t.Errorf("%q: %v", name, err)
		} else if e.Status() != status {
			t.Errorf("%q: status %d (%v), want %d", name, e.Status(), err, status)
		}
	}
}

func TestChildren(t *testing.T) {
	c := helperCommand("sleepy")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	list, err := Children()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p == c.Process.Pid {
			return
		}
	}
	t.Errorf("Children() = %v without %d", list, c.Process.Pid)
}
