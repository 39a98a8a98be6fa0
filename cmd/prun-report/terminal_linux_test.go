package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/prun-suite/prun/pkg/line"
)

// terminal opens a pseudo terminal of that width.
func terminal(t *testing.T, columns uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("condition pty: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	control := func(f *os.File, request uintptr, arg unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
			t.Skipf("condition pty: %v", errno)
		}
	}
	var number, locked int32
	control(master, syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(master, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("condition pty: %v", err)
	}
	t.Cleanup(func() { slave.Close() })
	size := [4]uint16{24, columns}
	control(slave, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	return master, slave
}

// On a terminal the table fits, whole ids and all, and is marked with colour.
func TestTerminal(t *testing.T) {
	root := t.TempDir()
	id := strings.Repeat("long-", 12) + "id"
	unit(t, root, id, 7, "x", filepath.Join(root, "none"))
	unit(t, root, "short", 8, "x", filepath.Join(root, "none"))
	marks := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, c := range []struct {
		columns uint16
		environ []string
		colour  bool
		heads   []string
		without string
	}{
		{300, nil, true, []string{"unit", "state", "directory"}, ""},
		{100, nil, true, []string{"unit", "result", "state"}, "directory"},
		{75, []string{"NO_COLOR=1"}, false, []string{"unit", "result"}, "state"},
		{20, []string{"TERM=dumb"}, false, []string{"unit", "result"}, "state"},
		{0, []string{"COLUMNS=300"}, true, []string{"unit", "directory"}, ""},
	} {
		master, slave := terminal(t, c.columns)
		cmd := exec.Command(os.Args[0], "--root", root)
		cmd.Env = append([]string{helperVariable + "=" + fmt.Sprint(os.Getuid()), "TERM=xterm", "GORACE=atexit_sleep_ms=0"}, c.environ...)
		cmd.Stdout = slave
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		var out bytes.Buffer
		io.Copy(&out, master) // ends with EIO when nobody has the other side
		lines := strings.Split(strings.ReplaceAll(out.String(), "\r\n", "\n"), "\n")
		if marked := marks.MatchString(out.String()); marked != c.colour {
			t.Errorf("%d columns, %q: colour %v", c.columns, c.environ, marked)
		}
		head := marks.ReplaceAllString(lines[0], "")
		for _, h := range c.heads {
			if !strings.Contains(head, h) {
				t.Errorf("%d columns: no %s in %q", c.columns, h, head)
			}
		}
		if c.without != "" && strings.Contains(head, c.without) {
			t.Errorf("%d columns: %s in %q", c.columns, c.without, head)
		}
		if !strings.Contains(out.String(), id+" ") || !strings.Contains(out.String(), "promoting any unit is safe.") {
			t.Errorf("%d columns:\n%s", c.columns, out.String())
		}
		for _, l := range lines[:3] {
			if n := line.Width(marks.ReplaceAllString(l, "")); c.columns > 72 && n > int(c.columns) {
				t.Errorf("%d columns: %d in %q", c.columns, n, l)
			}
		}
	}
}
