package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kvcache"
)

var architectures = []string{"llama", "llama-tied", "gemma3", "qwen35", "gemma4"}

func testTokens(n int) []int32 {
	r := rand.New(rand.NewPCG(1, 1))
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(r.IntN(320))
	}
	return out
}

// wants makes a list of n wishes for logits.
func wants(n int, which func(i int) bool) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = which(i)
	}
	return out
}

func every(int) bool { return true }

// decode computes the tokens in one batch and returns all their logits.
func decode(t testing.TB, x *Context, tokens []int32) []float32 {
	t.Helper()
	b := &Batch{Tokens: tokens, Logits: wants(len(tokens), every)}
	if err := x.Decode(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return collect(x, b)
}

func forEach(t *testing.T, f func(t *testing.T, m *Model)) {
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) { f(t, openTest(t, tiny(name), Options{Threads: 2})) })
	}
}

func TestSplittingABatchChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		tokens := testTokens(50)
		want := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256}), tokens)
		for _, sizes := range [][]int{{1, 49}, {17, 16, 17}, slices.Repeat([]int{1}, 50)} {
			x := newTestContext(t, m, ContextOptions{NCtx: 256})
			var got []float32
			rest := tokens
			for _, n := range sizes {
				got = append(got, decode(t, x, rest[:n])...)
				rest = rest[n:]
			}
			if d := maxDifference(got, want); !(d <= 1e-5) {
				t.Errorf("batches of %v: largest difference %g", sizes, d)
			}
		}
		for _, ubatch := range []int{1, 7, 16} {
			got := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256, NUBatch: ubatch}), tokens)
			if d := maxDifference(got, want); !(d <= 1e-5) {
				t.Errorf("physical batches of %d: largest difference %g", ubatch, d)
			}
		}
	})
}

func TestThreadsChangeNothing(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		want := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256, Threads: 1}), testTokens(40))
		got := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256, Threads: 3}), testTokens(40))
		if !slices.Equal(got, want) {
			t.Errorf("largest difference %g", maxDifference(got, want))
		}
	})
}

func TestAnEmptyMaskIsNoMask(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		want := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256}), testTokens(40))
		got := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256, Mask: []int{}}), testTokens(40))
		if !slices.Equal(got, want) {
			t.Errorf("largest difference %g", maxDifference(got, want))
		}
	})
}

// Rows that want no logits stop early; the logits of the others are the same to the bit, whatever is dropped.
func TestUnwantedLogitsChangeNothing(t *testing.T) {
	masks := map[string][][]int{
		"llama": {nil, {3}, {0, 2, 3}}, "llama-tied": {nil, {1}}, "gemma3": {nil, {7}, {5, 6, 7}},
		"qwen35": {nil, {7}, {3}}, "gemma4": {nil, {7}, {4, 7}, {3, 5, 6}},
	}
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) {
			m := openTest(t, tiny(name), Options{Threads: 2})
			tokens := testTokens(60)
			for _, mask := range masks[name] {
				o := ContextOptions{NCtx: 256, NUBatch: 25, Mask: mask}
				want := decode(t, newTestContext(t, m, o), tokens)
				for what, which := range map[string]func(int) bool{
					"the last":   func(i int) bool { return i == len(tokens)-1 },
					"every 10th": func(i int) bool { return i%10 == 3 },
				} {
					x := newTestContext(t, m, o)
					if err := x.Decode(t.Context(), &Batch{Tokens: tokens, Logits: wants(len(tokens), which)}); err != nil {
						t.Fatal(err)
					}
					for i := range tokens {
						if which(i) && !slices.Equal(x.Logits(i), want[i*320:][:320]) {
							t.Errorf("mask %v, %s: logits of token %d differ by %g", mask, what, i, maxDifference(x.Logits(i), want[i*320:][:320]))
						}
					}
				}
			}
		})
	}
}

