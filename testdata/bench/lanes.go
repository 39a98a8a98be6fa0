//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fanout is a repository with a run of agent-fanout.
type fanout struct {
	dir, repo string
	env       []string
}

func newFanout(b *bench, name string, files int) *fanout {
	f := &fanout{dir: filepath.Join(b.dir, name)}
	f.repo = filepath.Join(f.dir, "repo")
	must(os.MkdirAll(filepath.Join(f.dir, "home"), 0o700))
	f.env = append(os.Environ(), "HOME="+filepath.Join(f.dir, "home"), "AGENT_FANOUT_STATE_HOME="+filepath.Join(f.dir, "state"), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=b", "GIT_AUTHOR_EMAIL=b@example.com", "GIT_COMMITTER_NAME=b", "GIT_COMMITTER_EMAIL=b@example.com")
	for i := range files {
		name := filepath.Join(f.repo, "d"+strconv.Itoa(i/100), "f"+strconv.Itoa(i))
		must(os.MkdirAll(filepath.Dir(name), 0o755))
		must(os.WriteFile(name, bytes.Repeat([]byte("a line of text\n"), 50), 0o644))
	}
	f.do("git", "init", "-q", "-b", "main")
	f.do("git", "add", ".")
	f.do("git", "commit", "-q", "-m", "first")
	must(os.WriteFile(filepath.Join(f.dir, "brief"), []byte("brief\n"), 0o644))
	f.do("agent-fanout", "init", "--sid", "r")
	return f
}

// do runs a command and returns how long it took.
func (f *fanout) do(name string, args ...string) time.Duration {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = f.repo, f.env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		fatal(fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String()))
	}
	return time.Since(start)
}

func (f *fanout) lane(phase, file string) string {
	found, err := filepath.Glob(filepath.Join(f.dir, "state/runs/*/r/lanes", phase))
	if err != nil || len(found) != 1 {
		fatal(fmt.Errorf("lane %s: %v", phase, found))
	}
	return filepath.Join(found[0], file)
}

// lanes measures agent-fanout: start, the way from a lane's end to a waiter,
// status of a large run, and many lanes made at once.
func lanes(b *bench) {
	if !has("agent-fanout") || !has("git") {
		return
	}
	f := newFanout(b, "lanes", 20)
	var starts, ends []time.Duration
	n := min(b.n, 30)
	for i := range n {
		phase := "p" + strconv.Itoa(i)
		f.do("agent-fanout", "add-lane", "--run", "r", "--phase", phase)
		hold := filepath.Join(f.dir, "go"+strconv.Itoa(i))
		starts = append(starts, f.do("agent-fanout", "start", "--run", "r", "--phase", phase, "--brief", filepath.Join(f.dir, "brief"), "--runner", "command", "--",
			"sh", "-c", "until [ -e "+hold+" ]; do sleep 0.005; done"))
		done := make(chan time.Time, 1)
		go func() {
			f.do("agent-fanout", "wait", "--run", "r", "--phase", phase)
			done <- time.Now()
		}()
		time.Sleep(100 * time.Millisecond)
		must(os.WriteFile(hold, nil, 0o600))
		at := <-done
		fi, err := os.Stat(f.lane(phase, "status"))
		must(err)
		ends = append(ends, at.Sub(fi.ModTime()))
	}
	b.add("agent-fanout start, median", 80, ms(median(starts)), "ms", fmt.Sprintf("95 %%: %.3g", ms(quantile(starts, 0.95))))
	b.add("a lane's end to the answer of wait, median", 100, ms(median(ends)), "ms", fmt.Sprintf("95 %%: %.3g", ms(quantile(ends, 0.95))))

	for i := n; i < 100; i++ {
		// A lane is a directory of values: copies are as good for a reader.
		from, to := f.lane("p0", ""), filepath.Join(filepath.Dir(filepath.Clean(f.lane("p0", ""))), "q"+strconv.Itoa(i))
		must(exec.Command("cp", "-r", filepath.Clean(from), to).Run())
	}
	var looks []time.Duration
	for range n {
		looks = append(looks, f.do("agent-fanout", "status", "--run", "r", "--json"))
	}
	b.add("agent-fanout status of 100 lanes, median", 40, ms(median(looks)), "ms", "--json")

	// Bare git first, then ours, on equal repositories.
	const many = 24
	bare, ours := newFanout(b, "bare", 300), newFanout(b, "ours", 300)
	var lock sync.Mutex
	alone := together(many, func(i int) {
		lock.Lock()
		defer lock.Unlock()
		bare.do("git", "worktree", "add", "-q", "--no-track", "-b", "b"+strconv.Itoa(i), filepath.Join(bare.dir, "w"+strconv.Itoa(i)), "main")
	})
	all := together(many, func(i int) { ours.do("agent-fanout", "add-lane", "--run", "r", "--phase", "p"+strconv.Itoa(i)) })
	b.add("24 add-lane at once, as a multiple of 24 git worktree add under one lock", 1.3, float64(all)/float64(alone), "x", fmt.Sprintf("%.3g s and %.3g s, 300 files", all.Seconds(), alone.Seconds()))
}

// together runs n at once and returns how long all of them took.
func together(n int, one func(int)) time.Duration {
	start := time.Now()
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { one(i) })
	}
	wait.Wait()
	return time.Since(start)
}
