package kernel

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestPoolRunsEachIndexOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 7} {
		p := NewPool(threads)
		for round := range 200 {
			n := round % 37
			seen := make([]atomic.Int32, n)
			inUse := make([]atomic.Int32, p.Threads())
			p.Run(n, func(worker, i int) {
				if inUse[worker].Add(1) != 1 {
					t.Error("two calls share a worker")
				}
				seen[i].Add(1)
				inUse[worker].Add(-1)
			})
			for i := range seen {
				if c := seen[i].Load(); c != 1 {
					t.Fatalf("%d threads: index %d of %d ran %d times", threads, i, n, c)
				}
			}
			if round%50 == 0 {
				time.Sleep(2 * time.Millisecond) // let the workers park
			}
		}
		p.Close()
		p.Close()
	}
}

func TestPoolOfNoThreadsUsesAllProcessors(t *testing.T) {
	p := NewPool(0)
	defer p.Close()
	if p.Threads() < 1 {
		t.Errorf("a pool of %d threads", p.Threads())
	}
}

func TestPoolRunAllocatesNothing(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var sum atomic.Int64
	f := func(_, i int) { sum.Add(int64(i)) }
	if a := testing.AllocsPerRun(100, func() { p.Run(10, f) }); a != 0 {
		t.Errorf("%v allocations per run, want 0", a)
	}
}
