//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// What /proc says. None of the suite's own code is used here.

func processes() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var out []int
	for _, n := range names {
		if p, err := strconv.Atoi(n); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func read(p int, name string) []byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p, name))
	if err != nil {
		return nil
	}
	return b
}

// stat returns the fields after the name, which may hold anything.
func stat(p int) []string {
	b := read(p, "stat")
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(string(b[i+1:]))
}

func state(p int) byte {
	if f := stat(p); len(f) > 0 {
		return f[0][0]
	}
	return 'Z'
}

func field(p, n int) int {
	f := stat(p)
	if len(f) <= n {
		return 0
	}
	v, err := strconv.Atoi(f[n])
	if err != nil {
		return 0
	}
	return v
}

func parent(p int) int  { return field(p, 1) }
func session(p int) int { return field(p, 3) }

func identify(p int) process { return process{p, uint64(field(p, 19))} }

func argv0(p int) string {
	name, _, _ := bytes.Cut(read(p, "cmdline"), []byte{0})
	return string(name)
}

func carries(p int, mark string) bool { return bytes.Contains(read(p, "environ"), []byte(mark)) }

func tokenOf(p int) string {
	for _, e := range bytes.Split(read(p, "environ"), []byte{0}) {
		if bytes.HasPrefix(e, []byte("SOAK=")) {
			return string(e)
		}
	}
	return "?"
}

func wchan(p int) string { return string(read(p, "wchan")) }

func children(p int) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p))
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range threads {
		for _, f := range strings.Fields(string(read(p, "task/"+t.Name()+"/children"))) {
			if c, err := strconv.Atoi(f); err == nil {
				out = append(out, c)
			}
		}
	}
	return out
}

// peakMemory is the most that a process has held since its exec, in KiB.
func peakMemory(p int) int {
	for line := range strings.Lines(string(read(p, "status"))) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				return 0
			}
			return kib
		}
	}
	return 0
}
