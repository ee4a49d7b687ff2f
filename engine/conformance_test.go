package engine

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"attnbudget/engine/kernel/kerneltest"
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

// base is the reference of the case without losses; nil for the cases that have other rows.
func (x conformanceIndex) base(t *testing.T, c conformanceCase) []float32 {
	t.Helper()
	at := slices.IndexFunc(x.Cases, func(b conformanceCase) bool { return b.Case == c.Model+".base" })
	if at < 0 || x.Cases[at].Tokens != c.Tokens {
		return nil
	}
	return x.Cases[at].reference(t)
}

func (c conformanceCase) reference(t *testing.T) []float32 {
	return readFloats(t, filepath.Join(conformance, "logits", c.Case+".f32"))
}

// wantsRow reports whether the reference has the logits of position i.
func (c conformanceCase) wantsRow(i int) bool { return c.Rows == "" || i%10 == 9 }

const computedInF32 = "f16 file, computed in f32"

// expanded reports whether the case was computed with all weights expanded to float32.
func (c conformanceCase) expanded() bool { return c.Weights == computedInF32 }

// source finds the model the case starts from; it skips where the model is not there.
func (c conformanceCase) source(t *testing.T) string {
	t.Helper()
	path := filepath.Join(conformance, "models", c.Model+".gguf")
	if strings.HasSuffix(c.Model, "-wide") {
		path = filepath.Join(shared, "models", c.Model+".gguf")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared conformance data: %v", err)
	}
	return path
}

// path finds the model of the case, quantising it where the case wants that and upstream's own file is not there.
func (c conformanceCase) path(t *testing.T) string {
	t.Helper()
	path := c.source(t)
	upstreams := filepath.Join(shared, "quantized", c.Model+"."+c.Weights+".gguf")
	switch _, err := os.Stat(upstreams); {
	case c.expanded():
		return path
	case err == nil:
		return upstreams
	case strings.HasPrefix(c.Model, "gemma4"):
		// Upstream's quantiser was given F32, and one matrix of a gemma4 is never quantised: it is F32 in these cases.
		path = mutate(t, path, mutation{replace: widened(t, path)})
	}
	return quantised(t, path, c.Weights)
}

// quantised writes a quantised copy of the model at path and returns its path.
func quantised(t *testing.T, path, mixture string) string {
	t.Helper()
	mix, err := quant.ParseMix(mixture)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), mixture+".gguf")
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
	// The references were computed with the library's own default for sliding windows: all positions are kept.
	return ContextOptions{NCtx: tokens, NUBatch: c.NUBatch, TypeK: kv, TypeV: kv, FullWindow: true, Mask: c.Mask, Threads: 2}
}

