package kernel

import (
	"runtime"
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

func TestPoolPassesAPanicOnWhenAllCallsHaveReturned(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var begun, done atomic.Int32
	panicking := make(chan struct{})
	func() {
		defer func() {
			if r := recover(); r != "mistake" {
				t.Errorf("recovered %v", r)
			}
		}()
		p.Run(30, func(worker, _ int) {
			if worker == 0 {
				close(panicking)
				panic("mistake")
			}
			begun.Add(1)
			<-panicking
			time.Sleep(time.Millisecond)
			done.Add(1)
		})
	}()
	if b, d := begun.Load(), done.Load(); b != d || d != 29 {
		t.Errorf("of 29 other calls %d had begun and %d had returned", b, d)
	}
	var sum atomic.Int32
	p.Run(10, func(_, i int) { sum.Add(int32(i)) })
	if sum.Load() != 45 {
		t.Errorf("indices of the next run add up to %d, want 45", sum.Load())
	}
}

func TestClosedPoolDoesNotRun(t *testing.T) {
	for _, n := range []int{1, 10} {
		p := NewPool(2)
		p.Close()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d calls: no panic", n)
				}
			}()
			p.Run(n, func(int, int) {})
		}()
	}
}

func TestCloseEndsTheWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	p := NewPool(8)
	p.Run(8, func(int, int) {})
	p.Close()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
