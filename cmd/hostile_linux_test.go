package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/unix"
)

// Two users who share a temporary directory; neither is the one who runs the
// tests.
const (
	victimUser   = 65534
	attackerUser = 65533
)

// hostileText is what must reach no terminal and end no line.
const hostileText = "a\nDONE /forged\nREAPED forged cgroup\r\x1b]0;owned\x07\x1b[2J\x00\x9b31m\xff\u202eb"

// hostileWord is the same as far as it can be an argument.
var hostileWord = strings.ReplaceAll(hostileText, "\x00", "")

// said is how a tool ended.
type said struct {
	out, err []byte
	code     int
}

// tool runs one of the suite's programs as a user, bounded.
func tool(t *testing.T, uid int, dir string, env []string, name string, args ...string) said {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Dir = dir
	c.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, env...)
	if uid != os.Getuid() {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %q does not end\n%s%s", name, args, out.Bytes(), errs.Bytes())
	}
	var xe *exec.ExitError
	if err != nil && !errors.As(err, &xe) {
		t.Fatal(err)
	}
	s := said{out.Bytes(), errs.Bytes(), c.ProcessState.ExitCode()}
	plain(t, name, args, s.out, true)
	// The worker's last lines are shown there, as lines.
	plain(t, name, args, s.err, name != "prun-dispatch")
	return s
}

// plain: no control character but the newline and the tab, whole runes, and, where
// what is printed is one line, no line of anybody else's making.
func plain(t *testing.T, name string, args []string, b []byte, oneLine bool) {
	t.Helper()
	if bytes.Contains(b, []byte("goroutine ")) {
		t.Fatalf("%s %q crashed: %s", name, args, b)
	}
	for i, r := range string(b) {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError && !bytes.HasPrefix(b[i:], []byte("\uFFFD")) {
			t.Errorf("%s %q prints %q", name, args, b[max(0, i-80):min(len(b), i+80)])
			return
		}
	}
	for _, forged := range []string{"\nDONE /forged", "\nREAPED forged"} {
		if oneLine && bytes.Contains(b, []byte(forged)) {
			t.Errorf("%s %q prints a forged line: %q", name, args, b)
		}
	}
}

