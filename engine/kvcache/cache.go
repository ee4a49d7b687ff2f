package kvcache

import (
	"math"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
)

// Store is where one attention layer keeps its keys and values.
type Store struct {
	Layer
	K, V       kernel.KVRows
	RotK, RotV Rotation
	cache      *Cache
}

// Slots are the cells of the tokens placed last, in the order of the batch.
func (s *Store) Slots() []int { return s.cache.slots }

// Visible are, for every token placed last, the runs of cells it sees.
func (s *Store) Visible() [][]kernel.Span { return s.cache.visible }

// Put writes the key and value heads of token i of the batch placed last into its cell, rotating them first where the
// cache is rotated: k and v are changed by that.
func (s *Store) Put(i int, k, v []float32) {
	s.RotK.Apply(k)
	s.RotV.Apply(v)
	slot := s.cache.slots[i]
	kernel.StoreRow(s.K.Type, row(s.K, slot), k)
	kernel.StoreRow(s.V.Type, row(s.V, slot), v)
}

// Looked is how many cells upstream looks at, visible or not: those up to the last that is not free, in steps of 256.
func (s *Store) Looked() int {
	c := s.cache.cells
	return min(len(c.pos), max(1, (c.high+255)/256)*256)
}

// Query makes of the query heads of one token what meets the stored keys: rotated as the keys are.
func (s *Store) Query(q []float32) { s.RotK.Apply(q) }

// Output makes the attention over the stored values of one token what it would be over the values themselves.
func (s *Store) Output(a []float32) { s.RotV.Apply(a) }

// Copy makes what is stored of token dst of the batch placed last the same as that of token src.
func (s *Store) Copy(dst, src int) {
	to, from := s.cache.slots[dst], s.cache.slots[src]
	copy(row(s.K, to), row(s.K, from))
	copy(row(s.V, to), row(s.V, from))
}

func row(r kernel.KVRows, cell int) []byte { return r.Data[cell*r.Stride : (cell+1)*r.Stride] }

// Cache is one physical cache: cells shared by the stores of its layers.
type Cache struct {
	cells  *cells
	stores []*Store

	slots   []int           // of the tokens placed last
	visible [][]kernel.Span // of the tokens placed last
	spans   []kernel.Span   // what visible points into
	ends    []int
}

// newCache allocates the cache of the layers with a sliding window, or of those without; nil when there are none.
func newCache(l Layout, p Params, windowed bool) *Cache {
	size := attentionSize(l, p, windowed)
	if len(size.Layers) == 0 {
		return nil
	}
	var layers []Layer
	for _, a := range l.Attention {
		if (a.Window > 0) == windowed {
			layers = append(layers, a)
		}
	}
	c := &Cache{
		cells:   newCells(size.Cells, layers[0].Window),
		slots:   make([]int, 0, p.UBatch),
		visible: make([][]kernel.Span, 0, p.UBatch),
		ends:    make([]int, 0, p.UBatch),
	}
	var rotK, rotV Rotation
	if p.Rotate {
		rotK, rotV = keyRotation(p.TypeK, layers), valueRotation(p.TypeV, layers)
	}
	for _, a := range layers {
		c.stores = append(c.stores, &Store{
			Layer: a, cache: c, RotK: rotK, RotV: rotV,
			K: newRows(p.TypeK, size.Cells, a.Heads*a.DimK),
			V: newRows(p.TypeV, size.Cells, a.Heads*a.DimV),
		})
	}
	return c
}

func newRows(t gguf.Type, cells, elements int) kernel.KVRows {
	stride := t.RowBytes(elements)
	return kernel.KVRows{Type: t, Data: make([]byte, cells*stride), Stride: stride}
}

// find chooses cells for n tokens without changing anything that is stored.
func (c *Cache) find(n int) (ok bool) {
	c.slots, ok = c.cells.find(n, c.slots)
	return ok
}

// put places the tokens into the cells found for them and computes what they see.
func (c *Cache) put(pos []int32, seqs []SeqSet) {
	c.cells.put(c.slots, pos, seqs)
	c.spans, c.ends, c.visible = c.spans[:0], c.ends[:0], c.visible[:0]
	for i := range pos {
		c.spans = c.cells.see(c.spans, pos[i], seqs[i].First())
		c.ends = append(c.ends, len(c.spans))
	}
	from := 0
	for _, to := range c.ends {
		c.visible = append(c.visible, c.spans[from:to:to])
		from = to
	}
}

// free is the number of cells no sequence holds.
func (c *Cache) free() int { return len(c.cells.pos) - c.cells.used }

// holdsWindow reports whether everything is still there that a token of seq at position next would see.
func (c *Cache) holdsWindow(seq, next int32) bool {
	if c.cells.window == 0 || next <= 0 {
		return true
	}
	want := max(0, int(next)-c.cells.window+1)
	first := int32(math.MaxInt32)
	for i := range c.cells.high {
		if c.cells.seqs[i].Has(seq) {
			first = min(first, c.cells.pos[i])
		}
	}
	return int(first) <= want
}
