package engine

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/quant"
)

// The reference results under testdata/conformance were computed with upstream llama.cpp on small models with random
// weights, one or two an architecture; index.json says how.
const conformance = "testdata/conformance"

// shared is where the larger conformance models are, when they are there at all.
const shared = "../../shared/conformance"

type conformanceCase struct {
	Case, Model, Tokens, Weights, KV, Rotation, Rows string
	NVocab                                           int `json:"n_vocab"`
	NUBatch                                          int `json:"n_ubatch"`
	Flash                                            bool
	Mask                                             []int
}

type conformanceIndex struct {
	Tokens map[string][]int32
	Cases  []conformanceCase
}

func readIndex(t *testing.T) conformanceIndex {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(conformance, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index conformanceIndex
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	return index
}

// readFloats reads little-endian float32 numbers.
func readFloats(t *testing.T, path string) []float32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func (c conformanceCase) reference(t *testing.T) []float32 {
	return readFloats(t, filepath.Join(conformance, "logits", c.Case+".f32"))
}

// wantsRow reports whether the reference has the logits of position i.
func (c conformanceCase) wantsRow(i int) bool { return c.Rows == "" || i%10 == 9 }

// expanded reports whether the case was computed with all weights expanded to float32.
func (c conformanceCase) expanded() bool { return c.Weights == "f16 file, computed in f32" }

// path finds the model of the case, quantising it where the case wants that; it skips where the model is not there.
func (c conformanceCase) path(t *testing.T) string {
	t.Helper()
	path := filepath.Join(conformance, "models", c.Model+".gguf")
	if strings.HasSuffix(c.Model, "-wide") {
		path = filepath.Join(shared, "models", c.Model+".gguf")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared conformance data: %v", err)
	}
	if c.expanded() {
		return path
	}
	mix, err := quant.ParseMix(c.Weights)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), c.Case+".gguf")
	if err := quant.QuantizeFile(t.Context(), path, out, mix, quant.Options{Threads: 2}); err != nil {
		t.Fatal(err)
	}
	return out
}

func (c conformanceCase) options(t *testing.T, tokens int) ContextOptions {
	t.Helper()
	kv, err := ParseCacheType(c.KV)
	if err != nil {
		t.Fatal(err)
	}
	return ContextOptions{NCtx: tokens, NUBatch: c.NUBatch, TypeK: kv, TypeV: kv, Mask: c.Mask, Threads: 2}
}

