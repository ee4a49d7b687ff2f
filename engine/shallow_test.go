package engine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"attnbudget/engine/gguf"
)

// Shallow models are a few layers cut out of the conformance models. Differences in the last bits have no room to grow in
// them: many rows of logits meet no rounding that flips, and agree with upstream to 1e-5 standard deviations. A systematic
// difference, however small, shows in all rows.
type shallowCase struct {
	model, weights, kv string
}

const (
	shallowFolder = conformance + "/shallow"
	shallowEvery  = 4 // of the rows, the last of each four is kept
)

// cuts says for each architecture which layers are kept and what its metadata then say: at least one of each kind.
var cuts = map[string]struct {
	layers []int
	set    map[string]any
}{
	"llama":      {layers: []int{0}},
	"llama-tied": {layers: []int{0}},
	"gemma3":     {layers: []int{4, 5}, set: map[string]any{"gemma3.attention.sliding_window_pattern": uint32(2)}},
	"qwen35":     {layers: []int{2, 3}, set: map[string]any{"qwen35.full_attention_interval": uint32(2)}},
	"gemma4": {layers: []int{3, 4}, set: map[string]any{
		"gemma4.attention.sliding_window_pattern": []bool{true, false}, "gemma4.attention.shared_kv_layers": uint32(0),
	}},
}

func shallowCases() []shallowCase {
	var out []shallowCase
	for _, name := range architectures {
		for _, kv := range CacheTypes {
			out = append(out, shallowCase{name + "-tiny", gguf.F32.String(), kv})
		}
	}
	for _, weights := range strings.Fields("F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K_S Q4_K_S Q5_K_S Q6_K IQ4_NL IQ4_XS") {
		out = append(out, shallowCase{"llama-wide", weights, "f32"})
	}
	for _, name := range []string{"gemma3", "qwen35", "gemma4"} {
		for _, weights := range []string{"Q8_0", "Q4_K_M"} {
			out = append(out, shallowCase{name + "-wide", weights, "f32"})
		}
	}
	return out
}

func (s shallowCase) name() string {
	return fmt.Sprintf("%s.shallow.%s.kv-%s", s.model, s.weights, s.kv)
}

func (s shallowCase) file() string { return filepath.Join(shallowFolder, s.name()+".f32") }

func (s shallowCase) reference(t *testing.T) []float32 { return readFloats(t, s.file()) }

// path writes the shallow model, and quantises it where the case wants that.
func (s shallowCase) path(t *testing.T) string {
	t.Helper()
	path := conformanceCase{Model: s.model}.source(t)
	name, _, _ := strings.Cut(s.model, "-")
	if strings.HasPrefix(s.model, "llama-tied") {
		name = "llama-tied"
	}
	cut := mutate(t, path, cutLayers(t, path, cuts[name].layers, cuts[name].set))
	if s.weights == gguf.F32.String() {
		return cut
	}
	return quantised(t, cut, s.weights)
}

// cutLayers leaves the given layers of the model at path, renumbered.
func cutLayers(t *testing.T, path string, layers []int, set map[string]any) mutation {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	arch, err := f.String("general.architecture")
	if err != nil {
		t.Fatal(err)
	}
	m := mutation{set: map[string]any{arch + ".block_count": uint32(len(layers))}, replace: map[string]*gguf.Tensor{}}
	for k, v := range set {
		m.set[k] = v
	}
	for _, x := range f.Tensors {
		var layer int
		var part string
		if n, _ := fmt.Sscanf(x.Name, "blk.%d.%s", &layer, &part); n < 2 {
			continue
		}
		m.without = append(m.without, x.Name)
		if at := slices.Index(layers, layer); at >= 0 {
			y := rawTensor(t, path, x.Name)
			y.Name = fmt.Sprintf("blk.%d.%s", at, part)
			m.add = append(m.add, y)
		}
	}
	if width, err := f.Uint(arch + ".embedding_length_per_layer_input"); err == nil {
		for _, name := range []string{"per_layer_model_proj.weight", "per_layer_token_embd.weight"} {
			m.replace[name] = cutPerLayer(rawTensor(t, path, name), int(width), layers, name == "per_layer_token_embd.weight")
		}
	}
	return m
}

