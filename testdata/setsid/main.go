//go:build unix

// Command setsid runs a program in a session of its own, as setsid of util-linux
// does when it is given no options. "make test" builds it where the system has
// none: the tests of containment need processes that escape.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		fail(1, "usage: setsid PROGRAM [ARG...]")
	}
	program, err := exec.LookPath(os.Args[1])
	if err != nil {
		fail(127, err)
	}
	// The leader of a process group cannot make a session. A child does it then,
	// and is not waited for.
	if os.Getpid() == syscall.Getpgrp() {
		c := exec.Cmd{Path: program, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			fail(126, err)
		}
		return
	}
	if _, err := syscall.Setsid(); err != nil {
		fail(1, err)
	}
	fail(126, syscall.Exec(program, os.Args[1:], os.Environ()))
}

func fail(status int, why any) {
	fmt.Fprintln(os.Stderr, "setsid:", why)
	os.Exit(status)
}
