package synth

import (
	"math/rand/v2"
	"slices"

	"attnbudget/engine/gguf"
)

// gemma4 is the shape of a Gemma 4 E model: layers with a sliding window and a few without, the last of which read the keys
// and values of earlier ones, and an embedding of the token for every layer.
type gemma4 struct {
	dims          // dim is that of the layers without window
	owners    int // layers with keys and values of their own; the others share
	sharedFFN int // feed-forward size of the layers that share
	full      []int
	localDim  int // of a head in layers with a window
	window    int
	perLayer  int // size of a layer's token embedding
}

func (m gemma4) size() dims { return m.dims }

// withLayers keeps about the share of layers that own keys and values, and whole periods of them: the last owner must be a
// layer without window.
func (m gemma4) withLayers(n int) (architecture, error) {
	period := m.full[0] + 1
	m.owners = min(n, max(period, n*m.owners/m.layers/period*period))
	m.layers = n
	m.full = slices.DeleteFunc(slices.Clone(m.full), func(l int) bool { return l >= n })
	return m, nil
}

func (m gemma4) local(layer int) bool { return !slices.Contains(m.full, layer) }

func (m gemma4) ffnOf(layer int) int {
	if layer < m.owners {
		return m.ffn
	}
	return m.sharedFFN
}

func (m gemma4) describe(b *builder) {
	b.arch = "gemma4"
	b.common(m.dims, m.layers, m.feedForwardLength())
	local := make([]bool, m.layers)
	for l := range local {
		local[l] = m.local(l)
	}
	b.param("attention.sliding_window_pattern", local)
	b.param("attention.sliding_window", m.window)
	b.param("attention.shared_kv_layers", m.layers-m.owners)
	b.param("attention.key_length", m.dim)
	b.param("attention.value_length", m.dim)
	b.param("attention.key_length_swa", m.localDim)
	b.param("attention.value_length_swa", m.localDim)
	b.param("rope.dimension_count", m.dim)
	b.param("rope.dimension_count_swa", m.localDim)
	b.param("rope.freq_base", float32(1e6))
	b.param("rope.freq_base_swa", float32(1e4))
	b.param("final_logit_softcapping", float32(30))
	b.param("embedding_length_per_layer_input", m.perLayer)

	b.ends(m.dims)
	b.weights("per_layer_token_embd", m.perLayer*m.layers, m.vocab)
	b.weights("per_layer_model_proj", m.embd, m.perLayer*m.layers)
	b.norm("per_layer_proj_norm", m.perLayer)
	b.add("rope_freqs.weight", gguf.F32, m.divisor, m.dim/2)
	for l := range m.layers {
		m.layer(b, l)
	}
}

// feedForwardLength is one number, or one a layer where they differ.
func (m gemma4) feedForwardLength() any {
	if m.ffn == m.sharedFFN {
		return m.ffn
	}
	sizes := make([]int32, m.layers)
	for l := range sizes {
		sizes[l] = int32(m.ffnOf(l))
	}
	return sizes
}

// divisor leaves the first quarter of the pairs as they are and stops the others from turning.
func (m gemma4) divisor(_ *rand.Rand, i int) float32 {
	if i < m.dim/8 {
		return 1
	}
	return 1e30
}

func (m gemma4) layer(b *builder, layer int) {
	l, dim := blk(layer), m.dim
	if m.local(layer) {
		dim = m.localDim
	}
	b.norm(l+"attn_norm", m.embd)
	b.weights(l+"attn_q", m.embd, m.heads*dim)
	if layer < m.owners {
		b.weights(l+"attn_k", m.embd, m.headsKV*dim)
		b.weights(l+"attn_v", m.embd, m.headsKV*dim)
		b.norm(l+"attn_k_norm", dim)
	}
	b.weights(l+"attn_output", m.heads*dim, m.embd)
	b.normAround(l+"attn_q_norm", dim, 0.35) // attention is not scaled by the head size, so this is
	b.norm(l+"post_attention_norm", m.embd)
	b.norm(l+"ffn_norm", m.embd)
	b.norm(l+"post_ffw_norm", m.embd)
	b.feedForward(l, m.embd, m.ffnOf(layer))
	b.weights(l+"inp_gate", m.embd, m.perLayer)
	b.weights(l+"proj", m.perLayer, m.embd)
	b.norm(l+"post_norm", m.embd)
	b.add(l+"layer_output_scale.weight", gguf.F32, func(*rand.Rand, int) float32 { return 0.9 }, 1)
}
