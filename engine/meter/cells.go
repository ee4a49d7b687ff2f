package meter

import "math/bits"

// cellSet is a set of cells of a cache.
type cellSet []uint64

// ForgetCells empties the set that SeeCells adds to.
func (m *Meter) ForgetCells() { clear(m.cells) }

// SeeCells adds the cells [from, to) to what the call in progress has seen.
func (m *Meter) SeeCells(from, to int) {
	if from >= to {
		return
	}
	if need := (to + 63) / 64; need > len(m.cells) {
		m.cells = append(m.cells, make(cellSet, need-len(m.cells))...)
	}
	m.cells.add(from, to)
}

// CellsSeen is the number of different cells seen since ForgetCells.
func (m *Meter) CellsSeen() int {
	n := 0
	for _, w := range m.cells {
		n += bits.OnesCount64(w)
	}
	return n
}

func (s cellSet) add(from, to int) {
	first, last := from/64, (to-1)/64
	head, tail := ^uint64(0)<<(from%64), ^uint64(0)>>(63-(to-1)%64)
	if first == last {
		s[first] |= head & tail
		return
	}
	s[first] |= head
	for i := first + 1; i < last; i++ {
		s[i] = ^uint64(0)
	}
	s[last] |= tail
}
