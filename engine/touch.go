package engine

import (
	"os"
	"sync"
	"sync/atomic"
)

// touchedAtOnce is how much of a tensor one thread touches before it takes the next piece.
const touchedAtOnce = 4 << 20

// Touch brings all weights into memory: the system is told that they will be needed, then several threads read a byte of
// every page. Afterwards a forward pass waits for no disk and causes no page fault on a weight, unless the system is short of
// memory. Threads less than 1 means as many as contexts get.
func (m *Model) Touch(threads int) {
	if threads < 1 {
		threads = max(m.options.Threads, 1)
	}
	var pieces [][]byte
	for _, t := range m.file.Tensors {
		willNeed(t.Data)
		for b := t.Data; len(b) > 0; b = b[min(touchedAtOnce, len(b)):] {
			pieces = append(pieces, b[:min(touchedAtOnce, len(b))])
		}
	}
	var next atomic.Int64
	var sum atomic.Uint32 // keeps the reads from being optimised away
	var group sync.WaitGroup
	for range threads {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(pieces)); i = next.Add(1) - 1 {
				sum.Add(uint32(touch(pieces[i])))
			}
		})
	}
	group.Wait()
}

// touch reads a byte of every page of b.
func touch(b []byte) byte {
	sum := b[len(b)-1]
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	return sum
}
