package atomicfile

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// nameMax is what every file system of interest allows for one name, in bytes.
const nameMax = 255

const tempMark = ".prun-"

// TempName returns the path of a hidden file beside name: ".<base>.prun-<tag>".
// A base that would make it longer than a name may be is cut, at a whole
// character.
func TempName(name, tag string) string {
	dir, base := filepath.Split(name)
	if room := nameMax - 1 - len(tempMark) - len(tag); len(base) > room {
		cut := max(room, 0)
		for i := 1; i < utf8.UTFMax && cut > 0 && !utf8.RuneStart(base[cut]); i++ {
			cut--
		}
		base = base[:cut]
	}
	return dir + "." + base + tempMark + tag
}

// TempOwner takes the last element of a path apart that Replace made as its
// hidden file, ".<base>.prun-<pid>-<number>", and returns the pid.
func TempOwner(base string) (pid int, ok bool) {
	if !strings.HasPrefix(base, ".") {
		return 0, false
	}
	i := strings.LastIndex(base, tempMark)
	if i < 1 {
		return 0, false
	}
	p, n, found := strings.Cut(base[i+len(tempMark):], "-")
	if !found || !digits(p) || !digits(n) {
		return 0, false
	}
	pid, err := strconv.Atoi(p)
	return pid, err == nil && pid > 0
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// Sweep removes from dir the hidden files that a crash in Replace left behind:
// those whose pid alive denies. A missing dir is no error.
func Sweep(dir string, alive func(pid int) bool) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	var failed error
	for {
		names, err := d.Readdirnames(256)
		for _, base := range names {
			pid, ok := TempOwner(base)
			if !ok || pid == os.Getpid() || alive(pid) {
				continue
			}
			name := filepath.Join(dir, base)
			if fi, err := os.Lstat(name); err != nil || !fi.Mode().IsRegular() {
				continue
			}
			if err := Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err)
			}
		}
		if err != nil {
			return failed // io.EOF, or a directory that went away
		}
	}
}

// createTemp makes the hidden file of Replace beside name.
func createTemp(name string) (*os.File, string, error) {
	for {
		temp := TempName(name, strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(rand.Uint64(), 10))
		f, err := createExclusive(temp)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return f, temp, err
	}
}

// createExclusive makes a new file that only its owner may use until its mode
// is set. O_EXCL follows no link.
func createExclusive(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}
