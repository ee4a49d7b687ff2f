package quant

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"attnbudget/engine/gguf"
)

// Choice is the type a tensor gets.
type Choice struct {
	Tensor *gguf.Tensor
	Type   gguf.Type
}

// Bytes is the size of the tensor's data in its new type.
func (c Choice) Bytes() int64 {
	return int64(c.Tensor.Rows()) * int64(c.Type.RowBytes(c.Tensor.Cols()))
}

// Choose decides the type of every tensor of f, in the order they are to be written: tensors outside of the layers first,
// then layer by layer, by name within. With pure every tensor that may be quantised gets the mix's base type (or its
// stand-in when the rows do not divide into blocks).
//
// The rules are those of llama_tensor_get_type in upstream's llama-quant.cpp without an importance matrix. Errors are an
// *InputError when f is of a kind whose rules are not known here, or a *gguf.KeyError for missing metadata.
func (m Mix) Choose(f *gguf.File, pure bool) ([]Choice, error) {
	c, err := newChooser(f, m)
	if err != nil {
		return nil, err
	}
	tensors := inWritingOrder(f.Tensors)
	choices := make([]Choice, len(tensors))
	for i, t := range tensors {
		choices[i] = Choice{Tensor: t, Type: t.Type}
		if !mayQuantize(t) {
			continue
		}
		choices[i].Type = m.Base()
		if choices[i].Type.BlockSize() == 1 {
			continue
		}
		if !pure {
			choices[i].Type = c.choose(t)
		}
		choices[i].Type = fitting(choices[i].Type, t.Cols())
	}
	return choices, nil
}

// mayQuantize reports whether a tensor is a matrix of weights that stands being rounded.
func mayQuantize(t *gguf.Tensor) bool {
	if len(trimShape(t.Shape)) < 2 || !strings.HasSuffix(t.Name, "weight") || t.Type == gguf.I32 {
		return false
	}
	return !slices.ContainsFunc(
		[]string{"_norm.weight", "ffn_gate_inp.weight", "per_layer_model_proj", "ssm_conv1d", "altup", "laurel"},
		func(part string) bool { return strings.Contains(t.Name, part) })
}

// fitting returns t, or the type that stands in for it when rows of n elements are not whole blocks: a small-block type of
// about the same width, or at last F16.
func fitting(t gguf.Type, n int) gguf.Type {
	if n%t.BlockSize() == 0 {
		return t
	}
	standIn := map[gguf.Type]gguf.Type{
		gguf.Q2_K: gguf.Q4_0, gguf.Q3_K: gguf.Q4_0, gguf.Q4_K: gguf.Q5_0, gguf.Q5_K: gguf.Q5_1, gguf.Q6_K: gguf.Q8_0,
		gguf.IQ4_XS: gguf.IQ4_NL,
	}
	if s, ok := standIn[t]; ok && n%s.BlockSize() == 0 {
		return s
	}
	return gguf.F16
}

// chooser is the running state of the rules over one file: how many tensors of the kinds that get better types have been
// seen.
type chooser struct {
	mix      Mix
	tied     bool // the token embedding is the output matrix too
	llama70B bool
	gqa      int // query heads per key/value head of layer 0

	values, valuesSeen int
	layers, downsSeen  int
}

func newChooser(f *gguf.File, m Mix) (*chooser, error) {
	arch, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	experts, err := f.UintOr(arch+".expert_count", 0)
	if err != nil {
		return nil, err
	}
	if experts > 1 || arch == "falcon" {
		return nil, &InputError{File: f.Path, Reason: "the format mixes have special rules for models with experts and for Falcon, which are not implemented"}
	}
	layers, err := f.Uint(arch + ".block_count")
	if err != nil {
		return nil, err
	}
	heads, err := f.Uints(arch + ".attention.head_count")
	if err != nil {
		return nil, err
	}
	headsKV := heads
	if key := arch + ".attention.head_count_kv"; f.Has(key) {
		if headsKV, err = f.Uints(key); err != nil {
			return nil, err
		}
	}
	c := &chooser{mix: m, tied: true, layers: int(layers)}
	if len(heads) > 0 && len(headsKV) > 0 && headsKV[0] > 0 {
		c.gqa = int(heads[0] / headsKV[0])
		c.llama70B = arch == "llama" && layers == 80 && heads[0] != headsKV[0]
	}
	for _, t := range f.Tensors {
		if isValue(t.Name) {
			c.values++
		}
		if t.Name == "output.weight" {
			c.tied = false
		}
	}
	return c, nil
}