// After the last layer that stores anything only the wanted rows are computed.
func TestUnwantedRowsStopAtTheLastStore(t *testing.T) {
	for _, tt := range []struct {
		model string
		mask  []int
		last  int // the last layer that stores something
	}{
		{"llama", nil, 3}, {"llama", []int{2, 3}, 1}, {"gemma3", nil, 7}, {"gemma4", nil, 4}, {"gemma4", []int{4, 7}, 3},
		{"qwen35", nil, 7}, {"qwen35", []int{7}, 6},
	} {
		m := openTest(t, tiny(tt.model), Options{Threads: 1})
		x := newTestContext(t, m, ContextOptions{NCtx: 256, Mask: tt.mask})
		x.pass.OnHidden = func(layer int, live []int, _ []float32) {
			want := 20
			if layer >= tt.last {
				want = 1
			}
			if len(live) != want {
				t.Errorf("%s without %v: %d rows after layer %d, want %d", tt.model, tt.mask, len(live), layer, want)
			}
		}
		if err := x.Decode(t.Context(), &Batch{Tokens: testTokens(20)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABatchWithoutWantedLogitsStillFillsTheCache(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		tokens := testTokens(30)
		want := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256}), tokens)
		x := newTestContext(t, m, ContextOptions{NCtx: 256})
		if err := x.Decode(t.Context(), &Batch{Tokens: tokens[:29], Logits: make([]bool, 29)}); err != nil {
			t.Fatal(err)
		}
		got := decode(t, x, tokens[29:])
		if d := maxDifference(got, want[29*320:]); !(d <= 1e-5) {
			t.Errorf("largest difference %g", d)
		}
	})
}

// Four continuations of a prefix, computed as one batch of four sequences, are what each is alone. This is how evaluators
// score the endings of a task. Their cells lie elsewhere, so sums are taken in another order; in the Gemmas that flips
// roundings before GELU now and then.
func TestSequencesOfOneBatchAreIndependent(t *testing.T) {
	for _, name := range architectures {
		t.Run(name, func(t *testing.T) {
			limit := 1e-5
			if strings.HasPrefix(name, "gemma") {
				limit = 5e-3
			}
			checkIndependence(t, openTest(t, tiny(name), Options{ExpandF32: true, Threads: 2}), limit)
		})
	}
}

func checkIndependence(t *testing.T, m *Model, limit float64) {
	tokens := testTokens(60)
	prefix, endings := tokens[:20], [][]int32{tokens[20:25], tokens[25:35], tokens[35:36], tokens[40:52]}
	b := &Batch{}
	for i, token := range prefix {
		b.Tokens, b.Pos, b.Seqs = append(b.Tokens, token), append(b.Pos, int32(i)), append(b.Seqs, []int32{0, 1, 2, 3})
	}
	for s, ending := range endings {
		for i, token := range ending {
			b.Tokens, b.Pos, b.Seqs = append(b.Tokens, token), append(b.Pos, int32(20+i)), append(b.Seqs, []int32{int32(s)})
		}
	}
	b.Logits = wants(len(b.Tokens), every)
	x := newTestContext(t, m, ContextOptions{NCtx: 256, NSeqMax: 4, NUBatch: 32, TypeK: CacheF32, TypeV: CacheF32})
	if err := x.Decode(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	at := len(prefix)
	for s, ending := range endings {
		alone := decode(t, newTestContext(t, m, ContextOptions{NCtx: 256, TypeK: CacheF32, TypeV: CacheF32}), append(slices.Clone(prefix), ending...))
		for i := range ending {
			if d := maxDifference(x.Logits(at), alone[(20+i)*320:][:320]); !(d <= limit*max(1, deviation(alone))) {
				t.Errorf("ending %d, token %d: largest difference %g", s, i, d)
			}
			at++
		}
	}
}

func TestACopiedSequenceGoesOnLikeTheOriginal(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		tokens := testTokens(40)
		x := newTestContext(t, m, ContextOptions{NCtx: 256, NSeqMax: 2})
		decode(t, x, tokens[:30])
		if err := x.SeqCopy(0, 1, 0, -1); err != nil {
			t.Fatal(err)
		}
		want := decode(t, x, tokens[30:])
		if err := x.SeqRemove(0, -1, -1); err != nil {
			t.Fatal(err)
		}
		b := &Batch{Tokens: tokens[30:], Seqs: slices.Repeat([][]int32{{1}}, 10), Logits: wants(10, every)}
		if err := x.Decode(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if d := maxDifference(collect(x, b), want); !(d <= 1e-5) {
			t.Errorf("largest difference %g", d)
		}
		if x.SeqLast(0) != -1 || x.SeqLast(1) != 39 {
			t.Errorf("last positions %d and %d", x.SeqLast(0), x.SeqLast(1))
		}
	})
}

