package synth

import (
	"fmt"
	"math/rand/v2"

	"attnbudget/engine/gguf"
)

// tensor is a tensor to be made. value gives its i-th element; nil means a matrix of random weights.
type tensor struct {
	gguf.Tensor
	value func(r *rand.Rand, i int) float32
}

// builder collects the metadata and tensors of one model.
type builder struct {
	arch    string
	matrix  gguf.Type // of the weight matrices
	entries []gguf.Entry
	tensors []tensor
}

// set adds a metadata key.
func (b *builder) set(key string, v any) {
	b.entries = append(b.entries, gguf.Entry{Key: key, Value: gguf.ValueOf(v)})
}

// param adds a metadata key of the architecture. An int is stored as uint32.
func (b *builder) param(key string, v any) {
	if n, ok := v.(int); ok {
		v = uint32(n)
	}
	b.set(b.arch+"."+key, v)
}

func (b *builder) add(name string, t gguf.Type, value func(*rand.Rand, int) float32, shape ...int) {
	b.tensors = append(b.tensors, tensor{gguf.Tensor{Name: name, Type: t, Shape: shape}, value})
}

// weights adds a matrix that maps cols inputs to rows outputs.
func (b *builder) weights(name string, cols, rows int) {
	b.add(name+".weight", b.matrix, nil, cols, rows)
}

// norm adds n factors around 1.
func (b *builder) norm(name string, n int) { b.normAround(name, n, 1) }

func (b *builder) normAround(name string, n int, mean float32) {
	b.add(name+".weight", gguf.F32, func(r *rand.Rand, _ int) float32 { return mean * (0.75 + 0.5*r.Float32()) }, n)
}

// common adds the metadata that every architecture has, in front of its own.
func (b *builder) common(d dims, blocks int, ffn any) {
	b.param("vocab_size", d.vocab)
	b.param("context_length", d.context)
	b.param("embedding_length", d.embd)
	b.param("block_count", blocks)
	b.param("feed_forward_length", ffn)
	b.param("attention.head_count", d.heads)
	b.param("attention.head_count_kv", d.headsKV)
	b.param("attention.layer_norm_rms_epsilon", d.eps)
}

// ends adds the tensors in front of and behind the layers.
func (b *builder) ends(d dims) {
	b.weights("token_embd", d.embd, d.vocab)
	b.norm("output_norm", d.embd)
	if !d.tied {
		b.weights("output", d.embd, d.vocab)
	}
}

// feedForward adds the three matrices of a gated feed-forward network.
func (b *builder) feedForward(layer string, embd, ffn int) {
	b.weights(layer+"ffn_gate", embd, ffn)
	b.weights(layer+"ffn_up", embd, ffn)
	b.weights(layer+"ffn_down", ffn, embd)
}

func blk(layer int) string { return fmt.Sprintf("blk.%d.", layer) }
