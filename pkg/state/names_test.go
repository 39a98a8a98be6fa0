package state

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func TestBase(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths of this table are those of unix")
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, want string }{
		{"", "/tmp"},
		{"TMPDIR=/var/x/", "/var/x"},
		{"TMPDIR=/var/x//", "/var/x"},
		{"TMPDIR= ,TEMP=,TMP=/t", "/t"},
		{"TMPDIR=/a,TEMP=/b", "/a"},
		{"PRUN_STATE_BASE=/s,TMPDIR=/a", "/s"},
		{"PRUN_STATE_BASE=  ,TMPDIR=/a", "/a"},
		// STATE-DIR is absolute whatever TMPDIR is.
		{"TMPDIR=rel", filepath.Join(cwd, "rel")},
	} {
		env := make(map[string]string)
		for _, pair := range strings.Split(c.env, ",") {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		if got := Base(func(name string) string { return env[name] }); got != c.want {
			t.Errorf("Base with %q = %q, want %q", c.env, got, c.want)
		}
	}
}

func TestCwdHash(t *testing.T) {
	// sha256 of the four bytes "/usr", no newline.
	if got := CwdHash("/usr"); got != "894d731f" && runtime.GOOS != "windows" {
		t.Errorf("CwdHash(/usr) = %s", got)
	}
	dir := t.TempDir()
	if CwdHash(dir) != CwdHash(dir+"/.") {
		t.Error("one directory has several hashes")
	}
	if runtime.GOOS != "windows" { // making a link takes a privilege there
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		if CwdHash(dir) != CwdHash(link) {
			t.Error("a link to a directory has another hash")
		}
	}
	if got := CwdHash(filepath.Join(dir, "gone")); !isHex(got, hashLen) {
		t.Errorf("hash of a missing directory: %q", got)
	}
}

func TestNameAndBack(t *testing.T) {
	nonce, err := NewNonce()
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`^prun-task-[0-9a-f]{8}-[A-Za-z0-9_-]+-[0-9]+-[0-9a-f]{16}$`)
	for _, unit := range []string{"u", "u-1", "-", "--", "a_b", "12345678-1-0123456789abcdef", "nohash-x", strings.Repeat("x", 300)} {
		name := Name("0a1b2c3d", unit, 4711, nonce)
		if !shape.MatchString(name) {
			t.Errorf("name %q", name)
		}
		if got, ok := UnitOf(name); !ok || got != unit {
			t.Errorf("UnitOf(%q) = %q %v", name, got, ok)
		}
		if _, ok := UnitOf(HiddenName("0a1b2c3d", unit, 4711, nonce)); ok {
			t.Errorf("a hidden directory of %q is a unit", unit)
		}
	}
	for _, bad := range []string{
		"", "prun-task-", "prun-task-0a1b2c3d", "prun-task-0a1b2c3d-u", "prun-task-0a1b2c3d-u-1",
		"prun-task-0a1b2c3d--1-0123456789abcdef", "prun-task-0A1B2C3D-u-1-0123456789abcdef",
		"prun-task-0a1b2c3-u-1-0123456789abcdef", "prun-task-0a1b2c3d-u-x-0123456789abcdef",
		"prun-task-0a1b2c3d-u-1-0123456789abcde", "prun-task-0a1b2c3d-u-1-0123456789ABCDEF",
		"prun-task-0a1b2c3d-u\n-1-0123456789abcdef", "xprun-task-0a1b2c3d-u-1-0123456789abcdef",
	} {
		if unit, ok := UnitOf(bad); ok {
			t.Errorf("UnitOf(%q) = %q", bad, unit)
		}
	}
}

func TestValidUnit(t *testing.T) {
	for id, want := range map[string]bool{
		"u1": true, "A_b-9": true, "-": true, "": false, "a b": false, "a/b": false, "..": false, ".": false,
		"a\n": false, "\u212a": false, "é": false, "a\x00": false, "a\\b": false, "a%": false,
	} {
		if ValidUnit(id) != want {
			t.Errorf("ValidUnit(%q) = %v", id, !want)
		}
	}
}

func FuzzUnitOf(f *testing.F) {
	f.Add("prun-task-0a1b2c3d-u-1-4711-0123456789abcdef")
	f.Add("prun-task-nohash-u-4711-0123456789abcdef")
	f.Add(".new-prun-task-nohash-u-4711-0123456789abcdef")
	f.Fuzz(func(t *testing.T, name string) {
		unit, ok := UnitOf(name)
		if !ok {
			return
		}
		if !ValidUnit(unit) || !strings.Contains(name, "-"+unit+"-") || strings.ContainsAny(name, "/\x00\n") {
			t.Errorf("UnitOf(%q) = %q", name, unit)
		}
	})
}
