//go:build unix

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func mkfifo(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
}

// soon fails the test if f does not return: a reader that opens a FIFO waits for
// ever.
func soon(t *testing.T, f func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("blocked")
	}
}

func TestObserve(t *testing.T) {
	elsewhere := t.TempDir()
	writeFile(t, filepath.Join(elsewhere, "full"), "x")
	writeFile(t, filepath.Join(elsewhere, "empty"), "")
	if err := os.Symlink(filepath.Join(elsewhere, "full"), filepath.Join(elsewhere, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(elsewhere, "loop")); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, filepath.Join(elsewhere, "fifo"))
	at := func(name string) string { return filepath.Join(elsewhere, name) }

	long := strings.Repeat("x", EntryMax)
	for _, c := range []struct {
		name   string
		entry  string // "" = none
		make   func(t *testing.T, u Unit)
		path   PathState
		result ResultState
		errs   []string // stage error
	}{
		{name: "no entry", path: PathAbsent, result: ResultUnknown},
		{name: "present", entry: at("full") + "\n", path: PathResolved, result: ResultPresent},
		{name: "through a link", entry: at("link"), path: PathResolved, result: ResultPresent},
		{name: "empty", entry: at("empty"), path: PathResolved, result: ResultEmpty},
		{name: "missing", entry: at("none"), path: PathResolved, result: ResultMissing},
		{name: "missing parent", entry: at("none/none"), path: PathResolved, result: ResultMissing},
		{name: "CRLF", entry: at("full") + "\r\n", path: PathResolved, result: ResultPresent},
		{name: "python white space", entry: " \x1c" + at("full") + "\u00a0\x85\n", path: PathResolved, result: ResultMissing},
		{name: "white space that is valid text", entry: "\x1f \u00a0" + at("full") + "\u2003\n", path: PathResolved, result: ResultPresent},
		{name: "below a file", entry: at("full/x"), path: PathResolved, result: ResultUnknown, errs: []string{"result-target NotADirectoryError"}},
		{name: "directory", entry: elsewhere, path: PathResolved, result: ResultUnknown, errs: []string{"result-target NotARegularFile"}},
		{name: "FIFO", entry: at("fifo"), path: PathResolved, result: ResultUnknown, errs: []string{"result-target NotARegularFile"}},
		{name: "device", entry: "/dev/null", path: PathResolved, result: ResultUnknown, errs: []string{"result-target NotARegularFile"}},
		{name: "loop", entry: at("loop"), path: PathResolved, result: ResultUnknown, errs: []string{"result-target OSError"}},
		{name: "name too long", entry: at(strings.Repeat("x", 300)), path: PathResolved, result: ResultUnknown, errs: []string{"result-target OSError"}},
		{name: "NUL", entry: at("a\x00b"), path: PathUnreadable, result: ResultUnknown, errs: []string{"result ValueError"}},
		{name: "blank", entry: " \t\n", path: PathInvalid, result: ResultUnknown},
		{name: "relative outside", entry: "../r.md", path: PathInvalid, result: ResultUnknown},
		{name: "relative outside by a detour", entry: "a/../../r.md", path: PathInvalid, result: ResultUnknown},
		{name: "the unit itself", entry: "a/..", path: PathInvalid, result: ResultUnknown},
		{name: "dot", entry: ".", path: PathInvalid, result: ResultUnknown},
		{name: "relative inside", entry: "out/r.md", path: PathResolved, result: ResultMissing},
		{name: "relative inside, present", entry: "out/../r.md", path: PathResolved, result: ResultPresent,
			make: func(t *testing.T, u Unit) { writeFile(t, u.Path("r.md"), "x"); writeFile(t, u.Path("out/x"), "") }},
		{name: "entry is a directory", path: PathUnreadable, result: ResultUnknown, errs: []string{"result-entry NotARegularFile"},
			make: func(t *testing.T, u Unit) {
				if err := os.Mkdir(u.Path(FileResult), 0o700); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "entry is a FIFO", path: PathUnreadable, result: ResultUnknown, errs: []string{"result-entry NotARegularFile"},
			make: func(t *testing.T, u Unit) { mkfifo(t, u.Path(FileResult)) }},
		{name: "entry of 65536", entry: "/" + long[1:], path: PathResolved, result: ResultUnknown, errs: []string{"result-target OSError"}},
		{name: "entry of 65537", entry: "/" + long, path: PathUnreadable, result: ResultUnknown, errs: []string{"result-entry EntryTooLarge"}},
		{name: "entry is a dangling link", path: PathAbsent, result: ResultUnknown,
			make: func(t *testing.T, u Unit) {
				if err := os.Symlink("nowhere", u.Path(FileResult)); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "tail is a FIFO", path: PathAbsent, result: ResultUnknown, errs: []string{"tail NotARegularFile"},
			make: func(t *testing.T, u Unit) { mkfifo(t, u.Path(FileTail)) }},
		{name: "pid is a directory", path: PathAbsent, result: ResultUnknown, errs: []string{"legacy-pid NotARegularFile"},
			make: func(t *testing.T, u Unit) {
				if err := os.Mkdir(u.Path(FileDispatchPID), 0o700); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := Unit{Dir: t.TempDir()}
			if c.entry != "" {
				writeFile(t, u.Path(FileResult), c.entry)
			}
			if c.make != nil {
				c.make(t, u)
			}
			soon(t, func() {
				o := u.Observe(ObserveOptions{LegacyPID: true})
				var errs []string
				for _, e := range o.Errors {
					errs = append(errs, e.Stage+" "+e.Error)
				}
				if o.PathState != c.path || o.Result != c.result || !slices.Equal(errs, c.errs) {
					t.Errorf("got %s %s %q, want %s %s %q", o.PathState, o.Result, errs, c.path, c.result, c.errs)
				}
				if !slices.Contains(LegalPairs[o.PathState], o.Result) {
					t.Errorf("%s and %s is no legal pair", o.PathState, o.Result)
				}
				if failed := slices.ContainsFunc(o.Errors, func(e ObservationError) bool { return e.Stage == StageTail }); failed != (o.TailBytes == nil) {
					t.Errorf("tail bytes %v beside errors %v", o.TailBytes, o.Errors)
				}
				if (o.PathState == PathResolved) != (o.ResultTarget != "") {
					t.Errorf("target %q in state %s", o.ResultTarget, o.PathState)
				}
			})
		})
	}
}

// Observing is read only, down to the access of what it reads.
func TestObserveChangesNothing(t *testing.T) {
	u := Unit{Dir: t.TempDir()}
	writeFile(t, u.Path(FileResult), "r.md\n")
	writeFile(t, u.Path(FileTail), "x")
	before := list(t, u.Dir)
	u.Observe(ObserveOptions{LegacyPID: true})
	u.Liveness()
	if after := list(t, u.Dir); !reflect.DeepEqual(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		out = append(out, fmt.Sprint(path, info.Mode(), info.Size(), info.ModTime()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestErrorName(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.ENOENT, "FileNotFoundError"},
		{syscall.EACCES, "PermissionError"},
		{syscall.EPERM, "PermissionError"},
		{syscall.ENOTDIR, "NotADirectoryError"},
		{syscall.EISDIR, "IsADirectoryError"},
		{syscall.EINTR, "InterruptedError"},
		{syscall.EAGAIN, "BlockingIOError"},
		{syscall.ETIMEDOUT, "TimeoutError"},
		{syscall.EEXIST, "FileExistsError"},
		{syscall.ELOOP, "OSError"},
		{syscall.ENAMETOOLONG, "OSError"},
		{syscall.EIO, "OSError"},
		{syscall.ESTALE, "OSError"},
		{fmt.Errorf("read: %w", &fs.PathError{Op: "open", Path: "a\x00b", Err: syscall.EINVAL}), "ValueError"},
		{&fs.PathError{Op: "open", Path: "ab", Err: syscall.EINVAL}, "OSError"},
		{fmt.Errorf("read: %w", ErrNotRegular), "NotARegularFile"},
		{fmt.Errorf("read: %w", ErrTooLarge), "EntryTooLarge"},
		{fs.ErrNotExist, "FileNotFoundError"},
		{errors.New("other"), "OSError"},
	} {
		if got := ErrorName(c.err); got != c.want {
			t.Errorf("ErrorName(%v) = %s, want %s", c.err, got, c.want)
		}
	}
}
