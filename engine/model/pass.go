package model

import (
	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/meter"
	"attnbudget/engine/quant"
)

// Pass is the compute state of one context: the operations of which forward passes are made, and their scratch memory,
// allocated once. Activations are rows [tokens][width]; every operation takes all rows at once.
//
// After the last layer that stores anything, a token whose logits nobody wants can no longer influence a result: there
// the rows are narrowed to those that lead to logits.
type Pass struct {
	config  *Config
	pool    *kernel.Pool
	mask    drop.Mask
	memory  *kvcache.Memory
	forward func()

	// OnHidden, when set, is shown the hidden state after the embedding (layer -1) and after every layer: h
	// [len(tokens)][Embd], which it may change, and which tokens of the batch its rows are. For tests, and for finding where a
	// forward pass goes astray.
	OnHidden func(layer int, tokens []int, h []float32)

	// Meter, when set, is told of all work done.
	Meter *meter.Meter

	lastStore  int // the last layer that stores anything
	surrogates Surrogates
	variants   *Variants // nil in an ordinary pass: one mask

	tokens  []int32
	pos     []int32
	outputs []int     // tokens whose logits are wanted
	live    []int     // tokens that the rows stand for
	logits  []float32 // [len(outputs)][Vocab], where the caller wants them

	x, h, y, q, k, v, a, gate, up *rows
	low                           *rows   // what a surrogate projects to
	followers                     []*rows // narrowed together with the residual stream

	attention kernel.Attention
	visible   [][]kernel.Span
	op        operands
	row       func(p *Pass, i int)
	runRow    func(worker, i int)
}

// operands are what the row operation in progress works on. They live here because a closure over them would be an
// allocation a call.
type operands struct {
	dst, src, src2 *rows
	weight         []float32
	matrix         *kernel.Matrix
	rope           *kernel.RoPE
	store          *kvcache.Store
	activation     func(dst, gate, up []float32)
	dim            int
	scale          float32
}

// NewPass allocates the compute state for batches of at most ubatch tokens.
func NewPass(n Network, pool *kernel.Pool, mask drop.Mask, memory *kvcache.Memory, ubatch int) *Pass {
	c := n.Config()
	p := &Pass{config: c, pool: pool, mask: mask, memory: memory, lastStore: lastStore(c.Layout(mask))}
	var q, k, v, a, ff int
	for _, l := range c.Layers {
		q, a = max(q, l.Heads*l.DimK), max(a, l.Heads*l.DimV)
		k, v = max(k, l.HeadsKV*l.DimK), max(v, l.HeadsKV*l.DimV)
		ff = max(ff, l.FF)
	}
	p.x, p.h, p.y = newRows(ubatch, c.Embd), newRows(ubatch, c.Embd), newRows(ubatch, c.Embd)
	p.q, p.k, p.v, p.a = newRows(ubatch, q), newRows(ubatch, k), newRows(ubatch, v), newRows(ubatch, a)
	p.gate, p.up = newRows(ubatch, ff), newRows(ubatch, ff)
	p.live, p.visible = make([]int, 0, ubatch), make([][]kernel.Span, ubatch)
	p.follow(p.x, p.h)
	p.runRow = func(_, i int) { p.row(p, i) }
	p.forward = n.prepare(p)
	return p
}

func lastStore(l kvcache.Layout) int {
	last := -1
	for _, a := range l.Attention {
		last = max(last, a.Index)
	}
	for _, r := range l.Recurrent {
		last = max(last, r.Index)
	}
	return last
}

// Run computes one batch whose tokens the memory has placed. outputs are the tokens whose logits are wanted, ascending;
// they are written to logits [len(outputs)][Vocab].
func (p *Pass) Run(tokens, pos []int32, outputs []int, logits []float32) {
	p.tokens, p.pos, p.outputs, p.logits = tokens, pos, outputs, logits
	p.live = p.live[:len(tokens)]
	for i := range p.live {
		p.live[i] = i
	}
	p.Meter.Begin()
	p.forward()
}

// each calls f for every row of r, over the workers.
func (p *Pass) each(r *rows, f func(p *Pass, i int)) {
	p.row = f
	p.pool.Run(r.n, p.runRow)
}

