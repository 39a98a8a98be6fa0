//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unitRun is what has happened to a unit.
type unitRun struct {
	cmd    *exec.Cmd
	status int // of the front door; 128+n for a signal
	ended  chan struct{}

	mu      sync.Mutex
	known   map[string]process
	did     map[string]int // "kill supervisor": how often it was delivered
	removed time.Time
	paused  []int // pidfds to be continued
	dir     string
}

// process is a process of a unit, by number and start.
type process struct {
	pid   int
	start uint64
}

// mill runs rounds.
type mill struct {
	seed  uint64
	units int
	ramp  time.Duration
	root  string // of everything that is made
	// smallDir is a small file system, stormGroup a group with a small limit
	// of processes; empty where they cannot be had.
	smallDir, stormGroup string
	bin                  map[string]string

	rounds, started, announced, kills, stops, removals, clocks int
	looks, snapshots, reaped, unproven, tasks, lanes           int
	violations, stood                                          int
	refused, starved, lost, settled                            int
	peak                                                       map[string]int // KiB by role
	kinds                                                      map[string]int
	causes                                                     map[string]int
}

// memoryBound is what each process of ours may hold.
const memoryBound = 16 << 10 // KiB

// round is one round: plan, run, afflict, watch, let it come to rest, check.
func (m *mill) round(number int) []string {
	r := rand.New(rand.NewPCG(m.seed, uint64(number)))
	dir := filepath.Join(m.root, fmt.Sprintf("m%x-%d", m.seed&0xffffff, number))
	if _, err := os.Lstat(dir); err == nil {
		dir += "-again"
	}
	for _, d := range []string{"s", "w", "r", "h"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	if m.smallDir != "" {
		must(os.MkdirAll(filepath.Join(m.smallDir, filepath.Base(dir)), 0o755))
	}
	v := &verdicts{}
	units := m.plan(r, dir, m.plant(dir))
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	readers := r.Uint64()
	beside.Go(func() { m.readAll(ctx, dir, units, rand.New(rand.NewPCG(readers, 1)), v) })
	beside.Go(func() { m.readSome(ctx, units, rand.New(rand.NewPCG(readers, 2)), v) })
	beside.Go(func() { m.weigh(ctx, dir, v) })
	if m.smallDir != "" {
		beside.Go(func() { m.crowd(ctx, rand.New(rand.NewPCG(readers, 3))) })
	}

	var all sync.WaitGroup
	for _, u := range units {
		all.Go(func() { m.live(u, v) })
	}
	all.Wait()
	m.rest(dir, units, v)
	cancel()
	beside.Wait()
	m.reap(dir, units, r, v)
	m.check(dir, units, v)

	m.rounds++
	if bad := v.list(); len(bad) > 0 {
		m.violations += len(bad)
		report := strings.Join(bad, "\n") + "\n"
		must(os.WriteFile(filepath.Join(dir, "violations"), []byte(report), 0o644))
		return bad
	}
	must(removeAll(dir))
	if m.smallDir != "" {
		must(removeAll(filepath.Join(m.smallDir, filepath.Base(dir))))
	}
	return nil
}

// verdicts collects violated invariants.
type verdicts struct {
	mu  sync.Mutex
	all []string
}

func (v *verdicts) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, fmt.Sprintf(format, args...))
}

func (v *verdicts) of(u *unit, format string, args ...any) {
	v.add("%s (%s, %s%s): %s", u.id, u.kind, u.mode, u.happened(), fmt.Sprintf(format, args...))
}

func (v *verdicts) list() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.all...)
}

func (u *unit) happened() string {
	u.run.mu.Lock()
	defer u.run.mu.Unlock()
	var b strings.Builder
	for _, what := range []string{
		"kill front", "kill keeper", "kill supervisor", "kill worker", "stop front", "stop keeper", "stop supervisor", "stop worker",
		"herd kill", "cancel", "TERM front", "INT front", "HUP front", "TERM supervisor", "INT supervisor", "HUP supervisor", "remove", "clock",
	} {
		if u.run.did[what] > 0 {
			b.WriteString(", " + what)
		}
	}
	for name, on := range map[string]bool{"small disk": u.small, "few files": u.files > 0, "detached": u.detach} {
		if on {
			b.WriteString(", " + name)
		}
	}
	return b.String()
}

func (u *unit) was(what string) bool {
	u.run.mu.Lock()
	defer u.run.mu.Unlock()
	return u.run.did[what] > 0
}

