package slots

import (
	"fmt"
	"testing"
)

// BenchmarkLook is one look of a caller that waits behind others; it takes one about once
// a second.
func BenchmarkLook(b *testing.B) {
	for _, waiting := range []int{5, 40, 1000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			p, err := Open(scratch(b))
			if err != nil {
				b.Fatal(err)
			}
			for i := range 5 {
				s, err := p.Join(b.Context(), Request{Dir: fmt.Sprint(i)})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Release()
			}
			var last *caller
			for range waiting {
				last = &caller{pool: p, request: Request{Limit: 5}}
				defer last.leave()
				if s, _, err := last.enter(b.Context(), true); s != nil || err != nil {
					b.Fatal(s, err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				v, err := p.look()
				if err != nil {
					b.Fatal(err)
				}
				if pos, may := last.judge(v); may || pos.Running != 5 || pos.Ahead != waiting-1 {
					b.Fatal(pos, may)
				}
			}
		})
	}
}
