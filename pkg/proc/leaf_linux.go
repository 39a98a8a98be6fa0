package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type leafPlatform struct{ fd int }

func newLeaf(name string) (*Leaf, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\n\x00") || strings.HasPrefix(name, "cgroup.") {
		return nil, fmt.Errorf("make cgroup %q: not a name for one", name)
	}
	dir, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		return nil, fmt.Errorf("make cgroup: %w: %w", err, ErrNoCgroup)
	}
	l, err := openLeaf(path, 0)
	if err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("%w: %w", err, ErrNoCgroup)
	}
	return l, nil
}

// openLeaf opens path; inode 0 stands for a directory that was just made.
func openLeaf(path string, inode uint64) (*Leaf, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if err == unix.ENOENT || err == unix.ENODEV {
			if !inHierarchy(path) {
				return nil, fmt.Errorf("open cgroup %s: its hierarchy is not seen here: %w", path, ErrNoCgroup)
			}
			return nil, fmt.Errorf("open cgroup %s: %w", path, ErrGone)
		}
		return nil, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	var fst unix.Statfs_t
	var st unix.Stat_t
	err = unix.Fstatfs(fd, &fst)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("open cgroup %s: %w", path, err)
	case fst.Type != unix.CGROUP2_SUPER_MAGIC:
		err = fmt.Errorf("open cgroup %s: not in a cgroup2 hierarchy: %w", path, ErrMismatch)
	case inode != 0 && st.Ino != inode:
		err = fmt.Errorf("open cgroup %s: %w", path, ErrMismatch)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Leaf{path: path, inode: st.Ino, leafPlatform: leafPlatform{fd: fd}}, nil
}

// inHierarchy reports that the nearest directory above path is one of cgroup2: what
// is missing there has been removed, and is not just out of sight.
func inHierarchy(path string) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var fst unix.Statfs_t
		switch err := unix.Statfs(dir, &fst); {
		case err == nil:
			return fst.Type == unix.CGROUP2_SUPER_MAGIC
		case err != unix.ENOENT && err != unix.ENODEV || dir == filepath.Dir(dir):
			return false
		}
	}
}

// ownCgroup returns the cgroup2 directory that this process is in. Mount point
// and path alone are guesses on hybrid mounts and in cgroup namespaces; that
// the directory lists us is not.
func ownCgroup() (string, error) {
	dir, err := leafOf(os.Getpid())
	if err != nil {
		return "", err
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return "", fmt.Errorf("look for our cgroup: %w: %w", err, ErrNoCgroup)
	}
	defer f.Close()
	self := strconv.Itoa(os.Getpid())
	for s := bufio.NewScanner(f); s.Scan(); {
		if s.Text() == self {
			return dir, nil
		}
	}
	return "", fmt.Errorf("look for our cgroup: %s does not list us: %w", dir, ErrNoCgroup)
}

func leafOf(p int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("look for the cgroup of %d: %w: %w", p, err, ErrNoCgroup)
	}
	within, ok := unifiedPath(string(text))
	if !ok {
		return "", fmt.Errorf("look for the cgroup of %d: not in a cgroup2 hierarchy that is seen here: %w", p, ErrNoCgroup)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("look for cgroup2: %w: %w", err, ErrNoCgroup)
	}
	for _, m := range cgroup2Mounts(string(mounts)) {
		rest, ok := below(within, m.root)
		if !ok {
			continue
		}
		dir := filepath.Join(m.point, rest)
		var fst unix.Statfs_t
		if unix.Statfs(dir, &fst) == nil && fst.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, nil
		}
	}
	return "", fmt.Errorf("look for cgroup2: not mounted here: %w", ErrNoCgroup)
}

// unifiedPath finds the cgroup2 line of /proc/PID/cgroup. A path that climbs
// lies outside our cgroup namespace.
func unifiedPath(text string) (string, bool) {
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		if !strings.HasPrefix(path, "/") || path == "/.." || strings.HasPrefix(path, "/../") || strings.HasSuffix(path, " (deleted)") {
			return "", false
		}
		return path, true
	}
	return "", false
}

type cgroupMount struct{ root, point string }

func cgroup2Mounts(text string) []cgroupMount {
	var list []cgroupMount
	for line := range strings.Lines(text) {
		// 41 31 0:38 ROOT POINT rw,relatime - cgroup2 cgroup2 rw
		head, tail, ok := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if !ok || len(fields) < 5 || !strings.HasPrefix(tail, "cgroup2 ") {
			continue
		}
		list = append(list, cgroupMount{unescape(fields[3]), unescape(fields[4])})
	}
	return list
}

