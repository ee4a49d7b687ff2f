package model

import (
	"fmt"
	"math"
	"unsafe"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/quant"
)

// TensorError is a tensor that is missing or is not what the model needs.
type TensorError struct {
	File, Tensor, Expected, Found string
}

func (e *TensorError) Error() string {
	return fmt.Sprintf("%s: tensor %s: expected %s, found %s", e.File, e.Tensor, e.Expected, e.Found)
}

// Linear is a weight matrix with an optional bias: y = W x + b.
type Linear struct {
	W    kernel.Matrix
	Bias []float32 // nil = none
}

// rows is the part of l that computes the outputs [from, to).
func (l Linear) rows(from, to int) Linear {
	stride := l.W.Type.RowBytes(l.W.Cols)
	out := Linear{W: kernel.Matrix{Type: l.W.Type, Rows: to - from, Cols: l.W.Cols, Data: l.W.Data[from*stride : to*stride]}}
	if l.Bias != nil {
		out.Bias = l.Bias[from:to]
	}
	return out
}

// loader binds the tensors of a file to the fields of a model. The first error sticks, like that of keys.
type loader struct {
	f      *gguf.File
	expand bool // weights as float32
	err    error
}

func (l *loader) fault(tensor, expected, found string) {
	if l.err == nil {
		l.err = &TensorError{l.f.Path, tensor, expected, found}
	}
}

func (l *loader) has(name string) bool { _, ok := l.f.Tensor(name); return ok }

// tensor finds a tensor of the given shape, [columns, rows] or [elements].
func (l *loader) tensor(name string, shape ...int) *gguf.Tensor {
	t, ok := l.f.Tensor(name)
	switch {
	case l.err != nil:
		return nil
	case !ok:
		l.fault(name, fmt.Sprintf("shape %v", shape), "no such tensor in the file")
		return nil
	case !sameShape(t.Shape, shape):
		l.fault(name, fmt.Sprintf("shape %v", shape), fmt.Sprintf("shape %v", t.Shape))
		return nil
	case t.Type == gguf.I32 || t.Type == gguf.Q8_K || t.Type == gguf.Q8_1:
		l.fault(name, "weights", "type "+t.Type.String())
		return nil
	}
	return t
}

// sameShape compares shapes whose trailing extents of 1 do not count.
func sameShape(a, b []int) bool {
	for i := range max(len(a), len(b)) {
		x, y := 1, 1
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return false
		}
	}
	return true
}

// matrix is the weight matrix of rows outputs over cols inputs.
func (l *loader) matrix(name string, cols, rows int) kernel.Matrix {
	t := l.tensor(name, cols, rows)
	if t == nil {
		return kernel.Matrix{}
	}
	if !l.expand || t.Type == gguf.F32 {
		return kernel.Matrix{Type: t.Type, Rows: rows, Cols: cols, Data: t.Data}
	}
	x := make([]float32, t.Elements())
	quant.Dequantize(t.Type, x, t.Data)
	return kernel.Matrix{Type: gguf.F32, Rows: rows, Cols: cols, Data: floatBytes(x)}
}

func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// linear is name.weight with name.bias where the file has one.
func (l *loader) linear(name string, cols, rows int) Linear {
	out := Linear{W: l.matrix(name+".weight", cols, rows)}
	if l.has(name + ".bias") {
		out.Bias = l.vector(name+".bias", rows)
	}
	return out
}

// vector is a one-dimensional tensor, expanded.
func (l *loader) vector(name string, n int) []float32 {
	return l.numbers(l.tensor(name, n))
}

// table is a small two-dimensional tensor, expanded, [rows][cols].
func (l *loader) table(name string, cols, rows int) []float32 {
	return l.numbers(l.tensor(name, cols, rows))
}

// numbers expands a tensor that is free of values that are not numbers; nil in, nil out.
func (l *loader) numbers(t *gguf.Tensor) []float32 {
	if t == nil {
		return nil
	}
	x := make([]float32, t.Elements())
	quant.Dequantize(t.Type, x, t.Data)
	for i, v := range x {
		if math.IsNaN(float64(v)) {
			l.fault(t.Name, "numbers", fmt.Sprintf("NaN at index %d", i))
			return nil
		}
	}
	return x
}

// norm is the weight of a norm: name.weight.
func (l *loader) norm(name string, n int) []float32 { return l.vector(name+".weight", n) }

// vectorIf is a vector that a file may lack.
func (l *loader) vectorIf(name string, n int) []float32 {
	if !l.has(name) {
		return nil
	}
	return l.vector(name, n)
}

// embedding is the token embedding. Its rows are the vocabulary, which the tokeniser's list must not exceed.
func (l *loader) embedding(c *Config) kernel.Matrix {
	const name = "token_embd.weight"
	t, ok := l.f.Tensor(name)
	if !ok {
		return l.matrix(name, c.Embd, 1) // the error
	}
	c.Vocab = t.Rows()
	if v, ok := l.f.Value("tokenizer.ggml.tokens"); ok && v.Len() > c.Vocab {
		l.fault(name, fmt.Sprintf("a row for each of the %d tokens in tokenizer.ggml.tokens", v.Len()), fmt.Sprintf("%d rows", c.Vocab))
	}
	return l.matrix(name, c.Embd, c.Vocab)
}

// head is the output projection, the token embedding when the file has none of its own.
func (l *loader) head(c *Config, embedding kernel.Matrix) Linear {
	if !l.has("output.weight") {
		return Linear{W: embedding}
	}
	return l.linear("output", c.Embd, c.Vocab)
}

// qkv are the projections to queries, keys and values, from three tensors or from the rows of a fused one.
func (l *loader) qkv(block string, c *Config, s Layer) (q, k, v Linear) {
	nq, nk, nv := s.Heads*s.DimK, s.HeadsKV*s.DimK, s.HeadsKV*s.DimV
	if !l.has(block + "attn_qkv.weight") {
		return l.linear(block+"attn_q", c.Embd, nq), l.linear(block+"attn_k", c.Embd, nk), l.linear(block+"attn_v", c.Embd, nv)
	}
	fused := l.linear(block+"attn_qkv", c.Embd, nq+nk+nv)
	if l.err != nil {
		return Linear{}, Linear{}, Linear{}
	}
	return fused.rows(0, nq), fused.rows(nq, nq+nk), fused.rows(nq+nk, nq+nk+nv)
}

// gatedFFN are the three matrices of a gated feed-forward network: down(act(gate x) * (up x)).
type gatedFFN struct {
	gate, up, down Linear
}

func (l *loader) ffn(block string, c *Config, s Layer) gatedFFN {
	return gatedFFN{
		gate: l.linear(block+"ffn_gate", c.Embd, s.FF),
		up:   l.linear(block+"ffn_up", c.Embd, s.FF),
		down: l.linear(block+"ffn_down", s.FF, c.Embd),
	}
}

// blocks calls load for every executed layer with the prefix of its tensors, and stops at the first error.
func (l *loader) blocks(c *Config, load func(i int, block string, s Layer)) {
	for i, s := range c.Layers {
		if l.err != nil {
			return
		}
		load(i, fmt.Sprintf("blk.%d.", i), s)
	}
}
