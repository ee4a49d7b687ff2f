package synth

import (
	"fmt"
	"math/rand/v2"

	"attnbudget/engine/gguf"
)

// qwen35 is the shape of a dense Qwen3.5 model: three recurrent layers, then one with gated attention.
type qwen35 struct {
	dims
	mtp      int     // blocks behind the layers that predict further tokens
	rot      int     // rotated elements of a head
	sections []int32 // of rotated pairs
	state    int     // size of a recurrent head, of keys and of values
	headsK   int     // recurrent key heads
	headsV   int     // recurrent value heads
}

// gatedEvery is the period of layers with attention.
const gatedEvery = 4

// convKernel is the width of the convolution of a recurrent layer.
const convKernel = 4

func (m qwen35) size() dims { return m.dims }

func (m qwen35) withLayers(n int) (architecture, error) {
	if n < gatedEvery {
		return nil, fmt.Errorf("expected at least %d layers, the last of which is the first with attention, found %d", gatedEvery, n)
	}
	m.layers = n
	return m, nil
}

func (m qwen35) describe(b *builder) {
	b.arch = "qwen35"
	b.common(m.dims, m.layers+m.mtp, m.ffn)
	b.param("rope.freq_base", float32(1e7))
	b.param("rope.dimension_count", m.rot)
	b.param("rope.dimension_sections", m.sections)
	b.param("attention.key_length", m.dim)
	b.param("attention.value_length", m.dim)
	b.param("full_attention_interval", gatedEvery)
	b.param("ssm.conv_kernel", convKernel)
	b.param("ssm.inner_size", m.headsV*m.state)
	b.param("ssm.state_size", m.state)
	b.param("ssm.time_step_rank", m.headsV)
	b.param("ssm.group_count", m.headsK)
	if m.mtp > 0 {
		b.param("nextn_predict_layers", m.mtp)
	}

	b.ends(m.dims)
	for layer := range m.layers + m.mtp {
		l := blk(layer)
		b.norm(l+"attn_norm", m.embd)
		b.norm(l+"post_attention_norm", m.embd)
		if layer < m.layers && (layer+1)%gatedEvery != 0 {
			m.recurrent(b, l)
		} else {
			m.gated(b, l)
		}
		b.feedForward(l, m.embd, m.ffn)
		if layer >= m.layers {
			b.weights(l+"nextn.eh_proj", 2*m.embd, m.embd)
			b.norm(l+"nextn.enorm", m.embd)
			b.norm(l+"nextn.hnorm", m.embd)
			b.norm(l+"nextn.shared_head_norm", m.embd)
		}
	}
}

func (m qwen35) gated(b *builder, l string) {
	b.weights(l+"attn_q", m.embd, 2*m.heads*m.dim) // query and gate
	b.weights(l+"attn_k", m.embd, m.headsKV*m.dim)
	b.weights(l+"attn_v", m.embd, m.headsKV*m.dim)
	b.weights(l+"attn_output", m.heads*m.dim, m.embd)
	b.norm(l+"attn_q_norm", m.dim)
	b.norm(l+"attn_k_norm", m.dim)
}

func (m qwen35) recurrent(b *builder, l string) {
	values := m.headsV * m.state
	channels := 2*m.headsK*m.state + values
	b.weights(l+"attn_qkv", m.embd, channels)
	b.weights(l+"attn_gate", m.embd, values)
	b.add(l+"ssm_conv1d.weight", gguf.F32, func(r *rand.Rand, _ int) float32 { return 0.8 * (2*r.Float32() - 1) }, convKernel, channels)
	b.add(l+"ssm_dt.bias", gguf.F32, func(r *rand.Rand, _ int) float32 { return 2*r.Float32() - 1 }, m.headsV)
	b.add(l+"ssm_a", gguf.F32, func(r *rand.Rand, _ int) float32 { return -0.3 - 2.5*r.Float32() }, m.headsV) // decay: negative
	b.weights(l+"ssm_beta", m.embd, m.headsV)
	b.weights(l+"ssm_alpha", m.embd, m.headsV)
	b.norm(l+"ssm_norm", m.state)
	b.weights(l+"ssm_out", values, m.embd)
}