func TestAClearedContextIsNew(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		x := newTestContext(t, m, ContextOptions{NCtx: 256})
		want := decode(t, x, testTokens(30))
		x.Clear()
		if got := decode(t, x, testTokens(30)); !slices.Equal(got, want) {
			t.Errorf("largest difference %g", maxDifference(got, want))
		}
	})
}

func TestDroppedLayersStoreNothing(t *testing.T) {
	for _, tt := range []struct {
		model string
		mask  []int
		want  []string // layers of the physical caches
	}{
		{"llama", nil, []string{"plain 0,1,2,3"}},
		{"llama", []int{1, 2}, []string{"plain 0,3"}},
		{"gemma3", []int{5}, []string{"window 0,1,2,3,4,6,7"}},
		{"gemma3", []int{2, 7}, []string{"plain 5", "window 0,1,3,4,6"}},
		{"qwen35", []int{3}, []string{"plain 7", "recurrent 0,1,2,4,5,6"}},
		{"gemma4", nil, []string{"plain 4", "window 0,1,2,3"}},
		{"gemma4", []int{7, 0}, []string{"plain 4", "window 1,2,3"}},
	} {
		m := openTest(t, tiny(tt.model), Options{})
		o := ContextOptions{NCtx: 512, Mask: tt.mask}
		sizes, err := m.CacheSizes(o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range sizes {
			got = append(got, s.Name+" "+strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Layers), "[]"), " ", ","))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s without %v: caches %v, want %v", tt.model, tt.mask, got, tt.want)
		}
		x := newTestContext(t, m, o)
		for i, s := range x.Caches() {
			if s.String() != sizes[i].String() {
				t.Errorf("%s: %s, forecast %s", tt.model, s, sizes[i])
			}
		}
	}
}

func TestMasksAreChecked(t *testing.T) {
	m := openTest(t, tiny("gemma4"), Options{})
	var typed *drop.Error
	if _, err := m.NewContext(ContextOptions{Mask: []int{4}}); !errors.As(err, &typed) || !strings.Contains(err.Error(), "layer 4 is dropped, but layer 7") {
		t.Errorf("error %v", err)
	}
	if _, err := m.CacheSizes(ContextOptions{Mask: []int{9}}); !errors.As(err, &typed) {
		t.Errorf("error %v", err)
	}
}

func TestContextDefaults(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 2})
	x := newTestContext(t, m, ContextOptions{})
	if x.NCtx() != 2048 || x.NBatch() != 2048 || x.NUBatch() != 512 || x.NSeqMax() != 1 || x.Threads() != 2 || x.TypeK() != gguf.F16 || x.TypeV() != gguf.F16 || !x.Mask().Empty() {
		t.Errorf("defaults %+v", x.options)
	}
	if y := newTestContext(t, m, ContextOptions{NCtx: 257, NBatch: 100, TypeK: CacheF32}); y.NCtx() != 512 || y.NUBatch() != 100 || y.TypeK() != gguf.F32 {
		t.Errorf("options %+v", y.options)
	}
	if _, err := m.NewContext(ContextOptions{NCtx: -1}); err == nil || !strings.Contains(err.Error(), "NCtx") {
		t.Errorf("error %v", err)
	}
	for name, want := range map[string]gguf.Type{"f32": CacheF32, "F16": gguf.F16, "q8_0": gguf.Q8_0, "q4_0": gguf.Q4_0} {
		if got, err := ParseCacheType(name); err != nil || got != want {
			t.Errorf("ParseCacheType(%q) = %v, %v", name, got, err)
		}
	}
	if _, err := ParseCacheType("q5_1"); err == nil || !strings.Contains(err.Error(), "expected one of f32, f16, q8_0, q4_0") {
		t.Errorf("error %v", err)
	}
}

// What is computed at once decides roundings in upstream's order, so the sizes are upstream's: no physical batch reaches over
// the end of a logical one.
func TestPhysicalBatchesDivideLogicalOnes(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	x := newTestContext(t, m, ContextOptions{NCtx: 256, NBatch: 20, NUBatch: 16})
	var sizes []int
	x.pass.OnHidden = func(layer int, live []int, _ []float32) {
		if layer == -1 {
			sizes = append(sizes, len(live))
		}
	}
	decode(t, x, testTokens(50))
	if want := []int{16, 4, 16, 4, 10}; !slices.Equal(sizes, want) {
		t.Errorf("physical batches of %v, want %v", sizes, want)
	}
}

