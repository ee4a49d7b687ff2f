// Package limits measures what a machine can do at most: how fast all threads together read memory, and how many float32
// operations they do when nothing has to be waited for. A kernel's figures mean something beside these.
//
// The figures are of the moment: on a machine that others use too they are what was left over.
package limits

import (
	"runtime"
	"sync"
	"time"
)

//go:generate go run ./asm -out limits_amd64.s -stubs stubs_amd64.go -pkg limits

// Limits are the best of several short runs.
type Limits struct {
	Threads     int     `json:"threads"`
	Loops       string  `json:"loops"`            // what was measured with: "generic", "avx2" or "avx512"
	ReadBytes   float64 `json:"read_bytes_per_s"` // from memory, by all threads
	MultiplyAdd float64 `json:"f32_ops_per_s"`    // a multiply-add counts as two, by all threads
}

// loops are the inner loops of one instruction set.
type loops struct {
	name        string
	read        func(b []byte) byte // len(b) is a multiple of 256
	multiplyAdd func(rounds int)
	operations  int // of a round
}

const (
	bytesEach = 128 << 20 // read by each thread in a run: several times what caches hold
	runs      = 5
	rounds    = 4_000_000
)

// Measure takes about a second and 128 MiB of memory a thread. Less than one thread means one per processor.
func Measure(threads int) Limits {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	l := best()
	out := Limits{Threads: threads, Loops: l.name}
	out.MultiplyAdd = fastest(threads, float64(l.operations*rounds), func(int) { l.multiplyAdd(rounds) })
	buffers := make([][]byte, threads)
	for i := range buffers {
		buffers[i] = make([]byte, bytesEach)
	}
	together(threads, func(i int) { // untouched pages all lie in the same place
		for at := range buffers[i] {
			buffers[i][at] = byte(at)
		}
	})
	out.ReadBytes = fastest(threads, bytesEach, func(i int) { l.read(buffers[i]) })
	return out
}

// fastest is the greatest rate of several runs, in each of which every thread does the given amount.
func fastest(threads int, amount float64, f func(thread int)) float64 {
	var rate float64
	for range runs {
		start := time.Now()
		together(threads, f)
		rate = max(rate, amount*float64(threads)/time.Since(start).Seconds())
	}
	return rate
}

func together(threads int, f func(thread int)) {
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() { f(i) })
	}
	group.Wait()
}
