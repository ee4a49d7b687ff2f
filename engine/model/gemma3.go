package model

import (
	"math"

	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
)

// gemma3 is Gemma 3 (Gemma Team 2025): norms before and after each branch, normalised queries and keys, GeGLU, and five
// layers with a sliding window to each full one, with a rotary embedding of their own.
type gemma3 struct {
	config          *Config
	embedding       kernel.Matrix
	embeddingScale  float32
	layers          []gemma3Layer
	outputNorm      []float32
	output          Linear
	rope, ropeLocal *kernel.RoPE
	queryScale      float32
}

type gemma3Layer struct {
	attnNorm     []float32
	q, k, v, o   Linear
	qNorm, kNorm []float32 // [DimK], for each head
	attnPostNorm []float32
	ffnNorm      []float32
	ffn          gatedFFN
	ffnPostNorm  []float32
}

// gemma27B is the number of layers by which upstream knows the 27B model, whose queries are scaled by another rule.
const gemma27B = 62

func loadGemma3(c *Config, k *keys, l *loader) Network {
	dim := c.Layers[0].DimK
	m := &gemma3{config: c, embeddingScale: sqrt32(c.Embd), queryScale: 1 / sqrt32(dim)}
	if len(c.Layers) == gemma27B {
		m.queryScale = 1 / sqrt32(c.Embd/c.Layers[0].Heads)
	}
	nRot := k.rotated("rope.dimension_count", dim)
	m.rope = kernel.NewRoPE(nRot, k.positiveOr("rope.freq_base", 10000), k.ropeScale(), nil, true)
	m.ropeLocal = kernel.NewRoPE(nRot, k.positiveOr("rope.freq_base_swa", 10000), 1, nil, true)
	m.embedding = l.embedding(c)
	m.layers = make([]gemma3Layer, len(c.Layers))
	l.blocks(c, func(i int, block string, s Layer) {
		b := &m.layers[i]
		b.attnNorm = l.norm(block+"attn_norm", c.Embd)
		b.q, b.k, b.v = l.qkv(block, c, s)
		b.o = l.linear(block+"attn_output", s.Heads*s.DimV, c.Embd)
		b.qNorm = l.norm(block+"attn_q_norm", s.DimK)
		b.kNorm = l.norm(block+"attn_k_norm", s.DimK)
		b.attnPostNorm = l.norm(block+"post_attention_norm", c.Embd)
		b.ffnNorm = l.norm(block+"ffn_norm", c.Embd)
		b.ffn = l.ffn(block, c, s)
		b.ffnPostNorm = l.norm(block+"post_ffw_norm", c.Embd)
	})
	m.outputNorm = l.norm("output_norm", c.Embd)
	m.output = l.head(c, m.embedding)
	return m
}

func sqrt32(n int) float32 { return float32(math.Sqrt(float64(n))) }

func (m *gemma3) Config() *Config { return m.config }

func (m *gemma3) prepare(p *Pass) func() {
	attention := func(i int) { m.attention(p, i, &m.layers[i]) }
	return func() { m.forward(p, attention) }
}

func (m *gemma3) forward(p *Pass, attention func(layer int)) {
	p.embed(&m.embedding, m.embeddingScale)
	for i := range m.layers {
		l := &m.layers[i]
		p.branch(i, l.attnNorm, attention)
		if i == len(m.layers)-1 {
			p.narrow() // here upstream does
		}
		p.norm(p.h, p.x, l.ffnNorm)
		p.geglu(p.y, p.h, &l.ffn)
		p.norm(p.y, p.y, l.ffnPostNorm)
		p.add(p.x, p.y)
		p.hidden(i)
	}
	p.head(&m.output, m.outputNorm)
}

// attention computes y from h.
func (m *gemma3) attention(p *Pass, i int, l *gemma3Layer) {
	s := &m.config.Layers[i]
	rope := m.rope
	if s.Kind == drop.Local {
		rope = m.ropeLocal
	}
	p.linear(p.k, &l.k, p.h)
	p.linear(p.v, &l.v, p.h)
	p.headNorm(p.k, s.DimK, l.kNorm)
	p.rotate(p.k, rope, s.DimK)
	p.store(i, p.k, p.v)
	p.linear(p.q, &l.q, p.h)
	p.headNorm(p.q, s.DimK, l.qNorm)
	p.rotate(p.q, rope, s.DimK)
	p.scale(p.q, m.queryScale)
	p.attend(p.a, p.q, i, s.Heads, 1)
	p.linear(p.y, &l.o, p.a)
	p.norm(p.y, p.y, l.attnPostNorm)
}
