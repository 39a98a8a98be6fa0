package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a tmpfs of n bytes.
func smallDisk(t *testing.T, n string) string {
	t.Helper()
	dir := tempDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+n); err != nil {
		t.Skipf("a small file system cannot be mounted without privilege: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	must(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "256k")
	name := filepath.Join(dir, "state")
	must(t, Replace(name, []byte("old"), 0o600))
	reserved, err := os.Create(filepath.Join(dir, "reserved"))
	must(t, err)
	defer reserved.Close()
	must(t, Reserve(reserved, 8<<10))
	if fi, _ := reserved.Stat(); fi.Size() != 0 {
		t.Errorf("reserving made it %d bytes long", fi.Size())
	}
	fill(t, dir)
	if err := Replace(name, content(1), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("replace: %v", err)
	}
	if err := Write(name+"2", content(1), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	if read(t, name) != "old" || len(names(t, dir)) != 3 {
		t.Errorf("left behind: %q", names(t, dir))
	}
	if _, err := reserved.Write(make([]byte, 8<<10)); err != nil {
		t.Errorf("reserved space is gone: %v", err)
	}
	if err := Reserve(reserved, 1<<20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("reserve more than there is: %v", err)
	}
}

func TestPublishAcrossFileSystems(t *testing.T) {
	dir := smallDisk(t, "256k")
	temp := filepath.Join(tempDir(t), "temp")
	must(t, os.WriteFile(temp, []byte("x"), 0o600))
	err := Publish(temp, filepath.Join(dir, "name"))
	if !errors.Is(err, unix.EXDEV) || errors.Is(err, ErrExists) || errors.Is(err, ErrUnsupported) {
		t.Errorf("error %v", err)
	}
	if len(names(t, dir)) != 0 || read(t, temp) != "x" {
		t.Error("something moved")
	}
}

// TestLockInFlight: the supervisor sends its locked descriptor to the keeper,
// which does not read it; the lock must live until both are gone.
func TestLockInFlight(t *testing.T) {
	name := filepath.Join(tempDir(t), "lock")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(pair[0])
	l, err := TryLock(name)
	must(t, err)
	must(t, unix.Sendmsg(pair[1], []byte("lock"), unix.UnixRights(int(l.File().Fd())), nil, 0))
	must(t, l.Close())
	must(t, unix.Close(pair[1]))
	if !held(t, name) {
		t.Fatal("the lock died with its sender")
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 16), oob, unix.MSG_CMSG_CLOEXEC)
	must(t, err)
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	must(t, err)
	fds, err := unix.ParseUnixRights(&msgs[0])
	must(t, err)
	adopted := AdoptLock(os.NewFile(uintptr(fds[0]), name))
	if !held(t, name) {
		t.Error("not held by its receiver")
	}
	must(t, adopted.Unlock())
	if held(t, name) {
		t.Error("held after Unlock")
	}
}

func TestLease(t *testing.T) {
	name := filepath.Join(tempDir(t), "empty")
	must(t, os.WriteFile(name, nil, 0o600))

	w, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	if _, err := TakeLease(name); !errors.Is(err, ErrLocked) {
		t.Errorf("open for writing: %v", err)
	}
	must(t, w.Truncate(4096))
	mapped, err := unix.Mmap(int(w.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	must(t, w.Close())
	var fs unix.Statfs_t
	must(t, unix.Statfs(name, &fs))
	if fs.Type != unix.OVERLAYFS_SUPER_MAGIC { // which does not see who only maps
		if _, err := TakeLease(name); !errors.Is(err, ErrLocked) {
			t.Errorf("mapped for writing: %v", err)
		}
	}
	must(t, unix.Munmap(mapped))

	r, err := os.Open(name)
	must(t, err)
	defer r.Close()
	l, err := TakeLease(name)
	must(t, err)
	if !l.Intact() {
		t.Error("not intact")
	}
	if _, err := ReadRegular(name, 1<<20); err != nil {
		t.Errorf("a reader is disturbed: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		w, err := os.OpenFile(name, os.O_WRONLY, 0) // waits
		if err != nil {
			t.Error(err)
			return
		}
		w.Close()
	})
	until(t, "a writer breaks the lease", func() bool { return !l.Intact() })
	must(t, l.Close())
	wg.Wait()
	if _, err := TakeLease(name + "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}
