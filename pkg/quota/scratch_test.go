package quota

import (
	"os"
	"testing"
)

// scratch is t.TempDir, whose cleaning up on Windows needs a call that Wine 8, where
// these tests run too, does not have.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "quota-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeTree(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// removeTree is os.RemoveAll by names.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := dir + string(os.PathSeparator) + e.Name()
		if e.IsDir() {
			err = removeTree(name)
		} else {
			err = os.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