// logits computes the rows of the reference.
func (c conformanceCase) logits(t *testing.T, m *Model, tokens []int32) []float32 {
	t.Helper()
	x := newTestContext(t, m, c.options(t, len(tokens)))
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

// exact reports whether nothing but the cache is lossy, and that at most half precision: such cases are judged by the largest
// difference of a logit, the others by the mean KL divergence.
func (c conformanceCase) exact() bool { return c.expanded() && (c.KV == "f32" || c.KV == "f16") }

// distance is how far logits are from the reference, by the measure of the case.
func (c conformanceCase) distance(got, want []float32) float64 {
	if c.exact() {
		return maxDifference(got, want)
	}
	return meanDivergence(want, got, c.NVocab)
}

// blockSums are the cases in which the ordinary kernels are beyond the agreed limit, and by what factor they may be: with Q8_0
// weights they sum a block whole where upstream's kernels for AVX2 keep eight partial sums a row. Upstream's kernels for older
// processors sum blocks whole too; from the same references they are 3.5 and 8.1 limits away. The factors are twice these.
var blockSums = map[string]float64{"llama-tied-wide.Q8_0": 7, "gemma3-wide.Q8_0": 16.2}

// limit is how far the ordinary kernels may be from the reference.
func (c conformanceCase) limit(want, base []float32) float64 {
	return c.agreed(want, base) * max(1, blockSums[c.Case])
}

// agreed is the limit of the case: of the largest difference 5e-3 with a half precision cache and 2e-4 standard deviations of
// the reference without; of the divergence a fiftieth of what the reference has lost against base.
func (c conformanceCase) agreed(want, base []float32) float64 {
	switch {
	case !c.exact():
		return meanDivergence(base, want, c.NVocab) / 50
	case c.KV == "f16":
		return 5e-3
	}
	return 2e-4 * deviation(want)
}

// run computes the case.
func (c conformanceCase) run(t *testing.T, index conformanceIndex) []float32 {
	t.Helper()
	if c.Rotation == "disabled" {
		t.Setenv(kvcache.RotationDisable, "1")
	}
	m := openTest(t, c.path(t), Options{ExpandF32: c.expanded()})
	return c.logits(t, m, index.Tokens[c.Tokens])
}

func TestConformance(t *testing.T) {
	index := readIndex(t)
	for _, c := range index.Cases {
		t.Run(c.Case, func(t *testing.T) {
			want := c.reference(t)
			got := c.run(t, index)
			if len(got) != len(want) {
				t.Fatalf("%d logits, the reference has %d", len(got), len(want))
			}
			limit := c.limit(want, index.base(t, c))
			if own := c.distance(got, want); !(own <= limit) {
				t.Errorf("%.3g from the reference, limit %.3g", own, limit)
			}
		})
	}
}

// In upstream's order of sums nothing is left between the two engines.
func TestUpstreamsOrderGivesTheReferencesToTheBit(t *testing.T) {
	kerneltest.Use(t, "upstream")
	index := readIndex(t)
	for _, c := range index.Cases {
		t.Run(c.Case, func(t *testing.T) {
			want := c.reference(t)
			if n := unequal(c.run(t, index), want); n > 0 {
				t.Errorf("%d of %d logits differ", n, len(want))
			}
		})
	}
	for _, name := range architectures {
		t.Run(name+"-tiny.hidden", func(t *testing.T) {
			want := referenceHidden(t, name)
			if n := unequal(hiddenStates(t, openTest(t, tiny(name), Options{ExpandF32: true}), index.Tokens["seed7-n64"]), want); n > 0 {
				t.Errorf("%d of %d hidden states differ", n, len(want))
			}
		})
	}
}

// unequal counts the numbers that are not the same; all of them if the lengths differ.
func unequal(got, want []float32) int {
	if len(got) != len(want) {
		return max(len(got), len(want))
	}
	n := 0
	for i, v := range got {
		if v != want[i] {
			n++
		}
	}
	return n
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
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) {
			m := openTest(t, tiny(name), Options{ExpandF32: true})
			layers := m.Info().Layers
			want := layersOf(referenceHidden(t, name), layers)
			for layer, x := range layersOf(hiddenStates(t, m, index.Tokens["seed7-n64"]), layers) {
				if d, limit := maxDifference(x, want[layer]), 2e-4*deviation(want[layer]); !(d <= limit) {
					t.Errorf("layer %d: largest difference %.3g, limit %.3g", layer, d, limit)
				}
			}
		})
	}
}

func referenceHidden(t *testing.T, name string) []float32 {
	return readFloats(t, filepath.Join(conformance, "hidden", name+"-tiny.f32"))
}

// layersOf cuts hidden states into those of each layer.
func layersOf(x []float32, layers int) [][]float32 {
	return slices.Collect(slices.Chunk(x, len(x)/layers))
}

// hiddenStates are those after every layer, [layers][tokens][Embd].
func hiddenStates(t *testing.T, m *Model, tokens []int32) []float32 {
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
	}
	if err := x.Decode(t.Context(), &Batch{Tokens: tokens, Logits: wants(len(tokens), every)}); err != nil {
		t.Fatal(err)
	}
	return out
}
