package pid

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int{"2": 2, "1234": 1234, "2147483647": 2147483647} {
		if n, err := Parse(text); err != nil || n != want {
			t.Errorf("Parse(%q) = %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "0", "1", "-1", "+5", " 12 ", "12\n", "12abc", "012", "0x10", "1_0", "99999999999999999999", "2147483648", "١٢", strings.Repeat("9", 1<<16)} {
		if n, err := Parse(text); err == nil {
			t.Errorf("Parse(%.30q) = %d, want an error", text, n)
		} else if len(err.Error()) > 200 {
			t.Errorf("Parse(%.30q): error of %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("12")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := Parse(text); err == nil && n <= 1 {
			t.Errorf("Parse(%q) = %d", text, n)
		}
	})
}

func TestSelf(t *testing.T) {
	id := Self()
	if id.PID != os.Getpid() || id.Start == 0 {
		t.Fatalf("Self() = %+v", id)
	}
	if alive, err := id.Alive(); !alive || err != nil {
		t.Errorf("Alive() = %v, %v", alive, err)
	}
	if again, err := Of(os.Getpid()); err != nil || again != id {
		t.Errorf("Of(self) = %+v, %v, want %+v", again, err, id)
	}
	text, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var back ID
	if err := json.Unmarshal(text, &back); err != nil || back != id {
		t.Errorf("through JSON: %s -> %+v, %v", text, back, err)
	}
	if Machine() == "" {
		t.Error("this machine has no name")
	}
}

func TestChildLivesAndDies(t *testing.T) {
	c := living(t)
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if id.Verdict() != Alive {
		t.Errorf("verdict %v, want alive", id.Verdict())
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "killed process is gone", func() bool { return id.Verdict() == Gone })
	c.Wait()
	if id.Verdict() != Gone {
		t.Errorf("verdict after wait %v, want gone", id.Verdict())
	}
	if err := id.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) && !errors.Is(err, ErrMismatch) {
		t.Errorf("signal to the dead: %v", err)
	}
}

// A number whose start time differs is another process: dead for us, and not
// to be signalled (wazuh/wazuh#38733).
func TestDoctoredStart(t *testing.T) {
	c := living(t)
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	doctored := id
	doctored.Start++
	doctored.Inode = 0
	if alive, err := doctored.Alive(); alive || err != nil {
		t.Errorf("Alive() = %v, %v, want gone", alive, err)
	}
	if err := doctored.Signal(syscall.SIGKILL); !errors.Is(err, ErrMismatch) {
		t.Errorf("Signal: %v, want ErrMismatch", err)
	}
	if id.Verdict() != Alive {
		t.Error("the bystander was hit")
	}
}

func TestNothingRecorded(t *testing.T) {
	for _, id := range []ID{{}, {PID: os.Getpid()}, {PID: -1, Start: 1}} {
		if alive, err := id.Alive(); alive || !errors.Is(err, ErrUnknown) {
			t.Errorf("%+v: Alive() = %v, %v, want unknown", id, alive, err)
		}
	}
	if _, err := Of(0); !errors.Is(err, ErrGone) {
		t.Errorf("Of(0): %v", err)
	}
	if _, err := Of(-5); !errors.Is(err, ErrGone) {
		t.Errorf("Of(-5): %v", err)
	}
}

func TestForbidden(t *testing.T) {
	parent := os.Getppid()
	for _, p := range []int{-5, -1, 0, 1, os.Getpid(), parent} {
		if !Forbidden(p) {
			t.Errorf("Forbidden(%d) = false", p)
		}
		id := ID{PID: p, Start: 1, Boot: Boot(), NS: Namespace()}
		if err := id.Signal(0); !errors.Is(err, ErrForbidden) {
			t.Errorf("signal to %d: %v, want ErrForbidden", p, err)
		}
	}
	// A program started by Wine has no parent.
	if parent > 0 && !slices.Contains(Ancestors(), parent) {
		t.Errorf("Ancestors() = %v without the parent %d", Ancestors(), parent)
	}
	c := living(t)
	if Forbidden(c.Process.Pid) {
		t.Error("a child is forbidden")
	}
}
