//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	terminal   = "/dev/tty"
	extraFiles = true
)

func ownSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func makeFIFO(name string) error { return syscall.Mkfifo(name, 0o666) }

var signals = map[string]syscall.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
	"SEGV": syscall.SIGSEGV, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	"PIPE": syscall.SIGPIPE, "STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP, "ABRT": syscall.SIGABRT,
}

func signalNamed(name string) os.Signal {
	s, ok := signals[strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG")]
	if !ok {
		fatal("no such signal: %s", name)
	}
	return s
}

func stubbornSignals() []os.Signal {
	return []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
}

// dieBy ends this process by a signal with its default effect. The runtime catches SEGV, ABRT and QUIT to print
// stacks, so these go through a shell that takes our place.
func dieBy(s os.Signal) {
	sig := s.(syscall.Signal)
	switch sig {
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGQUIT:
		check(syscall.Exec("/bin/sh", []string{"sh", "-c", "ulimit -c 0; kill -s " + shellName(sig) + " $$"}, os.Environ()))
	}
	signal.Reset(sig)
	check(syscall.Kill(os.Getpid(), sig))
	time.Sleep(defaultLife) // STOP and TSTP come back here
}

func shellName(sig syscall.Signal) string {
	for name, s := range signals {
		if s == sig {
			return name
		}
	}
	return strconv.Itoa(int(sig))
}

func umask() int {
	old := syscall.Umask(0)
	syscall.Umask(old)
	return old
}

func sessionOf() int {
	id, err := unix.Getsid(0)
	check(err)
	return id
}

func groupOf() int { return syscall.Getpgrp() }

func ignoredSignals() []string {
	var out []string
	for name, s := range signals {
		if signal.Ignored(s) {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// openFiles lists the descriptors we were given, with what they are where the system says so.
func openFiles() map[string]string {
	out := map[string]string{}
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return out
	}
	for _, e := range entries {
		target, err := os.Readlink("/dev/fd/" + e.Name())
		if err == nil && (strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "anon_inode:")) {
			continue // the listing itself, and the runtime's own poller
		}
		out[e.Name()] = target
	}
	return out
}