func (c *chooser) choose(t *gguf.Tensor) gguf.Type {
	name := t.Name
	embedding := name == "token_embd.weight" || name == "per_layer_token_embd.weight"
	switch {
	case name == "output.weight" || c.tied && embedding:
		return c.output(t.Cols())
	case embedding:
		return c.mix.Base()
	case isValue(name):
		return c.value()
	case strings.Contains(name, "attn_k.weight"), strings.Contains(name, "attn_q.weight"):
		return c.mix.Base()
	case strings.Contains(name, "attn_output.weight"):
		return c.attentionOutput()
	case strings.Contains(name, "ffn_up"), strings.Contains(name, "ffn_gate"):
		return c.mix.Base()
	case strings.Contains(name, "ffn_down"):
		return c.down()
	}
	return c.mix.Base()
}

// isValue reports whether a matrix makes the attention's values, alone or with queries and keys.
func isValue(name string) bool {
	return strings.Contains(name, "attn_v.weight") || strings.Contains(name, "attn_qkv.weight") || strings.Contains(name, "attn_kv_b.weight")
}

func (c *chooser) output(columns int) gguf.Type {
	base := c.mix.Base()
	if base == gguf.Q8_0 || columns%base.BlockSize() != 0 {
		return gguf.Q8_0
	}
	return gguf.Q6_K
}

func (c *chooser) value() gguf.Type {
	i := c.valuesSeen
	c.valuesSeen++
	t := c.mix.Base()
	switch c.mix {
	case Q2_K:
		t = gguf.Q3_K
		if c.gqa >= 4 {
			t = gguf.Q4_K
		}
	case Q3_K_M:
		t = gguf.Q4_K
		if i < 2 {
			t = gguf.Q5_K
		}
	case Q3_K_L:
		t = gguf.Q5_K
	case IQ4_NL, IQ4_XS:
		if c.gqa >= 4 {
			t = gguf.Q5_K
		}
	case Q4_K_S:
		if i < 4 {
			t = gguf.Q5_K
		}
	case Q4_K_M, Q5_K_M:
		if moreBits(i, c.values) {
			t = gguf.Q6_K
		}
	}
	if c.llama70B && (t == gguf.Q3_K || t == gguf.Q4_K) {
		return gguf.Q5_K // eight query heads share each value head: the matrix is small, and its errors count eightfold
	}
	return t
}

func (c *chooser) down() gguf.Type {
	i := c.downsSeen
	c.downsSeen++
	switch c.mix {
	case Q2_K:
		return gguf.Q3_K
	case Q3_K_M:
		if i < c.layers/16 {
			return gguf.Q5_K
		}
		return gguf.Q4_K
	case Q3_K_L:
		return gguf.Q5_K
	case IQ4_NL, IQ4_XS, Q4_K_S:
		if i < c.layers/8 {
			return gguf.Q5_K
		}
	case Q4_K_M, Q5_K_M:
		if moreBits(i, c.layers) {
			return gguf.Q6_K
		}
	}
	return c.mix.Base()
}

func (c *chooser) attentionOutput() gguf.Type {
	switch c.mix {
	case Q2_K:
		return gguf.Q3_K
	case Q3_K_M:
		return gguf.Q4_K
	case Q3_K_L:
		return gguf.Q5_K
	}
	return c.mix.Base()
}

// moreBits picks the first and last eighth of n layers and every third between.
func moreBits(i, n int) bool { return i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 }

// inWritingOrder sorts tensors by layer and then by name; those outside of the layers come first.
func inWritingOrder(tensors []*gguf.Tensor) []*gguf.Tensor {
	sorted := slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b *gguf.Tensor) int {
		return cmp.Or(cmp.Compare(layerOf(a.Name), layerOf(b.Name)), strings.Compare(a.Name, b.Name))
	})
	return sorted
}

// layerOf returns the layer in a name like "blk.3.attn_q.weight", else -1.
func layerOf(name string) int {
	rest, isLayer := strings.CutPrefix(name, "blk.")
	number, _, hasTail := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	if !isLayer || !hasTail || err != nil {
		return -1
	}
	return layer
}

// trimShape cuts off trailing extents of one, as upstream does when it counts and writes dimensions.
func trimShape(shape []int) []int {
	n := len(shape)
	for n > 1 && shape[n-1] == 1 {
		n--
	}
	return shape[:n]
}
