//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// birth is everything that a fork needs to know.
type birth struct {
	path  string
	args  []string
	env   []string
	dir   string
	files []*os.File // nil entries are the null device
	attr  *syscall.SysProcAttr
	oom   int
	nice  int
}

// spawn starts a process with default signal dispositions, an empty signal
// mask and no descriptors but files. Nobody waits for it: os.Process is not
// used, because its Wait and ours would be two owners of one wait.
func spawn(b birth) (int, error) {
	path, err := lookup(b.path, b.env)
	if err != nil {
		return 0, err
	}
	if len(b.args) == 0 {
		b.args = []string{b.path}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, &StartError{Path: b.path, Errno: errnoOf(err), Err: err}
	}
	defer null.Close()
	fds := make([]uintptr, max(len(b.files), 3))
	for i := range fds {
		f := null
		if i < len(b.files) && b.files[i] != nil {
			f = b.files[i]
		}
		fds[i] = f.Fd()
	}
	defer runtime.KeepAlive(b.files)
	if err := closeOnExecAbove(2); err != nil {
		return 0, &StartError{Path: b.path, Errno: errnoOf(err), Err: fmt.Errorf("close inherited descriptors: %w", err)}
	}
	if b.oom != 0 {
		defer raiseOOM(b.oom)()
	}
	fork := func() (p int, err error) {
		defer caught()()
		defer unmasked()()
		return syscall.ForkExec(path, b.args, &syscall.ProcAttr{Dir: b.dir, Env: b.env, Files: fds, Sys: b.attr})
	}
	var p int
	if b.nice != 0 {
		// Niceness belongs to a thread, is inherited from the one that forks,
		// and may not be taken back without privilege: so a thread of its own,
		// which ends because it is never unlocked.
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			defer close(done)
			renice(b.nice)
			p, err = fork()
		}()
		<-done
	} else {
		runtime.LockOSThread()
		p, err = fork()
		runtime.UnlockOSThread()
	}
	if err != nil {
		return 0, classify(b, path, err)
	}
	return p, nil
}

// caught lets signals that this process ignores be caught for a moment, since
// exec resets what is caught and keeps what is ignored. One that comes in that
// moment is dropped, as before.
func caught() (undo func()) {
	var list []os.Signal
	for s := syscall.Signal(1); s < 32; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP && (signal.Ignored(s) || ignoredUnseen(s)) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return func() {}
	}
	drop := make(chan os.Signal, 1)
	signal.Notify(drop, list...)
	return func() { signal.Ignore(list...) }
}

// lookup finds a name without a slash in the PATH of env, as a shell does.
// Relative entries are skipped: what they are relative to is an accident.
func lookup(name string, env []string) (string, error) {
	if name == "" {
		return "", &StartError{Path: name, Errno: syscall.ENOENT, NotFound: true, Err: errors.New("no program named")}
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	denied := false
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		full := filepath.Join(dir, name)
		if st, err := os.Stat(full); err != nil || st.IsDir() {
			continue
		}
		if unix.Access(full, unix.X_OK) == nil {
			return full, nil
		}
		denied = true
	}
	if denied {
		return "", &StartError{Path: name, Errno: syscall.EACCES, NotExecutable: true, Err: syscall.EACCES}
	}
	return "", &StartError{Path: name, Errno: syscall.ENOENT, NotFound: true, Err: errors.New("not found in PATH")}
}

// classify says what kind of failure err is. The number alone does not tell a
// missing directory or a missing interpreter from a missing program.
func classify(b birth, path string, err error) *StartError {
	e := &StartError{Path: b.path, Errno: errnoOf(err), Err: err}
	if b.dir != "" {
		st, derr := os.Stat(b.dir)
		if derr == nil && !st.IsDir() {
			derr = syscall.ENOTDIR
		}
		if derr == nil && (e.Errno == syscall.EACCES || e.Errno == syscall.EPERM) {
			derr = unix.Access(b.dir, unix.X_OK)
		}
		if derr != nil {
			e.Err = fmt.Errorf("enter directory %s: %w", b.dir, derr)
			e.Errno = errnoOf(derr)
			return e
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.dir, path)
	}
	switch e.Errno {
	case syscall.ENOENT:
		if _, err := os.Stat(path); err == nil {
			e.NotExecutable = true
			e.Err = fmt.Errorf("its interpreter is missing: %w", e.Errno)
			break
		}
		e.NotFound = true
	case syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP:
		e.NotFound = true
	case syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.EISDIR, syscall.ETXTBSY:
		e.NotExecutable = true
	}
	return e
}

// closeOnExecListed does it one by one, from a directory of descriptors.
func closeOnExecListed(above int, dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > above {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// errnoOf returns the system's number in err, or 0.
func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}
