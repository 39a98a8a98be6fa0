package proc

import (
	"os"
	"testing"

	"golang.org/x/sys/windows"
)

var _ = helper("window", func([]string) int {
	get := kernel32.NewProc("GetConsoleWindow")
	visible := windows.NewLazySystemDLL("user32.dll").NewProc("IsWindowVisible")
	hwnd, _, _ := get.Call()
	if hwnd == 0 {
		return 10
	}
	if shown, _, _ := visible.Call(hwnd); shown == 0 {
		return 10
	}
	return 11
})

// A worker opens no window, and neither does our own detached process.
func TestNoWindow(t *testing.T) {
	g, err := Start(Spec{Path: self(), Args: []string{"window"}, Env: helperEnv("window")})
	if err != nil {
		t.Fatal(err)
	}
	<-g.Done()
	if p := g.End(EndOptions{}); !p.Empty || g.Exit().Code != 10 {
		t.Errorf("worker: exit %+v, %+v", g.Exit(), p)
	}
	c, err := Detach(DetachSpec{Path: self(), Args: []string{"window"}, Env: helperEnv("window"), NewSession: true, Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Reap()
	if e := c.Await(); e.Code != 10 {
		t.Errorf("detached: exit %+v", e)
	}
}
