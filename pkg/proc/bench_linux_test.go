package proc

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// The whole overhead of a worker that does nothing.
func BenchmarkInstantWorker(b *testing.B) {
	for _, kind := range []Containment{Subreaper, Cgroup} {
		b.Run(string(kind), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				s := Spec{Path: "/bin/true"}
				if kind == Cgroup {
					l, err := NewLeaf(fmt.Sprintf("prun-leaf-bench-%d-%d", os.Getpid(), n))
					if err != nil {
						b.Skipf("needs a cgroup: %v", err)
					}
					s.Leaf = l
				}
				g, err := Start(s)
				if err != nil {
					b.Fatal(err)
				}
				<-g.Done()
				if p := g.End(EndOptions{}); !p.Empty || p.Leftovers != 0 || p.Containment != kind {
					b.Fatalf("%+v", p)
				}
			}
		})
	}
}

func BenchmarkRun(b *testing.B) {
	for b.Loop() {
		if _, err := Run(b.Context(), RunSpec{Path: "/bin/true"}); err != nil {
			b.Fatal(err)
		}
	}
}

// From the call of End to the proof, for a thousand processes that live.
func BenchmarkEndThousand(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: bounds the tree with a pids cgroup")
	}
	for name, script := range map[string]string{
		"flat":     `i=0; while [ $i -lt 1000 ]; do sleep 1000 & i=$((i+1)); done; >$READY; wait`,
		"sessions": `i=0; while [ $i -lt 1000 ]; do (setsid sleep 1000 &); i=$((i+1)); done; >$READY; wait; sleep 1000`,
	} {
		for _, w := range []way{{"subreaper", 0, false}, {"cgroup", 0, true}} {
			b.Run(name+"/"+w.name, func(b *testing.B) {
				if w.leaf && !canLeaf() {
					b.Skip("needs a cgroup")
				}
				limit := limited(b, 1500)
				var took time.Duration
				n := 0
				for b.Loop() {
					r := carry(b, w, plan{Ready: true, Script: script}, limit)
					if !r.Proof.Empty || r.Proof.Leftovers < 990 {
						b.Fatalf("%+v", r.Proof)
					}
					took += r.EndTook
					n++
				}
				b.ReportMetric(float64(took.Microseconds())/float64(n)/1000, "ms-to-proof")
			})
		}
	}
}
