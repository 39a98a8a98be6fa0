package snapshot

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Sizes beyond 32 bits, from a file that is almost only a hole: the archive is one
// too, and costs no disk.
func TestSparse(t *testing.T) {
	if os.Getenv("PRUN_TEST_LARGE") == "" {
		t.Skip("condition PRUN_TEST_LARGE: reads five gibibytes three times")
	}
	const size = 5 << 30
	tail := write(t, filepath.Join(t.TempDir(), "tail"), []byte("begin"))
	f, err := os.OpenFile(tail, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("end"), size-3)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Take(t.Context(), Request{Tail: tail, Dir: private(t)})
	if err != nil {
		t.Fatal(err)
	}
	if m := s.Manifest; m.BytesCopied != size || m.CaptureOutcome != CompleteRead {
		t.Errorf("%+v", m)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(s.Path, &st); err != nil || st.Blocks > 4096 || st.Size < size {
		t.Errorf("%d blocks for %d bytes, %v", st.Blocks, st.Size, err)
	}
	for program, args := range map[string][]string{
		"unzip": {"-Zl", s.Path},
		"python3": {"-c", `
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
i = z.getinfo("tail.bin")
assert i.file_size == i.compress_size == 5 << 30 and i.flag_bits == 0, i
with z.open(i) as f:
    assert f.read(6) == b"begin\0"
    f.seek((5 << 30) - 4)
    # The library checks the sum only of what it read from the start.
    f._expected_crc = None
    assert f.read() == b"\0end"
`, s.Path},
	} {
		if _, err := exec.LookPath(program); err != nil {
			continue
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
	}
}

// A full disk, at any step: an error of class Archive or Destination, no file.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("condition root: mounts a small file system")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("condition mount: %v", err)
	}
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	for _, free := range []int64{0, 4096, 8192, 100_000, 500_000} {
		fill, err := os.Create(filepath.Join(disk, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(fill, endless{}, 1<<20-free); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		fill.Close()
		tail := write(t, filepath.Join(t.TempDir(), "tail"), bytesOf(2<<20))
		_, err = Take(t.Context(), Request{Tail: tail, Dir: disk, Name: "x.zip"})
		if c := class(err); c != Archive && c != Destination || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d bytes free: %v", free, err)
		}
		if got := entries(t, disk); len(got) != 1 || got[0] != "fill" {
			t.Errorf("%d bytes free: the disk holds %q", free, got)
		}
		os.Remove(fill.Name())
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func bytesOf(n int) []byte {
	b := make([]byte, n)
	endless{}.Read(b)
	return b
}
