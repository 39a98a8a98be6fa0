//go:build linux

// Command soak is the fault mill: what make test tries for a minute, for a long
// time and by the hundred. It runs the random kills and the raced publications
// of the tests, and then rounds of units whose workers misbehave in every way
// that fakeagent knows, while it kills, stops and starves everybody who takes
// part. After each round a checker of its own, which reads only the disk and
// /proc, looks for violated invariants.
//
// The seed is printed first; -seed and -round repeat one round of a run. What
// is random in the machine itself is not repeated, so a rare failure may take
// -repeat to come again. The directory of a failed round is kept.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hogCommand = "__hog"
	privateEnv = "SOAK_PRIVATE_MOUNTS"
)

// self is the path of this program.
func self() string {
	name, err := os.Executable()
	must(err)
	return name
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == hogCommand {
		hog(os.Args[2])
		return
	}
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of everything random")
	minutes := flag.Float64("minutes", 20, "how long to go on")
	units := flag.Int("units", 200, "units in each round")
	ramp := flag.Duration("ramp", 4*time.Second, "time in which they are started")
	first := flag.Int("round", 0, "begin with this round")
	repeat := flag.Int("repeat", 0, "run the round of -round so often, and nothing else")
	kills := flag.Int("kills", 20, "rounds of each random kill of the tests; 0 leaves them out")
	points := flag.Int("points", 4, "walk one of so many shares of the pairs of crash points, the seed says which; 1 walks all, 0 none")
	races := flag.Int("races", 1000, "raced publications for each kind of late writer; 0 leaves them out")
	flag.Parse()

	if os.Getuid() == 0 && os.Getenv(privateEnv) == "" {
		// The small file system is nobody else's business, and goes with us.
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), privateEnv+"=1")
		if !slices.ContainsFunc(os.Args[1:], func(s string) bool { return strings.HasPrefix(s, "-seed") }) {
			cmd.Args = append(cmd.Args, "-seed", strconv.FormatUint(*seed, 10))
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		runtime.LockOSThread()
		if err := cmd.Start(); err == nil {
			signal.Ignore(os.Interrupt)
			_ = cmd.Wait()
			os.Exit(max(cmd.ProcessState.ExitCode(), 0))
		}
		fmt.Println("soak: no mount namespace of our own: without the small disk")
	}
	begin := time.Now()
	fmt.Printf("soak: seed %d, %d units a round, %v minutes\n", *seed, *units, *minutes)
	failed := 0
	if *repeat == 0 {
		failed += stages(*seed, *kills, *races, *points)
	}
	m, err := newMill(*seed, *units, *ramp)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	end := begin.Add(time.Duration(*minutes * float64(time.Minute)))
	for n := 0; ; n++ {
		round := *first + n
		if *repeat > 0 {
			round = *first
		}
		if *repeat > 0 && n == *repeat || *repeat == 0 && n > 0 && time.Now().After(end) {
			break
		}
		at := time.Now()
		log := openKernelLog()
		bad := m.round(round)
		if stood := log.stalls(); len(bad) > 0 && len(stood) > 0 {
			// No promise of ours can hold while the kernel itself does not go on.
			// The round says nothing and is run again, once.
			fmt.Printf("soak: round %d: the kernel stood still, so it is run again; it said:\n", round)
			for _, line := range stood {
				fmt.Println("\t" + line)
			}
			m.violations -= len(bad)
			m.stood++
			bad = m.round(round)
		}
		fmt.Printf("soak: round %d: %d violations, %v\n", round, len(bad), time.Since(at).Round(100*time.Millisecond))
		for _, b := range bad {
			fmt.Println("\t" + b)
		}
		if len(bad) > 0 {
			fmt.Printf("soak: again with: go run ./testdata/soak -seed %d -units %d -round %d -repeat 5\n", *seed, *units, round)
		}
	}
	m.summary(time.Since(begin))
	m.close()
	if failed > 0 || m.violations > 0 {
		os.Exit(1)
	}
}

// stages are the long forms of tests.
func stages(seed uint64, kills, races, points int) (failed int) {
	for _, s := range []struct {
		name string
		n    int
		args []string
	}{
		{"kills", kills, []string{"-parallel", "4", "-run", "TestRandomKills", "./cmd/prun-dispatch"}},
		{"crash points", points, []string{"-tags", "forceposix crashpoints", "-parallel", "6", "-run", "TestPoints", "./cmd/prun-dispatch"}},
		{"publication", races, []string{"-run", "Race", "./pkg/result", "-rounds", strconv.Itoa(races)}},
	} {
		if s.n == 0 {
			continue
		}
		cmd := exec.Command("go", append([]string{"test", "-tags", "forceposix", "-count=1", "-timeout", "60m"}, s.args...)...)
		if s.name == "crash points" {
			cmd.Env = append(os.Environ(), fmt.Sprintf("PRUN_TEST_SHARE=%d/%d", seed%uint64(s.n), s.n))
		}
		cmd.Env = append(cmd.Environ(), "PRUN_TEST_ROUNDS="+strconv.Itoa(s.n), "PRUN_TEST_SEED="+strconv.FormatInt(int64(seed>>1), 10))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		at := time.Now()
		if err := cmd.Run(); err != nil {
			failed++
			fmt.Printf("soak: %s failed: %v\n", s.name, err)
		}
		fmt.Printf("soak: %s took %v\n", s.name, time.Since(at).Round(time.Second))
	}
	return failed
}