func TestBatchesThatMakeNoSense(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	x := newTestContext(t, m, ContextOptions{NCtx: 256, NSeqMax: 2})
	decode(t, x, []int32{1, 2, 3})
	for _, tt := range []struct {
		batch Batch
		err   string
	}{
		{Batch{}, "batch: it has no tokens"},
		{Batch{Tokens: []int32{1}, Pos: []int32{3, 4}}, "batch: it has 1 tokens but 2 positions"},
		{Batch{Tokens: []int32{1}, Seqs: [][]int32{}}, "batch: it has 1 tokens but sequences for 0"},
		{Batch{Tokens: []int32{1}, Logits: []bool{true, true}}, "batch: it has 1 tokens but says of 2 whether they want logits"},
		{Batch{Tokens: []int32{1, 320}}, "batch: token 1: id 320 is not in the vocabulary, 0 to 319"},
		{Batch{Tokens: []int32{-1}}, "batch: token 0: id -1 is not in the vocabulary"},
		{Batch{Tokens: []int32{1}, Pos: []int32{-1}}, "batch: token 0: position -1 is negative"},
		{Batch{Tokens: []int32{1}, Pos: []int32{2}}, "batch: token 0: position 2 of sequence 0: expected 3"},
		{Batch{Tokens: []int32{1, 1}, Pos: []int32{3, 5}}, "batch: token 1: position 5 of sequence 0: expected 4"},
		{Batch{Tokens: []int32{1}, Seqs: [][]int32{{}}}, "batch: token 0: it belongs to no sequence"},
		{Batch{Tokens: []int32{1}, Seqs: [][]int32{{2}}}, "batch: token 0: sequence 2: expected 0 to 1"},
		{Batch{Tokens: []int32{1}, Seqs: [][]int32{{0, 1}}, Pos: []int32{0}}, "batch: token 0: position 0 of sequence 0: expected 3"},
	} {
		err := x.Decode(t.Context(), &tt.batch)
		var typed *BatchError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("error %v, want %q", err, tt.err)
		}
	}
	if x.SeqLast(0) != 2 {
		t.Error("a refused batch changed the context")
	}
}

func TestAFullCacheIsSaidBeforehand(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	x := newTestContext(t, m, ContextOptions{NCtx: 256, NUBatch: 64})
	decode(t, x, testTokens(200))
	if err := x.Decode(t.Context(), &Batch{Tokens: testTokens(57)}); !errors.Is(err, kvcache.ErrFull) {
		t.Fatalf("error %v", err)
	}
	if x.SeqLast(0) != 199 {
		t.Errorf("the refused batch left %d positions", x.SeqLast(0)+1)
	}
	decode(t, x, testTokens(56))
}

func TestAnEndedContextStopsBetweenBatches(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	x := newTestContext(t, m, ContextOptions{NCtx: 256})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Decode(ctx, &Batch{Tokens: testTokens(5)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if x.SeqLast(0) != -1 {
		t.Error("something was stored")
	}
}

func TestLogitsThatWereNotAskedForPanic(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	x := newTestContext(t, m, ContextOptions{NCtx: 256})
	if err := x.Decode(t.Context(), &Batch{Tokens: testTokens(3)}); err != nil {
		t.Fatal(err)
	}
	if len(x.Logits(2)) != 320 {
		t.Error("the last token has no logits by default")
	}
	for _, i := range []int{-1, 0, 3} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Logits(%d) returned", i)
				}
			}()
			x.Logits(i)
		}()
	}
}

func TestATokenAllocatesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		for _, kv := range []gguf.Type{gguf.F16, gguf.Q8_0} {
			x := newTestContext(t, m, ContextOptions{NCtx: 1024, TypeK: kv, TypeV: kv, Threads: 1})
			decode(t, x, testTokens(600)) // also fills the tables of the rotary embedding
			b := &Batch{Tokens: []int32{7}}
			ctx := t.Context()
			step := func() {
				if err := x.Decode(ctx, b); err != nil {
					t.Fatal(err)
				}
			}
			step()
			if n := testing.AllocsPerRun(50, step); n != 0 {
				t.Errorf("cache %s: %v allocations a token", kv, n)
			}
		}
	})
}
