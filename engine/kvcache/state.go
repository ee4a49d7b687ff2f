package kvcache

import (
	"encoding/binary"
	"fmt"
	"io"
	"unsafe"

	"attnbudget/engine/kernel"
)

// A saved memory is, for every physical cache in the order of Sizes, all integers little endian:
//
//	uint32 used cells, uint32 head; per used cell uint32 index, int32 position, SeqSet; per layer all its K rows, then all
//	its V rows, in the order of the cells
//
// and for the recurrent states
//
//	uint32 sequences; per sequence uint32 id, uint32 slot; uint32 slots; per slot uint32 index, int32 last position; per
//	layer and slot its convolution inputs and its state as float32
//
// What the caches are is not in it: whoever saves must store that beside it, and restore only into the same.

// Save writes everything held.
func (m *Memory) Save(w io.Writer) error {
	for _, c := range m.caches {
		if err := c.save(w); err != nil {
			return err
		}
	}
	if m.states != nil {
		return m.states.save(w)
	}
	return nil
}

// Restore replaces everything held by what Save wrote from caches with the same layers and types. The number of cells and
// sequences may differ if what was held fits. On an error the memory is empty.
func (m *Memory) Restore(r io.Reader) error {
	m.Clear()
	if err := m.restore(r); err != nil {
		m.Clear()
		return err
	}
	return nil
}

func (m *Memory) restore(r io.Reader) error {
	for _, c := range m.caches {
		if err := c.restore(r, m.params.Seqs); err != nil {
			return err
		}
	}
	if m.states != nil {
		return m.states.restore(r, m.params.Seqs)
	}
	return nil
}

// savedCell is one used cell.
type savedCell struct {
	Index uint32
	Pos   int32
	Seqs  SeqSet
}

type savedPair struct {
	A uint32
	B int32
}

func write(w io.Writer, values ...any) error {
	for _, v := range values {
		if err := binary.Write(w, binary.LittleEndian, v); err != nil {
			return err
		}
	}
	return nil
}

func read(r io.Reader, values ...any) error {
	for _, v := range values {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("kvcache: reading a saved state: %w", err)
		}
	}
	return nil
}

func (c *Cache) save(w io.Writer) error {
	var held []savedCell
	for i := range c.cells.high {
		if !c.cells.seqs[i].Empty() {
			held = append(held, savedCell{uint32(i), c.cells.pos[i], c.cells.seqs[i]})
		}
	}
	if err := write(w, uint32(len(held)), uint32(c.cells.head), held); err != nil {
		return err
	}
	for _, s := range c.stores {
		for _, rows := range []kernel.KVRows{s.K, s.V} {
			for _, cell := range held {
				if _, err := w.Write(row(rows, int(cell.Index))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Cache) restore(r io.Reader, seqs int) error {
	var n, head uint32
	if err := read(r, &n, &head); err != nil {
		return err
	}
	size := len(c.cells.pos)
	if int64(n) > int64(size) {
		return fmt.Errorf("kvcache: the saved state holds %d cells, the cache has %d; make the context longer", n, size)
	}
	held := make([]savedCell, n)
	if err := read(r, held); err != nil {
		return err
	}
	for i, cell := range held {
		if err := checkCell(cell, size, seqs); err != nil {
			return err
		}
		if i > 0 && cell.Index <= held[i-1].Index {
			return fmt.Errorf("kvcache: damaged state: cell %d after cell %d", cell.Index, held[i-1].Index)
		}
		c.cells.set(int(cell.Index), cell.Pos, cell.Seqs)
	}
	c.cells.head = int(head) % size
	for _, s := range c.stores {
		for _, rows := range []kernel.KVRows{s.K, s.V} {
			for _, cell := range held {
				if _, err := io.ReadFull(r, row(rows, int(cell.Index))); err != nil {
					return fmt.Errorf("kvcache: reading a saved state, layer %d: %w", s.Index, err)
				}
			}
		}
	}
	return nil
}

func checkCell(cell savedCell, size, seqs int) error {
	if int64(cell.Index) >= int64(size) {
		return fmt.Errorf("kvcache: the saved state uses cell %d, the cache has %d; make the context longer", cell.Index, size)
	}
	if cell.Pos < 0 || cell.Seqs.Empty() {
		return fmt.Errorf("kvcache: damaged state: cell %d has position %d and %d sequences", cell.Index, cell.Pos, cell.Seqs.Len())
	}
	for seq := range cell.Seqs.All {
		if int(seq) >= seqs {
			return fmt.Errorf("kvcache: the saved state holds sequence %d, the context has %d sequences", seq, seqs)
		}
	}
	return nil
}

func (s *States) save(w io.Writer) error {
	var of, last []savedPair
	for seq, slot := range s.seqs.of {
		if slot >= 0 {
			of = append(of, savedPair{uint32(seq), slot})
		}
	}
	for slot, refs := range s.seqs.refs {
		if refs > 0 {
			last = append(last, savedPair{uint32(slot), s.seqs.last[slot]})
		}
	}
	if err := write(w, uint32(len(of)), of, uint32(len(last)), last); err != nil {
		return err
	}
	for _, l := range s.layers {
		for _, p := range last {
			if _, err := w.Write(bytesOf(l.Conv(int(p.A)))); err != nil {
				return err
			}
			if _, err := w.Write(bytesOf(l.State(int(p.A)))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *States) restore(r io.Reader, seqs int) error {
	of, err := readPairs(r, "sequence", seqs)
	if err != nil {
		return err
	}
	last, err := readPairs(r, "state", seqs)
	if err != nil {
		return err
	}
	for _, p := range last {
		s.seqs.last[p.A] = p.B
	}
	for _, p := range of {
		if p.B < 0 || int(p.B) >= seqs {
			return fmt.Errorf("kvcache: the saved state uses recurrent state %d, the context has %d", p.B, seqs)
		}
		s.seqs.assign(int32(p.A), int(p.B))
	}
	for _, l := range s.layers {
		for _, p := range last {
			for _, x := range [][]float32{l.Conv(int(p.A)), l.State(int(p.A))} {
				if _, err := io.ReadFull(r, bytesOf(x)); err != nil {
					return fmt.Errorf("kvcache: reading a saved state, layer %d: %w", l.Index, err)
				}
			}
		}
	}
	return nil
}

// readPairs reads a list of at most limit pairs whose first members are below limit.
func readPairs(r io.Reader, what string, limit int) ([]savedPair, error) {
	var n uint32
	if err := read(r, &n); err != nil {
		return nil, err
	}
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("kvcache: the saved state holds %d %ss, the context has %d", n, what, limit)
	}
	pairs := make([]savedPair, n)
	if err := read(r, pairs); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		if int64(p.A) >= int64(limit) {
			return nil, fmt.Errorf("kvcache: the saved state holds %s %d, the context has %d", what, p.A, limit)
		}
	}
	return pairs, nil
}

// bytesOf views float32 as bytes; every platform this runs on is little endian.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
