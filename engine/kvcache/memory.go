package kvcache

import (
	"errors"
	"fmt"
	"math"
)

// ErrFull says that a cache has no room for the tokens of a batch. Nothing was stored.
var ErrFull = errors.New("the KV cache is full")

// ErrHistory says that a sequence cannot be cut where it was asked to, because what it would go on from is no longer held.
var ErrHistory = errors.New("the history of the sequence is not held that far back")

// Memory is everything a context remembers.
type Memory struct {
	params Params
	layout Layout
	caches []*Cache // plain and window, those that have layers
	states *States  // nil without recurrent layers

	stores map[int]*Store
	layers map[int]*LayerStates
}

// New allocates the caches of a layout.
func New(l Layout, p Params) (*Memory, error) {
	if err := p.Check(l); err != nil {
		return nil, err
	}
	m := &Memory{params: p, layout: l, stores: map[int]*Store{}, layers: map[int]*LayerStates{}}
	for _, windowed := range []bool{false, true} {
		if c := newCache(l, p, windowed); c != nil {
			m.caches = append(m.caches, c)
			for _, s := range c.stores {
				m.stores[s.Index] = s
			}
		}
	}
	if m.states = newStates(l, p); m.states != nil {
		for _, s := range m.states.layers {
			m.layers[s.Index] = s
		}
	}
	return m, nil
}

// Sizes lists the physical caches.
func (m *Memory) Sizes() []Size { return Sizes(m.layout, m.params) }

// Store is where layer keeps its keys and values; nil when it has none of its own.
func (m *Memory) Store(layer int) *Store { return m.stores[layer] }

// States are the recurrent states of layer; nil when it has none.
func (m *Memory) States(layer int) *LayerStates { return m.layers[layer] }

// Runs are the runs of tokens placed last, for the recurrent layers.
func (m *Memory) Runs() []Run { return m.states.runs }

// Room reports whether the plain cache has room for n more tokens. The window cache makes room as it goes.
func (m *Memory) Room(n int) error {
	for _, c := range m.caches {
		if c.cells.window == 0 && n > c.free() {
			return fmt.Errorf("%w: %d tokens, %d of %d cells free; make the context longer", ErrFull, n, c.free(), len(c.cells.pos))
		}
	}
	return nil
}

// Place finds a place for every token, given its position and sequences, and computes what each sees. On an error nothing
// has changed. At most Params.UBatch tokens.
func (m *Memory) Place(pos []int32, seqs []SeqSet) error {
	for _, c := range m.caches {
		if !c.find(len(pos)) {
			return fmt.Errorf("%w: %d tokens, %d of %d cells free; make the context longer", ErrFull, len(pos), c.free(), len(c.cells.pos))
		}
	}
	if m.states != nil {
		if err := m.states.check(seqs); err != nil {
			return err
		}
		m.states.place(pos, seqs)
	}
	for _, c := range m.caches {
		c.put(pos, seqs)
	}
	return nil
}

// Last is the greatest position held of a sequence, -1 when it is empty.
func (m *Memory) Last(seq int32) int32 {
	if m.states != nil {
		return m.states.seqs.lastOf(seq)
	}
	last := int32(-1)
	for _, c := range m.caches {
		last = max(last, c.cells.last(seq))
	}
	return last
}

// Clear forgets everything.
func (m *Memory) Clear() {
	for _, c := range m.caches {
		c.cells.clear()
	}
	if m.states != nil {
		m.states.clear()
	}
}

// span resolves the open ends of a range of positions: a negative p0 is 0, a negative p1 is the end.
func span(p0, p1 int32) (int32, int32) {
	if p1 < 0 {
		p1 = math.MaxInt32
	}
	return max(p0, 0), p1
}

// Copy makes the positions p0 <= p < p1 of src belong to dst as well; a negative p1 is the end. It refuses, changing nothing,
// with ErrHistory what dst could not go on from: part of a recurrent state, or positions whose window has already been given
// up. A recurrent state replaces that of dst, and with it what else is held of dst.
func (m *Memory) Copy(src, dst, p0, p1 int32) error {
	if src == dst {
		return nil
	}
	p0, p1 = span(p0, p1)
	part := p1 <= m.Last(src)
	if m.states != nil && (p0 > 0 || part) {
		return fmt.Errorf("copying part of sequence %d: %w: a recurrent state is copied whole", src, ErrHistory)
	}
	for _, c := range m.caches {
		if part && !c.holdsWindow(src, p1) {
			return fmt.Errorf("copying positions up to %d of sequence %d: %w: the sliding window before it has been given up", p1, src, ErrHistory)
		}
	}
	if m.states != nil {
		m.states.seqs.copy(src, dst)
		for _, c := range m.caches {
			c.cells.remove(dst, 0, math.MaxInt32)
		}
	}
	for _, c := range m.caches {
		c.cells.share(src, dst, p0, p1)
	}
	return nil
}

// Remove forgets the positions p0 <= p < p1 of a sequence; a negative p1 is the end. It refuses, changing nothing, with
// ErrHistory what would leave a sequence that cannot go on: part of a recurrent state, or a tail whose window has already been
// given up.
func (m *Memory) Remove(seq, p0, p1 int32) error {
	p0, p1 = span(p0, p1)
	last := m.Last(seq)
	if last < p0 || p1 <= 0 {
		return nil
	}
	whole := p0 == 0 && p1 > last
	if m.states != nil && !whole {
		return fmt.Errorf("removing positions from %d of sequence %d: %w: a recurrent state cannot go back; remove the whole sequence", p0, seq, ErrHistory)
	}
	for _, c := range m.caches {
		if !whole && p1 > last && !c.holdsWindow(seq, p0) {
			return fmt.Errorf("removing positions from %d of sequence %d: %w: the sliding window before it has been given up", p0, seq, ErrHistory)
		}
	}
	if m.states != nil {
		m.states.seqs.release(seq)
	}
	for _, c := range m.caches {
		c.cells.remove(seq, p0, p1)
	}
	return nil
}

// Stores lists the stores of all attention layers of the physical caches, in the order of Sizes.
func (m *Memory) Stores() []*Store {
	var out []*Store
	for _, c := range m.caches {
		out = append(out, c.stores...)
	}
	return out
}

// Rotated reports whether any store rotates its heads.
func (m *Memory) Rotated() bool {
	for _, s := range m.stores {
		if s.RotK != 0 || s.RotV != 0 {
			return true
		}
	}
	return false
}
