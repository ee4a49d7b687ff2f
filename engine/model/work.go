package model

import (
	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/meter"
)

// did counts work on activations of which `times` sets of the size of r were read or written.
func (p *Pass) did(k meter.Kind, r *rows, times int) {
	p.Meter.Add(k, 4*times*r.n*r.cols, r.n*r.cols)
}

// multiplied counts the product of n rows of activations with w.
func (p *Pass) multiplied(k meter.Kind, w *kernel.Matrix, n int) {
	p.Meter.Add(k, w.Rows*w.Type.RowBytes(w.Cols), 2*n*w.Rows*w.Cols)
}

// attended counts the attention just computed: two operations to each product of a query or weight with an element of a
// visible cell. The exponentials, one to a cell and head, are left out.
func (p *Pass) attended(s *kvcache.Store) {
	if p.Meter == nil {
		return
	}
	p.Meter.ForgetCells()
	pairs := 0
	for _, spans := range p.attention.Visible {
		for _, span := range spans {
			pairs += span.To - span.From
			p.Meter.SeeCells(span.From, span.To)
		}
	}
	p.Meter.Add(meter.Attention, p.Meter.CellsSeen()*cellBytes(s), 2*pairs*p.attention.Heads*(s.DimK+s.DimV))
}

// cellBytes is what one cell of a store holds.
func cellBytes(s *kvcache.Store) int {
	return s.K.Type.RowBytes(s.Heads*s.DimK) + s.V.Type.RowBytes(s.Heads*s.DimV)
}
