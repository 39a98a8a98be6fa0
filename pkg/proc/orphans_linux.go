package proc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prun-suite/prun/pkg/pid"
	"golang.org/x/sys/unix"
)

// execTime bounds the wait for a process that is in the middle of exec or exit
// and has no environment to look at. It is long because a loaded machine may leave it there.
const execTime = 2 * time.Second

const markName = "PRUN_STATE_DIR="

// marked reports whether the environment of p holds one of the entries, and
// whether that could be told. A process may rewrite or clear it, so false proves
// nothing.
func marked(p int, entries ...string) (yes, known bool) {
	environ, err := os.Open("/proc/" + strconv.Itoa(p) + "/environ")
	if err != nil {
		// One that is on its way out has lost its memory and not yet its
		// children: they are to come.
		return false, !errors.Is(err, unix.ESRCH) || look(p).ended()
	}
	defer environ.Close()
	// The kernel bounds an environment by a quarter of the stack limit.
	text, err := io.ReadAll(io.LimitReader(environ, 64<<20))
	if err != nil {
		return false, look(p).ended()
	}
	for e := range bytes.SplitSeq(text, []byte{0}) {
		for _, entry := range entries {
			if string(e) == entry {
				return true, true
			}
		}
	}
	// No bytes are read of an environment that is empty, and of one that is
	// being replaced: but an empty one has a place.
	f := look(p)
	return false, len(text) > 0 || f.ended() || f.envStart == f.envEnd && f.envEnd != 0
}

func orphans(mark string) ([]pid.ID, error) { return bearing([]string{markName + mark}, nil) }

// bearing lists the processes of this user whose environment holds one of the
// entries, or of which also says so.
func bearing(entries []string, also func(p int) bool) ([]pid.ID, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	const kthreadd = 2 // the parent of all kernel threads, which have no environment
	var list []pid.ID
	for begin := time.Now(); ; {
		var again []int
		for _, p := range all {
			var st unix.Stat_t
			if unix.Stat("/proc/"+strconv.Itoa(p), &st) != nil || int(st.Uid) != os.Geteuid() || pid.Forbidden(p) {
				continue
			}
			// The identity first: when it still holds after the environment
			// was read, both are of one process.
			id, err := pid.Of(p)
			if err != nil {
				continue
			}
			yes, known := marked(p, entries...)
			if !yes && also != nil {
				yes = also(p)
			}
			if f := look(p); !yes && !known && !f.ended() && f.parent != kthreadd && p != kthreadd {
				again = append(again, p)
			}
			if !yes {
				continue
			}
			if alive, err := id.Alive(); alive || err != nil {
				list = append(list, id)
			}
		}
		if len(again) == 0 || time.Since(begin) > execTime {
			return list, nil
		}
		all = again
		time.Sleep(time.Millisecond)
	}
}

func find(t Traces) ([]pid.ID, error) {
	entries := make([]string, len(t.Marks))
	for i, m := range t.Marks {
		entries[i] = markName + m
	}
	seeds, err := bearing(entries, func(p int) bool { return t.inSession(p) || writes(p, t.Outputs) })
	if err != nil {
		return nil, err
	}
	if alive, err := t.Worker.Alive(); alive && err == nil && !slices.Contains(seeds, t.Worker) {
		seeds = append(seeds, t.Worker)
	}
	return withKin(seeds, t.Spare)
}

// inSession reports that p is in the worker's session. Only a living worker
// pins the session's number.
func (t Traces) inSession(p int) bool {
	if t.Worker.PID <= 1 || look(p).session != t.Worker.PID {
		return false
	}
	alive, err := t.Worker.Alive()
	return alive && err == nil
}

// writes reports that p has one of the files open for writing.
func writes(p int, files []string) bool {
	if len(files) == 0 {
		return false
	}
	dir := "/proc/" + strconv.Itoa(p) + "/fd"
	fds, err := os.Open(dir)
	if err != nil {
		return false
	}
	names, _ := fds.Readdirnames(-1)
	fds.Close()
	for _, n := range names {
		// Read, not followed: what a descriptor leads to may hang.
		target, err := os.Readlink(dir + "/" + n)
		if err != nil || !slices.Contains(files, target) {
			continue
		}
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/fdinfo/" + n)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if octal, ok := strings.CutPrefix(line, "flags:"); ok {
				flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
				return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY
			}
		}
	}
	return false
}

// withKin adds to seeds what is below them, and takes away what is spared with
// all that is below it. A child counts when its parent is a verified member that
// still lives after the look.
func withKin(seeds []pid.ID, spare func(int) bool) ([]pid.ID, error) {
	all, err := census()
	if err != nil {
		return nil, err
	}
	below := make(map[int][]int)
	for _, k := range all {
		below[k.parent] = append(below[k.parent], k.pid)
	}
	spared := make(map[int]bool)
	var exempt func(p int)
	exempt = func(p int) {
		if spared[p] {
			return
		}
		spared[p] = true
		for _, c := range below[p] {
			exempt(c)
		}
	}
	if spare != nil {
		for _, k := range all {
			if spare(k.pid) {
				exempt(k.pid)
			}
		}
	}
	var list []pid.ID
	seen := make(map[int]bool)
	for level := seeds; len(level) > 0; {
		var next []pid.ID
		for _, id := range level {
			if seen[id.PID] || spared[id.PID] {
				continue
			}
			seen[id.PID] = true
			list = append(list, id)
			var children []pid.ID
			for _, c := range below[id.PID] {
				if child, err := pid.Of(c); err == nil && child.Start >= id.Start && look(c).parent == id.PID && !pid.Forbidden(c) {
					children = append(children, child)
				}
			}
			// The number may have changed hands since the list was made.
			if alive, err := id.Alive(); alive && err == nil {
				next = append(next, children...)
			}
		}
		level = next
	}
	return list, nil
}
