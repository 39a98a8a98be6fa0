package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// leave starts a child of a kind that lasts for d and is not waited for.
//
// The kinds: "" in our group with our output, "setsid", "double" (setsid, and its parent ends at once), "stubborn"
// (ignores TERM, INT, HUP), "talk" (writes), "quiet" (no output), "result" (writes the result file after d).
func (a *fake) leave(kind string, d time.Duration) {
	mode := kind
	if mode == "" {
		mode = "sleep"
	}
	c := childCommand(mode, d)
	c.Env = append(c.Env, "FAKEAGENT_RESULT="+a.result, "FAKEAGENT_TEXT="+a.resultText())
	switch kind {
	case "setsid", "double":
		ownSession(c)
	}
	if kind == "quiet" {
		c.Stdout, c.Stderr = nil, nil
	}
	// The child writes a byte down this pipe when it is ready (a stubborn one: when it ignores the signals), so
	// that a step is over only when its fault is in place.
	ready, theirs, err := os.Pipe()
	check(err)
	if extraFiles {
		c.ExtraFiles = []*os.File{theirs}
		c.Env = append(c.Env, "FAKEAGENT_READY=3")
	}
	check(c.Start())
	check(theirs.Close())
	if extraFiles {
		var b [1]byte
		ready.Read(b[:])
	}
	ready.Close()
	if kind == "double" {
		c.Wait() // the parent in between; its child is nobody's now
		return
	}
	go c.Wait()
}

// childCommand is this program again, in the part of a child.
func childCommand(mode string, d time.Duration) *exec.Cmd {
	self, err := os.Executable()
	check(err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), "FAKEAGENT_CHILD="+mode, "FAKEAGENT_CHILD_LIFE="+d.String())
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c
}

// beChild is main for a child. It ends by itself.
func beChild(mode string) {
	d := duration(os.Getenv("FAKEAGENT_CHILD_LIFE"), defaultLife)
	if mode == "double" {
		c := childCommand("sleep", d)
		ownSession(c)
		if extraFiles {
			c.ExtraFiles = []*os.File{os.NewFile(3, "ready")}
		}
		check(c.Start())
		return
	}
	if mode == "stubborn" {
		signal.Ignore(stubbornSignals()...)
	}
	if path := os.Getenv("FAKEAGENT_PIDS"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		check(err)
		fmt.Fprintln(f, os.Getpid())
		check(f.Close())
	}
	if os.Getenv("FAKEAGENT_READY") != "" {
		f := os.NewFile(3, "ready")
		f.Write([]byte{1})
		f.Close()
	}
	switch mode {
	case "talk":
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
			fmt.Println("noise")
		}
	case "result":
		time.Sleep(d)
		name := os.Getenv("FAKEAGENT_RESULT")
		check(os.MkdirAll(filepath.Dir(name), 0o777))
		check(os.WriteFile(name, []byte(os.Getenv("FAKEAGENT_TEXT")), 0o666))
	default:
		time.Sleep(d)
	}
}
