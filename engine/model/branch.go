package model

import (
	"attnbudget/engine/kernel"
	"attnbudget/engine/meter"
)

// Surrogate stands in for the token mixing of a dropped layer: y = Up Down h + Bias, where h is the normalised input of the
// branch and y what is added to the residual stream. It sees one position at a time and stores nothing. Without Down and
// Up it is the constant Bias. Position 0 gets nothing: what attention does there, seeing only itself, is unlike the rest.
type Surrogate struct {
	Bias     []float32     // [Embd]
	Down, Up kernel.Matrix // [rank][Embd], [Embd][rank]; no rows in a constant one
}

// Surrogates are those of the layers that have one.
type Surrogates map[int]*Surrogate

// Replace makes surrogates stand in for the attention of dropped layers, until the next call. Layers that are not dropped
// are not concerned.
func (p *Pass) Replace(s Surrogates) {
	p.surrogates = s
	rank := 0
	for _, one := range s {
		rank = max(rank, one.Down.Rows)
	}
	if p.low == nil || len(p.low.data) < cap(p.live)*rank {
		p.low = newRows(cap(p.live), rank)
	}
}

// branch adds the token mixing of layer i to the residual stream, x += mixing(rms(x) * norm). mixing computes y from h. Where
// the mask drops the layer x stays as it is, or its surrogate is added.
func (p *Pass) branch(i int, norm []float32, mixing func(layer int)) {
	if p.variants != nil {
		p.variants.branch(i, norm, mixing)
		return
	}
	if dropped := p.mask.Has(i); !dropped || p.surrogates[i] != nil {
		p.norm(p.h, p.x, norm)
		if dropped {
			p.surrogate(p.surrogates[i])
		} else {
			mixing(i)
		}
		p.add(p.x, p.y)
	}
}

// surrogate computes y from h.
func (p *Pass) surrogate(s *Surrogate) {
	p.y.reshape(p.h.n, len(s.Bias))
	if s.Down.Rows > 0 {
		p.linear(p.low, &Linear{W: s.Down}, p.h)
		p.linear(p.y, &Linear{W: s.Up}, p.low)
	} else {
		clear(p.y.all())
	}
	p.op = operands{dst: p.y, weight: s.Bias}
	p.each(p.y, func(p *Pass, i int) {
		if row := p.op.dst.row(i); p.pos[p.live[i]] == 0 {
			clear(row)
		} else {
			kernel.Add(row, p.op.weight)
		}
	})
	p.y.changed()
	p.did(meter.Other, p.y, 2)
}
