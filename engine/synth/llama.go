package synth

import (
	"math"
	"math/rand/v2"

	"attnbudget/engine/gguf"
)

// llama is the shape of a Llama 3 model.
type llama struct {
	dims
	ropeFactor float64 // how much the context was stretched, 0 = no rope_freqs tensor
}

func (m llama) size() dims { return m.dims }

func (m llama) withLayers(n int) (architecture, error) {
	m.layers = n
	return m, nil
}

func (m llama) describe(b *builder) {
	const base = 500000
	b.arch = "llama"
	b.common(m.dims, m.layers, m.ffn)
	b.param("rope.freq_base", float32(base))
	b.param("rope.dimension_count", m.dim)
	b.param("attention.key_length", m.dim)
	b.param("attention.value_length", m.dim)

	b.ends(m.dims)
	if m.ropeFactor > 0 {
		factors := func(_ *rand.Rand, i int) float32 {
			return llama3Divisor(math.Pow(base, -2*float64(i)/float64(m.dim)), m.ropeFactor)
		}
		b.add("rope_freqs.weight", gguf.F32, factors, m.dim/2)
	}
	for l := range m.layers {
		l := blk(l)
		b.norm(l+"attn_norm", m.embd)
		b.weights(l+"attn_q", m.embd, m.heads*m.dim)
		b.weights(l+"attn_k", m.embd, m.headsKV*m.dim)
		b.weights(l+"attn_v", m.embd, m.headsKV*m.dim)
		b.weights(l+"attn_output", m.heads*m.dim, m.embd)
		b.norm(l+"ffn_norm", m.embd)
		b.feedForward(l, m.embd, m.ffn)
	}
}

// llama3Divisor is what Llama 3 divides the rotation frequency of a pair by, to reach contexts longer than the 8192 tokens
// it was first trained with: nothing for fast pairs, all of factor for slow ones, a blend between.
func llama3Divisor(frequency, factor float64) float32 {
	const trained, low, high = 8192, 1, 4
	wavelength := 2 * math.Pi / frequency
	switch {
	case wavelength < trained/high:
		return 1
	case wavelength > trained/low:
		return float32(factor)
	}
	smooth := (trained/wavelength - low) / (high - low)
	return float32(1 / ((1-smooth)/factor + smooth))
}
