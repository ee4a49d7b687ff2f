package model

import (
	"fmt"

	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
)

// gemma4 is Gemma 4 without experts (E2B, E4B, 31B): Gemma 3 with normalised values, unscaled attention, larger heads in
// full layers, later layers that read the keys and values of earlier ones, a second embedding that every layer mixes in, and
// a scale on each layer's output.
type gemma4 struct {
	config         *Config
	embedding      kernel.Matrix
	embeddingScale float32
	layers         []gemma4Layer
	outputNorm     []float32
	output         Linear
	rope           *kernel.RoPE
	ropeLocal      *kernel.RoPE
	perLayer       *perLayerEmbedding // nil = none
}

type gemma4Layer struct {
	attnNorm     []float32
	q, o         Linear
	k, v         Linear // of owners; no v where the values are the raw keys
	qNorm, kNorm []float32
	attnPostNorm []float32
	ffnNorm      []float32
	ffn          gatedFFN
	ffnPostNorm  []float32

	inputProject         Linear // of the per-layer embedding: the layer's rows of the projection
	inputGate, inputProj Linear
	inputPostNorm        []float32
	outputScale          float32
}

func loadGemma4(c *Config, k *keys, l *loader) Network {
	c.localDims(k)
	m := &gemma4{config: c, embeddingScale: sqrt32(c.Embd)}
	m.loadRoPE(k, l)
	m.embedding = l.embedding(c)
	if width := k.countOr("embedding_length_per_layer_input", 0); width > 0 {
		m.perLayer = loadPerLayer(c, l, width)
	}
	m.layers = make([]gemma4Layer, len(c.Layers))
	l.blocks(c, func(i int, block string, s Layer) {
		b := &m.layers[i]
		b.attnNorm = l.norm(block+"attn_norm", c.Embd)
		m.loadProjections(l, b, i, block, s)
		b.o = l.linear(block+"attn_output", s.Heads*s.DimV, c.Embd)
		b.qNorm = l.norm(block+"attn_q_norm", s.DimK)
		b.attnPostNorm = l.norm(block+"post_attention_norm", c.Embd)
		b.ffnNorm = l.norm(block+"ffn_norm", c.Embd)
		b.ffn = l.ffn(block, c, s)
		b.ffnPostNorm = l.norm(block+"post_ffw_norm", c.Embd)
		if e := m.perLayer; e != nil {
			b.inputProject = e.project.rows(i*e.width, (i+1)*e.width)
			b.inputGate = l.linear(block+"inp_gate", c.Embd, e.width)
			b.inputProj = l.linear(block+"proj", e.width, c.Embd)
			b.inputPostNorm = l.norm(block+"post_norm", c.Embd)
		}
		b.outputScale = 1
		if s := l.vectorIf(block+"layer_output_scale.weight", 1); s != nil {
			b.outputScale = s[0]
		}
	})
	m.outputNorm = l.norm("output_norm", c.Embd)
	m.output = l.head(c, m.embedding)
	return m
}

// localDims gives local layers their own head sizes; keys and values have the same.
func (c *Config) localDims(k *keys) {
	full := c.Layers[0]
	dimK := k.countOr("attention.key_length_swa", full.DimK)
	dimV := k.countOr("attention.value_length_swa", full.DimV)
	for i := range c.Layers {
		if s := &c.Layers[i]; s.Kind == drop.Local {
			s.DimK, s.DimV = dimK, dimV
		}
	}
	for _, s := range c.Layers {
		if s.DimK != s.DimV || s.DimK < 2 || s.DimK%2 != 0 {
			k.fault("attention.key_length", "an even number, the same for keys and values", fmt.Sprintf("%d and %d", s.DimK, s.DimV))
		}
	}
	for i, s := range c.Layers {
		if s.Consumes(i) && s.HeadsKV != c.Layers[s.Owner].HeadsKV {
			k.fault("attention.head_count_kv", fmt.Sprintf("the same in layer %d and in layer %d, whose keys it reads", i, s.Owner), fmt.Sprintf("%d and %d", s.HeadsKV, c.Layers[s.Owner].HeadsKV))
		}
	}
}

