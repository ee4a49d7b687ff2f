package synth

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
	"attnbudget/engine/tokenizer"
)

func write(t *testing.T, shape, format string, opt Options) *gguf.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), shape+".gguf")
	if err := Write(t.Context(), path, shape, format, opt); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

var tinyShapes = []string{"llama-tiny", "llama-tied-tiny", "gemma3-tiny", "qwen35-tiny", "gemma4-tiny"}

// The conformance models came from upstream's tools; a synthetic one must differ in its weights only.
func TestTinyShapesEqualTheConformanceModels(t *testing.T) {
	for _, name := range tinyShapes {
		t.Run(name, func(t *testing.T) {
			want, err := gguf.Open(filepath.Join("../testdata/conformance/models", name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			got := write(t, name, "F16", Options{Seed: 1})
			if !slices.Equal(got.Keys, append(slices.Clone(want.Keys), "general.description")) {
				t.Errorf("keys\n%q, want\n%q and a description", got.Keys, want.Keys)
			}
			for _, k := range want.Keys {
				a, _ := got.Value(k)
				b, _ := want.Value(k)
				if a.Kind() != b.Kind() || a.Len() != b.Len() || a.String() != b.String() {
					t.Errorf("%s = %s %v, want %s %v", k, a.Kind(), a, b.Kind(), b)
				}
			}
			tokens, err := got.Strings("tokenizer.ggml.tokens")
			wantTokens, err2 := want.Strings("tokenizer.ggml.tokens")
			if err != nil || err2 != nil || !slices.Equal(tokens, wantTokens) {
				t.Errorf("vocabularies differ: %v, %v", err, err2)
			}
			if len(got.Tensors) != len(want.Tensors) {
				t.Fatalf("%d tensors, want %d", len(got.Tensors), len(want.Tensors))
			}
			for i, b := range want.Tensors {
				if a := got.Tensors[i]; a.Name != b.Name || a.Type != b.Type || !slices.Equal(a.Shape, b.Shape) {
					t.Errorf("tensor %d is %s %s %v, want %s %s %v", i, a.Name, a.Type, a.Shape, b.Name, b.Type, b.Shape)
				}
			}
			if name == "gemma4-tiny" {
				a, _ := got.Tensor("rope_freqs.weight")
				b, _ := want.Tensor("rope_freqs.weight")
				if !bytes.Equal(a.Data, b.Data) {
					t.Error("rope_freqs differ")
				}
			}
		})
	}
}

// With base 500000 and heads of 64, pairs up to 14 turn in under 2048 tokens and pairs from 18 on in over 8192.
func TestLlama3DivisorsRiseFromOneToTheFactor(t *testing.T) {
	var got []float32
	for i := range 32 {
		got = append(got, llama3Divisor(math.Pow(500000, -float64(i)/32), 32))
	}
	if got[0] != 1 || got[14] != 1 || got[15] <= 1 || got[17] >= 32 || got[18] != 32 || got[31] != 32 || !slices.IsSorted(got) {
		t.Errorf("divisors %v", got)
	}
	for _, edge := range []struct{ wavelength, want float64 }{{2048, 1}, {8191.999, 32}, {8192.001, 32}} {
		if d := llama3Divisor(2*math.Pi/edge.wavelength, 32); math.Abs(float64(d)-edge.want) > 0.01 {
			t.Errorf("wavelength %g: divisor %g, want %g", edge.wavelength, d, edge.want)
		}
	}
}

// Parameters of the published models without vision towers and MTP blocks; Qwen3.5's and Gemma 4's as their files round them.
func TestShapesHaveTheTrueNumberOfParameters(t *testing.T) {
	for name, want := range map[string]struct {
		count     int64
		tolerance float64
	}{
		"llama-3.2-1b": {1235814400, 0}, "llama-3.2-3b": {3212749824, 0}, "llama-3.1-8b": {8030261248, 0},
		"gemma-3-270m": {268098176, 0}, "gemma-3-12b": {11766034176, 0},
		"qwen3.5-2b": {1880000000, 0.005}, "qwen3.5-9b": {8950000000, 0.001},
		"gemma-4-e2b": {4650000000, 0.01}, "gemma-4-e4b": {7500000000, 0.01},
	} {
		f, err := Describe(name, "F16", Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := find(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		mtp := blk(s.arch.size().layers) // the block behind the executed layers
		var n int64
		for _, x := range f.Tensors {
			if x.Name != "rope_freqs.weight" && !strings.HasPrefix(x.Name, mtp) {
				n += int64(x.Elements())
			}
		}
		if math.Abs(float64(n-want.count)) > want.tolerance*float64(want.count) {
			t.Errorf("%s has %d parameters, want %d", name, n, want.count)
		}
	}
}

func TestEveryShapeResolvesItsRolesAtEveryLength(t *testing.T) {
	for _, name := range Names() {
		layers, err := find(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= layers.arch.size().layers; n++ {
			s, err := find(name, n)
			if err != nil && strings.HasPrefix(name, "qwen") && n < gatedEvery {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			b := &builder{matrix: gguf.F16}
			s.arch.describe(b)
			b.set("general.architecture", b.arch)
			tensors := make([]*gguf.Tensor, len(b.tensors))
			for i := range b.tensors {
				tensors[i] = &b.tensors[i].Tensor
			}
			f, err := gguf.NewFile(name, b.entries, tensors)
			if err != nil {
				t.Fatal(err)
			}
			roles, err := drop.Roles(f)
			if err != nil || len(roles) < n {
				t.Errorf("%s with %d layers: %d roles, %v", name, n, len(roles), err)
			}
		}
	}
}

func TestGemma4SharesAsPublished(t *testing.T) {
	f, err := Describe("gemma-4-e4b", "F16", Options{})
	if err != nil {
		t.Fatal(err)
	}
	roles, err := drop.Roles(f)
	if err != nil {
		t.Fatal(err)
	}
	if local, full := drop.Consumers(roles, 22), drop.Consumers(roles, 23); len(local) != 15 || !slices.Equal(full, []int{29, 35, 41}) {
		t.Errorf("layer 22 serves %v, 23 serves %v", local, full)
	}
}

func TestVocabularyIsReadable(t *testing.T) {
	f := write(t, "llama-tiny", "F16", Options{Seed: 1})
	v, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	const text = "the thing in the tin"
	if got := strings.TrimPrefix(v.Decode(v.Encode(text, true, false)), "<s>"); strings.TrimSpace(got) != text {
		t.Errorf("decoded %q, want %q", got, text)
	}
}

func TestMixGivesTheTypesOfTheQuantiser(t *testing.T) {
	f := write(t, "gemma-3-270m", "Q4_K_M", Options{Sparse: true, Layers: 6})
	types := map[string]gguf.Type{"token_embd.weight": gguf.Q8_0, "blk.0.attn_q.weight": gguf.Q5_0, "blk.0.attn_norm.weight": gguf.F32, "blk.1.ffn_down.weight": gguf.Q4_K}
	for name, want := range types {
		if x, ok := f.Tensor(name); !ok || x.Type != want {
			t.Errorf("%s: %+v, want %s", name, x, want)
		}
	}
	n, err := f.Uint("general.file_type")
	if err != nil || n != uint64(quant.Q4_K_M) || f.Keys[len(f.Keys)-1] != "general.file_type" {
		t.Errorf("file type %d, %v, keys %q", n, err, f.Keys)
	}
}

func TestSparseFileTakesNoSpaceForItsWeights(t *testing.T) {
	f := write(t, "llama-tiny", "Q8_0", Options{Sparse: true})
	q, _ := f.Tensor("blk.0.attn_q.weight")
	if !bytes.Equal(q.Data, make([]byte, len(q.Data))) {
		t.Error("a sparse matrix is not zero")
	}
	if n, _ := f.Tensor("blk.0.attn_norm.weight"); bytes.Equal(n.Data, make([]byte, len(n.Data))) {
		t.Error("the norms of a sparse model must be there")
	}
}

func TestEqualSeedsGiveEqualFilesAndOthersDoNot(t *testing.T) {
	read := func(seed uint64) []byte {
		b, err := os.ReadFile(write(t, "llama-tied-tiny", "Q4_0", Options{Seed: seed}).Path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b, c := read(1), read(1), read(2)
	if !bytes.Equal(a, b) {
		t.Error("equal seeds gave different files")
	}
	if bytes.Equal(a, c) {
		t.Error("different seeds gave equal files")
	}
}

func TestRandomBlocksAreFiniteCentredAndSpreadAsAsked(t *testing.T) {
	for _, name := range []string{"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"} {
		typ, err := gguf.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, deviation := range []float64{1.0 / 8, 1.0 / 64, 1.0 / 124} {
			const n = 256 * 512
			b := make([]byte, typ.RowBytes(n))
			newSource(typ, deviation).fill(rand.NewChaCha8([32]byte{1}), b)
			x := make([]float32, n)
			quant.Dequantize(typ, x, b)
			var sum, squares float64
			for _, v := range x {
				sum += float64(v)
				squares += float64(v) * float64(v)
			}
			mean, rms := sum/n, math.Sqrt(squares/n)
			if math.IsNaN(rms) || math.Abs(rms/deviation-1) > 0.03 || math.Abs(mean) > 0.12*deviation {
				t.Errorf("%s: mean %.3g and root mean square %.4g of weights, want 0 and %.4g", name, mean, rms, deviation)
			}
		}
	}
}

func TestWhatCannotBeMadeIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.gguf")
	var u *UnknownShapeError
	if err := Write(t.Context(), path, "lama-3.2-1B", "F16", Options{}); !errors.As(err, &u) || u.Nearest != "llama-3.2-1b" {
		t.Errorf("misspelt shape: %v", err)
	}
	for _, c := range []struct {
		shape, format string
		layers        int
		say           string
	}{
		{"llama-tiny", "Q9_X", 0, "unknown format"},
		{"llama-tiny", "F16", 5, "expected 1 to 4 of them, found 5"},
		{"llama-tiny", "F16", -1, "found -1"},
		{"qwen35-tiny", "F16", 3, "at least 4 layers"},
	} {
		if err := Write(t.Context(), path, c.shape, c.format, Options{Layers: c.layers}); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWritingEndsWithItsContextAndLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := Write(ctx, path, "llama-tiny", "F16", Options{}); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if old, err := os.ReadFile(path); string(old) != "old" {
		t.Errorf("%q, %v", old, err)
	}
}

func BenchmarkFill(b *testing.B) {
	for _, typ := range []gguf.Type{gguf.F16, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K, gguf.Q8_0} {
		b.Run(typ.String(), func(b *testing.B) {
			buf := make([]byte, piece/typ.BlockBytes()*typ.BlockBytes())
			s, r := newSource(typ, 0.01), rand.NewChaCha8([32]byte{})
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				s.fill(r, buf)
			}
			if binary.LittleEndian.Uint16(buf) == 0 {
				b.Log("first scale is zero")
			}
		})
	}
}
