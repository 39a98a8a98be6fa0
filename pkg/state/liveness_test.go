//go:build unix

package state

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/pid"
)

// child starts a process that ends when its standard input does, and returns
// its identity and its end.
func child(t *testing.T) (id pid.ID, end func(reap bool)) {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if id, err = pid.Of(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	reaped := false
	end = func(reap bool) {
		in.Close()
		if reap && !reaped {
			reaped = true
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() { end(true) })
	return id, end
}

func dead(t *testing.T) pid.ID {
	t.Helper()
	id, end := child(t)
	end(true)
	return id
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not in ten seconds", what)
		}
	}
}

func TestLiveness(t *testing.T) {
	gone := dead(t)
	self := pid.Self()
	rebooted := gone
	rebooted.Boot = "another"
	elsewhere := self
	elsewhere.NS++
	for _, c := range []struct {
		name          string
		super, keeper pid.ID
		held, noLock  bool
		machine       string
		outcome       bool
		want          Liveness
	}{
		{name: "settled", super: gone, outcome: true, want: Settled},
		{name: "settled while somebody still cleans up", super: self, held: true, outcome: true, want: Settled},
		{name: "running", super: self, keeper: self, held: true, want: Running},
		{name: "running in another pid namespace", super: elsewhere, keeper: elsewhere, held: true, want: Running},
		{name: "supervisor dead", super: gone, keeper: self, held: true, want: Ending},
		{name: "both dead, somebody concludes", super: gone, keeper: gone, held: true, want: Ending},
		{name: "lock not visible here", super: self, keeper: self, want: Running},
		{name: "no lock file, alive", super: self, noLock: true, want: Running},
		{name: "no lock file, dead", super: gone, noLock: true, want: LivenessLost},
		{name: "keeper alive without the lock", super: gone, keeper: self, want: Ending},
		{name: "lost", super: gone, keeper: gone, want: LivenessLost},
		{name: "lost, no keeper recorded", super: gone, want: LivenessLost},
		{name: "lost by a reboot", super: rebooted, keeper: self, want: LivenessLost},
		{name: "another machine", super: gone, keeper: gone, machine: "another", want: Unknown},
		{name: "another pid namespace and no lock", super: elsewhere, keeper: elsewhere, want: Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.super == rebooted && pid.Boot() == "" || c.machine != "" && pid.Machine() == "" || c.super == elsewhere && pid.Namespace() == 0 {
				t.Skip("this system does not tell boots, machines or namespaces apart")
			}
			u := Unit{Dir: t.TempDir()}
			machine := pid.Machine()
			if c.machine != "" {
				machine = c.machine
			}
			if err := u.WriteIdentity(Identity{Supervisor: c.super, Keeper: c.keeper, Machine: machine}); err != nil {
				t.Fatal(err)
			}
			if !c.noLock {
				lock, err := atomicfile.TryLock(u.Path(FileLock))
				if err != nil {
					t.Fatal(err)
				}
				if c.held {
					defer lock.Unlock()
				} else if err := lock.Unlock(); err != nil {
					t.Fatal(err)
				}
			}
			if c.outcome {
				if err := u.PublishOutcome(Outcome{Cause: Exited}); err != nil {
					t.Fatal(err)
				}
			}
			before := list(t, u.Dir)
			got, why := u.Liveness()
			if got != c.want || why == "" {
				t.Errorf("Liveness = %v (%s), want %v", got, why, c.want)
			}
			if after := list(t, u.Dir); len(after) != len(before) {
				t.Errorf("asking left %v", after)
			}
		})
	}
}

// In a copy of a running unit's directory nobody's lock and nobody's number
// count: they are those of the original.
func TestLivenessOfACopy(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	if err := u.WriteIdentity(Identity{Supervisor: pid.Self(), Machine: pid.Machine()}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(u.Dir)); err != nil {
		t.Fatal(err)
	}
	if got, why := (Unit{Dir: dir}).Liveness(); got != Unknown {
		t.Errorf("a copy is %v (%s)", got, why)
	}
	// A directory that is renamed is the same one: that is how it gets its name.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(u.Dir, moved); err != nil {
		t.Fatal(err)
	}
	if got, why := (Unit{Dir: moved}).Liveness(); got != Running {
		t.Errorf("renamed it is %v (%s)", got, why)
	}
}

