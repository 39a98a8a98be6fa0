package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/state"
)

// Only what a killed supervisor left is cleared away: a name of ours alone is not
// enough, and a name like ours is none.
func TestClearBase(t *testing.T) {
	base := t.TempDir()
	hidden := func(unit, nonce string) string {
		return filepath.Join(base, state.HiddenName("0123abcd", unit, 77, nonce))
	}
	const nonce = "0123456789abcde"
	old := time.Now().Add(-2 * unbornAge)
	make := func(dir string, files ...string) string {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cleared := []string{make(hidden("a", nonce+"0"), state.FileLock, state.FileTimestamp), make(hidden("b", nonce+"1"))}
	held := make(hidden("c", nonce+"2"), state.FileLock)
	kept := []string{
		held,
		make(hidden("d", nonce+"3"), "notes"), // no lock, and not empty
		make(filepath.Join(base, ".new-project"), state.FileLock, "notes"),
		make(filepath.Join(base, ".new-prun-task-x"), state.FileLock),
	}
	young := make(hidden("e", nonce+"4"), state.FileLock)
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, young)
	lock, err := atomicfile.TryLock(filepath.Join(held, state.FileLock))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if err := os.Chtimes(held, old, old); err != nil {
		t.Fatal(err)
	}
	if err := ClearBase(base); err != nil {
		t.Fatal(err)
	}
	for _, dir := range cleared {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("not cleared: %s", dir)
		}
	}
	for _, dir := range kept {
		if _, err := os.Lstat(dir); err != nil {
			t.Errorf("cleared: %s", dir)
		}
	}
}