// embed reads the rows of the embedding, multiplied by scale.
func (p *Pass) embed(e *kernel.Matrix, scale float32) {
	p.x.reshape(len(p.live), e.Cols)
	p.op = operands{matrix: e, scale: scale}
	p.each(p.x, func(p *Pass, i int) {
		embedRow(p.x.row(i), p.op.matrix, p.tokens[p.live[i]], p.op.scale)
	})
	p.Meter.Add(meter.Other, p.x.n*(e.Type.RowBytes(e.Cols)+4*e.Cols), p.x.n*e.Cols)
	p.hidden(-1)
}

func embedRow(dst []float32, e *kernel.Matrix, token int32, scale float32) {
	stride := e.Type.RowBytes(e.Cols)
	src := e.Data[int(token)*stride:][:stride]
	quant.Dequantize(e.Type, dst, src)
	if scale != 1 {
		kernel.Scale(dst, scale)
	}
}

// norm computes dst = rms(src) * weight; dst may be src.
func (p *Pass) norm(dst, src *rows, weight []float32) {
	dst.reshape(src.n, src.cols)
	p.op = operands{dst: dst, src: src, weight: weight}
	p.each(src, func(p *Pass, i int) {
		kernel.RMSNorm(p.op.dst.row(i), p.op.src.row(i), p.op.weight, p.config.Eps)
	})
	p.did(meter.Norms, dst, 2)
}

// headNorm normalises every head of x by itself, in place.
func (p *Pass) headNorm(x *rows, dim int, weight []float32) {
	p.op = operands{dst: x, dim: dim, weight: weight}
	p.each(x, func(p *Pass, i int) {
		for row := p.op.dst.row(i); len(row) > 0; row = row[p.op.dim:] {
			head := row[:p.op.dim]
			kernel.RMSNorm(head, head, p.op.weight, p.config.Eps)
		}
	})
	x.changed()
	p.did(meter.Norms, x, 2)
}

// linear computes dst = W src + b.
func (p *Pass) linear(dst *rows, w *Linear, src *rows) {
	dst.reshape(src.n, w.W.Rows)
	if src.n == 0 {
		return
	}
	p.pool.MatMul(dst.data, &w.W, src.read(p.pool))
	if w.Bias != nil {
		p.op = operands{dst: dst, weight: w.Bias}
		p.each(dst, func(p *Pass, i int) { kernel.Add(p.op.dst.row(i), p.op.weight) })
	}
	p.multiplied(meter.Matrices, &w.W, src.n)
}

// add computes dst += src.
func (p *Pass) add(dst, src *rows) {
	p.op = operands{dst: dst, src: src}
	p.each(dst, func(p *Pass, i int) { kernel.Add(p.op.dst.row(i), p.op.src.row(i)) })
	dst.changed()
	p.did(meter.Other, dst, 3)
}

// copy computes dst = src.
func (p *Pass) copy(dst, src *rows) {
	dst.reshape(src.n, src.cols)
	copy(dst.all(), src.all())
	p.did(meter.Other, dst, 2)
}

// scale computes x *= s.
func (p *Pass) scale(x *rows, s float32) {
	p.op = operands{dst: x, scale: s}
	p.each(x, func(p *Pass, i int) { kernel.Scale(p.op.dst.row(i), p.op.scale) })
	x.changed()
	p.did(meter.Other, x, 2)
}

// rotate applies rotary position embedding to all heads of x, in place.
func (p *Pass) rotate(x *rows, rope *kernel.RoPE, dim int) {
	p.op = operands{dst: x, rope: rope, dim: dim}
	p.each(x, func(p *Pass, i int) {
		row := p.op.dst.row(i)
		p.op.rope.Apply(row, len(row)/p.op.dim, p.op.dim, p.pos[p.live[i]])
	})
	x.changed()
	p.did(meter.Other, x, 2)
}

// swiglu computes y = down(silu(gate h) * (up h)).
func (p *Pass) swiglu(y, h *rows, f *gatedFFN) { p.ffn(y, h, f, kernel.SiLUMul) }

// geglu computes y = down(gelu(gate h) * (up h)).
func (p *Pass) geglu(y, h *rows, f *gatedFFN) { p.ffn(y, h, f, kernel.GELUMul) }

func (p *Pass) ffn(y, h *rows, f *gatedFFN, activation func(dst, gate, up []float32)) {
	p.linear(p.gate, &f.gate, h)
	p.linear(p.up, &f.up, h)
	p.activate(p.gate, p.up, activation)
	p.linear(y, &f.down, p.gate)
}

