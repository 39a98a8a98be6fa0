package result

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"golang.org/x/sys/unix"
)

// Other file systems lack what ext4 has: FAT has no links, FUSE no renaming
// without replacing, overlays and NFS no leases. denyVariable makes the kernel
// answer this process as they do, so that the tests can run there too.
const denyVariable = "PRUN_RESULT_DENY"

func init() {
	if what := os.Getenv(denyVariable); what != "" {
		if err := deny(strings.Split(what, ",")); err != nil {
			fmt.Println("deny:", err)
			os.Exit(99)
		}
	}
}

// deny installs a seccomp filter on all threads.
func deny(what []string) error {
	const argument1, argument2 = 24, 32 // offsets of the low halves in seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	errno := func(e unix.Errno) unix.SockFilter { return answer(unix.SECCOMP_RET_ERRNO | uint32(e)) }
	var prog []unix.SockFilter
	for _, w := range what {
		switch w {
		case "link":
			prog = append(prog, load(0), unless(unix.SYS_LINKAT, 1), errno(unix.EPERM))
		case "noreplace", "exchange":
			flag := uint32(unix.RENAME_NOREPLACE)
			if w == "exchange" {
				flag = unix.RENAME_EXCHANGE
			}
			prog = append(prog, load(0), unless(unix.SYS_RENAMEAT2, 3), load(argument2+2*8), unless(flag, 1), errno(unix.EINVAL))
		case "lease":
			prog = append(prog, load(0), unless(unix.SYS_FCNTL, 3), load(argument1), unless(unix.F_SETLEASE, 1), errno(unix.EINVAL))
		default:
			return fmt.Errorf("unknown: %s", w)
		}
	}
	prog = append(prog, answer(unix.SECCOMP_RET_ALLOW))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if e != 0 {
		return e
	}
	return nil
}

// under runs tests of this binary again, on a system that lacks something.
func under(t *testing.T, what, tests string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^("+tests+")$", "-test.v")
	cmd.Env = append(os.Environ(), denyVariable+"="+what)
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.Mode()&fs.ModeSticky != 0 {
		cmd.Env = append(cmd.Env, "TMPDIR=/dev/shm") // no waiting for a disk
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 99 {
		t.Skipf("seccomp is not available: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("without %s: %v\n%s", what, err, out)
	}
}

func TestOtherFileSystems(t *testing.T) {
	if os.Getenv(denyVariable) != "" {
		return
	}
	const sturdy = "TestPublishLeavesWords|TestPublishForeign|TestPublishMeetsWorker|TestSixConcluders|TestRecoverWords"
	for _, c := range []struct{ what, tests string }{
		{"lease", sturdy + "|TestPublish|TestPublishKilled"},
		{"lease,exchange", sturdy + "|TestPublish|TestPublishKilled"}, // as macOS, Windows
		{"noreplace,exchange", sturdy + "|TestPublish|TestPublishKilled|TestWriterWaits"},
		{"link", "TestPublishLeavesWords|TestPublishForeign|TestPublishMeetsWorker|TestSixConcluders|TestWriterWaits"},
		{"link,exchange,lease", "TestPublishLeavesWords|TestPublishForeign|TestPublishMeetsWorker|TestSixConcluders"},
		{"link,noreplace", "TestPublishUnsupported"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			under(t, c.what, c.tests)
		})
	}
}

// TestPublishUnsupported: neither links nor renames that never replace.
func TestPublishUnsupported(t *testing.T) {
	if os.Getenv(denyVariable) != "link,noreplace" {
		return // run by TestOtherFileSystems
	}
	dir := tempDir(t)
	for _, before := range []string{"<absent>", ""} {
		path := filepath.Join(dir, "r.md")
		if before == "" {
			write(t, path, "")
		}
		was, _ := Inspect(path)
		got, err := Publish(publication(path))
		if !errors.Is(err, atomicfile.ErrUnsupported) || got.Ours || got.Where != filepath.Join(dir, "spare") || read(t, got.Where) != fallback {
			t.Errorf("%+v, %v", got, err)
		}
		if now, _ := Inspect(path); now.Ino != was.Ino || read(t, path) != before {
			t.Errorf("what was there was touched: %s", short(read(t, path)))
		}
		if strings.Contains(names(t, dir), "prun") {
			t.Errorf("left behind: %s", names(t, dir))
		}
	}
}
