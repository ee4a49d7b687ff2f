package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

func TestBadModelsAreRefusedWithReasons(t *testing.T) {
	nan := zeros(64)
	binary.LittleEndian.PutUint32(nan.Data[5*4:], math.Float32bits(float32(math.NaN())))
	for _, tt := range []struct {
		name, model string
		mutation    mutation
		err         string
	}{
		{"missing tensor", "llama", mutation{without: []string{"blk.2.attn_k.weight"}},
			"tensor blk.2.attn_k.weight: expected shape [64 128], found no such tensor in the file"},
		{"wrong shape", "llama", mutation{replace: map[string]*gguf.Tensor{"blk.1.ffn_up.weight": zeros(64, 32)}},
			"tensor blk.1.ffn_up.weight: expected shape [64 64], found shape [64 32]"},
		{"a norm that is not a number", "llama", mutation{replace: map[string]*gguf.Tensor{"output_norm.weight": nan}},
			"tensor output_norm.weight: expected numbers, found NaN at index 5"},
		{"more tokens than embeddings", "llama", mutation{replace: map[string]*gguf.Tensor{"token_embd.weight": zeros(64, 300)}},
			"tensor token_embd.weight: expected a row for each of the 320 tokens in tokenizer.ggml.tokens, found 300 rows"},
		{"absent metadata", "llama", mutation{delete: []string{"llama.embedding_length"}},
			`metadata key "llama.embedding_length"`},
		{"metadata of the wrong type", "llama", mutation{set: map[string]any{"llama.context_length": "long"}},
			`metadata key "llama.context_length": expected an unsigned integer`},
		{"heads that do not divide", "llama", mutation{set: map[string]any{"llama.attention.head_count_kv": uint32(3)}},
			"key llama.attention.head_count: expected a multiple of the 3 key and value heads in layer 0, found 4"},
		{"no heads", "llama", mutation{set: map[string]any{"llama.attention.head_count": uint32(0)}},
			"key llama.attention.head_count"},
		{"a size of fantasy", "llama", mutation{set: map[string]any{"llama.feed_forward_length": uint64(1) << 60}},
			"key llama.feed_forward_length: expected a number from 1 to 1073741824, found 1152921504606846976"},
		{"zero epsilon", "llama", mutation{set: map[string]any{"llama.attention.layer_norm_rms_epsilon": float32(0)}},
			"key llama.attention.layer_norm_rms_epsilon: expected a positive number, found 0"},
		{"a rotation that is not the head", "llama", mutation{set: map[string]any{"llama.rope.dimension_count": uint32(32)}},
			"key llama.rope.dimension_count: expected 64, the size of a key head, found 32"},
		{"YaRN", "llama", mutation{set: map[string]any{"llama.rope.scaling.type": "yarn"}},
			"key llama.rope.scaling.type: expected linear or none, found yarn"},
		{"another architecture", "llama", mutation{set: map[string]any{"general.architecture": "mixtral"}},
			"architecture mixtral is not supported and nothing in it may be dropped; supported are llama, gemma3, qwen35, gemma4"},
		{"a gemma3 with a local layer and no window", "gemma3", mutation{set: map[string]any{"gemma3.attention.sliding_window": uint32(0)}}, ""},
		{"gemma4 with experts", "gemma4", mutation{add: []*gguf.Tensor{named("blk.0.ffn_gate_inp.weight", zeros(64, 4))}},
			"architecture gemma4 with experts (MoE) is not supported"},
		{"gemma4 without its second embedding", "gemma4", mutation{without: []string{"per_layer_token_embd.weight"}},
			"tensor per_layer_token_embd.weight: expected shape [256 320], found no such tensor"},
		{"gemma4 with keys and values of different sizes", "gemma4", mutation{set: map[string]any{"gemma4.attention.value_length": uint32(64)}},
			"key gemma4.attention.key_length: expected an even number, the same for keys and values, found 128 and 64"},
		{"qwen35 with heads that do not divide", "qwen35", mutation{set: map[string]any{"qwen35.ssm.group_count": uint32(3)}},
			"key qwen35.ssm.time_step_rank: expected a multiple of the 3 key heads, found 4"},
		{"qwen35 whose inner size is not its heads", "qwen35", mutation{set: map[string]any{"qwen35.ssm.inner_size": uint32(128)}},
			"key qwen35.ssm.inner_size: expected 256, 4 heads of 64, found 128"},
		{"a list that is too short", "llama", mutation{set: map[string]any{"llama.feed_forward_length": []uint32{64, 64, 64}}},
			"key llama.feed_forward_length: expected a number for each of 4 layers, found 3 numbers"},
		{"an epsilon that is no number", "llama", mutation{set: map[string]any{"llama.attention.layer_norm_rms_epsilon": float32(math.NaN())}},
			"key llama.attention.layer_norm_rms_epsilon: expected a finite number, found NaN"},
		{"heads that do not pair", "llama", mutation{set: map[string]any{"llama.attention.key_length": uint32(63)}},
			"key llama.attention.key_length: expected an even number, found 63 (values: 64)"},
		{"products of another kind", "llama", mutation{replace: map[string]*gguf.Tensor{"blk.0.ffn_up.weight": {Type: gguf.Q8_1, Shape: []int{64, 64}, Data: make([]byte, 64*2*36)}}},
			"tensor blk.0.ffn_up.weight: expected weights, found type Q8_1"},
		{"a rotation beyond the head", "gemma3", mutation{set: map[string]any{"gemma3.rope.dimension_count": uint32(66)}},
			"key gemma3.rope.dimension_count: expected an even number up to 64, the size of a key head, found 66"},
		{"gemma4 with local layers and no window", "gemma4", mutation{set: map[string]any{"gemma4.attention.sliding_window": uint32(0)}},
			"key gemma4.attention.sliding_window: expected a positive number, because there are local layers, found 0"},
		{"gemma4 whose consumers have other heads than the owners", "gemma4", mutation{set: map[string]any{"gemma4.attention.head_count_kv": []uint32{2, 2, 2, 2, 2, 1, 1, 1}}},
			"key gemma4.attention.head_count_kv: expected the same in layer 5 and in layer 3, whose keys it reads, found 1 and 2"},
		{"qwen35 with a convolution of one", "qwen35", mutation{set: map[string]any{"qwen35.ssm.conv_kernel": uint32(1)}},
			"key qwen35.ssm.conv_kernel: expected at least 2, found 1"},
		{"qwen35 with two sections", "qwen35", mutation{set: map[string]any{"qwen35.rope.dimension_sections": []int32{4, 4}}},
			"key qwen35.rope.dimension_sections: expected at least 3 sections, found [4 4]"},
		{"qwen35 with keys and values of different sizes", "qwen35", mutation{set: map[string]any{"qwen35.attention.value_length": uint32(32)},
			replace: map[string]*gguf.Tensor{
				"blk.3.attn_v.weight": zeros(64, 64), "blk.3.attn_output.weight": zeros(128, 64),
				"blk.7.attn_v.weight": zeros(64, 64), "blk.7.attn_output.weight": zeros(128, 64),
			}},
			"key qwen35.attention.value_length: expected 64, the size of a key head, found 32"},
		{"an embedding of one token that no tokeniser has", "gemma3", mutation{replace: map[string]*gguf.Tensor{"token_embd.weight": zeros(64)}},
			"tensor token_embd.weight: expected a row for each of the 320 tokens in tokenizer.ggml.tokens, found 1 rows"},
		{"qwen35 without sections", "qwen35", mutation{delete: []string{"qwen35.rope.dimension_sections"}},
			`metadata key "qwen35.rope.dimension_sections"`},
		{"qwen35 without a convolution", "qwen35", mutation{without: []string{"blk.0.ssm_conv1d.weight"}},
			"tensor blk.0.ssm_conv1d.weight: expected shape [4 512], found no such tensor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := mutate(t, tiny(tt.model), tt.mutation)
			m, err := Open(path, Options{})
			if tt.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = m.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v\nwant %s", err, tt.err)
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}

// What a recurrent layer says of heads it does not have costs nothing.
func TestHeadsOfRecurrentLayersTakeNoMemory(t *testing.T) {
	heads := []uint32{1 << 30, 1 << 30, 1 << 30, 4, 1 << 30, 1 << 30, 1 << 30, 4}
	path := mutate(t, tiny("qwen35"), mutation{set: map[string]any{"qwen35.attention.head_count": heads}})
	if want, got := allLogits(t, tiny("qwen35")), allLogits(t, path); !slices.Equal(want, got) {
		t.Errorf("largest difference %g", maxDifference(want, got))
	}
}

func named(name string, t *gguf.Tensor) *gguf.Tensor {
	t.Name = name
	return t
}

// fuse joins the rows of tensors.
func fuse(name string, parts ...*gguf.Tensor) *gguf.Tensor {
	out := &gguf.Tensor{Name: name, Type: parts[0].Type, Shape: []int{parts[0].Shape[0], 0}}
	for _, p := range parts {
		out.Shape[1] += p.Shape[1]
		out.Data = append(out.Data, p.Data...)
	}
	return out
}

func TestFusedProjectionsAreTheSameModel(t *testing.T) {
	for _, model := range []string{"llama", "gemma3", "gemma4"} {
		t.Run(model, func(t *testing.T) {
			path := tiny(model)
			part := func(which string) *gguf.Tensor { return rawTensor(t, path, "blk.1.attn_"+which+".weight") }
			bias := named("blk.1.attn_qkv.bias", zeros(part("q").Shape[1]+part("k").Shape[1]+part("v").Shape[1]))
			for i := range len(bias.Data) / 4 {
				binary.LittleEndian.PutUint32(bias.Data[4*i:], math.Float32bits(float32(i%7)/8))
			}
			fused := mutate(t, path, mutation{
				without: []string{"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight"},
				add:     []*gguf.Tensor{fuse("blk.1.attn_qkv.weight", part("q"), part("k"), part("v")), bias},
			})
			var biases []*gguf.Tensor
			rest := bias.Data
			for _, which := range []string{"q", "k", "v"} {
				n := part(which).Shape[1]
				biases = append(biases, &gguf.Tensor{Name: "blk.1.attn_" + which + ".bias", Type: gguf.F32, Shape: []int{n}, Data: rest[:4*n]})
				rest = rest[4*n:]
			}
			path = mutate(t, path, mutation{add: biases})
			want, got := allLogits(t, path), allLogits(t, fused)
			if !slices.Equal(want, got) {
				t.Errorf("largest difference %g", maxDifference(want, got))
			}
		})
	}
}

// A layer of Gemma 4 without values of its own takes its keys, as they are before norm and rotation.
func TestGemma4WithoutValuesTakesKeys(t *testing.T) {
	path := tiny("gemma4")
	const name = "blk.1.attn_v.weight"
	keys := rawTensor(t, path, "blk.1.attn_k.weight")
	want := allLogits(t, mutate(t, path, mutation{replace: map[string]*gguf.Tensor{name: keys}}))
	got := allLogits(t, mutate(t, path, mutation{without: []string{name}}))
	if !slices.Equal(want, got) {
		t.Errorf("largest difference %g", maxDifference(want, got))
	}
}

// The second embedding of Gemma 4 is read in blocks, which are longer than a layer's part of a row.
func TestTheSecondEmbeddingIsReadFromInsideBlocks(t *testing.T) {
	path := tiny("gemma4")
	const name = "per_layer_token_embd.weight"
	wide := widened(t, path)[name]
	values := make([]float32, len(wide.Data)/4)
	quant.Dequantize(gguf.F32, values, wide.Data)
	narrow := &gguf.Tensor{Type: gguf.Q6_K, Shape: wide.Shape, Data: make([]byte, wide.Shape[1]*gguf.Q6_K.RowBytes(wide.Shape[0]))}
	quant.Quantize(gguf.Q6_K, narrow.Data, values)
	quant.Dequantize(gguf.Q6_K, values, narrow.Data)
	quant.Quantize(gguf.F32, wide.Data, values)
	want := allLogits(t, mutate(t, path, mutation{replace: map[string]*gguf.Tensor{name: wide}}))
	got := allLogits(t, mutate(t, path, mutation{replace: map[string]*gguf.Tensor{name: narrow}}))
	if !slices.Equal(want, got) {
		t.Errorf("largest difference %g", maxDifference(want, got))
	}
}

func TestScalesOfTheFileAreUsed(t *testing.T) {
	path := tiny("llama")
	with := func(set map[string]any) []float32 { return allLogits(t, mutate(t, path, mutation{set: set})) }
	linear := map[string]any{"llama.rope.scaling.factor": float32(4)}
	for _, tt := range []struct {
		name string
		a, b map[string]any
		same bool
	}{
		{"an attention scale of 1/√64 is the default", nil, map[string]any{"llama.attention.scale": float32(0.125)}, true},
		{"another is not", nil, map[string]any{"llama.attention.scale": float32(0.25)}, false},
		{"a factor scales rotations", nil, linear, false},
		{"under its old name too", linear, map[string]any{"llama.rope.scale_linear": float32(4)}, true},
		{"but not where there is no scaling", nil, map[string]any{"llama.rope.scaling.factor": float32(4), "llama.rope.scaling.type": "none"}, true},
	} {
		if same := slices.Equal(with(tt.a), with(tt.b)); same != tt.same {
			t.Errorf("%s: equal logits %v", tt.name, same)
		}
	}
}

func TestBiasesAreAdded(t *testing.T) {
	path := tiny("llama")
	bias := func(name string, n int, v float32) *gguf.Tensor {
		b := named(name, zeros(n))
		for i := range n {
			binary.LittleEndian.PutUint32(b.Data[4*i:], math.Float32bits(v))
		}
		return b
	}
	plain := allLogits(t, path)
	zero := allLogits(t, mutate(t, path, mutation{add: []*gguf.Tensor{bias("blk.0.attn_q.bias", 256, 0), bias("output.bias", 320, 0)}}))
	if !slices.Equal(plain, zero) {
		t.Error("a bias of zeros changes logits")
	}
	shifted := allLogits(t, mutate(t, path, mutation{add: []*gguf.Tensor{bias("output.bias", 320, 3)}}))
	for i, v := range shifted {
		if math.Abs(float64(v-plain[i]-3)) > 1e-5 {
			t.Fatalf("logit %d: %v, without bias %v", i, v, plain[i])
		}
	}
	moved := allLogits(t, mutate(t, path, mutation{add: []*gguf.Tensor{bias("blk.0.attn_v.bias", 128, 1)}}))
	if maxDifference(moved, plain) < 1e-3 {
		t.Error("a value bias changes nothing")
	}
}

// allLogits are those of 20 tokens with default options.
func allLogits(t *testing.T, path string) []float32 {
	t.Helper()
	m := openTest(t, path, Options{Threads: 2})
	return decode(t, newTestContext(t, m, ContextOptions{NCtx: 256}), testTokens(20))
}

func TestInfo(t *testing.T) {
	m := openTest(t, tiny("gemma4"), Options{})
	want := Info{Arch: "gemma4", Name: "gemma4-tiny", FileType: "F16", Params: m.Info().Params, Bytes: m.Info().Bytes, Layers: 8, Embd: 64, Vocab: 320, ContextTrain: 2048}
	if m.Info() != want {
		t.Errorf("info %+v, want %+v", m.Info(), want)
	}
	if m.Info().Params < 600_000 || m.Info().Bytes < 2*m.Info().Params {
		t.Errorf("%d parameters in %d bytes", m.Info().Params, m.Info().Bytes)
	}
	for params, want := range map[int64]string{
		70_553_706_560: "llama 71B Q4_K_M", 8_030_261_312: "llama 8B Q4_K_M", 1_235_814_432: "llama 1.2B Q4_K_M", 4_967_936: "llama 5M Q4_K_M", 61_000: "llama 61K Q4_K_M",
	} {
		if got := (Info{Arch: "llama", Params: params, FileType: "Q4_K_M"}).Description(); got != want {
			t.Errorf("%d parameters: description %q, want %q", params, got, want)
		}
	}
	tok, err := m.Tokenizer()
	if err != nil || tok.VocabSize() != 320 {
		t.Errorf("tokenizer %v, %v", tok, err)
	}
	if again, _ := m.Tokenizer(); again != tok {
		t.Error("the tokenizer is made twice")
	}
}
