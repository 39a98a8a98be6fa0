package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prun-suite/prun/pkg/session"
	"github.com/prun-suite/prun/pkg/supervise"
)

// A kill at any step of spawn or send leaves a task that runs, is settled or can be settled by the next verb, a worker
// that is never alone for long, and a session that can be continued.
func TestCrashPoints(t *testing.T) {
	for _, point := range supervise.Points() {
		for _, party := range []string{"S", "F", "K"} {
			if party == "F" && point[0] != 'F' || party == "K" && point[0] != 'K' || party == "S" && (point[0] == 'F' || point[0] == 'K') {
				continue
			}
			t.Run(party+"."+point, func(t *testing.T) {
				t.Parallel()
				b := newBed(t)
				quiet := b.env
				crash := append(b.env[:len(b.env):len(b.env)], "PRUN_CRASH_AT="+party+"."+point)
				b.env = crash
				a := b.run("spawn", "workspace", steps("start\nsay words\nchild-setsid 50\ntext done"), "--name", "c")
				b.env = quiet
				b.empty(10 * time.Second)
				b.ok("list", "--all")
				if !b.exists("c") {
					if a.code == 0 {
						t.Errorf("spawn said %q and there is no task", a.out)
					}
				} else {
					p := b.payload("c")
					if !session.Settled(p["state"].(string)) || !b.exists("c", session.FileDone) {
						t.Errorf("exit %d, %v\n%s", a.code, p, b.describe())
					}
					// At C0 the end has just been seen, and its last words may still be in the pipe that died with its reader.
					if known := point[0] == 'C' && point != "C0"; known && p["state"] != "done" {
						t.Errorf("the worker's end was known: %v", p)
					}
				}
				// The same in a send: what was said before is still there to go on from.
				b.spawn("s", "text first")
				b.settled("s", 10*time.Second)
				b.env = crash
				a = b.run("send", "s", steps("start\nchild-setsid 50\ntext second"))
				b.env = quiet
				b.empty(10 * time.Second)
				b.ok("list", "--all")
				p := b.payload("s")
				if !session.Settled(p["state"].(string)) || p["session_id"] == nil {
					t.Errorf("exit %d, %v\n%s", a.code, p, b.describe())
				}
				b.ok("send", "s", steps("text third"))
				if out := b.ok("result", "s", "--wait", "--exit-status"); out != "third\n" {
					t.Errorf("%q", out)
				}
			})
		}
	}
}

// The verb is killed at a random moment.
func TestVerbKilled(t *testing.T) {
	b := newBed(t)
	for i := range rounds(t, 12) {
		name := fmt.Sprintf("v%d", i)
		cmd := b.command("spawn", "workspace", steps("text done"), "--name", name)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%12) * 2 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		b.until(10*time.Second, name+" is settled or absent", func() bool {
			out := b.run("status", name)
			words := strings.Fields(out.out)
			return out.code == 6 || len(words) > 1 && session.Settled(words[1])
		})
	}
	b.empty(5 * time.Second)
	b.ok("list", "--all")
}