// logits computes the rows of the reference. The embeddings are multiplied by 1 + nudge.
func (c conformanceCase) logits(t *testing.T, m *Model, tokens []int32, nudge float32) []float32 {
	t.Helper()
	x := newTestContext(t, m, c.options(t, len(tokens)))
	if nudge != 0 {
		x.pass.OnHidden = func(layer int, _ []int, h []float32) {
			if layer == -1 {
				kernel.Scale(h, 1+nudge)
			}
		}
	}
	b := &Batch{Tokens: tokens, Logits: make([]bool, len(tokens))}
	for i := range tokens {
		b.Logits[i] = c.wantsRow(i)
	}
	if err := x.Decode(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return collect(x, b)
}

func collect(x *Context, b *Batch) []float32 {
	var out []float32
	for i := range b.Tokens {
		if b.wants(i) {
			out = append(out, x.Logits(i)...)
		}
	}
	return out
}

func newTestContext(t testing.TB, m *Model, o ContextOptions) *Context {
	t.Helper()
	x, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func openTest(t testing.TB, path string, o Options) *Model {
	t.Helper()
	m, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func tiny(name string) string { return filepath.Join(conformance, "models", name+"-tiny.gguf") }

func TestConformance(t *testing.T) {
	index := readIndex(t)
	byName := map[string]conformanceCase{}
	for _, c := range index.Cases {
		byName[c.Case] = c
	}
	for _, c := range index.Cases {
		t.Run(c.Case, func(t *testing.T) {
			if c.Rotation == "disabled" {
				t.Setenv(kvcache.RotationDisable, "1")
			}
			want := c.reference(t)
			m := openTest(t, c.path(t), Options{ExpandF32: c.expanded()})
			tokens := index.Tokens[c.Tokens]
			got := c.logits(t, m, tokens, 0)
			if len(got) != len(want) {
				t.Fatalf("%d logits, the reference has %d", len(got), len(want))
			}
			if c.expanded() && (c.KV == "f32" || c.KV == "f16") {
				limit := 2e-4 * deviation(want)
				if c.KV == "f16" {
					limit = 5e-3
				}
				if d := maxDifference(got, want); !(d <= limit) {
					t.Errorf("largest difference of a logit %.3g, limit %.3g (standard deviation of the reference %.3g)", d, limit, deviation(want))
				}
				return
			}
			// Two lossy computations of the same thing must lie far closer together than either lies to the exact result.
			loss := meanDivergence(byName[c.Model+".base"].reference(t), want, c.NVocab)
			limit := loss / 50
			own := meanDivergence(want, got, c.NVocab)
			if own >= limit && !c.expanded() {
				limit = 3 * c.flips(t, m, tokens, got)
			}
			if !(own < limit) {
				t.Errorf("mean KL divergence to the reference %.3g, limit %.3g (the reference lost %.3g)", own, limit, loss)
			}
		})
	}
}

// flips is how far the logits move when the embeddings change in their last bits. Activations are rounded before every
// product; a last bit that differs now and then flips a rounding, which is a thousand times larger and flips more in the next
// layer. Where little else is lost (Q8_0, Q6_K, BF16, F16) this, and not the 50th part of the loss, is how closely two
// implementations that add in different orders can agree; the reference itself differs that much between builds.
func (c conformanceCase) flips(t *testing.T, m *Model, tokens []int32, logits []float32) float64 {
	t.Helper()
	var most float64
	for _, nudge := range []float32{0x1p-23, -0x1p-23, 0x1p-22, -0x1p-22, 0x1p-21, 0x1p-20} {
		most = max(most, meanDivergence(logits, c.logits(t, m, tokens, nudge), c.NVocab))
	}
	return most
}

func maxDifference(a, b []float32) float64 {
	var most float64
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return d
		}
		most = max(most, d)
	}
	return most
}

func deviation(x []float32) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(x))
	return math.Sqrt(squares/n - sum/n*sum/n)
}

// meanDivergence is the mean over the rows of KL(softmax(p) || softmax(q)).
func meanDivergence(p, q []float32, vocab int) float64 {
	var sum float64
	rows := len(p) / vocab
	for r := range rows {
		lp, lq := logSoftmax(p[r*vocab:][:vocab]), logSoftmax(q[r*vocab:][:vocab])
		for i := range lp {
			sum += math.Exp(lp[i]) * (lp[i] - lq[i])
		}
	}
	return sum / float64(rows)
}

func logSoftmax(x []float32) []float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v))
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v) - top - math.Log(sum)
	}
	return out
}

func TestHiddenStatesConform(t *testing.T) {
	index := readIndex(t)
	for _, name := range []string{"llama", "llama-tied", "gemma3", "qwen35", "gemma4"} {
		t.Run(name, func(t *testing.T) {
			tokens := index.Tokens["seed7-n64"]
			want := readFloats(t, filepath.Join(conformance, "hidden", name+"-tiny.f32"))
			m := openTest(t, tiny(name), Options{ExpandF32: true})
			x := newTestContext(t, m, ContextOptions{NCtx: 64, TypeK: CacheF32, TypeV: CacheF32, Threads: 2})
			layers := 0
			x.pass.OnHidden = func(layer int, live []int, h []float32) {
				if layer < 0 {
					return
				}
				layers++
				ref := want[layer*len(h):][:len(h)]
				if d := maxDifference(h, ref); len(live) != len(tokens) || !(d <= 2e-4*deviation(ref)) {
					t.Errorf("layer %d, %d rows: largest difference %.3g of standard deviation %.3g", layer, len(live), d, deviation(ref))
				}
			}
			all := make([]bool, len(tokens))
			for i := range all {
				all[i] = true
			}
			if err := x.Decode(context.Background(), &Batch{Tokens: tokens, Logits: all}); err != nil {
				t.Fatal(err)
			}
			if layers != m.Info().Layers {
				t.Errorf("saw %d layers of %d", layers, m.Info().Layers)
			}
		})
	}
}
