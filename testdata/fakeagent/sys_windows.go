package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const (
	terminal   = "CONIN$"
	extraFiles = false // os/exec hands over no more than the three standard ones here
)

const (
	detachedProcess     = 0x8
	createNewProcessGrp = 0x200
)

// ownSession is the nearest thing: no console, a group of its own.
func ownSession(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: detachedProcess | createNewProcessGrp}
}

func makeFIFO(string) error { return errors.New("no named pipes in directories here") }

func signalNamed(name string) os.Signal {
	switch name {
	case "INT", "SIGINT":
		return os.Interrupt
	case "KILL", "SIGKILL":
		return os.Kill
	}
	return syscall.SIGTERM
}

func stubbornSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

func dieBy(os.Signal) {
	p, err := os.FindProcess(os.Getpid())
	check(err)
	check(p.Kill())
}

func umask() int                   { return 0 }
func sessionOf() int               { return 0 }
func groupOf() int                 { return 0 }
func ignoredSignals() []string     { return nil }
func openFiles() map[string]string { return nil }