func newMill(seed uint64, units int, ramp time.Duration) (*mill, error) {
	if units > 999 {
		return nil, fmt.Errorf("at most 999 units a round")
	}
	root, err := os.MkdirTemp("", "prun-soak-")
	if err != nil {
		return nil, err
	}
	m := &mill{
		seed: seed, units: units, ramp: ramp, root: root, bin: map[string]string{},
		peak: map[string]int{}, kinds: map[string]int{}, causes: map[string]int{},
	}
	for _, name := range []string{"prun-dispatch", "prun-monitor", "prun-gather", "prun-report", "prun-snapshot", "prun-reap"} {
		if m.bin[name], err = exec.LookPath(name); err != nil {
			return nil, err
		}
		// The tools may be built anew meanwhile.
		if m.bin[name], err = duplicate(m.bin[name], filepath.Join(root, "bin", name)); err != nil {
			return nil, err
		}
	}
	for _, door := range []string{"herd", "agent-fanout"} {
		if name, err := exec.LookPath(door); err == nil {
			if m.bin[door], err = duplicate(name, filepath.Join(root, "bin", door)); err != nil {
				return nil, err
			}
		}
	}
	m.bin["clocked"] = filepath.Join(root, "clocked")
	doors := []string{"prun-dispatch"}
	for _, door := range []string{"herd", "agent-fanout"} {
		if m.bin[door] != "" {
			doors = append(doors, door)
		}
	}
	if err := clocked(m.bin["clocked"], doors...); err != nil {
		return nil, err
	}
	fake := filepath.Join(root, "bin", "fakeagent")
	build := exec.Command("go", "build", "-tags", "forceposix", "-o", fake, "./testdata/fakeagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build fakeagent: %w: %s", err, out)
	}
	for _, name := range []string{"agy", "codex", "claude"} {
		if err := os.Symlink("fakeagent", filepath.Join(root, "bin", name)); err != nil {
			return nil, err
		}
	}
	if os.Getenv(privateEnv) != "" {
		small := filepath.Join(root, "small")
		must(os.Mkdir(small, 0o755))
		err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		if err == nil {
			err = unix.Mount("tmpfs", small, "tmpfs", 0, "size=6m,nr_inodes=500")
		}
		if err == nil {
			m.smallDir = small
		}
	}
	for _, top := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		group := filepath.Join(top, fmt.Sprintf("prun-soak-%d", os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(group, "pids.max"), []byte("120"), 0o644) != nil {
			_ = os.Remove(group)
			continue
		}
		m.stormGroup = group
		break
	}
	for what, missing := range map[string]bool{"a small disk": m.smallDir == "", "a limit of processes for fork storms": m.stormGroup == ""} {
		if missing {
			fmt.Printf("soak: without %s\n", what)
		}
	}
	return m, nil
}

func (m *mill) close() {
	if m.stormGroup != "" {
		_ = os.Remove(m.stormGroup)
	}
	if m.violations > 0 {
		fmt.Printf("soak: kept %s\n", m.root)
		return
	}
	if m.smallDir != "" {
		_ = unix.Unmount(m.smallDir, unix.MNT_DETACH)
	}
	_ = removeAll(m.root)
}

func (m *mill) summary(took time.Duration) {
	fmt.Printf("\n| seed %d, %v | |\n|---|---|\n", m.seed, took.Round(time.Second))
	row := func(what string, value any) { fmt.Printf("| %s | %v |\n", what, value) }
	row("rounds of "+strconv.Itoa(m.units)+" units at once", m.rounds)
	row("units started, announced, settled", fmt.Sprintf("%d, %d, %d", m.started, m.announced, m.settled))
	row("of these tasks of herd, lanes of agent-fanout", fmt.Sprintf("%d, %d", m.tasks, m.lanes))
	row("kinds of worker", len(m.kinds))
	row("kills and stop requests delivered", m.kills)
	row("processes stopped and continued", m.stops)
	row("state directories removed", m.removals)
	row("units whose wall clock was set, by seconds to years", m.clocks)
	row("lost, of these settled by prun-reap", fmt.Sprintf("%d, %d", m.lost, m.reaped))
	row("never born (killed before STATE-DIR; starved)", fmt.Sprintf("%d; %d", m.refused-m.starved, m.starved))
	row("ends that nothing could prove, and which said so", m.unproven)
	row("looks by report, monitor and gather; snapshot sweeps", fmt.Sprintf("%d; %d", m.looks, m.snapshots))
	for _, role := range []string{"prun-dispatch", "prun-keeper", "prun-supervisor", "prun-monitor", "prun-gather", "prun-report"} {
		if kib := m.peak[role]; kib > 0 {
			row("most memory of one "+role, fmt.Sprintf("%.1f MiB", float64(kib)/1024))
		}
	}
	var causes []string
	for c, n := range m.causes {
		causes = append(causes, fmt.Sprintf("%s %d", c, n))
	}
	slices.Sort(causes)
	row("outcomes", strings.Join(causes, ", "))
	if m.stood > 0 {
		row("rounds that were run again because the kernel stood still", m.stood)
	}
	row("violated invariants (survivors, losses, false ends, leftovers)", m.violations)
}

func duplicate(from, to string) (string, error) {
	b, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	return to, os.WriteFile(to, b, 0o755)
}

// hog opens what it may and holds it.
func hog(life string) {
	var held []*os.File
	for len(held) < 1<<16 {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		held = append(held, f)
	}
	defer runtime.KeepAlive(held)
	if d, err := time.ParseDuration(life); err == nil {
		<-time.After(d)
	}
}
