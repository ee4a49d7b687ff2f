package engine

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

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

const computedInF32 = "f16 file, computed in f32"

// expanded reports whether the case was computed with all weights expanded to float32.
func (c conformanceCase) expanded() bool { return c.Weights == computedInF32 }

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

// logits computes the rows of the reference. With a source of randomness the last bits of every hidden state are jittered.
func (c conformanceCase) logits(t *testing.T, m *Model, tokens []int32, jitter *rand.Rand) []float32 {
	t.Helper()
	x := newTestContext(t, m, c.options(t, len(tokens)))
	x.pass.OnHidden = func(_ int, _ []int, h []float32) { jitterBits(h, jitter) }
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
			got := c.logits(t, m, tokens, nil)
			if len(got) != len(want) {
				t.Fatalf("%d logits, the reference has %d", len(got), len(want))
			}
			if c.expanded() && (c.KV == "f32" || c.KV == "f16") {
				limit := 2e-4 * deviation(want)
				if c.KV == "f16" {
					limit = 5e-3
				}
				own := maxDifference(got, want)
				if own > limit && c.rounds() {
					limit = c.flips(t, m, tokens, got, maxDifference)
				}
				if !(own <= limit) {
					t.Errorf("largest difference of a logit %.3g, limit %.3g (standard deviation of the reference %.3g)", own, limit, deviation(want))
				}
				return
			}
			// Two lossy computations of the same thing must lie far closer together than either lies to the exact result.
			divergence := func(p, q []float32) float64 { return meanDivergence(p, q, c.NVocab) }
			loss := divergence(byName[c.Model+".base"].reference(t), want)
			limit, own := loss/50, divergence(want, got)
			if own >= limit && c.rounds() {
				limit = c.flips(t, m, tokens, got, divergence)
			}
			if !(own < limit) {
				t.Errorf("mean KL divergence to the reference %.3g, limit %.3g (the reference lost %.3g)", own, limit, loss)
			}
		})
	}
}

// rounds reports whether the computation rounds activations: before products with quantised or half precision weights, and,
// in the Gemmas, before GELU, which is a table over half precision.
func (c conformanceCase) rounds() bool { return !c.expanded() || strings.HasPrefix(c.Model, "gemma") }

// flips is how far apart two correct implementations of a case that rounds may be: twice as far as the logits move when hidden
// states change in their last bits, as they do when sums are taken in another order. A last bit that differs now and then
// flips a rounding, which is a thousand times larger and flips more in the next layer.
func (c conformanceCase) flips(t *testing.T, m *Model, tokens []int32, logits []float32, distance func(p, q []float32) float64) float64 {
	t.Helper()
	var most float64
	for seed := range uint64(8) {
		most = max(most, distance(logits, c.logits(t, m, tokens, rand.New(rand.NewPCG(seed, 0)))))
	}
	t.Logf("a change in the last bits moves the logits by up to %.3g", most)
	return 2 * most
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
			m := openTest(t, tiny(name), Options{ExpandF32: true})
			want := readFloats(t, filepath.Join(conformance, "hidden", name+"-tiny.f32"))
			got := hiddenStates(t, m, tokens, nil)
			if len(got) != len(want) {
				t.Fatalf("%d hidden states, the reference has %d", len(got), len(want))
			}
			var jittered [][]float32
			if (conformanceCase{Model: name, Weights: computedInF32}).rounds() {
				for seed := range uint64(8) {
					jittered = append(jittered, hiddenStates(t, m, tokens, rand.New(rand.NewPCG(seed, 0))))
				}
			}
			n := len(got) / m.Info().Layers
			for layer := range m.Info().Layers {
				part := func(x []float32) []float32 { return x[layer*n:][:n] }
				limit := 2e-4 * deviation(part(want))
				for _, j := range jittered {
					limit = max(limit, 2*maxDifference(part(j), part(got)))
				}
				if d := maxDifference(part(got), part(want)); !(d <= limit) {
					t.Errorf("layer %d: largest difference %.3g, limit %.3g (standard deviation %.3g)", layer, d, limit, deviation(part(want)))
				}
			}
		})
	}
}

// hiddenStates are those after every layer, [layers][tokens][Embd]; see conformanceCase.logits for jitter.
func hiddenStates(t *testing.T, m *Model, tokens []int32, jitter *rand.Rand) []float32 {
	t.Helper()
	x := newTestContext(t, m, ContextOptions{NCtx: len(tokens), TypeK: CacheF32, TypeV: CacheF32, Threads: 2})
	var out []float32
	x.pass.OnHidden = func(layer int, live []int, h []float32) {
		if len(live) != len(tokens) {
			t.Errorf("layer %d: %d rows of %d", layer, len(live), len(tokens))
		}
		if layer >= 0 {
			out = append(out, h...)
		}
		jitterBits(h, jitter)
	}
	all := make([]bool, len(tokens))
	for i := range all {
		all[i] = true
	}
	if err := x.Decode(t.Context(), &Batch{Tokens: tokens, Logits: all}); err != nil {
		t.Fatal(err)
	}
	return out
}

// jitterBits changes the last bits of h.
func jitterBits(h []float32, jitter *rand.Rand) {
	if jitter == nil {
		return
	}
	for i := range h {
		h[i] *= 1 + 0x1p-22*(2*jitter.Float32()-1)
	}
}
