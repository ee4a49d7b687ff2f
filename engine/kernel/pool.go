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
	workers []*worker // workers 1..Threads()-1
	job     job
	busy    atomic.Int32 // workers that have not finished the current job
	caller  sleeper      // waits for busy to become zero
	closed  atomic.Bool

	product   product
	attention attention
	whole     wholeAttention
	flash     flash
	scratch   []scratch // one per worker
}

// job is a loop in progress. Every worker has a share of neighbouring indices, so that what a kernel fetches in advance of
// one it needs for the next; whoever is done with its share takes from the others'.
type job struct {
	f      func(worker, i int)
	shares []share // one per worker
}

// share is a run of indices, handed out one at a time.
type share struct {
	next atomic.Int64
	end  int64
	_    [112]byte // keeps shares in different cache lines, and in different pairs of lines
}

// worker is one goroutine of a pool.
type worker struct {
	sleeper
	id     int
	ticket atomic.Uint32 // raised by one for each job
	_      [64]byte      // keeps tickets of different workers in different cache lines
}

// NewPool starts a pool of the given number of workers, the caller included; less than one means one per processor.
// Close it to end its goroutines.
func NewPool(threads int) *Pool {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := &Pool{kernels: &active, scratch: make([]scratch, threads), caller: newSleeper()}
	p.job.shares = make([]share, threads)
	p.product.init(p)
	p.attention.init(p)
	p.whole.init(p)
	p.flash.init(p)
	for id := 1; id < threads; id++ {
		w := &worker{sleeper: newSleeper(), id: id}
		p.workers = append(p.workers, w)
		go p.work(w)
	}
	return p
}

// Threads returns the number of workers, the calling goroutine included.
func (p *Pool) Threads() int { return len(p.scratch) }

// SumsDependOnBatch reports whether the result of a row depends on how many rows are computed with it, as in upstream.
func (p *Pool) SumsDependOnBatch() bool { return p.kernels.singles }

// Close ends the workers. The pool must be idle, and must not be used again.
func (p *Pool) Close() {
	if p.closed.Swap(true) {
		return
	}
	p.release()
}

// Run calls f(worker, i) once for every i in [0, n), spread over the workers, and returns when all calls have. worker is
// in [0, Threads()); calls with the same worker never overlap. f must not call Run. A panic of f in the calling goroutine
// passes on when the other workers are done; in another it ends the process, as any panic that nobody recovers from.
func (p *Pool) Run(n int, f func(worker, i int)) {
	if p.closed.Load() {
		panic("kernel: Run of a closed Pool")
	}
	if n <= 1 || len(p.workers) == 0 {
		for i := range n {
			f(0, i)
		}
		return
	}
	p.job.f = f
	for w := range p.job.shares {
		s := &p.job.shares[w]
		s.next.Store(int64(w * n / p.Threads()))
		s.end = int64((w + 1) * n / p.Threads())
	}
	p.busy.Store(int32(len(p.workers)))
	p.release()
	defer p.finish()
	p.job.run(0)
}

// finish waits until the other workers are done with the job.
func (p *Pool) finish() {
	p.caller.await(func() bool { return p.busy.Load() == 0 })
	p.job.f = nil
}

// release raises every worker's ticket and wakes those that sleep.
func (p *Pool) release() {
	for _, w := range p.workers {
		w.ticket.Add(1)
		w.notify()
	}
}

func (j *job) run(worker int) {
	for k := range j.shares {
		s := &j.shares[(worker+k)%len(j.shares)]
		for i := s.next.Add(1) - 1; i < s.end; i = s.next.Add(1) - 1 {
			j.f(worker, int(i))
		}
	}
}

func (p *Pool) work(w *worker) {
	for seen := uint32(0); ; seen++ {
		w.await(func() bool { return w.ticket.Load() != seen })
		if p.closed.Load() {
			return
		}
		p.job.run(w.id)
		if p.busy.Add(-1) == 0 {
			p.caller.notify()
		}
	}
}

// sleeper lets one goroutine wait for a condition: it watches for a while, because what it waits for usually follows
// within microseconds, then parks, so that an idle engine costs no CPU and a loaded machine goes on.
type sleeper struct {
	parked atomic.Bool
	wake   chan struct{}
}

// spins is how often a sleeper looks before it parks: some tens of microseconds.
const spins = 2000

func newSleeper() sleeper { return sleeper{wake: make(chan struct{}, 1)} }

// await returns when ready is true. Whoever makes it true calls notify afterwards.
func (s *sleeper) await(ready func() bool) {
	for range spins {
		if ready() {
			return
		}
		pause()
	}
	for !ready() {
		s.parked.Store(true)
		// The other side either sees parked and wakes us, or made ready true early enough to be seen here.
		if ready() && s.parked.Swap(false) {
			return
		}
		<-s.wake
	}
}

func (s *sleeper) notify() {
	if s.parked.Swap(false) {
		s.wake <- struct{}{}
	}
}
