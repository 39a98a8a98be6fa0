package lane

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "20260101000000-0a0b0c0d": true, "A.b_c-d": true, strings.Repeat("x", 64): true,
		"": false, ".": false, "..": false, "-x": false, "a/b": false, "a b": false, "a..b": false, "x.": false, "x.lock": false,
		"é": false, "a\n": false, strings.Repeat("x", 65): false, "/abs": false, ".hidden": false,
	} {
		if got := ValidName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestHomeOf(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths of this table are those of unix")
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"AGENT_FANOUT_STATE_HOME": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"},
		{map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/agent-fanout"},
		{map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/agent-fanout"},
		{map[string]string{"HOME": "/h"}, "/h/.local/state/agent-fanout"},
		{nil, ""},
	} {
		got, err := HomeOf(func(n string) string { return c.env[n] })
		if filepath.ToSlash(got.Dir) != c.want && filepath.VolumeName(got.Dir) == "" || (err == nil) != (c.want != "") {
			t.Errorf("%v: %q, %v", c.env, got.Dir, err)
		}
	}
}

// newRun makes a run whose lock is free.
func newRun(t *testing.T) (Home, Run) {
	t.Helper()
	h := Home{filepath.Join(t.TempDir(), "state")}
	r, lock, err := h.Claim("r", RepoID("/repo/.git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Set(FileStatus, RunActive), lock.Unlock()); err != nil {
		t.Fatal(err)
	}
	return h, r
}

func newLane(t *testing.T, r Run, phase string) Lane {
	t.Helper()
	d, left, err := r.Draft(phase)
	if err != nil || left {
		t.Fatalf("%v %v", left, err)
	}
	l, err := d.Publish()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestClaimIsExclusive(t *testing.T) {
	t.Parallel()
	h := Home{filepath.Join(t.TempDir(), "state")}
	var wait sync.WaitGroup
	errs := make([]error, 16)
	locks := make([]*atomicfile.Lock, 16)
	for i := range errs {
		// The id is unique whatever the repository.
		wait.Go(func() { _, locks[i], errs[i] = h.Claim("same", RepoID(strings.Repeat("x", i))) })
	}
	wait.Wait()
	t.Cleanup(func() {
		// Windows removes no file that is open.
		for _, l := range locks {
			if l != nil {
				_ = l.Unlock()
			}
		}
	})
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrClaimed):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d winners", won)
	}
	if _, err := h.Find("same"); err != nil {
		t.Error(err)
	}
	if _, err := h.Find("other"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if runs, err := h.Runs(); err != nil || len(runs) != 1 {
		t.Errorf("%v %v", runs, err)
	}
}

// A run whose maker died is failed, and one whose maker lives is not.
func TestStatusOfARun(t *testing.T) {
	t.Parallel()
	h := Home{filepath.Join(t.TempDir(), "state")}
	r, lock, err := h.Claim("r", "0123456789ab")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Status(); got != RunInitializing {
		t.Errorf("status %s", got)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := r.Status(); got != RunFailed {
		t.Errorf("status %s", got)
	}
	// The state directory may be moved as a whole.
	moved := Home{h.Dir + "-moved"}
	if err := os.Rename(h.Dir, moved.Dir); err != nil {
		t.Fatal(err)
	}
	if found, err := moved.Find("r"); err != nil || !strings.HasPrefix(found.Dir, moved.Dir) {
		t.Errorf("%v %v", found, err)
	}
}

func TestDrafts(t *testing.T) {
	t.Parallel()
	_, r := newRun(t)
	d, _, err := r.Draft("p")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Draft("p"); !errors.Is(err, ErrBusy) {
		t.Errorf("a second maker: %v", err)
	}
	if lanes, err := r.Lanes(); err != nil || len(lanes) != 0 {
		t.Errorf("a draft is listed: %v %v", lanes, err)
	}
	if _, unlock, err := r.Drafts(); !errors.Is(err, ErrBusy) {
		t.Errorf("a living maker: %v", err)
	} else {
		unlock()
	}
	if err := d.Put(FileWorktree, "/w"); err != nil {
		t.Fatal(err)
	}
	// The maker dies.
	if err := d.lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	drafts, unlock, err := r.Drafts()
	if err != nil || len(drafts) != 1 || drafts[0].Get(FileWorktree) != "/w" {
		t.Errorf("%v %v", drafts, err)
	}
	unlock()
	again, left, err := r.Draft("p")
	if err != nil || !left || again.Get(FileWorktree) != "/w" {
		t.Fatalf("%v %v", left, err)
	}
	if err := again.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Publish(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Draft("p"); !errors.Is(err, ErrExists) {
		t.Errorf("a lane that is there: %v", err)
	}
}

// The words of every worker are kept, however often a lane is started.
func TestPrepare(t *testing.T) {
	t.Parallel()
	_, r := newRun(t)
	l := newLane(t, r, "p")
	for n := 1; n <= 3; n++ {
		got, err := l.Prepare()
		if err != nil || got != n || l.Number() != n {
			t.Fatalf("unit %d, %v", got, err)
		}
		for _, f := range []string{FileResultMD, FileExitCode, FileCancel} {
			if _, err := os.Lstat(l.Path(f)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s of the last worker is still there", f)
			}
		}
		for _, f := range []string{FileResultMD, FileLog, FileExitCode, FileCancel} {
			if err := l.Set(f, strings.Repeat("x", n)); err != nil {
				t.Fatal(err)
			}
		}
		if n > 1 {
			b, err := os.ReadFile(filepath.Join(l.unit(n-1).Dir, FileResultMD))
			if err != nil || string(b) != strings.Repeat("x", n-1)+"\n" {
				t.Errorf("result of unit %d: %q %v", n-1, b, err)
			}
		}
	}
	// A unit that was born behind its starter's back keeps its number.
	if err := os.Mkdir(l.unit(4).Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Prepare(); err != nil || got != 5 {
		t.Errorf("unit %d, %v", got, err)
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		o      state.Outcome
		status string
		code   int
		known  bool
	}{
		{state.Outcome{Cause: state.Exited}, Succeeded, 0, true},
		{state.Outcome{Cause: state.Failed, ExitCode: new(7)}, Failed, 7, true},
		{state.Outcome{Cause: state.Failed, ExitCode: new(0), ExitStatus: 70}, Failed, 1, true},
		{state.Outcome{Cause: state.Failed, Signal: 9, ExitStatus: 137}, Failed, 137, true},
		{state.Outcome{Cause: state.DeadStart, ExitStatus: 124}, Failed, 124, true},
		{state.Outcome{Cause: state.IdleStall, ExitCode: new(0)}, Failed, 124, true},
		{state.Outcome{Cause: state.HardTimeout}, Failed, 124, true},
		{state.Outcome{Cause: state.Killed, Signal: 15}, Cancelled, 125, true},
		{state.Outcome{Cause: state.Interrupted, Signal: 15}, Interrupted, 130, true},
		{state.Outcome{Cause: state.Lost}, Interrupted, 0, false},
		{state.Outcome{Cause: state.LaunchFailed, ExitStatus: 127}, Failed, 127, true},
		{state.Outcome{Cause: state.Blocked}, Failed, 75, true},
	} {
		code, known := ExitCodeOf(&c.o)
		if got := StatusOf(&c.o); got != c.status || code != c.code || known != c.known {
			t.Errorf("%s: %s %d %v, want %s %d %v", c.o.Cause, got, code, known, c.status, c.code, c.known)
		}
	}
	for _, cause := range state.Causes() {
		if !Ended(StatusOf(&state.Outcome{Cause: cause})) {
			t.Errorf("%s does not end a lane", cause)
		}
	}
}

// A file of one value is old or new for every reader, never half.
func TestValuesAreWhole(t *testing.T) {
	t.Parallel()
	_, r := newRun(t)
	l := newLane(t, r, "p")
	long := strings.Repeat("long", 2000)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			value := Running
			if i%2 == 0 {
				value = long
			}
			if err := l.note(FileStatus, value); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		if got := l.Get(FileStatus); got != Running && got != long && got != Created {
			t.Errorf("half a value of %d bytes", len(got))
			break
		}
		if runtime.GOOS == "windows" {
			// A file that is open is not replaced there; one that is open for ever never is.
			<-time.After(time.Millisecond)
		}
	}
	close(stop)
	wait.Wait()
	// A planted FIFO or a huge file blocks and fills nobody.
	if err := os.WriteFile(l.Path(FileRunner), make([]byte, maxValue+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := l.Get(FileRunner); got != "" {
		t.Errorf("%d bytes of a file that is no value", len(got))
	}
}

func TestWatcherSeesEveryKindOfChange(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "1")
	write("deep/b", "1")
	write(".git", "gitdir")
	last := walk(root, true)
	if again := walk(root, true); again != last {
		t.Error("two walks of the same tree differ")
	}
	changed := func(what string, want bool) {
		t.Helper()
		now := walk(root, true)
		if (now != last) != want {
			t.Errorf("%s: seen %v", what, now != last)
		}
		last = now
	}
	write("deep/b", "12")
	changed("a file that grew", true)
	write("deep/new", "")
	changed("a new file", true)
	if err := os.Remove(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	changed("a file that is gone", true)
	write(".git", "gitdir of another")
	changed("git's own file", false)
	write(".worktrees/x", "1")
	changed("a worktree inside", false)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	changed("the tree is gone", true)
	changed("it is still gone", false)
}