// world is a shared temporary directory with a victim in it.
type world struct {
	t       *testing.T
	base    string // shared, sticky
	secret  string // a file that only the victim may read
	beloved string // a file of the victim's that must stay as it is
	process *exec.Cmd
	id      pid.ID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("condition not met: root")
	}
	if _, err := binaries(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(built.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp("", "prun-hostile-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	w := &world{t: t, base: filepath.Join(top, "shared"), secret: filepath.Join(top, "secret"), beloved: filepath.Join(top, "beloved")}
	must(t, os.Chmod(top, 0o755))
	must(t, os.Mkdir(w.base, 0o777))
	must(t, os.Chmod(w.base, 0o777|os.ModeSticky))
	for _, name := range []string{w.secret, w.beloved} {
		must(t, os.WriteFile(name, []byte("the secret words of "+name+"\n"), 0o600))
		must(t, os.Chown(name, victimUser, victimUser))
	}
	home := filepath.Join(top, "home")
	must(t, os.Mkdir(home, 0o700))
	must(t, os.Chown(home, victimUser, victimUser))
	w.process = exec.Command("sleep", "300")
	w.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: victimUser, Gid: victimUser}}
	must(t, w.process.Start())
	t.Cleanup(func() { w.process.Process.Kill(); w.process.Wait() })
	w.id, err = pid.Of(w.process.Process.Pid)
	must(t, err)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unharmed checks that nothing of the victim's was touched.
func (w *world) unharmed() {
	w.t.Helper()
	if alive, err := w.id.Alive(); err != nil || !alive {
		w.t.Errorf("the victim's process is dead: %v", err)
	}
	for _, name := range []string{w.secret, w.beloved} {
		if b, err := os.ReadFile(name); err != nil || string(b) != "the secret words of "+name+"\n" {
			w.t.Errorf("%s is now %q, %v", name, b, err)
		}
	}
}

func (w *world) env() []string {
	return []string{"TMPDIR=" + w.base, "HOME=" + filepath.Join(filepath.Dir(w.base), "home")}
}

// dirName is the name of a state directory; each letter is another one.
func dirName(unit string, process int) string {
	return fmt.Sprintf("prun-task-0123abcd-%s-%d-00112233445566%02x", unit, process, len(unit))
}

// plant makes a state directory whose supervisor is long dead and whose worker,
// says its owner, is the victim's process.
func (w *world) plant(name string, owner int) string {
	dir := filepath.Join(w.base, name)
	must(w.t, os.Mkdir(dir, 0o777))
	must(w.t, os.Chmod(dir, 0o777))
	fi, err := os.Stat(dir)
	must(w.t, err)
	st := fi.Sys().(*syscall.Stat_t)
	dead := pid.ID{PID: 4194000, Start: 5, Boot: pid.Boot(), NS: pid.Namespace()}
	record := map[string]any{
		"schema_version": 1, "unit": "evil", "backend": "command", "front": dead, "keeper": dead, "supervisor": dead,
		"machine": pid.Machine(), "dir_dev": st.Dev, "dir_ino": st.Ino, "containment": "cgroup",
		// Whoever believes it ends everything in the group.
		"leaf": groupOf(w.id.PID), "result": w.beloved, "created": time.Now().UTC(),
	}
	w.write(dir, "identity.json", record)
	w.write(dir, "worker.json", map[string]any{
		"schema_version": 1, "worker": w.id, "containment": "subreaper", "started": time.Now().UTC(),
	})
	w.write(dir, "launch.json", map[string]any{
		"schema_version": 1, "unit": "evil", "backend": "command", "tool": "prun-dispatch", "base": w.base, "result": w.beloved, "salvage_always": true,
	})
	for file, text := range map[string]string{
		"dispatch-pid": fmt.Sprint(w.id.PID), "result-file": w.beloved, "worker-pid": fmt.Sprint(w.id.PID),
		"timestamp": "1", "lock": "", "model": hostileText, "conversation-id": hostileText, "queued": hostileText,
	} {
		must(w.t, os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o666))
	}
	if owner != os.Getuid() {
		must(w.t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(name, owner, owner)
		}))
	}
	return dir
}

func (w *world) write(dir, file string, record any) {
	b, err := json.Marshal(record)
	must(w.t, err)
	must(w.t, os.WriteFile(filepath.Join(dir, file), append(b, '\n'), 0o666))
}

// groupOf is the directory of a process's cgroup, where there is one.
func groupOf(p int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			for _, top := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
				if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err == nil {
					return filepath.Join(top, strings.TrimSpace(rest))
				}
			}
		}
	}
	return ""
}

