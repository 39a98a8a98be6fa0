//go:build unix

package userdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func env(value string) func(string) string {
	return func(name string) string {
		if name == Variable {
			return value
		}
		return ""
	}
}

func TestOpen(t *testing.T) {
	base := filepath.Join(t.TempDir(), "deep", "user")
	got, err := Open(env(base), "slots")
	if err != nil || got != filepath.Join(base, "slots") {
		t.Fatalf("Open: %q, %v", got, err)
	}
	for _, dir := range []string{base, got} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, fi.Mode(), err)
		}
	}
	if again, err := Open(env(base), "slots"); err != nil || again != got {
		t.Errorf("second Open: %q, %v", again, err)
	}
}

func TestUmask(t *testing.T) {
	for _, mask := range []int{0, 0o777} {
		base := filepath.Join(t.TempDir(), "user")
		old := syscall.Umask(mask)
		got, err := Open(env(base), "x")
		syscall.Umask(old)
		if err != nil {
			t.Fatalf("umask %o: %v", mask, err)
		}
		if fi, err := os.Stat(got); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("umask %o: %v, %v", mask, fi.Mode(), err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, says string
		make       func(t *testing.T, path string)
	}{
		{"a link", "link", func(t *testing.T, path string) { must(t, os.Symlink(t.TempDir(), path)) }},
		{"a dangling link", "link", func(t *testing.T, path string) { must(t, os.Symlink("nowhere", path)) }},
		{"a file", "no directory", func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }},
		{"open to others", "chmod 700", func(t *testing.T, path string) {
			must(t, os.Mkdir(path, 0o700))
			must(t, os.Chmod(path, 0o755))
		}},
	} {
		for _, at := range []string{"user", "user/slots"} {
			t.Run(c.name+" at "+at, func(t *testing.T) {
				dir := t.TempDir()
				must(t, os.Chmod(dir, 0o700))
				if at != "user" {
					must(t, os.Mkdir(filepath.Join(dir, "user"), 0o700))
				}
				c.make(t, filepath.Join(dir, at))
				_, err := Open(env(filepath.Join(dir, "user")), "slots")
				if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("Open: %v", err)
				}
			})
		}
	}
}

// Another user who takes the name is stepped around, by everybody alike.
func TestTaken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	taken := filepath.Join(t.TempDir(), "user")
	must(t, os.Mkdir(taken, 0o700))
	must(t, os.Chown(taken, 12345, 12345))
	if _, err := Open(env(taken), "slots"); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a directory of another user that was asked for: %v", err)
	}
	for range 2 {
		if got, err := among(taken, "slots"); err != nil || got != filepath.Join(taken+"-1", "slots") {
			t.Errorf("beside it: %q, %v", got, err)
		}
	}
	// Our own directory with a fault is not stepped around: others would not do the same.
	must(t, os.Chmod(taken+"-1", 0o755))
	if _, err := among(taken, "slots"); !errors.Is(err, ErrUnsafe) {
		t.Errorf("an open directory of ours: %v", err)
	}
	if ours(taken) {
		t.Error("ours says that another user's directory is ours")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A relative name would be another directory for every program.
func TestRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	if got, err := Open(env("mine"), "slots"); err == nil || !strings.Contains(err.Error(), "not an absolute path") {
		t.Errorf("Open: %q, %v", got, err)
	}
	if _, err := os.Lstat("mine"); err == nil {
		t.Error("it was made")
	}
}
