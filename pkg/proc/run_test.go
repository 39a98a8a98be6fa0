package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

var _ = helper("talk", func(args []string) int {
	// Says something on both streams, reads its input, ends with a code.
	in, _ := io.ReadAll(os.Stdin)
	fmt.Printf("out %s [%s] %s", strings.Join(args, ","), in, os.Getenv("GREETING"))
	fmt.Fprint(os.Stderr, "err")
	return 7
})

func TestRun(t *testing.T) {
	r, err := Run(t.Context(), RunSpec{
		Path: self(), Args: []string{"talk", "a b", `c"d`, ""},
		Env: helperEnv("talk", "GREETING=hello"), Stdin: strings.NewReader("input"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.Stdout), `out a b,c"d, [input] hello`; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if string(r.Stderr) != "err" || r.Exit != (Exit{Code: 7}) || r.Truncated || r.TimedOut || r.Remaining != nil {
		t.Errorf("%+v", r)
	}
	r, err = Run(t.Context(), RunSpec{Path: self(), Env: helperEnv("talk")})
	if err != nil || !strings.Contains(string(r.Stdout), "[]") {
		t.Errorf("without input: %q, %v", r.Stdout, err)
	}
}

var _ = helper("flood", func([]string) int {
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	for range 128 {
		os.Stdout.Write(block)
	}
	fmt.Fprint(os.Stderr, "done")
	return 0
})

func TestRunKeepsTheFirstBytes(t *testing.T) {
	r, err := Run(t.Context(), RunSpec{Path: self(), Env: helperEnv("flood"), MaxOutput: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Stdout) != 1000 || !bytes.HasPrefix(r.Stdout, []byte("0123456789abcdef0")) || !r.Truncated || string(r.Stderr) != "done" || r.Exit.Code != 0 {
		t.Errorf("%d bytes, truncated %v, stderr %q, exit %+v", len(r.Stdout), r.Truncated, r.Stderr, r.Exit)
	}
}

var _ = helper("sleepy", func([]string) int {
	fmt.Println("begun")
	time.Sleep(time.Hour)
	return 0
})

func TestRunLimit(t *testing.T) {
	// A loaded machine may need more than a second to start the command.
	for limit := time.Second; ; limit *= 2 {
		begin := time.Now()
		r, err := Run(t.Context(), RunSpec{Path: self(), Env: helperEnv("sleepy"), Limit: limit})
		if err == nil && r.TimedOut && len(r.Stdout) == 0 && limit < 16*time.Second {
			continue
		}
		if err != nil || !r.TimedOut || strings.TrimSpace(string(r.Stdout)) != "begun" || r.Exit.Code != 137 || r.Remaining != nil {
			t.Errorf("%+v, %v", r, err)
		}
		if d := time.Since(begin); d > limit+5*time.Second {
			t.Errorf("limit %v took %v", limit, d)
		}
		return
	}
}

func TestRunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, RunSpec{Path: self(), Env: helperEnv("sleepy")}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := Run(ctx, RunSpec{Path: self(), Env: helperEnv("sleepy")})
	if !errors.Is(err, context.DeadlineExceeded) || r.TimedOut {
		t.Errorf("cancelled while running: %+v, %v", r, err)
	}
}

func TestRunDoesNotWaitForItsInput(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	// A reader that never ends, and a command that never reads.
	r, err := Run(t.Context(), RunSpec{Path: self(), Env: helperEnv("flood"), Stdin: io.MultiReader(read)})
	if err != nil || r.Exit.Code != 0 || r.TimedOut {
		t.Errorf("%+v, %v", r.Exit, err)
	}
}

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{"": ModeAuto, "auto": ModeAuto, "cgroup": ModeCgroup, "subreaper": ModeSubreaper} {
		if m, err := ParseMode(text); err != nil || m != want {
			t.Errorf("ParseMode(%q) = %q, %v", text, m, err)
		}
	}
	if m, err := ParseMode("Cgroup"); err == nil {
		t.Errorf("ParseMode(Cgroup) = %q", m)
	}
}