// below returns path as seen from root.
func below(path, root string) (string, bool) {
	if root == "/" || path == root {
		return strings.TrimPrefix(path, root), true
	}
	return strings.CutPrefix(path, root+"/")
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isNoCgroup reports that a cgroup was removed under an open descriptor.
func isNoCgroup(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

// open opens a file of the cgroup dirfd.
func openIn(dirfd int, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

func readIn(dirfd int, name string) ([]byte, error) {
	f, err := openIn(dirfd, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func writeIn(dirfd int, name, text string) error {
	f, err := openIn(dirfd, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// walk calls visit for the cgroup dirfd and everything below it, deepest
// first. name is "" for dirfd itself and parent is -1 then.
func walk(dirfd int, visit func(parent int, name string, fd int) error) error {
	return walkIn(-1, "", dirfd, visit)
}

func walkIn(parent int, name string, fd int, visit func(int, string, int) error) error {
	// A descriptor of its own, so that reading starts at the beginning.
	dir, err := openIn(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil && !isNoCgroup(err) {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		sub, err := openIn(fd, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			if isNoCgroup(err) {
				continue
			}
			return err
		}
		err = walkIn(fd, e.Name(), int(sub.Fd()), visit)
		sub.Close()
		if err != nil && !isNoCgroup(err) {
			return err
		}
	}
	return visit(parent, name, fd)
}

func (l *Leaf) members() ([]int, error) {
	var list []int
	err := walk(l.fd, func(_ int, _ string, fd int) error {
		text, err := readIn(fd, "cgroup.procs")
		if errors.Is(err, unix.EOPNOTSUPP) {
			// A threaded cgroup; its processes are listed by its domain.
			return nil
		}
		for field := range bytes.FieldsSeq(text) {
			// 0 is a process without a number in our namespace.
			if p, err := strconv.Atoi(string(field)); err == nil && p > 0 {
				list = append(list, p)
			}
		}
		return err
	})
	if err != nil && !isNoCgroup(err) {
		return list, fmt.Errorf("list cgroup %s: %w", l.path, err)
	}
	return list, nil
}

func (l *Leaf) populated() (bool, error) {
	text, err := readIn(l.fd, "cgroup.events")
	if err != nil {
		if isNoCgroup(err) {
			return false, nil
		}
		return true, fmt.Errorf("look at cgroup %s: %w", l.path, err)
	}
	return !bytes.Contains(text, []byte("populated 0")), nil
}

// settle waits until cgroup.events holds text, for at most d.
func (l *Leaf) settle(text string, d time.Duration) (bool, error) {
	deadline := time.Now().Add(d)
	f, err := openIn(l.fd, "cgroup.events", unix.O_RDONLY)
	if err != nil {
		return isNoCgroup(err), ignoreNoCgroup(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	buf := make([]byte, 256)
	for {
		// Reading is also what arms the poll.
		n, err := unix.Pread(fd, buf, 0)
		if err != nil && err != unix.EINTR {
			return isNoCgroup(err), ignoreNoCgroup(err)
		}
		if n > 0 && bytes.Contains(buf[:n], []byte(text)) {
			return true, nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false, nil
		}
		if err := pollFor(fd, unix.POLLPRI, left); err != nil {
			return false, err
		}
	}
}

func ignoreNoCgroup(err error) error {
	if isNoCgroup(err) {
		return nil
	}
	return err
}

func (l *Leaf) kill(bound time.Duration) error {
	deadline := time.Now().Add(bound)
	for {
		err := writeIn(l.fd, "cgroup.kill", "1")
		if isNoCgroup(err) {
			if gone, _ := l.removed(); gone {
				return nil
			}
			// Before Linux 5.14 there is no such file.
			err = l.killFrozen(deadline)
		}
		if err != nil {
			return fmt.Errorf("kill cgroup %s: %w", l.path, err)
		}
		// The kernel also kills what is forked meanwhile, but not what is
		// moved in afterwards: so again every tenth of a second.
		empty, err := l.settle("populated 0", min(time.Until(deadline), 100*time.Millisecond))
		switch {
		case err != nil:
			return fmt.Errorf("kill cgroup %s: %w", l.path, err)
		case empty:
			return nil
		case time.Until(deadline) <= 0:
			return fmt.Errorf("kill cgroup %s: still populated after %v: %w", l.path, bound, ErrUnproven)
		}
	}
}

// removed reports whether the directory is gone while we hold it open.
func (l *Leaf) removed() (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(l.fd, "cgroup.procs", &st, unix.AT_SYMLINK_NOFOLLOW)
	return isNoCgroup(err), err
}

// killFrozen is the way without cgroup.kill: freeze, so that nothing forks
// while the list is read, kill everything in it, thaw. SIGKILL reaches a frozen
// process too.
func (l *Leaf) killFrozen(deadline time.Time) error {
	if err := writeIn(l.fd, "cgroup.freeze", "1"); err != nil {
		return err
	}
	defer writeIn(l.fd, "cgroup.freeze", "0")
	// A process in state D keeps it from ever being frozen; kill all the same.
	l.settle("frozen 1", min(time.Until(deadline), 100*time.Millisecond))
	list, err := l.members()
	for _, p := range list {
		if p > 1 {
			unix.Kill(p, unix.SIGKILL)
		}
	}
	return err
}

func (l *Leaf) remove() error {
	err := walk(l.fd, func(parent int, name string, _ int) error {
		if parent < 0 {
			return nil
		}
		if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !isNoCgroup(err) {
			return err
		}
		return nil
	})
	if err == nil || isNoCgroup(err) {
		var st unix.Stat_t
		switch err = unix.Stat(l.path, &st); {
		case err == nil && st.Ino != l.inode:
			// Not ours: then ours is gone.
		case err == nil:
			err = unix.Rmdir(l.path)
		}
	}
	if err != nil && !isNoCgroup(err) {
		return fmt.Errorf("remove cgroup %s: %w", l.path, err)
	}
	return nil
}

func (l *Leaf) close() error {
	if l.fd < 0 {
		return nil
	}
	err := unix.Close(l.fd)
	l.fd = -1
	return err
}

// holds reports whether process p is in the leaf or below it now.
func (l *Leaf) holds(p int) bool {
	dir, err := leafOf(p)
	return err == nil && (dir == l.path || strings.HasPrefix(dir, l.path+"/"))
}

func moveSelf(dir string) error {
	// 0 is the writer, whatever its number is in the namespace of the mount.
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	if err != nil {
		return fmt.Errorf("move into cgroup %s: %w", dir, err)
	}
	return nil
}