func TestLivenessOfABadIdentity(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	writeFile(t, u.Path(FileDispatchPID), strconv.Itoa(os.Getpid()))
	writeFile(t, u.Path(FileIdentity), "{")
	if got, why := u.Liveness(); got != Unknown {
		t.Errorf("%v (%s)", got, why)
	}
	if err := os.Remove(u.Path(FileIdentity)); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, u.Path(FileIdentity))
	soon(t, func() {
		if got, why := u.Liveness(); got != Unknown {
			t.Errorf("%v (%s)", got, why)
		}
	})
}

// Nobody may see "lost" while one who concludes goes from holding the lock to
// having published.
func TestNoFlapToLost(t *testing.T) {
	gone := dead(t)
	for range 100 {
		u := Unit{Dir: t.TempDir()}
		if err := u.WriteIdentity(Identity{Supervisor: gone, Keeper: gone, Machine: pid.Machine()}); err != nil {
			t.Fatal(err)
		}
		lock, err := atomicfile.TryLock(u.Path(FileLock))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := u.PublishOutcome(Outcome{Cause: Lost}); err != nil {
				t.Error(err)
			}
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		}()
		for settled := false; !settled; {
			l, why := u.Liveness()
			if settled = l == Settled; !settled && l != Ending {
				t.Errorf("seen %v (%s)", l, why)
				settled = true
			}
		}
		<-done
	}
}

func TestLegacyLiveness(t *testing.T) {
	zombie, end := child(t)
	end(false)
	until(t, "the child's end", func() bool { alive, err := zombie.Alive(); return err == nil && !alive })
	for text, want := range map[string]Liveness{
		"":                                 LegacyUnknown,
		" \n":                              LegacyUnknown,
		strconv.Itoa(os.Getpid()) + "\n":   LegacyAlive,
		strconv.Itoa(os.Getpid()) + "\r\n": LegacyAlive,
		"1\n":                              LegacyAlive,
		"0\n":                              LegacyDead,
		"-1\n":                             LegacyDead,
		"12abc\n":                          LegacyDead,
		"99999999\n":                       LegacyDead,
		"12345678901234567890\n":           LegacyDead,
		strconv.Itoa(zombie.PID) + "\n":    LegacyDead,
		strconv.Itoa(dead(t).PID) + "\n":   LegacyDead,
	} {
		u := Unit{Dir: t.TempDir()}
		writeFile(t, u.Path(FileDispatchPID), text)
		if got, why := u.Liveness(); got != want {
			t.Errorf("%q: %v (%s), want %v", text, got, why, want)
		}
	}
	if got, why := (Unit{Dir: filepath.Join(t.TempDir(), "none")}).Liveness(); got != LegacyUnknown {
		t.Errorf("no directory: %v (%s)", got, why)
	}
}

func TestClaimResult(t *testing.T) {
	base, dir := t.TempDir(), t.TempDir()
	real := filepath.Join(dir, "real")
	writeFile(t, filepath.Join(real, "r.md"), "x")
	if err := os.Symlink(real, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real/r.md", filepath.Join(dir, "r.link")); err != nil {
		t.Fatal(err)
	}
	first, err := ClaimResult(base, filepath.Join(real, "r.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"real/r.md", "link/r.md", "link/../real/r.md", "r.link"} {
		if _, err := ClaimResult(base, dir+"/"+other); !errors.Is(err, ErrClaimed) || !errors.Is(err, atomicfile.ErrLocked) {
			t.Errorf("%s: %v", other, err)
		}
	}
	second, err := ClaimResult(base, filepath.Join(real, "other.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []*atomicfile.Lock{first, second} {
		if err := ReleaseClaim(lock); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	again, err := ClaimResult(base, filepath.Join(real, "r.md"))
	if err != nil {
		t.Fatal(err)
	}
	// Dropped, not released: the file stays and refuses nobody.
	if err := again.Unlock(); err != nil {
		t.Fatal(err)
	}
	if again, err = ClaimResult(base, filepath.Join(real, "r.md")); err != nil {
		t.Fatal(err)
	}
	if err := ReleaseClaim(again); err != nil {
		t.Error(err)
	}
}
