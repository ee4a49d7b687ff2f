package kernel

import (
	"runtime"
	"sync/atomic"
)

// Pool is a set of persistent workers that run loops. The goroutine that calls Run is worker 0. A Pool serves one caller
// at a time.
//
// Products and attention keep their scratch memory in the pool, one set per worker, so that a call in steady state
// allocates nothing.
type Pool struct {
	kernels *kernels
	workers []*worker // of workers 1..Threads()-1
	job     job
	busy    atomic.Int32 // workers that have not finished the current job
	closed  atomic.Bool

	product   product
	attention attention
	scratch   []scratch // one per worker
}

// job is a loop in progress: indices are handed out one at a time.
type job struct {
	f    func(worker, i int)
	n    int64
	next atomic.Int64
}

// worker is one goroutine. It watches its ticket for a while after each job, because the next one usually follows within
// microseconds, then parks on its channel so that an idle engine costs no CPU.
type worker struct {
	id     int
	ticket atomic.Uint32 // raised by one for each job
	parked atomic.Bool
	wake   chan struct{}
	_      [64]byte // keeps tickets of different workers in different cache lines
}

// spins is how often a worker looks for the next job before it parks: some tens of microseconds.
const spins = 4000

// NewPool starts a pool of the given number of workers, the caller included; less than one means one per processor.
// Close it to end its goroutines.
func NewPool(threads int) *Pool {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := &Pool{kernels: &active, scratch: make([]scratch, threads)}
	p.product.init(p)
	p.attention.init(p)
	for id := 1; id < threads; id++ {
		w := &worker{id: id, wake: make(chan struct{}, 1)}
		p.workers = append(p.workers, w)
		go p.work(w)
	}
	return p
}

// Threads returns the number of workers, the calling goroutine included.
func (p *Pool) Threads() int { return len(p.scratch) }

// Close ends the workers. The pool must be idle, and must not be used again.
func (p *Pool) Close() {
	if p.closed.Swap(true) {
		return
	}
	p.release()
}

// Run calls f(worker, i) once for every i in [0, n), spread over the workers, and returns when all calls have. worker is
// in [0, Threads()); calls with the same worker never overlap. f must not call Run.
func (p *Pool) Run(n int, f func(worker, i int)) {
	if n <= 1 || len(p.workers) == 0 {
		for i := range n {
			f(0, i)
		}
		return
	}
	p.job.f, p.job.n = f, int64(n)
	p.job.next.Store(0)
	p.busy.Store(int32(len(p.workers)))
	p.release()
	p.job.run(0)
	for i := 0; p.busy.Load() > 0; i++ {
		if i > spins {
			runtime.Gosched()
		}
	}
	p.job.f = nil
}

// release raises every worker's ticket and wakes those that sleep.
func (p *Pool) release() {
	for _, w := range p.workers {
		w.ticket.Add(1)
		if w.parked.Swap(false) {
			w.wake <- struct{}{}
		}
	}
}

func (j *job) run(worker int) {
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.f(worker, int(i))
	}
}

func (p *Pool) work(w *worker) {
	var seen uint32
	for {
		w.await(seen)
		seen++
		if p.closed.Load() {
			return
		}
		p.job.run(w.id)
		p.busy.Add(-1)
	}
}

// await returns when the ticket has moved on from seen. A worker that parks looks once more after announcing it: whoever
// raises the ticket either sees the announcement and wakes it, or raised early enough to be seen here.
func (w *worker) await(seen uint32) {
	for range spins {
		if w.ticket.Load() != seen {
			return
		}
	}
	for w.ticket.Load() == seen {
		w.parked.Store(true)
		if w.ticket.Load() != seen && w.parked.Swap(false) {
			return
		}
		<-w.wake
	}
}