// Another user fills the shared directory with what our tools look for. Nothing
// there is followed, signalled, waited for or believed, whoever runs the tools.
func TestPlantedByAnotherUser(t *testing.T) {
	for _, uid := range []int{victimUser, 0} {
		t.Run(fmt.Sprint("as ", uid), func(t *testing.T) {
			w := newWorld(t)
			evil := w.plant(dirName("evil", 17), attackerUser)
			own := func(name string) string {
				must(t, os.Lchown(name, attackerUser, attackerUser))
				return name
			}
			at := func(parts ...string) string { return filepath.Join(append([]string{w.base}, parts...)...) }
			// A tail that blocks, an outcome that is a secret, a result that is a device.
			other := w.plant(dirName("evil-2", 18), attackerUser)
			must(t, unix.Mkfifo(filepath.Join(other, "tail"), 0o666))
			must(t, os.Symlink(w.secret, filepath.Join(other, "outcome.json")))
			must(t, os.Remove(filepath.Join(other, "result-file")))
			must(t, os.Symlink(w.secret, filepath.Join(other, "result-file")))
			must(t, os.Remove(filepath.Join(other, "identity.json")))
			must(t, unix.Mknod(filepath.Join(other, "identity.json"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
			own(filepath.Join(other, "tail"))
			// Names that are no directories, or somebody else's.
			must(t, os.Symlink(filepath.Dir(w.secret), at(dirName("link", 19))))
			must(t, os.Symlink(evil, at(dirName("copied", 20))))
			must(t, unix.Mkfifo(at(dirName("fifo", 21)), 0o666))
			must(t, os.WriteFile(at(dirName("file", 22)), []byte("x"), 0o666))
			must(t, os.Mkdir(at(".new-"+dirName("unborn", 23)), 0o777))
			must(t, os.Symlink(filepath.Dir(w.secret), at(".new-"+dirName("unborn-link", 24))))
			old := time.Now().Add(-time.Hour)
			must(t, os.Chtimes(at(".new-"+dirName("unborn", 23)), old, old))
			own(at(".new-" + dirName("unborn", 23)))
			must(t, os.Symlink(w.beloved, at(fmt.Sprintf(".prun-claim-%d-%032x", uid, 1))))
			must(t, unix.Mkfifo(at(fmt.Sprintf(".prun-claim-%d-%032x", uid, 2)), 0o666))

			env := w.env()
			report := tool(t, uid, "/", env, "prun-report")
			tool(t, uid, "/", env, "prun-report", "--detail", "--include-legacy-pid", "--summary")
			js := tool(t, uid, "/", env, "prun-report", "--json", "--detail")
			if !json.Valid(js.out) {
				t.Errorf("prun-report --json: %s", js.out)
			}
			for _, s := range []said{report, js} {
				if uid != 0 && bytes.Contains(s.out, []byte("the secret words")) {
					t.Errorf("prun-report tells the secret: %s", s.out)
				}
			}
			if n := bytes.Count(report.out, []byte("evil-17-")); n != 1 {
				t.Errorf("%d lines of one unit:\n%s", n, report.out)
			}
			dirs := []string{evil, other, at(dirName("link", 19)), at(dirName("fifo", 21)), at(dirName("file", 22))}
			m := tool(t, uid, "/", env, "prun-monitor", append([]string{"--timeout", "1", "--poll", "0.1", "--"}, dirs...)...)
			if n := bytes.Count(m.out, []byte("\nUNIT ")); n != len(dirs) {
				t.Errorf("prun-monitor prints %d units of %d:\n%s", n, len(dirs), m.out)
			}
			for _, d := range dirs {
				tool(t, uid, "/", env, "prun-gather", "--timeout", "1", "--poll", "0.1", "--unit", d)
			}
			dest := filepath.Join(filepath.Dir(w.base), "dest")
			tool(t, uid, "/", append(env, "XDG_STATE_HOME="+dest), "prun-snapshot", "--all")
			reaped := tool(t, uid, "/", env, "prun-reap", "--include-active")
			for _, word := range []string{"\nREAPED ", "\nTERMINATED "} {
				if bytes.Contains(reaped.out, []byte(word)) {
					t.Errorf("prun-reap believes another user:\n%s%s", reaped.out, reaped.err)
				}
			}
			for _, d := range dirs {
				tool(t, uid, "/", env, "prun-reap", "--include-active", "--state-dir", d)
			}
			if _, err := os.Lstat(at(".new-" + dirName("unborn", 23))); err != nil {
				t.Errorf("another user's directory was removed: %v", err)
			}
			w.unharmed()

			// Beside all this a unit of the victim's runs as ever.
			home := filepath.Join(filepath.Dir(w.base), "home")
			must(t, os.WriteFile(filepath.Join(home, "p"), []byte("x\n"), 0o644))
			d := tool(t, uid, home, env, "prun-dispatch", "--backend", "command", "--prompt-file", "p", "--result-file", "r", "--unit-id", "mine",
				"--", "sh", "-c", `echo x >"$PRUN_RESULT_FILE"`)
			if d.code != 0 {
				t.Errorf("prun-dispatch: exit %d: %s", d.code, d.err)
			}
			w.unharmed()
		})
	}
}

// The name of a claim can be foretold. Another user who makes it first, and
// holds it, must not be able to refuse a unit.
func TestClaimHeldByAnotherUser(t *testing.T) {
	w := newWorld(t)
	home := filepath.Join(filepath.Dir(w.base), "home")
	must(t, os.WriteFile(filepath.Join(home, "p"), []byte("x\n"), 0o644))
	unit := []string{"--backend", "command", "--prompt-file", "p", "--result-file", "r", "--unit-id", "u", "--"}
	// Learn the name.
	learn := tool(t, victimUser, home, w.env(), "prun-dispatch", append(unit, "sh", "-c", "ls -A "+w.base)...)
	if learn.code != 0 {
		t.Fatalf("exit %d: %s", learn.code, learn.err)
	}
	dirs, err := filepath.Glob(filepath.Join(w.base, "prun-task-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	tail, err := os.ReadFile(filepath.Join(dirs[0], "tail"))
	must(t, err)
	claim := ""
	for _, f := range strings.Fields(string(tail)) {
		if strings.HasPrefix(f, ".prun-claim-") {
			claim = filepath.Join(w.base, f)
		}
	}
	if claim == "" {
		t.Fatalf("no claim in %q", tail)
	}
	must(t, os.WriteFile(claim, nil, 0o666))
	must(t, os.Chmod(claim, 0o666))
	must(t, os.Chown(claim, attackerUser, attackerUser))
	f, err := os.OpenFile(claim, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	must(t, os.Remove(filepath.Join(home, "r")))
	again := tool(t, victimUser, home, w.env(), "prun-dispatch", append(unit, "sh", "-c", `echo x >"$PRUN_RESULT_FILE"`)...)
	if again.code != 0 {
		t.Errorf("another user's lock refuses the unit: exit %d: %s", again.code, again.err)
	}
}

// What a worker, a prompt, a path or a record says reaches no terminal as more
// than text, and one unit is one line in every tool.
func TestHostileWordsArePrintedAsText(t *testing.T) {
	top := t.TempDir()
	base := filepath.Join(top, "s")
	must(t, os.Mkdir(base, 0o755))
	env := []string{"TMPDIR=" + base, "HOME=" + top}
	me := os.Getuid()
	must(t, os.WriteFile(filepath.Join(top, "p"), []byte(hostileText), 0o644))
	must(t, os.WriteFile(filepath.Join(top, "words"), []byte(hostileText+"\nERROR: "+hostileText), 0o644))
	script := func(end string) []string { return []string{"--", "sh", "-c", "cat words >&2; cat words; " + end} }
	odd := filepath.Join(top, "a b'\"$(id)\u2603\x1b[2J")
	for i, result := range []string{"r1", filepath.Join(top, "new\nline"), odd, "-r", "\xff\xfe"} {
		args := []string{"--backend", "command", "--prompt-file", filepath.Join(top, "p"), "--result-file", result, "--unit-id", fmt.Sprint("u", i), "--json"}
		s := tool(t, me, top, append(env, "PRUN_SCRATCH_CWD="+top), "prun-dispatch", append(args, script("exit 3")...)...)
		if s.code != 3 && s.code != 2 {
			t.Errorf("%q: exit %d: %s", result, s.code, s.err)
		}
		if lines := bytes.Count(s.out, []byte("\n")); s.code == 3 && lines != 1 || s.code == 2 && lines != 0 {
			t.Errorf("%q: %d lines on standard output: %q", result, lines, s.out)
		}
	}
	for _, id := range []string{"", "../x", "/abs", ".", "a b", "a\nb", "\x1b[2J", "é", strings.Repeat("x", 400)} {
		s := tool(t, me, top, env, "prun-dispatch", "--backend", "command", "--prompt-file", "p", "--result-file", "r9", "--unit-id", id, "--", "true")
		if s.code == 0 {
			t.Errorf("unit id %q is accepted", id)
		}
	}
	for _, args := range [][]string{
		{"--prompt-file", hostileWord}, {"--backend", hostileWord}, {"--mode", hostileWord}, {"--" + hostileWord},
		{"--stall", hostileWord}, {"--continue-from", hostileWord}, {"--clone", hostileWord},
	} {
		all := append([]string{"--backend", "command", "--prompt-file", "p", "--result-file", "r8", "--unit-id", "u8"}, args...)
		if s := tool(t, me, top, env, "prun-dispatch", all...); s.code == 0 {
			t.Errorf("%q is accepted", args)
		}
	}
	dirs, err := filepath.Glob(filepath.Join(base, "prun-task-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	// The records themselves say hostile things now.
	for i, dir := range dirs {
		for _, file := range []string{"result-file", "model", "conversation-id", "dispatch-pid", "timestamp", "worker-exit", "queued"} {
			must(t, os.WriteFile(filepath.Join(dir, file), []byte(hostileText), 0o600))
		}
		o := map[string]any{
			"schema_version": 1, "unit": hostileText, "backend": hostileText, "model": hostileText, "cause": "failed", "reason": hostileText,
			"result": hostileText, "session_id": hostileText, "containment": hostileText, "parent_unit": hostileText, "notes": []string{hostileText},
			"proven_empty": i%2 == 0, "exit_code": 3, "started_at": time.Now().UTC(), "ended_at": time.Now().UTC(),
		}
		b, err := json.Marshal(o)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "outcome.json"), append(b, '\n'), 0o600))
	}
	ledger := filepath.Join(top, "ledger")
	var text []byte
	for _, dir := range dirs {
		b, err := json.Marshal(map[string]any{
			"schema_version": 1, "id": hostileText, "executor": hostileText, "backend": hostileText, "prompt_file": hostileText,
			"state_dir": dir, "result_file": hostileText, "status": hostileText, "cause": hostileText,
		})
		must(t, err)
		text = append(append(text, b...), '\n')
	}
	must(t, os.WriteFile(ledger, append(text, hostileText...), 0o600))
	count := func(s said, word string, want int) {
		t.Helper()
		if n := bytes.Count(append([]byte("\n"), s.out...), []byte("\n"+word)); n != want {
			t.Errorf("%d lines begin with %q, want %d:\n%s", n, word, want, s.out)
		}
	}
	tool(t, me, top, env, "prun-report")
	tool(t, me, top, env, "prun-report", "--detail", "--summary")
	tool(t, me, top, env, "prun-report", "--json", "--detail")
	tool(t, me, top, env, "prun-report", "--root", filepath.Join(top, hostileWord[:20]))
	m := tool(t, me, top, env, "prun-monitor", append([]string{"--timeout", "1", "--poll", "0.1", "--"}, dirs...)...)
	count(m, "UNIT ", len(dirs))
	tool(t, me, top, env, "prun-monitor", append([]string{"--json", "--timeout", "1", "--poll", "0.1", "--"}, dirs...)...)
	tool(t, me, top, env, "prun-monitor", "--timeout", "1", hostileWord)
	tool(t, me, top, env, "prun-gather", "--timeout", "1", "--poll", "0.1", "--ledger", ledger)
	tool(t, me, top, env, "prun-gather", "--json", "--timeout", "1", "--poll", "0.1", "--ledger", ledger)
	tool(t, me, top, env, "prun-gather", "--timeout", "0", "--poll", "0.1", hostileWord)
	tool(t, me, top, env, "prun-snapshot", "--all", "--dest", filepath.Join(top, "dest"))
	tool(t, me, top, env, "prun-snapshot", "--unit", hostileWord)
	tool(t, me, top, env, "prun-snapshot", "--verify", hostileWord)
	tool(t, me, top, env, "prun-reap", "--include-active")
	tool(t, me, top, env, "prun-reap", "--json")
	tool(t, me, top, env, "prun-reap", "--state-dir", hostileWord)
}
