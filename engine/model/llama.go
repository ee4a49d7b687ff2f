package model

import (
	"fmt"
	"math"

	"attnbudget/engine/kernel"
)

// llama is Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023, Grattafiori et al. 2024): pre-norm, grouped-query attention with
// rotary embedding of neighbouring pairs, SwiGLU.
type llama struct {
	config     *Config
	embedding  kernel.Matrix
	layers     []llamaLayer
	outputNorm []float32
	output     Linear
	rope       *kernel.RoPE
	scale      float32 // of attention logits
}

type llamaLayer struct {
	attnNorm   []float32
	q, k, v, o Linear
	ffnNorm    []float32
	ffn        gatedFFN
}

func loadLlama(c *Config, k *keys, l *loader) Network {
	dim := c.Layers[0].DimK
	nRot := k.countOr("rope.dimension_count", dim)
	if nRot != dim {
		k.fault("rope.dimension_count", fmt.Sprintf("%d, the size of a key head", dim), fmt.Sprint(nRot))
	}
	m := &llama{config: c, scale: k.attentionScale(dim)}
	m.rope = kernel.NewRoPE(dim, k.positiveOr("rope.freq_base", 10000), k.ropeScale(), l.vectorIf("rope_freqs.weight", dim/2), false)
	m.embedding = l.embedding(c)
	m.layers = make([]llamaLayer, len(c.Layers))
	l.blocks(c, func(i int, block string, s Layer) {
		b := &m.layers[i]
		b.attnNorm = l.norm(block+"attn_norm", c.Embd)
		b.q, b.k, b.v = l.qkv(block, c, s)
		b.o = l.linear(block+"attn_output", s.Heads*s.DimV, c.Embd)
		b.ffnNorm = l.norm(block+"ffn_norm", c.Embd)
		b.ffn = l.ffn(block, c, s)
	})
	m.outputNorm = l.norm("output_norm", c.Embd)
	m.output = l.head(c, m.embedding)
	return m
}

// attentionScale is the factor on attention logits, 1/√dim unless the file says otherwise.
func (k *keys) attentionScale(dim int) float32 {
	if s := k.floatOr("attention.scale", 0); s != 0 {
		return s
	}
	return 1 / float32(math.Sqrt(float64(dim)))
}

func (m *llama) Config() *Config { return m.config }

func (m *llama) prepare(p *Pass) func() {
	attention := func(i int) { m.attention(p, i, &m.layers[i]) }
	return func() { m.forward(p, attention) }
}

func (m *llama) forward(p *Pass, attention func(layer int)) {
	p.embed(&m.embedding, 1)
	for i := range m.layers {
		l := &m.layers[i]
		p.branch(i, l.attnNorm, attention)
		if i == len(m.layers)-1 {
			p.narrow() // here upstream does
		}
		p.norm(p.h, p.x, l.ffnNorm)
		p.swiglu(p.y, p.h, &l.ffn)
		p.add(p.x, p.y)
		p.hidden(i)
	}
	p.head(&m.output, m.outputNorm)
}

// attention computes y from h.
func (m *llama) attention(p *Pass, i int, l *llamaLayer) {
	s := &m.config.Layers[i]
	p.linear(p.k, &l.k, p.h)
	p.linear(p.v, &l.v, p.h)
	p.rotate(p.k, m.rope, s.DimK)
	p.store(i, p.k, p.v)
	p.linear(p.q, &l.q, p.h)
	p.rotate(p.q, m.rope, s.DimK)
	p.attend(p.a, p.q, i, s.Heads, m.scale)
	p.linear(p.y, &l.o, p.a)
}