// cutPerLayer leaves of a matrix of gemma4's per-layer embedding the width columns, or rows, of the given layers.
func cutPerLayer(x *gguf.Tensor, width int, layers []int, columns bool) *gguf.Tensor {
	row := x.Type.RowBytes(x.Shape[0])
	block, stride := width*row, len(x.Data) // bytes of a layer, and from what holds all layers to the next
	shape := []int{x.Shape[0], width * len(layers)}
	if columns {
		block, stride = x.Type.RowBytes(width), row
		shape = []int{width * len(layers), x.Shape[1]}
	}
	y := &gguf.Tensor{Name: x.Name, Type: x.Type, Shape: shape}
	for all := range slices.Chunk(x.Data, stride) {
		for _, layer := range layers {
			y.Data = append(y.Data, all[layer*block:][:block]...)
		}
	}
	return y
}

// limit is of typicalDifference. A cache in half precision has finer steps than one in codes of eight bits, so that there is
// hardly a row in which none flips; 5e-4 is what rounding to half precision may change.
func (s shallowCase) limit() float64 {
	if s.kv == "f16" {
		return 5e-4
	}
	return 1e-5
}

// logits computes the rows of the reference.
func (s shallowCase) logits(t *testing.T, tokens []int32) []float32 {
	t.Helper()
	return s.compute(t, s.path(t), tokens)
}

func (s shallowCase) compute(t *testing.T, path string, tokens []int32) []float32 {
	t.Helper()
	kv, err := ParseCacheType(s.kv)
	if err != nil {
		t.Fatal(err)
	}
	m := openTest(t, path, Options{ExpandF32: s.weights == gguf.F32.String()})
	return shallowRows(decode(t, newTestContext(t, m, ContextOptions{NCtx: len(tokens), TypeK: kv, TypeV: kv, Threads: 2}), tokens))
}

// shallowRows keeps some rows of the logits of 64 tokens.
func shallowRows(logits []float32) []float32 {
	var out []float32
	vocab := len(logits) / 64
	for i := shallowEvery - 1; i < 64; i += shallowEvery {
		out = append(out, logits[i*vocab:][:vocab]...)
	}
	return out
}

// typicalDifference is the lower quartile over the rows of the largest difference, in standard deviations of want.
func typicalDifference(got, want []float32) float64 {
	var rows []float64
	vocab := len(want) / (64 / shallowEvery)
	for at := 0; at < len(want); at += vocab {
		rows = append(rows, maxDifference(got[at:][:vocab], want[at:][:vocab]))
	}
	slices.Sort(rows)
	return rows[len(rows)/4] / deviation(want)
}

func TestShallowModelsConform(t *testing.T) {
	tokens := readIndex(t).Tokens["seed7-n64"]
	for _, s := range shallowCases() {
		t.Run(s.name(), func(t *testing.T) {
			want := s.reference(t)
			got := s.logits(t, tokens)
			if len(got) != len(want) {
				t.Fatalf("%d logits, the reference has %d", len(got), len(want))
			}
			if d := typicalDifference(got, want); !(d <= s.limit()) {
				t.Errorf("three quarters of the rows differ by more than %.3g standard deviations, limit %.3g", d, s.limit())
			}
		})
	}
}

// The measure notices if the numbers of one matrix are off by 2^-14.
func TestShallowModelsShowSmallDifferences(t *testing.T) {
	tokens := readIndex(t).Tokens["seed7-n64"]
	for _, s := range shallowCases() {
		if s.weights != gguf.F32.String() || s.kv == "f16" {
			continue
		}
		t.Run(s.name(), func(t *testing.T) {
			path := s.path(t)
			tensors := widened(t, path)
			x := tensors["blk.0.ffn_down.weight"].Data
			values := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/4)
			for i := range values {
				values[i] *= 1 + 0x1p-14*float32(i%2*2-1)
			}
			changed := s.compute(t, mutate(t, path, mutation{replace: tensors}), tokens)
			if d := typicalDifference(changed, s.reference(t)); d <= s.limit() {
				t.Errorf("a quarter of the rows differ by no more than %.3g standard deviations", d)
			}
		})
	}
}
