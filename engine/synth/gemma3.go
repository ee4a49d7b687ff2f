package synth

// gemma3 is the shape of a Gemma 3 text model: five layers with a sliding window, then one without.
type gemma3 struct {
	dims
	window    int
	ropeScale float32 // linear, on the layers without window; 0 = none
}

func (m gemma3) size() dims { return m.dims }

func (m gemma3) withLayers(n int) (architecture, error) {
	m.layers = n
	return m, nil
}

func (m gemma3) describe(b *builder) {
	b.arch = "gemma3"
	b.common(m.dims, m.layers, m.ffn)
	b.param("rope.freq_base", float32(1e6))
	b.param("rope.freq_base_swa", float32(1e4))
	b.param("attention.sliding_window", m.window)
	b.param("attention.key_length", m.dim)
	b.param("attention.value_length", m.dim)
	if m.ropeScale > 0 {
		b.param("rope.scaling.type", "linear")
		b.param("rope.scaling.factor", m.ropeScale)
	}

	b.ends(m.dims)
	for l := range m.layers {
		l := blk(l)
		b.norm(l+"attn_norm", m.embd)
		b.weights(l+"attn_q", m.embd, m.heads*m.dim)
		b.weights(l+"attn_k", m.embd, m.headsKV*m.dim)
		b.weights(l+"attn_v", m.embd, m.headsKV*m.dim)
		b.weights(l+"attn_output", m.heads*m.dim, m.embd)
		b.norm(l+"attn_q_norm", m.dim)
		b.norm(l+"attn_k_norm", m.dim)
		b.norm(l+"post_attention_norm", m.embd)
		b.norm(l+"ffn_norm", m.embd)
		b.norm(l+"post_ffw_norm", m.embd)
		b.feedForward(l, m.embd, m.ffn)
	}
}
