package model

import (
	"fmt"

	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
	"attnbudget/engine/meter"
)

// qwen35 is Qwen 3.5 without experts: three layers of gated DeltaNet (Yang et al. 2024) to each layer of gated attention,
// whose output is multiplied by the sigmoid of a gate that comes with the query. In both kinds the norm called
// post_attention_norm is the one before the feed-forward network, and stays when attention is dropped.
type qwen35 struct {
	config     *Config
	embedding  kernel.Matrix
	layers     []qwen35Layer
	outputNorm []float32
	output     Linear
	rope       *kernel.RoPE
	scale      float32 // of attention logits
	delta      deltaShape
}

type qwen35Layer struct {
	attnNorm  []float32
	attention *gatedAttention // one of the two
	delta     *deltaNet
	ffnNorm   []float32
	ffn       gatedFFN
}

type gatedAttention struct {
	queryGate    Linear // a head's query, then its gate, head after head
	k, v, o      Linear
	qNorm, kNorm []float32 // [DimK], for each head
}

func loadQwen35(c *Config, k *keys, l *loader) Network {
	m := &qwen35{config: c, delta: readDeltaShape(k)}
	for i := range c.Layers {
		if s := &c.Layers[i]; s.Kind == drop.Recurrent {
			s.Conv, s.State = m.delta.convState(), m.delta.state()
		}
	}
	dim := c.Layers[0].DimK
	if v := c.Layers[0].DimV; v != dim { // the gate is as wide as the query and multiplies what is made of values
		k.fault("attention.value_length", fmt.Sprintf("%d, the size of a key head", dim), fmt.Sprint(v))
	}
	if sections := read(k, k.f.Ints, "rope.dimension_sections"); k.err == nil && len(sections) < 3 {
		k.fault("rope.dimension_sections", "at least 3 sections", fmt.Sprint(sections))
	}
	m.scale = k.attentionScale(dim)
	// The sections share out the rotating pairs among time, height and width; in text all three are the position.
	m.rope = kernel.NewRoPE(k.rotated("rope.dimension_count", dim), k.positiveOr("rope.freq_base", 10000), k.ropeScale(), nil, true)
	if k.err != nil {
		return m
	}
	m.embedding = l.embedding(c)
	m.layers = make([]qwen35Layer, len(c.Layers))
	l.blocks(c, func(i int, block string, s Layer) {
		b := &m.layers[i]
		b.attnNorm = l.norm(block+"attn_norm", c.Embd)
		if s.Kind == drop.Recurrent {
			b.delta = loadDelta(l, c, block, m.delta)
		} else {
			b.attention = loadGatedAttention(l, c, block, s)
		}
		b.ffnNorm = l.norm(block+"post_attention_norm", c.Embd)
		b.ffn = l.ffn(block, c, s)
	})
	m.outputNorm = l.norm("output_norm", c.Embd)
	m.output = l.head(c, m.embedding)
	return m
}

func loadGatedAttention(l *loader, c *Config, block string, s Layer) *gatedAttention {
	return &gatedAttention{
		queryGate: l.linear(block+"attn_q", c.Embd, 2*s.Heads*s.DimK),
		k:         l.linear(block+"attn_k", c.Embd, s.HeadsKV*s.DimK),
		v:         l.linear(block+"attn_v", c.Embd, s.HeadsKV*s.DimV),
		o:         l.linear(block+"attn_output", s.Heads*s.DimV, c.Embd),
		qNorm:     l.norm(block+"attn_q_norm", s.DimK),
		kNorm:     l.norm(block+"attn_k_norm", s.DimK),
	}
}

func (m *qwen35) Config() *Config { return m.config }

func (m *qwen35) prepare(p *Pass) func() {
	widest := 0
	for _, s := range m.config.Layers {
		widest = max(widest, s.Heads*s.DimK)
	}
	w := &qwen35Work{
		queryGate: newRows(cap(p.live), 2*widest),
		gate:      newRows(cap(p.live), widest),
		delta:     newDeltaWork(p, m),
	}
	mixing := func(i int) { m.mixing(p, i, &m.layers[i], w) }
	return func() { m.forward(p, mixing) }
}

// qwen35Work is the scratch memory of one context.
type qwen35Work struct {
	queryGate, gate *rows
	delta           *deltaWork
}

func (m *qwen35) forward(p *Pass, mixing func(layer int)) {
	p.embed(&m.embedding, 1)
	for i := range m.layers {
		l := &m.layers[i]
		p.branch(i, l.attnNorm, mixing)
		p.norm(p.h, p.x, l.ffnNorm)
		p.swiglu(p.y, p.h, &l.ffn)
		p.add(p.x, p.y)
		p.hidden(i)
	}
	p.head(&m.output, m.outputNorm)
}

// mixing computes y from h, in either way.
func (m *qwen35) mixing(p *Pass, i int, l *qwen35Layer, w *qwen35Work) {
	if l.delta != nil {
		w.delta.forward(p, i, l.delta)
	} else {
		m.attention(p, i, l.attention, w)
	}
}

func (m *qwen35) attention(p *Pass, i int, l *gatedAttention, w *qwen35Work) {
	s := &m.config.Layers[i]
	p.linear(p.k, &l.k, p.h)
	p.linear(p.v, &l.v, p.h)
	p.headNorm(p.k, s.DimK, l.kNorm)
	p.rotate(p.k, m.rope, s.DimK)
	p.store(i, p.k, p.v)
	p.linear(w.queryGate, &l.queryGate, p.h)
	p.separate(p.q, w.gate, w.queryGate, s.DimK)
	p.headNorm(p.q, s.DimK, l.qNorm)
	p.rotate(p.q, m.rope, s.DimK)
	p.attend(p.a, p.q, i, s.Heads, m.scale)
	p.activate(w.gate, p.a, sigmoidMul)
	p.linear(p.y, &l.o, w.gate)
}

// sigmoidMul computes dst = sigmoid(gate) * x.
func sigmoidMul(dst, gate, x []float32) {
	kernel.Sigmoid(dst, gate)
	kernel.Mul(dst, x)
}

// separate takes src, in which a head of a and a head of b of dim elements alternate, apart.
func (p *Pass) separate(a, b, src *rows, dim int) {
	a.reshape(src.n, src.cols/2)
	b.reshape(src.n, src.cols/2)
	p.op = operands{dst: a, src2: b, src: src, dim: dim}
	p.each(src, func(p *Pass, i int) {
		a, b, dim := p.op.dst.row(i), p.op.src2.row(i), p.op.dim
		for pair := p.op.src.row(i); len(pair) > 0; pair = pair[2*dim:] {
			copy(a, pair[:dim])
			copy(b, pair[dim:2*dim])
			a, b = a[dim:], b[dim:]
		}
	})
	p.did(meter.Other, src, 2)
}
