//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
	"github.com/prun-suite/prun/pkg/state"
)

// fakeUnits makes n state directories whose supervisor is this process.
func fakeUnits(root string, n int, held bool) (units []state.Unit, release func()) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		fatal(err)
	}
	var locks []*atomicfile.Lock
	for i := range n {
		u := state.Unit{Dir: filepath.Join(root, state.Name("00000000", fmt.Sprintf("u%d", i), os.Getpid(), fmt.Sprintf("%016x", i)))}
		must(atomicfile.Mkdir(u.Dir, 0o700))
		must(atomicfile.Write(u.Path(state.FileResult), []byte(filepath.Join(root, fmt.Sprintf("r%d", i))+"\n"), 0o600))
		must(atomicfile.Write(u.Path(state.FileDispatchPID), []byte(fmt.Sprintf("%d\n", os.Getpid())), 0o600))
		must(atomicfile.Write(u.Path(state.FileTail), bytes.Repeat([]byte("x"), i%100), 0o600))
		if held {
			lock, err := atomicfile.TryLock(u.Path(state.FileLock))
			must(err)
			locks = append(locks, lock)
			must(u.ReserveOutcome())
			must(u.WriteIdentity(state.Identity{Unit: "u", Backend: "command", Supervisor: pid.Self(), Machine: pid.Machine(), Created: time.Now()}))
		}
		units = append(units, u)
	}
	return units, func() {
		for _, l := range locks {
			l.Unlock()
		}
	}
}

func must(err error) {
	if err != nil {
		fatal(err)
	}
}

func monitor(b *bench) {
	const many = 1000
	var limit syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	units, release := fakeUnits(filepath.Join(b.dir, "monitor"), many, true)
	defer release()
	dirs := make([]string, many)
	for i, u := range units {
		dirs[i] = u.Dir
	}
	cmd := exec.Command("prun-monitor", dirs...)
	must(cmd.Start())
	time.Sleep(3 * time.Second)
	used := -cpu(cmd.Process.Pid)
	const span = 10 * time.Second
	time.Sleep(span)
	used += cpu(cmd.Process.Pid)
	b.add("prun-monitor over 1,000 units: resident memory", 30, status(cmd.Process.Pid, "VmHWM")/1024, "MiB", "")
	b.add("prun-monitor over 1,000 units: part of one core", 1, 100*used.Seconds()/span.Seconds(), "%", "")
	at := time.Now()
	must(units[many/2].PublishOutcome(state.Outcome{Unit: "u", Backend: "command", Cause: state.Lost, Result: state.ResultNone,
		StartedAt: at, EndedAt: at, Containment: "subreaper"}))
	cmd.Wait()
	b.add("prun-monitor: settled unit reported", 150, ms(time.Since(at)), "ms", fmt.Sprintf("exit %d", cmd.ProcessState.ExitCode()))
}

// run returns how long a command took, and its peak memory in MiB.
func run(name string, args ...string) (time.Duration, float64) {
	cmd := exec.Command(name, args...)
	at := time.Now()
	_ = cmd.Run()
	took := time.Since(at)
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if usage == nil {
		return took, 0
	}
	return took, float64(usage.Maxrss) / 1024
}

func has(tool string) bool { _, err := exec.LookPath(tool); return err == nil }

func report(b *bench) {
	if !has("prun-report") {
		return
	}
	const many = 10_000
	root := filepath.Join(b.dir, "report")
	fakeUnits(root, many, false)
	// The same files, statted by the plainest program there is; both warm.
	find := func() time.Duration {
		took, _ := run("find", root, "-printf", "%s %T@\n")
		return took
	}
	find()
	var ours, theirs []time.Duration
	memory := 0.0
	for range 5 {
		theirs = append(theirs, find())
		took, mib := run("prun-report", "--root", root, "--json")
		ours, memory = append(ours, took), max(memory, mib)
	}
	b.add("prun-report over 10,000 units against find", 1.5, float64(median(ours))/float64(median(theirs)), "x", fmt.Sprintf("%.0f ms", ms(median(ours))))
	b.add("prun-report over 10,000 units: resident memory", 40, memory, "MiB", "")
	one := filepath.Join(b.dir, "report1")
	fakeUnits(one, 1, false)
	var single []time.Duration
	for range b.n {
		took, _ := run("prun-report", "--root", one)
		single = append(single, took)
	}
	b.add("prun-report, one unit, start to exit, median", 10, ms(median(single)), "ms", "")
}

func snapshot(b *bench) {
	if !has("prun-snapshot") {
		return
	}
	root := filepath.Join(b.dir, "snapshot")
	units, _ := fakeUnits(root, 1, false)
	const size = 4 << 30
	must(os.Truncate(units[0].Path(state.FileTail), size))
	dest := filepath.Join(root, "out")
	must(os.Mkdir(dest, 0o700))
	copied := filepath.Join(root, "copy")
	at := time.Now()
	must(copyFile(copied, units[0].Path(state.FileTail)))
	for range 2 {
		run("sha256sum", copied)
	}
	theirs := time.Since(at)
	os.Remove(copied)
	ours, memory := run("prun-snapshot", "--unit", units[0].Dir, "--dest", dest)
	b.add("prun-snapshot of a 4 GiB tail against a copy and sha256sum twice", 1.3, float64(ours)/float64(theirs), "x", fmt.Sprintf("%.1f s", ours.Seconds()))
	b.add("prun-snapshot of a 4 GiB tail: resident memory", 24, memory, "MiB", "")
	os.RemoveAll(root)
}

// copyFile copies every byte, holes too: cp would see that there are none.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	// Without the shortcut by which the kernel copies references only.
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 1<<20)); err != nil {
		return err
	}
	return out.Sync()
}

// orphans: a hundred contained trees whose guards were all killed.
func orphans(b *bench) {
	if !has("prun-reap") {
		return
	}
	const many = 100
	root := filepath.Join(b.dir, "orphans")
	must(os.Mkdir(root, 0o700))
	var units []*unit
	for range many {
		u := b.dispatch([]string{"PRUN_STALL_THRESHOLD=0"}, nil, "sh", "-c", `(setsid sleep 600 &); echo ready; exec sleep 600`)
		u.cmd.Env = append(u.cmd.Env, "PRUN_STATE_BASE="+root, "PRUN_BENCH_UNIT="+u.dir)
		u.start()
		units = append(units, u)
	}
	deadline := time.Now().Add(time.Minute)
	for ready(root) < many {
		if time.Now().After(deadline) {
			fatal(fmt.Errorf("only %d of %d units are ready", ready(root), many))
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, u := range units {
		ours := u.ours()
		for _, name := range []string{"front", "keeper", "supervisor"} {
			signal(ours[name], syscall.SIGKILL)
		}
	}
	for _, u := range units {
		u.wait()
	}
	cmd := exec.Command("prun-reap", "--include-active", "--root", root)
	var out bytes.Buffer
	cmd.Stdout = &out
	at := time.Now()
	_ = cmd.Run()
	took := time.Since(at)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	b.add("prun-reap of 100 contained orphan trees", 2, took.Seconds(), "s", lines[len(lines)-1])
}

func ready(root string) int {
	n := 0
	dirs, _ := filepath.Glob(filepath.Join(root, "prun-task-*"))
	for _, d := range dirs {
		if fi, err := os.Stat(filepath.Join(d, "tail")); err == nil && fi.Size() > 0 {
			if _, err := os.Stat(filepath.Join(d, "worker.json")); err == nil {
				n++
			}
		}
	}
	return n
}