// activate computes gate = activation(gate, up).
func (p *Pass) activate(gate, up *rows, activation func(dst, gate, up []float32)) {
	p.op = operands{dst: gate, src: up, activation: activation}
	p.each(gate, func(p *Pass, i int) { p.op.activation(p.op.dst.row(i), p.op.dst.row(i), p.op.src.row(i)) })
	gate.changed()
	p.did(meter.Other, gate, 3)
}

// store writes keys and values into the cache of layer; k and v are used up by it.
func (p *Pass) store(layer int, k, v *rows) {
	p.op = operands{src: k, src2: v, store: p.memory.Store(layer)}
	p.each(k, func(p *Pass, i int) { p.op.store.Put(p.live[i], p.op.src.row(i), p.op.src2.row(i)) })
	s := p.op.store
	elements := k.n * s.Heads * (s.DimK + s.DimV)
	p.Meter.Add(meter.Other, 4*elements+k.n*cellBytes(s), elements)
	p.stored(layer)
}

// follow makes rows be narrowed together with the residual stream: they hold something of every live token.
func (p *Pass) follow(r ...*rows) { p.followers = append(p.followers, r...) }

// stored is to be called when layer has stored what it stores. After the last layer that stores anything, the residual
// stream, what follows it and also are narrowed to the rows that lead to logits; where results depend on how many rows an
// operation has, only where upstream does so: behind the token mixing of the last layer, or in head.
func (p *Pass) stored(layer int, also ...*rows) {
	if layer == p.lastStore && !p.pool.SumsDependOnBatch() {
		p.narrow(also...)
	}
}

// narrow keeps of the residual stream, what follows it and also the rows that lead to logits.
func (p *Pass) narrow(also ...*rows) {
	if len(p.outputs) == len(p.live) || p.variants != nil {
		return
	}
	for _, r := range p.followers {
		r.keep(p.outputs)
	}
	for _, r := range also {
		r.keep(p.outputs)
	}
	p.live = append(p.live[:0], p.outputs...)
}

// attend computes a = softmax(scale q kᵀ) v over the cells of owner that each token sees; q is used up by it.
func (p *Pass) attend(a, q *rows, owner int, heads int, scale float32) {
	s := p.memory.Store(owner)
	a.reshape(q.n, heads*s.DimV)
	q.changed()
	if q.n == 0 {
		return
	}
	visible := s.Visible()
	for i, token := range p.live {
		p.visible[i] = visible[token]
	}
	p.op = operands{dst: q, src: a, store: s}
	p.each(q, func(p *Pass, i int) { p.op.store.Query(p.op.dst.row(i)) })
	p.attention = kernel.Attention{
		Q: q.all(), Out: a.all(), K: s.K, V: s.V, N: q.n, Heads: heads, HeadsKV: s.Heads, DimK: s.DimK, DimV: s.DimV,
		Scale: scale, Visible: p.visible[:q.n], Cells: s.Looked(),
	}
	p.pool.Attend(&p.attention)
	p.each(a, func(p *Pass, i int) { p.op.store.Output(p.op.src.row(i)) })
	p.attended(s)
}

// head computes the logits of the rows that are left.
func (p *Pass) head(output *Linear, norm []float32) {
	p.narrow()
	if len(p.outputs) == 0 {
		return
	}
	p.norm(p.h, p.x, norm)
	if p.variants != nil {
		p.variants.output = output
		return
	}
	p.project(p.logits, output)
}

// project computes the logits of h.
func (p *Pass) project(logits []float32, output *Linear) {
	p.pool.MatMul(logits, &output.W, p.h.read(p.pool))
	p.logits = logits
	p.op = operands{weight: output.Bias, scale: p.config.Softcap}
	if output.Bias != nil || p.config.Softcap != 0 {
		p.each(p.h, func(p *Pass, i int) { p.finish(p.logits[i*p.config.Vocab:][:p.config.Vocab]) })
	}
	p.multiplied(meter.Head, &output.W, p.h.n)
}

// finish adds the bias of the output projection and caps the logits softly: s tanh(l/s).
func (p *Pass) finish(logits []float32) {
	if p.op.weight != nil {
		kernel.Add(logits, p.op.weight)
	}
	if s := p.op.scale; s != 0 {
		kernel.SoftCap(logits, s)
	}
}

// hidden shows the rows to whoever watches, at the end of a layer.
func (p *Pass) hidden(layer int) {
	p.Meter.Enter(layer + 1)
	if p.OnHidden != nil {
		p.OnHidden(layer, p.live, p.x.all())
	}
}