// live starts one unit, does to it what the plan says, and waits for its front
// door.
func (m *mill) live(u *unit, v *verdicts) {
	<-time.After(u.delay)
	must(os.MkdirAll(u.witness, 0o755))
	must(u.writeClock(0))
	must(os.MkdirAll(filepath.Dir(u.result), 0o755))
	if u.before != nil {
		must(os.WriteFile(u.result, u.before, 0o644))
	}
	prompt := filepath.Join(u.witness, "prompt")
	must(os.WriteFile(prompt, bytes.Repeat([]byte("please\n"), u.prompt/7+1), 0o644))
	words := []string{m.program(u, "prun-dispatch"), "--backend", u.backend, "--prompt-file", prompt, "--result-file", u.result, "--unit-id", u.id}
	if u.stall > 0 {
		words = append(words, "--stall", strconv.Itoa(int(u.stall)))
	}
	if u.hard > 0 {
		words = append(words, "--timeout", strconv.Itoa(int(u.hard)))
	}
	if u.ledger != "" {
		words = append(words, "--ledger", u.ledger)
	}
	if u.detach {
		words = append(words, "--detach")
	}
	env := m.environment(u)
	if u.backend == "command" {
		words = append(words, "--", "fakeagent")
		words = append(words, u.script.steps...)
	}
	if u.door == "herd" {
		words = []string{m.program(u, "herd"), "spawn", "workspace", "--backend", u.backend, "--name", u.id, "--project-root", filepath.Dir(u.result), "--deadline", strconv.Itoa(int(u.hard))}
		if u.stall > 0 {
			words = append(words, "--stall-after", strconv.Itoa(int(u.stall)))
		}
		words = append(words, "please")
	}
	if u.door == "lane" {
		words = m.startLane(u, v)
	}
	before := ""
	if u.files > 0 {
		before += "ulimit -n " + strconv.Itoa(u.files) + " && "
	}
	if u.storm {
		before += "echo $$ >" + m.stormGroup + "/cgroup.procs && "
	}
	if before != "" {
		words = append([]string{"sh", "-c", before + `exec "$0" "$@"`}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Dir = env, filepath.Dir(u.result)
	var err error
	stdout, err := os.Create(filepath.Join(u.witness, "stdout"))
	must(err)
	stderr, err := os.Create(filepath.Join(u.witness, "stderr"))
	must(err)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	u.run = unitRun{cmd: cmd, ended: make(chan struct{}), known: map[string]process{}, did: map[string]int{}}
	if err := cmd.Start(); err != nil {
		v.of(u, "cannot start: %v", err)
		close(u.run.ended)
		return
	}
	stdout.Close()
	stderr.Close()
	u.run.known["front"] = identify(cmd.Process.Pid)
	var actions sync.WaitGroup
	for _, a := range u.actions {
		actions.Go(func() {
			<-time.After(a.after)
			m.act(u, a)
		})
	}
	go func() {
		defer close(u.run.ended)
		_ = cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			u.run.status = 128 + int(ws.Signal())
		} else {
			u.run.status = cmd.ProcessState.ExitCode()
		}
	}()
	actions.Wait()
	select {
	case <-u.run.ended:
	case <-time.After(90 * time.Second):
		v.of(u, "the front door does not end")
		_ = cmd.Process.Kill()
		// What follows is our doing.
		u.run.mu.Lock()
		u.run.did["kill front"]++
		u.run.mu.Unlock()
		<-u.run.ended
	}
}

// program is the named program, for u.
func (m *mill) program(u *unit, name string) string {
	if u.clocked {
		return filepath.Join(m.bin["clocked"], name)
	}
	return m.bin[name]
}

// environment is what the unit's programs are given.
func (m *mill) environment(u *unit) []string {
	env := []string{
		"PATH=" + filepath.Join(m.root, "bin") + ":" + os.Getenv("PATH"), "HOME=" + u.witness,
		"TMPDIR=" + u.base, u.token, "PRUN_CONTAINMENT=" + u.mode, "ANTIGRAVITY_PREFLIGHT=off",
		"FAKEAGENT_LIFE=15s", "PRUN_USER_DIR=" + filepath.Join(m.root, "user"),
	}
	if u.clocked {
		env = append(env, clockEnv+"="+u.clock())
	}
	if u.backend != "command" {
		env = append(env, "FAKEAGENT_AS="+u.backend, "FAKEAGENT_SCRIPT="+strings.Join(u.script.steps, "\n"))
	}
	if u.door == "lane" {
		env = append(env, u.farm.env()...)
	}
	if u.door == "herd" {
		env = append(env, "DELEGATE_STATE_DIR="+u.base, "DELEKIT_DEVICE_ID=dev",
			"DELEGATE_"+strings.ToUpper(u.backend)+"_BIN="+filepath.Join(m.root, "bin", "fakeagent"))
	}
	return env
}

// act does one thing to a unit.
func (m *mill) act(u *unit, a action) {
	if a.what == "remove" {
		if dir := u.find(); dir != "" && removeAll(dir) == nil {
			u.run.mu.Lock()
			u.run.did["remove"]++
			u.run.removed = time.Now()
			u.run.mu.Unlock()
		}
		return
	}
	if a.what == "clock" {
		u.setClock(a.again)
		return
	}
	if a.what == "cancel" {
		if _, err := m.lane(u, "cancel", "--run", u.farm.run, "--phase", u.id, "--grace", "2"); err == nil {
			u.run.mu.Lock()
			u.run.did["cancel"]++
			u.run.mu.Unlock()
		}
		return
	}
	if a.what == "herd kill" {
		if _, err := m.herd(u, "kill", u.id); err == nil {
			u.run.mu.Lock()
			u.run.did["herd kill"]++
			u.run.mu.Unlock()
		}
		return
	}
	sig := map[string]syscall.Signal{
		"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	}[a.what]
	u.locate()
	u.run.mu.Lock()
	defer u.run.mu.Unlock()
	for _, party := range a.whom {
		p, ok := u.run.known[party]
		if !ok {
			continue
		}
		fd, err := unix.PidfdOpen(p.pid, 0)
		if err != nil {
			continue
		}
		if identify(p.pid) != p || state(p.pid) == 'Z' || unix.PidfdSendSignal(fd, sig, nil, 0) != nil {
			unix.Close(fd)
			continue
		}
		u.run.did[a.what+" "+party]++
		if a.what != "stop" {
			unix.Close(fd)
			continue
		}
		u.run.paused = append(u.run.paused, fd)
	}
	if a.what == "stop" {
		u.run.mu.Unlock()
		<-time.After(a.again)
		u.run.mu.Lock()
		for _, fd := range u.run.paused {
			_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
			unix.Close(fd)
		}
		u.run.paused = nil
	}
}

// locate finds the unit's processes as far as they can be found now. What was
// found once stays known.
func (u *unit) locate() {
	u.run.mu.Lock()
	defer u.run.mu.Unlock()
	k := u.run.known
	below := func(above, party string, fits func(pid int) bool) {
		if _, ok := k[party]; ok {
			return
		}
		p, ok := k[above]
		if !ok || identify(p.pid) != p {
			return
		}
		for _, c := range children(p.pid) {
			if fits(c) && carries(c, u.token) {
				k[party] = identify(c)
				return
			}
		}
	}
	called := func(name string) func(int) bool { return func(p int) bool { return argv0(p) == name } }
	below("front", "keeper", called("prun-keeper"))
	if _, ok := k["supervisor"]; !ok {
		below("keeper", "supervisor", called("prun-supervisor"))
	}
	if _, ok := k["supervisor"]; !ok && u.door != "" {
		s, g := u.answerers()
		if s > 0 && argv0(s) == "prun-supervisor" && carries(s, u.token) {
			k["supervisor"] = identify(s)
		}
		if g > 0 && argv0(g) == "prun-keeper" && carries(g, u.token) {
			k["keeper"] = identify(g)
		}
	}
	if _, ok := k["supervisor"]; !ok && u.door == "" {
		if dir := u.find(); dir != "" {
			parts := strings.Split(filepath.Base(dir), "-")
			if p, err := strconv.Atoi(parts[len(parts)-2]); err == nil && argv0(p) == "prun-supervisor" && carries(p, u.token) {
				k["supervisor"] = identify(p)
				if above := parent(p); argv0(above) == "prun-keeper" {
					k["keeper"] = identify(above)
				}
			}
		}
	}
	below("supervisor", "worker", func(p int) bool { return argv0(p) != "prun-supervisor" && session(p) == p })
}

// find returns the unit's state directory, or "".
func (u *unit) find() string {
	found, _ := filepath.Glob(filepath.Join(u.base, "prun-task-*-"+u.id+"-*"))
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

// rest waits until nobody answers for a unit of the round any more.
func (m *mill) rest(dir string, units []*unit, v *verdicts) {
	mark := "SOAK=" + filepath.Base(dir) + "-"
	end := time.Now().Add(60 * time.Second)
	for {
		var left []int
		for _, p := range processes() {
			if name := argv0(p); (name == "prun-keeper" || name == "prun-supervisor") && carries(p, mark) && state(p) != 'Z' {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			for _, p := range left {
				v.add("%s %d of %s still runs (state %c), %s", argv0(p), p, tokenOf(p), state(p), wchan(p))
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
			<-time.After(time.Second)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// reap settles the units whose guards were all killed. The first try is
// sometimes killed in the middle.
func (m *mill) reap(dir string, units []*unit, r *rand.Rand, v *verdicts) {
	args := []string{"--include-active", "--root", filepath.Join(dir, "s")}
	if m.smallDir != "" {
		args = append(args, "--root", filepath.Join(m.smallDir, filepath.Base(dir)))
	}
	m.age(dir)
	if r.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(40))*time.Millisecond)
		_ = exec.CommandContext(ctx, m.bin["prun-reap"], args...).Run()
		cancel()
		m.age(dir)
	}
	cmd := exec.Command(m.bin["prun-reap"], args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	m.inspect("prun-reap", out, err, v, 0, 3)
	must(os.WriteFile(filepath.Join(dir, "reap"), out, 0o644))
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "REAPED", "TERMINATED":
			m.reaped++
		case "LEFT":
			v.add("prun-reap: %s", strings.TrimSpace(line))
		}
	}
}

// age makes directories that never got their name so old that they are given up.
func (m *mill) age(dir string) {
	for _, base := range []string{filepath.Join(dir, "s"), filepath.Join(m.smallDir, filepath.Base(dir))} {
		hidden, _ := filepath.Glob(filepath.Join(base, ".new-*"))
		for _, h := range hidden {
			old := time.Now().Add(-time.Hour)
			_ = os.Chtimes(h, old, old)
		}
	}
}

// inspect judges a tool by how it ended: a crash of a Go program is exit 2
// with a goroutine's stack.
func (m *mill) inspect(name string, out []byte, err error, v *verdicts, allowed ...int) {
	if bytes.Contains(out, []byte("goroutine ")) || bytes.Contains(out, []byte("panic:")) || bytes.Contains(out, []byte("fatal error:")) {
		v.add("%s crashed: %.600s", name, out)
		return
	}
	code := 0
	var xe *exec.ExitError
	if errors.As(err, &xe) {
		code = xe.ExitCode()
		if ws, ok := xe.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return
		}
	} else if err != nil {
		v.add("%s: %v", name, err)
		return
	}
	for _, a := range allowed {
		if code == a {
			return
		}
	}
	v.add("%s: exit %d: %.600s", name, code, out)
}

// readAll runs the tools that look at everything, again and again.
func (m *mill) readAll(ctx context.Context, dir string, units []*unit, r *rand.Rand, v *verdicts) {
	for i := 0; ctx.Err() == nil; i++ {
		args := []string{"--root", filepath.Join(dir, "s"), "--json"}
		if i%3 == 1 {
			args = append(args, "--detail")
		}
		if m.smallDir != "" {
			args = append(args, "--root", filepath.Join(m.smallDir, filepath.Base(dir)))
		}
		cmd := exec.Command(m.bin["prun-report"], args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		m.looks++
		// 1 is a unit that went away while it was looked at.
		m.inspect("prun-report", errs.Bytes(), err, v, 0, 1)
		if err == nil && !json.Valid(out.Bytes()) {
			v.add("prun-report: no JSON: %.300s", out.Bytes())
		}
		if i%4 == 3 {
			cmd := exec.Command(m.bin["prun-report"], "--detail", "--root", filepath.Join(dir, "s"))
			text, err := cmd.CombinedOutput()
			m.inspect("prun-report", text, err, v, 0, 1)
			for j, c := range text {
				if c < 0x20 && c != '\n' && c != '\t' {
					v.add("prun-report printed a control character: %q", text[max(0, j-60):min(len(text), j+60)])
					break
				}
			}
		}
		if i%4 == 1 {
			archives := filepath.Join(dir, "archives")
			cmd := exec.Command(m.bin["prun-snapshot"], "--all", "--dest", archives, "--root", filepath.Join(dir, "s"))
			text, err := cmd.CombinedOutput()
			// A unit that ends and gets its result, or a directory that is
			// removed, while it is being copied, is a failure of that one.
			m.inspect("prun-snapshot", text, err, v, 0, 3, 4, 5, 6)
			m.snapshots++
			if left, _ := filepath.Glob(filepath.Join(archives, ".snap-*")); len(left) > 0 {
				v.add("prun-snapshot left %v", left)
			}
			_ = os.RemoveAll(archives)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+r.IntN(400)) * time.Millisecond):
		}
	}
}

// readSome waits with monitor and gather for random units; these are killed,
// stopped and continued too.
func (m *mill) readSome(ctx context.Context, units []*unit, r *rand.Rand, v *verdicts) {
	for ctx.Err() == nil {
		byDir := map[string]*unit{}
		var dirs []string
		for range 12 {
			u := units[r.IntN(len(units))]
			if dir := u.find(); dir != "" && byDir[dir] == nil {
				byDir[dir] = u
				dirs = append(dirs, dir)
			}
		}
		if len(dirs) == 0 {
			<-time.After(100 * time.Millisecond)
			continue
		}
		name, args := "prun-monitor", []string{"--timeout", "2", "--poll", "0.2", "--window", "0.3"}
		if r.IntN(2) == 0 {
			name = "prun-gather"
			for _, d := range dirs {
				args = append(args, "--unit", d)
			}
		} else {
			args = append(append(args, "--"), dirs...)
			if r.IntN(2) == 0 {
				args = append([]string{"--any"}, args...)
			}
		}
		cmd := exec.Command(m.bin[name], args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			v.add("%s: %v", name, err)
			return
		}
		chaos := r.IntN(6)
		wait := time.Duration(r.IntN(700)) * time.Millisecond
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		var err error
		ended := false
		if chaos < 2 {
			select {
			case err = <-done:
				ended = true
			case <-time.After(wait):
				if chaos == 0 {
					_ = cmd.Process.Kill()
				} else {
					_ = cmd.Process.Signal(syscall.SIGSTOP)
					<-time.After(wait)
					_ = cmd.Process.Signal(syscall.SIGCONT)
				}
			}
		}
		if !ended {
			select {
			case err = <-done:
			case <-time.After(30 * time.Second):
				v.add("%s does not end: %q %q", name, out.String(), errs.String())
				_ = cmd.Process.Kill()
				<-done
			}
		}
		m.looks++
		m.inspect(name, errs.Bytes(), err, v, 0, 2, 3)
		for line := range strings.Lines(out.String()) {
			f := strings.Fields(line)
			if len(f) != 3 || f[0] != "UNIT" {
				continue
			}
			for dir, u := range byDir {
				// Of a unit that has ended without a result it is the right word.
				if _, err := os.Lstat(filepath.Join(dir, "outcome.json")); err == nil {
					continue
				}
				if filepath.Base(dir) == f[1] && strings.Contains(f[2], "dispatch-dead") && !u.was("kill supervisor") && !u.was("remove") && !u.small && u.files == 0 && !u.storm {
					v.of(u, "the monitor calls it dead: %s", strings.TrimSpace(line))
				}
			}
		}
	}
}

// weigh watches how much memory the processes of ours hold.
func (m *mill) weigh(ctx context.Context, dir string, v *verdicts) {
	mark := "SOAK=" + filepath.Base(dir) + "-"
	said := map[string]bool{}
	for {
		for _, p := range processes() {
			role := argv0(p)
			if role = filepath.Base(role); !strings.HasPrefix(role, "prun-") || (role != "prun-monitor" && role != "prun-gather" && role != "prun-report" && !carries(p, mark)) {
				continue
			}
			kib := peakMemory(p)
			m.peak[role] = max(m.peak[role], kib)
			if kib > memoryBound && !said[role] && (role == "prun-keeper" || role == "prun-supervisor" || role == "prun-dispatch") {
				said[role] = true
				v.add("%s of %s held %d KiB", role, tokenOf(p), kib)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(700 * time.Millisecond):
		}
	}
}

// crowd fills the small file system, with bytes and with names, and empties it.
func (m *mill) crowd(ctx context.Context, r *rand.Rand) {
	pause := func() bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(200+r.IntN(1200)) * time.Millisecond):
			return true
		}
	}
	fill := filepath.Join(m.smallDir, "fill")
	for {
		must(os.RemoveAll(fill))
		if !pause() {
			return
		}
		must(os.MkdirAll(m.smallDir, 0o755))
		_ = os.Mkdir(fill, 0o755)
		if r.IntN(2) == 0 {
			if f, err := os.Create(filepath.Join(fill, "bytes")); err == nil {
				for {
					if _, err := f.Write(make([]byte, 4096)); err != nil {
						break
					}
				}
				f.Close()
			}
		} else {
			for i := 0; ; i++ {
				f, err := os.Create(filepath.Join(fill, strconv.Itoa(i)))
				if err != nil {
					break
				}
				f.Close()
			}
		}
		if !pause() {
			must(os.RemoveAll(fill))
			return
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// removeAll also removes what a worker made unreadable, and goes on while
// something is still being written there.
func removeAll(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		<-time.After(20 * time.Millisecond)
	}
	return err
}
