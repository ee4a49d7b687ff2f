package kernel

import (
	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

// attendUpstream is Attend as upstream does it: with a float32 cache by two products and a softmax over all cells, else by
// its flash attention.
func attendUpstream(p *Pool, a *Attention) {
	item := wholeScores
	p.Run(a.N*a.Heads, func(worker, i int) {
		item(a, &p.scratch[worker].ordered, i/a.Heads, i%a.Heads)
	})
}

// orderedScratch is what one query head needs.
type orderedScratch struct {
	scores []float32     // [cells]
	row    []float32     // [DimK] or [DimV], a cell's numbers
	sums   [][32]float32 // [DimV]
}

// wholeScores computes one head of one query row from the scores of all cells.
func wholeScores(a *Attention, s *orderedScratch, row, head int) {
	out := a.Out[(row*a.Heads+head)*a.DimV:][:a.DimV]
	q := a.Q[(row*a.Heads+head)*a.DimK:][:a.DimK]
	kv := head / (a.Heads / a.HeadsKV)
	spans := a.Visible[row]
	if len(spans) == 0 {
		clear(out)
		return
	}
	// Sums depend on a cell's number modulo 32, so the first cell is rounded down.
	first, end := spans[0].From/32*32, (spans[len(spans)-1].To+31)/32*32
	s.scores = grow(s.scores, end-first)
	blank(s.scores)
	top := negInf
	each(spans, func(cell int) {
		v := upstream.Dot32(s.cell(&a.K, cell, kv, a.DimK), q) * a.Scale
		s.scores[cell-first], top = v, max(top, v)
	})
	total := float32(1 / upstream.SoftMax(s.scores, top))
	partial := 8
	if a.N == 1 || a.DimV%4 != 0 {
		partial = 32
	}
	s.sums = grow(s.sums, a.DimV)
	clear(s.sums)
	each(spans, func(cell int) {
		weight := s.scores[cell-first] * total
		upstream.AddTo(s.sums, cell%partial, s.cell(&a.V, cell, kv, a.DimV), weight)
	})
	for d := range out {
		out[d] = upstream.Sum(&s.sums[d], partial)
	}
}

// each calls f for every cell of the spans.
func each(spans []Span, f func(cell int)) {
	for _, s := range spans {
		for c := s.From; c < s.To; c++ {
			f(c)
		}
	}
}

// cell returns the numbers of one head of a cell; the next call may overwrite them.
func (s *orderedScratch) cell(rows *KVRows, cell, head, dim int) []float32 {
	s.row = grow(s.row, dim)
	quant.Dequantize(rows.Type, s.row, rows.head(cell, head, rows.Type.RowBytes(dim)))
	return s.row
}
