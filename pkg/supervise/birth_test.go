package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// A reaper that is killed while it clears an unborn unit away leaves one that
// the next reaper still knows for what it is: the lock goes last.
func TestUnbornUnitIsClearedInTheSecondTry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), state.HiddenPrefix+state.Name("0123abcd", "u", 17, "0011223344556677"))
	u := state.Unit{Dir: dir}
	build := func() {
		t.Helper()
		if err := os.MkdirAll(u.Path(state.DirWork), 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := atomicfile.TryLock(u.Path(state.FileLock))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(u.Path(state.FilePreMtime), []byte("0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := func() {
		t.Helper()
		hour := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, hour, hour); err != nil {
			t.Fatal(err)
		}
	}
	build()
	if ClearUnborn(dir) {
		t.Error("a young one was cleared away")
	}
	// As far as a killed reaper got: everything is gone but the lock.
	if err := os.Remove(u.Path(state.FilePreMtime)); err != nil {
		t.Fatal(err)
	}
	old()
	if !ClearUnborn(dir) {
		t.Error("the rest was not cleared away")
	}
	build()
	old()
	if !ClearUnborn(dir) {
		t.Error("an old one was not cleared away")
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("something is left")
	}
}
