package engine

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/model"
)

func openTiny(t *testing.T, name string) *Model {
	t.Helper()
	m, err := Open(filepath.Join(conformance, "models", name+".gguf"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func randomTokens(rng *rand.Rand, n, vocab int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(rng.IntN(vocab))
	}
	return out
}

// randomMasks draws different valid masks, the empty one among them.
func randomMasks(rng *rand.Rand, roles []drop.Role, n int) []drop.Mask {
	out := []drop.Mask{{}}
	for attempt := 0; attempt < 1000 && len(out) < n; attempt++ {
		var layers []int
		for l, r := range roles {
			if r.Attends() && rng.IntN(2) == 0 {
				layers = append(layers, l)
			}
		}
		if m, err := drop.Resolve(roles, layers); err == nil && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func contextLogits(t *testing.T, m *Model, o ContextOptions, tokens []int32, outputs []int) []float32 {
	t.Helper()
	o.NCtx = len(tokens)
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wants := make([]bool, len(tokens))
	for _, i := range outputs {
		wants[i] = true
	}
	if err := c.Decode(t.Context(), &Batch{Tokens: tokens, Logits: wants}); err != nil {
		t.Fatal(err)
	}
	var out []float32
	for _, i := range outputs {
		out = append(out, c.Logits(i)...)
	}
	return out
}

func variantLogits(v *Variants, tokens []int32, outputs []int, masks []drop.Mask) [][]float32 {
	hidden := slices.Clone(v.Run(tokens, outputs, masks))
	n := len(hidden) / len(masks)
	out := make([][]float32, len(masks))
	for i := range masks {
		out[i] = make([]float32, len(outputs)*v.model.info.Vocab)
		v.Logits(out[i], hidden[i*n:(i+1)*n])
	}
	return out
}

func TestVariantsAreContextsToTheBit(t *testing.T) {
	for _, name := range []string{"llama-tiny", "gemma3-tiny", "gemma4-tiny", "qwen35-tiny"} {
		t.Run(name, func(t *testing.T) {
			m := openTiny(t, name)
			rng := rand.New(rand.NewPCG(1, 2))
			const length = 256
			v, err := m.NewVariants(VariantsOptions{Tokens: length, Masks: 7})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			outputs := []int{3, 100, 254, 255}
			for round := range 3 { // later rounds overwrite what earlier ones stored
				tokens := randomTokens(rng, length, m.Info().Vocab)
				masks := randomMasks(rng, m.Roles(), 7-2*round)
				for i, got := range variantLogits(v, tokens, outputs, masks) {
					want := contextLogits(t, m, ContextOptions{Mask: masks[i].Layers()}, tokens, outputs)
					if !slices.Equal(got, want) {
						t.Errorf("round %d, mask %s of %v: the logits differ from those of a context", round, masks[i], masks)
					}
				}
			}
		})
	}
}

func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func randomSurrogates(rng *rand.Rand, layers []int, embd, rank int) model.Surrogates {
	random := func(n int, size float64) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(size * rng.NormFloat64())
		}
		return out
	}
	out := model.Surrogates{}
	for k, l := range layers {
		s := &model.Surrogate{Bias: random(embd, 0.3)}
		if k%2 == 0 {
			s.Down = kernel.Matrix{Type: gguf.F32, Rows: rank, Cols: embd, Data: bytesOf(random(rank*embd, 0.1))}
			s.Up = kernel.Matrix{Type: gguf.F32, Rows: embd, Cols: rank, Data: bytesOf(random(rank*embd, 0.1))}
		}
		out[l] = s
	}
	return out
}

func TestSurrogatesStandInForDroppedAttentionInBothWaysOfRunning(t *testing.T) {
	for _, name := range []string{"llama-tiny", "gemma3-tiny", "gemma4-tiny", "qwen35-tiny"} {
		t.Run(name, func(t *testing.T) {
			m := openTiny(t, name)
			rng := rand.New(rand.NewPCG(3, 4))
			const length = 256
			tokens, outputs := randomTokens(rng, length, m.Info().Vocab), []int{0, 7, 255}
			masks := randomMasks(rng, m.Roles(), 4)
			var all []int
			for l, r := range m.Roles() {
				if r.Attends() {
					all = append(all, l)
				}
			}
			library := randomSurrogates(rng, all, m.Info().Embd, 16)
			v, err := m.NewVariants(VariantsOptions{Tokens: length, Masks: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			v.Replace(NewSurrogates(drop.Mask{}, randomSurrogates(rng, all, m.Info().Embd, 2))) // of a smaller rank
			v.Replace(NewSurrogates(drop.Mask{}, library))
			changed := false
			for i, got := range variantLogits(v, tokens, outputs, masks) {
				o := ContextOptions{Mask: masks[i].Layers()}
				plain := contextLogits(t, m, o, tokens, outputs)
				o.Surrogates = NewSurrogates(masks[i], library)
				want := contextLogits(t, m, o, tokens, outputs)
				if !slices.Equal(got, want) {
					t.Errorf("mask %s: the logits differ from those of a context", masks[i])
				}
				if masks[i].Empty() != slices.Equal(plain, want) {
					t.Errorf("mask %s: surrogates made a difference: %v", masks[i], masks[i].Empty())
				}
				changed = changed || !masks[i].Empty()
			}
			if !changed {
				t.Fatal("no mask was tried")
			}
		})
	}
}

// A constant equal to what a branch adds is as good as the branch, and position 0 is left alone.
func TestASurrogateAddsWhatItSays(t *testing.T) {
	m := openTiny(t, "llama-tiny")
	tokens := []int32{1, 2, 3}
	mask, err := drop.Resolve(m.Roles(), []int{1})
	if err != nil {
		t.Fatal(err)
	}
	bias := make([]float32, m.Info().Embd)
	for i := range bias {
		bias[i] = float32(i%5) - 2
	}
	trace := func(s *Surrogates) [][]float32 {
		c, err := m.NewContext(ContextOptions{NCtx: 256, Mask: []int{1}, Surrogates: s})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var out [][]float32
		c.pass.OnHidden = func(layer int, _ []int, h []float32) {
			if layer == 0 || layer == 1 {
				out = append(out, slices.Clone(h))
			}
		}
		if err := c.Decode(t.Context(), &Batch{Tokens: tokens, Logits: []bool{true, true, true}}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	with, without := trace(NewSurrogates(mask, model.Surrogates{1: {Bias: bias}})), trace(nil)
	n := m.Info().Embd
	if !slices.Equal(with[0], without[0]) || !slices.Equal(with[1][:n], without[1][:n]) {
		t.Error("the layer before or position 0 changed")
	}
	for row := 1; row < len(tokens); row++ {
		if slices.Equal(with[1][row*n:(row+1)*n], without[1][row*n:(row+1)*n]) {
			t.Errorf("position %d did not change", row)
		}
	}
}

func TestSurrogatesOfAnotherMaskAreRefused(t *testing.T) {
	m := openTiny(t, "llama-tiny")
	mask, err := drop.Resolve(m.Roles(), []int{0})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.NewContext(ContextOptions{NCtx: 256, Mask: []int{1}, Surrogates: NewSurrogates(mask, model.Surrogates{})})
	if want := "fitted for 0, used with 1"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

func TestSurrogateFilesAreChecked(t *testing.T) {
	m := openTiny(t, "llama-tiny")
	embd := m.Info().Embd
	bias, down, up := SurrogateTensors(1)
	// read reads a file of surrogates for layer 1 of a model with fingerprint "f", with some entries or tensors of another kind.
	read := func(schema string, layers []int32, tensors ...*gguf.Tensor) (*Surrogates, error) {
		f, err := gguf.NewFile("surrogates.gguf", []gguf.Entry{
			{Key: SurrogateSchemaKey, Value: gguf.ValueOf(schema)},
			{Key: SurrogateModelKey, Value: gguf.ValueOf("f")},
			{Key: SurrogateLayersKey, Value: gguf.ValueOf(layers)},
		}, tensors)
		if err != nil {
			t.Fatal(err)
		}
		return m.ReadSurrogates(f, "f")
	}
	one := []int32{1}
	good := []*gguf.Tensor{named(bias, zeros(embd)), named(down, zeros(embd, 4)), named(up, zeros(4, embd))}
	s, err := read(SurrogateSchema, one, good...)
	if err != nil || s.Mask().String() != "1" || s.layers[1].Down.Rows != 4 || s.layers[1].Up.Rows != embd {
		t.Fatalf("%+v, %v", s, err)
	}
	changed := named(bias, zeros(embd))
	changed.Data[5] = 1
	if other, err := read(SurrogateSchema, one, changed, good[1], good[2]); err != nil || other.Hash() == s.Hash() {
		t.Errorf("other numbers have the same hash: %v", err)
	}
	f16 := named(bias, zeros(embd))
	f16.Type = gguf.F16
	for _, tt := range []struct {
		schema  string
		layers  []int32
		tensors []*gguf.Tensor
		err     string
	}{
		{"attnbudget/surrogate/0", one, good, `surrogates.gguf: attnbudget.surrogate.schema is "attnbudget/surrogate/0", expected "attnbudget/surrogate/1"`},
		{SurrogateSchema, []int32{9}, good, "surrogates.gguf: attention drop mask: layer 9 does not exist"},
		{SurrogateSchema, one, good[1:], "surrogates.gguf: tensor blk.1.attn_surrogate.bias: expected F32 of 64 columns and 1 rows, found no such tensor"},
		{SurrogateSchema, one, []*gguf.Tensor{f16}, "found F16 of shape [64]"},
		{SurrogateSchema, one, []*gguf.Tensor{named(bias, zeros(32))}, "found F32 of shape [32]"},
		{SurrogateSchema, one, good[:2], "tensor blk.1.attn_surrogate_up.weight: expected F32 of 4 columns and 64 rows, found no such tensor"},
		{SurrogateSchema, one, []*gguf.Tensor{good[0], good[1], named(up, zeros(4, 32))}, "expected F32 of 4 columns and 64 rows, found F32 of shape [4 32]"},
	} {
		if _, err := read(tt.schema, tt.layers, tt.tensors...); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("error %v\nwant %s", err, tt.err)
		}
	}
	f, err := gguf.NewFile("surrogates.gguf", []gguf.Entry{
		{Key: SurrogateSchemaKey, Value: gguf.ValueOf(SurrogateSchema)}, {Key: SurrogateModelKey, Value: gguf.ValueOf("f")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var typed *SurrogateError
	if _, err := m.ReadSurrogates(f, "g"); !errors.As(err, &typed) || typed.Expected != "g" || typed.Found != "f" {
		t.Errorf("error %v, want a *SurrogateError", err)
	}
}
