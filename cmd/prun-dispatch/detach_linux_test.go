package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
)

// Whoever has seen --detach return may reconcile: the unit is in the ledger, even
// when writing to it takes a while.
func TestDetachedUnitIsInTheLedger(t *testing.T) {
	dir := t.TempDir()
	ledger := filepath.Join(dir, "led")
	busy, err := atomicfile.TryLock(filepath.Join(dir, ".led.lock"))
	if err != nil {
		t.Fatal(err)
	}
	u := begin(t, nil, []string{"--detach", "--ledger", ledger}, `echo started; exec sleep 60`)
	// Its output is another goroutine's until it has ended; the directory is on disk.
	u.unit()
	select {
	case <-u.done:
		t.Errorf("returned before the unit was in the ledger\n%s", u.describe())
	case <-time.After(300 * time.Millisecond):
	}
	if err := busy.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := u.wait(); got != 0 {
		t.Errorf("exit %d\n%s", got, u.describe())
	}
	b, _ := os.ReadFile(ledger)
	if !strings.Contains(string(b), `"status":"dispatched"`) {
		t.Errorf("ledger: %q", b)
	}
	u.says("started")
	u.kill(u.identity().Supervisor)
	u.empty(10 * time.Second)
}
