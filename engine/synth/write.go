package synth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// Options of a synthetic model.
type Options struct {
	Layers int    // cut the model to its first layers; 0 = all
	Sparse bool   // leave the weight matrices as holes in the file: zeros that take no disk space
	Seed   uint64 // of the weights; equal seeds give equal files
}

// piece is about how many bytes of a tensor are made at a time.
const piece = 1 << 20

// Write writes a model to path. shapeName is one of Names, format a quantisation mix ("Q4_K_M") or a type ("F16"). Tensors get the
// types the mix gives them. Errors are an *UnknownShapeError, an unknown format, a number of layers the shape cannot have,
// those of writing, or ctx's, after which nothing is left behind. A file that exists is replaced when the new one is whole.
func Write(ctx context.Context, path, shapeName, format string, opt Options) error {
	m, err := plan(shapeName, format, opt)
	if err != nil {
		return err
	}
	w, err := gguf.Create(path)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := w.CopyMetadata(m.file); err != nil {
		return err
	}
	for _, t := range m.file.Tensors {
		if err := w.Add(t.Name, t.Type, t.Shape); err != nil {
			return err
		}
	}
	for _, t := range m.file.Tensors {
		if err := m.write(ctx, w, t, opt); err != nil {
			return err
		}
	}
	return w.Finish()
}

// Describe is the model that Write would write, without data: its metadata, tensors, their types and sizes.
func Describe(shapeName, format string, opt Options) (*gguf.File, error) {
	m, err := plan(shapeName, format, opt)
	if err != nil {
		return nil, err
	}
	return m.file, nil
}

// model is a described model and how the tensors with values of their own are made.
type model struct {
	file   *gguf.File
	values map[string]func(r *rand.Rand, i int) float32
}

// plan describes the model as a converter would write it and then, for quantised formats, changes it as the quantiser would.
func plan(shapeName, format string, opt Options) (*model, error) {
	mix, err := quant.ParseMix(format)
	if err != nil {
		return nil, err
	}
	s, err := find(shapeName, opt.Layers)
	if err != nil {
		return nil, err
	}
	quantised := mix.Base().BlockSize() > 1
	converted := mix
	if quantised {
		converted = quant.F16
	}
	b, values := s.build(converted, opt)
	tensors := make([]*gguf.Tensor, len(b.tensors))
	for i := range b.tensors {
		tensors[i] = &b.tensors[i].Tensor
	}
	f, err := gguf.NewFile(s.name, b.entries, tensors)
	if err != nil || !quantised {
		return &model{f, values}, err
	}
	choices, err := mix.Choose(f, false)
	if err != nil {
		return nil, err
	}
	for i, c := range choices {
		c.Tensor.Type = c.Type
		tensors[i] = c.Tensor
	}
	f, err = gguf.NewFile(s.name, quantisedMetadata(b.entries, mix), tensors)
	return &model{f, values}, err
}

// build describes the model with matrices of the mix's type.
func (s shape) build(mix quant.Mix, opt Options) (*builder, map[string]func(*rand.Rand, int) float32) {
	head := &builder{}
	d := s.arch.size()
	head.set("general.name", s.name)
	head.set("general.file_type", uint32(mix))
	head.vocabulary(d.vocab, !d.noBOS)

	b := &builder{matrix: mix.Base()}
	s.arch.describe(b)
	entries := []gguf.Entry{{Key: "general.architecture", Value: gguf.ValueOf(b.arch)}}
	b.entries = append(append(entries, head.entries...), b.entries...)
	b.set("general.description", describe(s, opt))

	values := map[string]func(*rand.Rand, int) float32{}
	for _, t := range b.tensors {
		if t.value != nil {
			values[t.Name] = t.value
		}
	}
	return b, values
}

func describe(s shape, opt Options) string {
	weights := fmt.Sprintf("random weights, seed %d", opt.Seed)
	if opt.Sparse {
		weights = "weight matrices of zeros"
	}
	return fmt.Sprintf("synthetic model in the shape of %s, %d layers, %s", s.name, s.arch.size().layers, weights)
}

// quantisedMetadata puts the two keys of the quantisation last, as the quantiser does.
func quantisedMetadata(entries []gguf.Entry, mix quant.Mix) []gguf.Entry {
	var out []gguf.Entry
	for _, e := range entries {
		if e.Key != "general.file_type" {
			out = append(out, e)
		}
	}
	return append(out,
		gguf.Entry{Key: "general.quantization_version", Value: gguf.ValueOf(uint32(2))},
		gguf.Entry{Key: "general.file_type", Value: gguf.ValueOf(uint32(mix))})
}

// write makes the data of one tensor. They depend on seed and name alone, so that a shorter model has the same layers.
func (m *model) write(ctx context.Context, w *gguf.Writer, t *gguf.Tensor, opt Options) error {
	r := rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d %s", opt.Seed, t.Name)))
	if value := m.values[t.Name]; value != nil {
		return w.Data(t.Name, float32s(rand.New(r), t.Elements(), value))
	}
	if opt.Sparse {
		return w.Skip(t.Name)
	}
	// A deviation of 1/sqrt(inputs) keeps the size of activations from layer to layer.
	s := newSource(t.Type, 1/math.Sqrt(float64(t.Cols())))
	block := t.Type.BlockBytes()
	buf := make([]byte, max(piece/block, 1)*block)
	for left := t.Bytes(); left > 0; left -= int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("writing tensor %q: %w", t.Name, context.Cause(ctx))
		}
		buf = buf[:min(int64(len(buf)), left)]
		s.fill(r, buf)
		if err := w.Data(t.Name, buf); err != nil {
			return err
		}
	}
	return nil
}

func float32s(r *rand.Rand, n int, value func(*rand.Rand, int) float32) []byte {
	b := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(value(r, i)))
	}
	return b
}