func (m *gemma4) loadRoPE(k *keys, l *loader) {
	for _, s := range m.config.Layers {
		switch {
		case s.Kind == drop.Local && m.ropeLocal == nil:
			nRot := k.rotated("rope.dimension_count_swa", s.DimK)
			m.ropeLocal = kernel.NewRoPE(nRot, k.positiveOr("rope.freq_base_swa", 10000), 1, nil, true)
		case s.Kind == drop.Full && m.rope == nil:
			nRot := k.rotated("rope.dimension_count", s.DimK)
			factors := l.vectorIf("rope_freqs.weight", nRot/2)
			m.rope = kernel.NewRoPE(nRot, k.positiveOr("rope.freq_base", 10000), k.ropeScale(), factors, true)
		}
	}
}

// loadProjections loads those to queries, keys and values; a consumer has only the first, whatever the file holds.
func (m *gemma4) loadProjections(l *loader, b *gemma4Layer, i int, block string, s Layer) {
	nq, nk := s.Heads*s.DimK, s.HeadsKV*s.DimK
	switch {
	case !s.Owns(i):
		b.q = l.linear(block+"attn_q", m.config.Embd, nq)
		return
	case l.has(block+"attn_qkv.weight") || l.has(block+"attn_v.weight"):
		b.q, b.k, b.v = l.qkv(block, m.config, s)
	default:
		b.q = l.linear(block+"attn_q", m.config.Embd, nq)
		b.k = l.linear(block+"attn_k", m.config.Embd, nk)
	}
	b.kNorm = l.norm(block+"attn_k_norm", s.DimK)
}

func (m *gemma4) Config() *Config { return m.config }

func (m *gemma4) prepare(p *Pass) func() {
	attention := func(i int) { m.attention(p, i, &m.layers[i]) }
	if m.perLayer == nil {
		return func() { m.forward(p, attention, nil) }
	}
	e := newLayerInput(p, m)
	return func() { m.forward(p, attention, e) }
}

func (m *gemma4) forward(p *Pass, attention func(layer int), e *layerInput) {
	p.embed(&m.embedding, m.embeddingScale)
	if e != nil {
		p.copy(e.x, p.x)
	}
	for i := range m.layers {
		l := &m.layers[i]
		p.branch(i, l.attnNorm, attention)
		p.norm(p.h, p.x, l.ffnNorm)
		p.geglu(p.y, p.h, &l.ffn)
		p.norm(p.y, p.y, l.ffnPostNorm)
		p.add(p.x, p.y)
		if e != nil {
			m.mixIn(p, i, l, e)
		}
		if l.outputScale != 1 {
			p.scale(p.x, l.outputScale)
		}
		p.hidden(i)
	}
	p.head(&m.output, m.outputNorm)
}

// attention computes y from h.
func (m *gemma4) attention(p *Pass, i int, l *gemma4Layer) {
	s := &m.config.Layers[i]
	rope := m.rope
	if s.Kind == drop.Local {
		rope = m.ropeLocal
	}
	if s.Owns(i) {
		p.linear(p.k, &l.k, p.h)
		if l.v.W.Rows > 0 {
			p.linear(p.v, &l.v, p.h)
		} else {
			p.copy(p.v, p.k)
		}
		p.headNorm(p.k, s.DimK, l.kNorm)
		p.rotate(p.k, rope, s.DimK)
		p.headNorm(p.v, s.DimV, nil)
		p.store(i, p.k, p.v)
	}
	p.linear(p.q, &l.q, p.h)
	p.headNorm(p.q, s.DimK, l.qNorm)
	p.rotate(p.q, rope, s.DimK)
	p.attend(p.a, p.q, s.Owner, s.Heads, 1)
	p.linear(p.y, &l.o, p.a)
	p.norm(p.y, p.y, l.attnPostNorm)
}
