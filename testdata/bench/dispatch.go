//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// latency: the worker is date, so that the time in its tail lies after its
// first instruction and before its end; both figures are upper bounds.
func latency(b *bench) {
	var begin, end []time.Duration
	for range b.n {
		u := b.dispatch(nil, nil, "date", "+%s%N")
		at := u.start()
		done, _ := u.wait()
		text, err := os.ReadFile(filepath.Join(u.state(), "tail"))
		if err != nil {
			fatal(err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			fatal(err)
		}
		worker := time.Unix(0, ns)
		begin = append(begin, worker.Sub(at))
		end = append(end, done.Sub(worker))
		os.RemoveAll(u.dir)
	}
	b.add("worker's exit to dispatcher's exit, median", 10, ms(median(end)), "ms", "")
	b.add("worker's exit to dispatcher's exit, p99", 50, ms(quantile(end, 0.99)), "ms", "")
	b.add("prun-dispatch start to worker's first instruction, median", 20, ms(median(begin)), "ms", "")
}

// idle: a unit whose worker sleeps.
func idle(b *bench) {
	u := b.dispatch([]string{"PRUN_STALL_THRESHOLD=0"}, nil, "sh", "-c", "echo ready; exec sleep 3600")
	u.start()
	u.says("ready")
	time.Sleep(2 * time.Second)
	ours := u.ours()
	const span = 10 * time.Second
	woken, used := map[string]float64{}, time.Duration(0)
	for name, p := range ours {
		woken[name] = -switches(p)
		used -= cpu(p)
	}
	time.Sleep(span)
	resident := 0.0
	for name, p := range ours {
		woken[name] += switches(p)
		used += cpu(p)
		resident += status(p, "VmRSS") / 1024
	}
	b.add("idle unit: processor time of ours, part of one core", 0.1, 100*used.Seconds()/span.Seconds(), "%", "")
	b.add("idle unit: wake-ups a second outside the supervisor", 1, (woken["front"]+woken["keeper"])/span.Seconds(), "/s",
		fmt.Sprintf("supervisor's threads %.1f", woken["supervisor"]/span.Seconds()))
	b.add("idle unit: resident memory of ours together", 16, resident, "MiB", "")
	signal(u.cmd.Process.Pid, syscall.SIGTERM)
	u.wait()
}

// peak is the largest resident set of our processes during a run.
func peak(u *unit) float64 {
	high := map[string]float64{}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			for name, p := range u.ours() {
				high[name] = max(high[name], status(p, "VmHWM")/1024)
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	u.wait()
	close(stop)
	watching.Wait()
	sum := 0.0
	for _, v := range high {
		sum += v
	}
	return sum
}

func memory(b *bench) {
	sparse := b.dispatch(nil, nil, "sh", "-c", `truncate -s 4G "$PRUN_STATE_DIR/tail"; sleep 1.5; exit 1`)
	sparse.start()
	b.add("4 GiB tail: resident memory of ours at any moment", 32, peak(sparse), "MiB", "")
	os.RemoveAll(sparse.dir)

	bin := filepath.Join(b.dir, "codex")
	script(bin, `head -c 1073741824 /dev/zero | tr '\0' x; echo; exit 1`)
	long := b.dispatch([]string{"CODEX_BIN=" + bin}, []string{"--backend", "codex"})
	long.start()
	b.add("1 GiB in one line, parsed: resident memory of ours", 32, peak(long), "MiB", "")
	os.RemoveAll(long.dir)

	agy := filepath.Join(b.dir, "agy")
	script(agy, `case "$1" in --version) echo 1.2.0; exit;; models) echo gemini-3.8-flash-high; exit;; esac
cat >/dev/null
printf '{"event":"init","conversation_id":"c-1","init":{}}\n'
printf '{"event":"step_update","step_update":{"tool_info":{"output":"'; head -c 6291456 /dev/zero | tr '\0' x; printf '"}}}\n'
sleep 1.2
printf '{"event":"result","result":{"conversation_id":"c-1","status":"SUCCESS","response":"the answer is long enough to count","usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}\n'`)
	event := b.dispatch([]string{"ANTIGRAVITY_BIN=" + agy, "PRUN_AGY_QUOTA_GATE=off"}, []string{"--backend", "agy"})
	event.start()
	b.add("6 MiB event, parsed: resident memory of ours", 32, peak(event), "MiB", "")
}

func script(name, text string) {
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		fatal(err)
	}
}

// reap: how long a stop takes.
func reap(b *bench) {
	var took []time.Duration
	for range 5 {
		u := b.dispatch(nil, nil, "sh", "-c", "sleep 600 & sleep 600 & echo ready; wait")
		u.start()
		u.says("ready")
		at := time.Now()
		signal(u.cmd.Process.Pid, syscall.SIGTERM)
		done, _ := u.wait()
		took = append(took, done.Sub(at))
	}
	b.add("tree that obeys TERM: asked to gone, median", 300, ms(median(took)), "ms", "")
	for _, mode := range []string{"cgroup", "subreaper"} {
		u := b.dispatch([]string{"PRUN_CONTAINMENT=" + mode}, nil, "sh", "-c",
			`trap '' TERM; i=0; while [ $i -lt 500 ]; do (setsid sh -c 'trap "" TERM; sleep 600' &); i=$((i+1)); done; echo ready; sleep 600 & wait; wait`)
		u.start()
		u.says("ready")
		n := u.alive()
		at := time.Now()
		signal(u.cmd.Process.Pid, syscall.SIGTERM)
		done, _ := u.wait()
		b.add("1,000 processes, setsid and double-forked, TERM ignored: beyond the grace, "+mode, 500,
			ms(done.Sub(at)-2*time.Second), "ms", fmt.Sprintf("%d processes, %d alive afterwards", n, u.alive()))
	}
}

// crowd: many dispatches at once.
func crowd(b *bench) {
	const many = 50
	took := make([]time.Duration, many)
	failed := 0
	units := make([]*unit, many)
	for i := range units {
		units[i] = b.dispatch(nil, nil, "sh", "-c", `sleep 1; echo '# u result' >"$PRUN_RESULT_FILE"`)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, u := range units {
		all.Go(func() {
			at := u.start()
			done, code := u.wait()
			took[i] = done.Sub(at)
			if _, err := os.Stat(u.result); code != 0 || err != nil {
				mu.Lock()
				failed++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	b.add("50 dispatches at once: p95 against the median", 3, float64(quantile(took, 0.95))/float64(median(took)), "x",
		fmt.Sprintf("%d of %d succeeded, median %.0f ms of which the worker sleeps 1000", many-failed, many, ms(median(took))))
}
