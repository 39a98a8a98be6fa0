package wake

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// events are those of a directory that can matter to somebody who waits for a
// file in it. IN_MODIFY is not among them: a tail that is written to a thousand
// times a second would wake us as often, and a result counts when its writer is
// done with it.
const events = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE |
	unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// native is one inotify instance with a watch per directory. A nil file means
// that there is none and that we poll.
type native struct {
	file *os.File
	// fd is the number of file. (*os.File).Fd would make it blocking, and reads
	// of it would have no deadline any more.
	fd int
	// paths are what the caller wants, watched the directories that stand for
	// them, by path and by descriptor.
	paths   map[string]bool
	byDir   map[string]*watched
	byWatch map[int32]*watched
	// waiting are paths whose own directory is not there yet.
	waiting map[string]bool
	buf     [16 << 10]byte
}

// watched is a directory and the names in it that matter; all of them when the
// directory was asked for itself.
type watched struct {
	dir   string
	wd    int32
	names map[string]bool
	all   bool
}

func newNative() *native {
	n := &native{
		paths:   make(map[string]bool),
		byDir:   make(map[string]*watched),
		byWatch: make(map[int32]*watched),
		waiting: make(map[string]bool),
	}
	// EMFILE is common: 128 instances a user. Then every path is polled.
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		n.fd, n.file = fd, os.NewFile(uintptr(fd), "inotify")
	}
	return n
}

func (n *native) add(path string) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	n.paths[path] = true
	n.arm(path)
}

// arm watches the directory of path, and path itself if it is a directory. While
// that directory is missing, the nearest one above it that exists is watched for
// the next name on the way.
func (n *native) arm(path string) {
	if n.file == nil {
		return
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if w := n.watch(path); w != nil {
			w.all = true
		}
	}
	delete(n.waiting, path)
	for name, dir := filepath.Base(path), filepath.Dir(path); ; name, dir = filepath.Base(dir), filepath.Dir(dir) {
		if w := n.watch(dir); w != nil {
			w.names[name] = true
			return
		}
		n.waiting[path] = true
		if dir == filepath.Dir(dir) {
			return
		}
	}
}

// watch returns the watch on dir, made if need be, or nil.
func (n *native) watch(dir string) *watched {
	if w := n.byDir[dir]; w != nil {
		return w
	}
	wd, err := unix.InotifyAddWatch(n.fd, dir, events)
	if err != nil {
		return nil
	}
	w := n.byWatch[int32(wd)]
	if w == nil {
		w = &watched{dir: dir, wd: int32(wd), names: make(map[string]bool)}
		n.byWatch[w.wd] = w
	}
	// Two spellings of one directory share its descriptor.
	n.byDir[dir] = w
	return w
}

func (n *native) close() error {
	if n.file == nil {
		return nil
	}
	return n.file.Close()
}

func (n *native) wait(ctx context.Context, deadline time.Time) (bool, error) {
	if n.file == nil {
		return false, pause(ctx, time.Until(deadline))
	}
	stop := context.AfterFunc(ctx, func() { _ = n.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		if err := n.file.SetReadDeadline(deadline); err != nil {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		size, err := n.file.Read(n.buf[:])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			n.rearm()
			return false, ctx.Err()
		case err != nil:
			return false, pause(ctx, time.Until(deadline))
		case n.take(n.buf[:size]):
			return true, nil
		}
	}
}

// drain takes in what is queued already.
func (n *native) drain() {
	if n.file == nil {
		return
	}
	for {
		if n.file.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
			return
		}
		size, err := n.file.Read(n.buf[:])
		if err != nil {
			return
		}
		n.take(n.buf[:size])
	}
}

// take reports whether one of the events in buf matters.
func (n *native) take(buf []byte) bool {
	const head = int(unsafe.Sizeof(unix.InotifyEvent{}))
	matters := false
	for len(buf) >= head {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		size := int(binary.NativeEndian.Uint32(buf[12:]))
		if len(buf) < head+size {
			break
		}
		name := unix.ByteSliceToString(buf[head : head+size])
		buf = buf[head+size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			matters = true
			continue
		}
		w := n.byWatch[wd]
		if w == nil {
			continue
		}
		if mask&(unix.IN_IGNORED|unix.IN_MOVE_SELF) != 0 {
			n.drop(w.dir)
			matters = true
			continue
		}
		if mask&unix.IN_ISDIR != 0 && mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0 {
			// What is below it goes by another name now, watched or not.
			n.drop(filepath.Join(w.dir, name))
		}
		if w.all || name == "" || w.names[name] {
			matters = true
		}
	}
	if matters {
		n.rearm()
	}
	return matters
}

// rearm looks again for what was not there.
func (n *native) rearm() {
	for path := range n.waiting {
		n.arm(path)
	}
}

// drop forgets dir and what is below it, which is gone or goes by another name,
// and leaves what they stood for to be armed anew.
func (n *native) drop(dir string) {
	below := func(path string) bool {
		rest, ok := strings.CutPrefix(path, dir)
		return ok && (rest == "" || rest[0] == filepath.Separator)
	}
	for name, w := range n.byDir {
		if below(name) {
			delete(n.byDir, name)
			delete(n.byWatch, w.wd)
			_, _ = unix.InotifyRmWatch(n.fd, uint32(w.wd))
		}
	}
	for path := range n.paths {
		if below(path) {
			n.waiting[path] = true
		}
	}
}
