package cmd

import "syscall"

// signals are those that a story may send: Windows has one.
var signals = map[string]syscall.Signal{"KILL": syscall.SIGKILL}
