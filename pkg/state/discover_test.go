package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prun-suite/prun/pkg/pid"
)

func TestDiscover(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	for _, name := range []string{"prun-task-b", "prun-task-a", "prun-other", ".new-prun-task-c"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "prun-task-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(root, "none")
	d := Discover([]string{root, missing, root + string(filepath.Separator), other, filepath.Join(root, "prun-task-file")}, nil)
	var names []string
	for _, u := range d.Units {
		names = append(names, u.Name())
	}
	if !slices.Equal(names, []string{"prun-task-a", "prun-task-b"}) {
		t.Errorf("units %q", names)
	}
	if len(d.Roots) != 5 || d.Roots[0] != root || d.Roots[2] != root {
		t.Errorf("roots %q", d.Roots)
	}
	if len(d.Errors) != 2 || d.Errors[0].Path != missing || ErrorName(d.Errors[0].Err) != "FileNotFoundError" ||
		d.Errors[1].Stage != StageRoot || ErrorName(d.Errors[1].Err) != "NotADirectoryError" {
		t.Errorf("errors %v", d.Errors)
	}
	if some := Discover([]string{root}, func(name string) bool { return name == "prun-task-b" }); len(some.Units) != 1 {
		t.Errorf("picked %v", some.Units)
	}
}

// A file system may come back from a restart with another device number; in one
// boot that is another file system.
func TestOriginal(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	dev, ino, err := dirID(u.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if ino == 0 || pid.Boot() == "" {
		t.Skip("condition not met: inode numbers and a boot id")
	}
	here, before := pid.ID{PID: 2, Start: 1, Boot: pid.Boot()}, pid.ID{PID: 2, Start: 1, Boot: "another"}
	tests := []struct {
		name string
		id   Identity
		copy bool
	}{
		{"nothing recorded", Identity{Supervisor: here}, false},
		{"itself", Identity{Supervisor: here, DirDev: dev, DirIno: ino}, false},
		{"another inode", Identity{Supervisor: here, DirDev: dev, DirIno: ino + 1}, true},
		{"another device", Identity{Supervisor: here, DirDev: dev + 1, DirIno: ino}, true},
		{"another device after a restart", Identity{Supervisor: before, DirDev: dev + 1, DirIno: ino}, false},
		{"another inode after a restart", Identity{Supervisor: before, DirDev: dev + 1, DirIno: ino + 1}, true},
	}
	for _, tt := range tests {
		if err := u.Original(&tt.id); errors.Is(err, ErrCopy) != tt.copy {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
