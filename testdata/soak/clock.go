//go:build linux

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A wall clock that somebody sets while a unit runs. The machine's own clock is
// everybody's, so the programs are built a second time with a time package whose
// Now adds what the file in clockEnv says; the monotonic reading stays as it is,
// as it does when a clock is set. Times of files are the kernel's and stay.
// That is harder than the real thing, where both are set at once.

const clockEnv = "SOAK_CLOCK"

// stepSource is added to package time. The runtime also calls Now where no
// system call may be made, so the file is mapped once, at the start.
const stepSource = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var stepWord = mapStep()

func mapStep() *int64 {
	name, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return new(int64)
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	syscall.Close(fd)
	if err != nil {
		return new(int64)
	}
	return (*int64)(unsafe.Pointer(&b[0]))
}

// injectedStep is how far, in seconds, somebody has set the wall clock. Now is
// asked before this package's variables are set, too.
func injectedStep() int64 {
	if stepWord == nil {
		return 0
	}
	return atomic.LoadInt64(stepWord)
}
`

var readingOfNow = regexp.MustCompile(`(?m)^func Now\(\) Time \{\n\tsec, nsec, mono := [a-zA-Z]+\(\)\n`)

// clocked builds the named commands with a clock that can be set, into dir.
func clocked(dir string, names ...string) error {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the time package: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	b, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return err
	}
	at := readingOfNow.FindIndex(b)
	if at == nil {
		return fmt.Errorf("%s: Now does not begin as known; teach it to clock.go", source)
	}
	changed := string(b[:at[1]]) + "\tsec += injectedStep()\n" + string(b[at[1]:])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": changed, "injected_step.go": stepSource} {
		replace[filepath.Join(source, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return err
	}
	args := []string{"build", "-tags", "forceposix", "-trimpath", "-overlay", list, "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build with a clock that can be set: %w: %s", err, out)
	}
	return nil
}

// steps are how far a clock is set: a leap of NTP, summer time, a flat battery.
var steps = []time.Duration{
	-24 * 365 * 20 * time.Hour, -72 * time.Hour, -time.Hour, -20 * time.Second,
	20 * time.Second, time.Hour, 72 * time.Hour, 24 * 365 * 8 * time.Hour,
}

// clock is the file that says how far the unit's clock is set.
func (u *unit) clock() string { return filepath.Join(u.witness, "clock") }

// unsteady gives the unit a clock that is set once or twice while it runs.
func (u *unit) unsteady(r *rand.Rand) {
	u.clocked = true
	for range 1 + r.IntN(2) {
		u.actions = append(u.actions, action{
			after: time.Duration(r.IntN(4000)) * time.Millisecond, what: "clock", again: steps[r.IntN(len(steps))],
		})
	}
}

// setClock sets the unit's clock.
func (u *unit) setClock(step time.Duration) {
	must(u.writeClock(step))
	u.run.mu.Lock()
	u.run.did["clock"]++
	u.run.mu.Unlock()
}

// writeClock writes where the running programs have it mapped.
func (u *unit) writeClock(step time.Duration) error {
	f, err := os.OpenFile(u.clock(), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(step/time.Second))), 0)
	return errors.Join(err, f.Close())
}
