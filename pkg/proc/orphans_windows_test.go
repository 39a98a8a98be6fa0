package proc

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/prun-suite/prun/pkg/pid"
)

func TestOrphansBearTheMark(t *testing.T) {
	dir := sharedDir(t)
	file, mark := filepath.Join(dir, "ids"), filepath.Join(dir, "a stäte dir")
	g, err := Start(Spec{Path: self(), Args: []string{"family", file, "3"}, Env: append(helperEnv("family"), "PRUN_STATE_DIR="+mark)})
	if err != nil {
		t.Fatal(err)
	}
	<-g.Done()
	kid := read(t, file+".child")
	if p := g.End(EndOptions{Keep: true}); p.Empty {
		t.Errorf("%+v", p)
	}
	found, err := Orphans(mark)
	if err != nil || !slices.Equal(found, []pid.ID{kid}) {
		t.Errorf("%v, %v; want %v", found, err, kid)
	}
	if found, err := Orphans(mark + "x"); err != nil || len(found) > 0 {
		t.Errorf("of another mark: %v, %v", found, err)
	}
	if found, err := Find(Traces{Marks: []string{mark}, Spare: func(p int) bool { return p == kid.PID }}); err != nil || len(found) > 0 {
		t.Errorf("spared: %v, %v", found, err)
	}
	kid.Signal(syscall.SIGKILL)
	dead(t, kid)
	if found, err := Orphans(mark); err != nil || len(found) > 0 {
		t.Errorf("of the dead: %v, %v", found, err)
	}
}
