package engine

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"
)

// touchedAtOnce is how many bytes of weights one thread brings into memory before it takes the next piece: whole huge pages.
const touchedAtOnce = 8 << 20

// Touch brings all weights into memory: the system is told that they will be needed, then several threads read a byte of
// every page. Afterwards a forward pass waits for no disk and causes no page fault on a weight, unless the system is short of
// memory. Threads less than 1 means 1.
//
// Where the system offers huge pages and memory is plenty, weights that products read are moved from the mapping of their
// file to huge pages of the process's own, at the same addresses: reading them from memory is faster by a tenth, because a
// processor that streams weights otherwise waits for the translation of every 4 KiB. Readers see the same bytes all along.
func (m *Model) Touch(threads int) {
	move := m.owned && hugePagesFor(m.info.Bytes)
	var next atomic.Int64
	var sum atomic.Uint32 // keeps the reads from being optimised away
	var group sync.WaitGroup
	pieces := m.pieces(move)
	for range max(threads, 1) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(pieces)); i = next.Add(1) - 1 {
				if p := pieces[i]; !p.move || !moveToHugePages(p.bytes) {
					sum.Add(uint32(touch(p.bytes)))
				}
			}
		})
	}
	group.Wait()
}

// piece is a part of the weights that one thread brings into memory at a time.
type piece struct {
	bytes []byte
	move  bool // to huge pages
}

// pieces divides the weights. Those to be moved begin and end at bounds of huge pages, and may be of several tensors that
// lie side by side.
func (m *Model) pieces(move bool) []piece {
	var out []piece
	add := func(b []byte, move bool) {
		for ; len(b) > 0; b = b[min(touchedAtOnce, len(b)):] {
			out = append(out, piece{b[:min(touchedAtOnce, len(b))], move})
		}
	}
	var run []byte // weights without a gap of a page
	flush := func() {
		head := min(toBound(run, hugePage), len(run))
		whole := (len(run) - head) / hugePage * hugePage
		if !move {
			whole = 0
		}
		add(run[:head], false)
		add(run[head:head+whole], true)
		add(run[head+whole:], false)
		run = nil
	}
	_, untied := m.file.Tensor("output.weight")
	for _, t := range m.file.Tensors {
		willNeed(t.Data)
		if t.Name == "per_layer_token_embd.weight" || t.Name == "token_embd.weight" && untied {
			add(t.Data, false) // only rows of them are read
			continue
		}
		if gap := distance(run, t.Data); !move || gap < 0 || gap >= os.Getpagesize() {
			flush()
			run = t.Data
		} else {
			run = unsafe.Slice(unsafe.SliceData(run), len(run)+gap+len(t.Data))
		}
	}
	flush()
	return out
}

// distance is the number of bytes between the end of a and b, -1 if there is no a or b does not follow.
func distance(a, b []byte) int {
	end, start := uintptr(unsafe.Pointer(unsafe.SliceData(a)))+uintptr(len(a)), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(a) == 0 || start < end || start-end > 1<<30 {
		return -1
	}
	return int(start - end)
}

// toBound is how far b begins from the next address that is a multiple of size, a power of two.
func toBound(b []byte, size int) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(size-1))
}

// touch reads a byte of every page of b.
func touch(b []byte) byte {
	sum := b[len(b)-1]
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	return sum
}
