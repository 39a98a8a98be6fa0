package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func testLeaf(t *testing.T) *Leaf {
	t.Helper()
	l, err := NewLeaf(fmt.Sprintf("prun-leaf-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Skipf("needs a cgroup: %v", err)
	}
	t.Cleanup(func() {
		l.Kill(time.Second)
		l.Remove()
		l.Close()
	})
	return l
}

// inside starts sleepers in the leaf and in cgroups below it.
func inside(t *testing.T, l *Leaf) []int {
	t.Helper()
	var list []int
	for _, sub := range []string{"", "/a", "/a/b"} {
		if sub != "" {
			if err := os.Mkdir(l.Path()+sub, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		if err := os.WriteFile(l.Path()+sub+"/cgroup.procs", []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
			t.Skipf("needs a cgroup that processes can be moved into: %v", err)
		}
		list = append(list, c.Process.Pid)
	}
	slices.Sort(list)
	return list
}

func TestLeaf(t *testing.T) {
	ways := map[string]func(*Leaf) error{
		"kill": func(l *Leaf) error { return l.Kill(5 * time.Second) },
		// What Kill does before Linux 5.14.
		"freeze": func(l *Leaf) error {
			deadline := time.Now().Add(5 * time.Second)
			for {
				if err := l.killFrozen(deadline); err != nil {
					return err
				}
				if empty, err := l.settle("populated 0", 100*time.Millisecond); empty || err != nil || time.Now().After(deadline) {
					return err
				}
			}
		},
	}
	for name, kill := range ways {
		t.Run(name, func(t *testing.T) {
			l := testLeaf(t)
			if full, err := l.Populated(); full || err != nil {
				t.Errorf("a new leaf: populated %v, %v", full, err)
			}
			want := inside(t, l)
			got, err := l.Members()
			slices.Sort(got)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Members() = %v, %v, want %v", got, err, want)
			}
			if full, err := l.Populated(); !full || err != nil {
				t.Errorf("populated %v, %v", full, err)
			}
			if dir, err := LeafOf(want[0]); err != nil || !l.holds(want[0]) {
				t.Errorf("LeafOf() = %q, %v", dir, err)
			}
			if err := l.Remove(); err == nil || !exists(l.Path()) {
				t.Errorf("a populated leaf was removed: %v", err)
			}
			again, err := OpenLeaf(l.Path(), l.Inode())
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if err := kill(again); err != nil {
				t.Fatal(err)
			}
			if full, err := l.Populated(); full || err != nil {
				t.Errorf("after the kill: populated %v, %v", full, err)
			}
			for range 2 {
				if err := l.Remove(); err != nil || exists(l.Path()) {
					t.Errorf("Remove: %v", err)
				}
			}
			if err := again.Kill(time.Second); err != nil {
				t.Errorf("Kill of a removed leaf: %v", err)
			}
			if full, err := again.Populated(); full || err != nil {
				t.Errorf("a removed leaf: populated %v, %v", full, err)
			}
			if list, err := again.Members(); len(list) > 0 || err != nil {
				t.Errorf("a removed leaf: members %v, %v", list, err)
			}
			if _, err := OpenLeaf(l.Path(), l.Inode()); !errors.Is(err, ErrGone) {
				t.Errorf("OpenLeaf of a removed leaf: %v", err)
			}
		})
	}
}

func TestLeafErrors(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "cgroup.procs", "x\ny"} {
		if l, err := NewLeaf(name); err == nil {
			l.Remove()
			t.Errorf("NewLeaf(%q) succeeded", name)
		}
	}
	l := testLeaf(t)
	if _, err := OpenLeaf(l.Path(), l.Inode()+1); !errors.Is(err, ErrMismatch) {
		t.Errorf("another inode: %v", err)
	}
	if _, err := OpenLeaf(t.TempDir(), 0); !errors.Is(err, ErrMismatch) {
		t.Errorf("no cgroup: %v", err)
	}
	if _, err := NewLeaf(l.Path()[len(l.Path())-len("0"):] + "/x"); err == nil {
		t.Error("a name with a slash")
	}
}

// Making a directory proves nothing: a cgroup is ours when it lists us.
func TestCgroupPaths(t *testing.T) {
	for text, want := range map[string]string{
		"0::/\n":                          "/",
		"8:pids:/x\n0::/user.slice/a b\n": "/user.slice/a b",
		"0::/../x\n":                      "",
		"0::/..\n":                        "",
		"0::/gone (deleted)\n":            "",
		"8:pids:/x\n":                     "",
		"":                                "",
	} {
		if got, ok := unifiedPath(text); got != want || ok != (want != "") {
			t.Errorf("unifiedPath(%q) = %q, %v", text, got, ok)
		}
	}
	mounts := cgroup2Mounts(`31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
41 31 0:38 /a\040b /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw
42 31 0:38 / /mnt/x\134040 rw - cgroup2 none rw
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
short - cgroup2
`)
	if want := []cgroupMount{{"/a b", "/sys/fs/cgroup/unified"}, {"/", `/mnt/x\040`}}; !slices.Equal(mounts, want) {
		t.Errorf("mounts %q, want %q", mounts, want)
	}
	for _, c := range []struct {
		path, root, want string
		ok               bool
	}{{"/a/b", "/", "a/b", true}, {"/a/b", "/a", "b", true}, {"/a", "/a", "", true}, {"/ab", "/a", "", false}, {"/", "/a", "", false}, {"/", "/", "", true}} {
		if got, ok := below(c.path, c.root); ok != c.ok || ok && got != c.want {
			t.Errorf("below(%q, %q) = %q, %v", c.path, c.root, got, ok)
		}
	}
}

func FuzzCgroupPaths(f *testing.F) {
	f.Add("0::/x\n", `41 31 0:38 /a\040b /x rw - cgroup2 cgroup2 rw`)
	f.Fuzz(func(t *testing.T, cgroup, mounts string) {
		unifiedPath(cgroup)
		cgroup2Mounts(mounts)
	})
}

var _ = helper("move", func(args []string) int {
	if err := MoveSelf(args[0]); err != nil {
		fmt.Println(err)
		return 1
	}
	dir, err := LeafOf(os.Getpid())
	fmt.Print(dir, " ", err)
	return 0
})

func TestMoveSelf(t *testing.T) {
	l := testLeaf(t)
	out, err := helperCommand("move", l.Path()).CombinedOutput()
	if err != nil || string(out) != l.Path()+" <nil>" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestOrphans(t *testing.T) {
	mark := t.TempDir()
	c := exec.Command("sleep", "1000")
	c.Env = []string{"A=b", "PRUN_STATE_DIR=" + mark, "C=d"}
	other := exec.Command("sleep", "1000")
	other.Env = []string{"PRUN_STATE_DIR=" + mark + "x", "X=PRUN_STATE_DIR=" + mark}
	for _, c := range []*exec.Cmd{c, other} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { c.Process.Kill(); c.Wait() }()
	}
	ids, err := Orphans(mark)
	if err != nil || len(ids) != 1 || ids[0].PID != c.Process.Pid {
		t.Errorf("Orphans() = %v, %v, want %d", ids, err, c.Process.Pid)
	}
	c.Process.Kill()
	until(t, "none", func() bool { ids, err := Orphans(mark); return len(ids) == 0 && err == nil })
}

func TestChildren(t *testing.T) {
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	list, err := Children()
	if err != nil || !slices.Contains(list, c.Process.Pid) {
		t.Errorf("Children() = %v, %v without %d", list, err, c.Process.Pid)
	}
	slow, err := childrenByParent("self", nil)
	if err != nil || !slices.Contains(slow, c.Process.Pid) {
		t.Errorf("childrenByParent() = %v, %v without %d", slow, err, c.Process.Pid)
	}
}

func TestCloseOnExecAbove(t *testing.T) {
	var leaked []int
	for range 2 {
		fd, err := unix.Open("/", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		leaked = append(leaked, fd)
	}
	flagged := func(fd int) bool {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil && flags&unix.FD_CLOEXEC != 0
	}
	if err := CloseOnExecAbove(leaked[0]); err != nil {
		t.Fatal(err)
	}
	if flagged(leaked[0]) || !flagged(leaked[1]) {
		t.Errorf("flags of %v: %v, %v", leaked, flagged(leaked[0]), flagged(leaked[1]))
	}
	// The way without close_range.
	if err := closeOnExecListed(2, "/proc/self/fd"); err != nil || !flagged(leaked[0]) {
		t.Errorf("%v, flag %v", err, flagged(leaked[0]))
	}
}

func TestPremakeThreads(t *testing.T) {
	count := func() int { list, _ := os.ReadDir("/proc/self/task"); return len(list) }
	PremakeThreads(24)
	if n := count(); n < 24 {
		t.Errorf("%d threads", n)
	}
}
