package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

type attentionCase struct {
	name           string
	k, v           gguf.Type
	n, cells       int
	heads, headsKV int
	dimK, dimV     int
	visible        func(row int) []Span
}

func causal(past int) func(int) []Span {
	return func(row int) []Span { return []Span{{0, past + row + 1}} }
}

func window(past, size int) func(int) []Span {
	return func(row int) []Span { return []Span{{max(0, past+row+1-size), past + row + 1}} }
}

var attentionCases = []attentionCase{
	{"one row", gguf.F32, gguf.F32, 1, 100, 4, 2, 64, 64, causal(99)},
	{"decode, several chunks", gguf.F16, gguf.F16, 1, 1300, 8, 2, 64, 64, causal(1299)},
	{"prefill", gguf.F16, gguf.F16, 70, 400, 4, 1, 128, 128, causal(330)},
	{"many heads", gguf.F16, gguf.F16, 9, 300, 12, 12, 32, 32, causal(291)},
	{"sliding window", gguf.F16, gguf.F16, 40, 640, 4, 2, 64, 64, window(600, 70)},
	{"K and V of different size", gguf.F32, gguf.F16, 11, 270, 6, 2, 96, 32, causal(259)},
	{"q8_0", gguf.Q8_0, gguf.Q8_0, 13, 530, 4, 2, 64, 128, causal(517)},
	{"q4_0", gguf.Q4_0, gguf.Q4_0, 5, 300, 4, 2, 64, 64, causal(295)},
	{"bf16", gguf.BF16, gguf.BF16, 5, 300, 4, 2, 64, 64, causal(295)},
	{"odd sizes", gguf.F16, gguf.F32, 7, 77, 5, 5, 20, 24, causal(70)},
	{"several sequences", gguf.F16, gguf.F16, 12, 700, 4, 2, 64, 64, func(row int) []Span {
		return []Span{{0, 20}, {100 + row, 101 + row}, {250, 260 + row}, {600 + row*5, 600 + row*5 + 3}}
	}},
	{"a row that sees nothing", gguf.F16, gguf.F16, 3, 300, 2, 1, 64, 64, func(row int) []Span {
		if row == 1 {
			return nil
		}
		return []Span{{280, 290}}
	}},
	{"a row that sees nothing of whole numbers", gguf.F32, gguf.F32, 3, 50, 2, 1, 32, 32, func(row int) []Span {
		if row == 1 {
			return nil
		}
		return []Span{{33, 45}}
	}},
	{"the end of a chunk", gguf.F16, gguf.F16, 2, 256, 2, 1, 64, 64, func(row int) []Span { return []Span{{215 + row, 256}} }},
}

func (c *attentionCase) build(r *rand.Rand) *Attention {
	store := func(t gguf.Type, dim int) KVRows {
		n := t.RowBytes(dim * c.headsKV)
		k := KVRows{Type: t, Data: make([]byte, c.cells*(n+6)), Stride: n + 6}
		for cell := range c.cells {
			StoreRow(t, k.Data[cell*k.Stride:][:n], random(r, dim*c.headsKV))
		}
		return k
	}
	a := &Attention{
		Q: random(r, c.n*c.heads*c.dimK), Out: make([]float32, c.n*c.heads*c.dimV),
		K: store(c.k, c.dimK), V: store(c.v, c.dimV),
		N: c.n, Heads: c.heads, HeadsKV: c.headsKV, DimK: c.dimK, DimV: c.dimV,
		Scale: float32(1 / math.Sqrt(float64(c.dimK))),
	}
	for i := range a.Out {
		a.Out[i] = float32(math.NaN()) // whatever was there
	}
	for row := range c.n {
		a.Visible = append(a.Visible, c.visible(row))
	}
	return a
}

// storedAs is a query as it is multiplied with keys of type t.
func storedAs(t gguf.Type, q []float32) []float32 {
	if isFloat(t) {
		return q
	}
	blocks, q := make([]byte, gguf.Q8_0.RowBytes(len(q))), append([]float32(nil), q...)
	StoreRow(gguf.Q8_0, blocks, q)
	quant.Dequantize(gguf.Q8_0, q, blocks)
	return q
}

// plainAttention is the definition, in float64.
func plainAttention(a *Attention) []float64 {
	out := make([]float64, len(a.Out))
	k, v := make([]float32, a.DimK), make([]float32, a.DimV)
	for row := range a.N {
		for h := range a.Heads {
			kv := h * a.HeadsKV / a.Heads
			q, o := storedAs(a.K.Type, a.Q[(row*a.Heads+h)*a.DimK:][:a.DimK]), out[(row*a.Heads+h)*a.DimV:][:a.DimV]
			top := math.Inf(-1)
			var sum float64
			for _, s := range a.Visible[row] {
				for c := s.From; c < s.To; c++ {
					quant.Dequantize(a.K.Type, k, a.K.head(c, kv, a.K.Type.RowBytes(a.DimK)))
					quant.Dequantize(a.V.Type, v, a.V.head(c, kv, a.V.Type.RowBytes(a.DimV)))
					var logit float64
					for d := range k {
						logit += float64(q[d]) * float64(k[d])
					}
					logit *= float64(a.Scale)
					m := max(top, logit)
					old, weight := math.Exp(top-m), math.Exp(logit-m)
					for d := range o {
						o[d] = o[d]*old + weight*float64(v[d])
					}
					sum, top = sum*old+weight, m
				}
			}
			for d := range o {
				if sum > 0 {
					o[d] /= sum
				}
			}
		}
	}
	return out
}

func attended(threads int, a *Attention) []float32 {
	p := NewPool(threads)
	defer p.Close()
	p.Attend(a)
	return append([]float32(nil), a.Out...)
}

// needsOrdinary skips a test of what is not so in upstream's order: there attention may add up in half precision and depend on
// threads and on the batch (TestFlashAttentionIsCloseToTheDefinition).
func needsOrdinary(t *testing.T) {
	t.Helper()
	if active.singles {
		t.Skipf("%s=%s: this holds for the other kernels", Variable, active.name)
	}
}

func TestAttendAgreesWithTheDefinition(t *testing.T) {
	needsOrdinary(t)
	r := rand.New(rand.NewPCG(11, 12))
	for _, c := range attentionCases {
		t.Run(c.name, func(t *testing.T) {
			a := c.build(r)
			want, got := plainAttention(a), attended(1, a)
			for i, v := range got {
				if e := math.Abs(float64(v) - want[i]); !(e < 2e-5) {
					t.Fatalf("element %d is %g, want %g", i, v, want[i])
				}
			}
		})
	}
}

func TestAttendDependsNeitherOnThreadsNorOnBatch(t *testing.T) {
	needsOrdinary(t)
	r := rand.New(rand.NewPCG(13, 14))
	for _, c := range attentionCases {
		t.Run(c.name, func(t *testing.T) {
			a := c.build(r)
			want := attended(1, a)
			same(t, "3 threads", attended(3, a), want)
			same(t, "16 threads", attended(16, a), want)
			for _, n := range []int{1, 2, 5} {
				for from := 0; from+n <= c.n; from += n {
					b := *a
					b.N, b.Q, b.Visible = n, a.Q[from*c.heads*c.dimK:], a.Visible[from:]
					b.Out = make([]float32, n*c.heads*c.dimV)
					same(t, "part of the rows", attended(2, &b), want[from*c.heads*c.dimV:][:len(b.Out)])
				}
			}
		})
	}
}

// The weighted sum of values is a product of the weights with a column of values, in 32 partial sums or in eight.
func TestAttendOverFloat32AddsValuesLikeAProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(99, 100))
	for dimV, dot := range map[int]func(a, b []float32) float32{3: upstream.Dot32, 4: upstream.Dot8} {
		const cells, n = 96, 2
		c := attentionCase{k: gguf.F32, v: gguf.F32, n: n, cells: cells, heads: 1, headsKV: 1, dimK: 32, dimV: dimV, visible: func(int) []Span { return []Span{{37, cells}} }}
		for _, k := range available() {
			a := c.build(r)
			got := attendedBy(&k, 1, a)
			for row := range n {
				weights, top := make([]float32, cells), negInf
				blank(weights)
				for cell := 37; cell < cells; cell++ {
					weights[cell] = upstream.Dot32(a.K.floats(cell, 0, 32), a.Q[row*32:][:32]) * a.Scale
					top = max(top, weights[cell])
				}
				sum := float32(1 / upstream.SoftMax(weights, top))
				for cell := range weights {
					weights[cell] *= sum
				}
				for d := range dimV {
					column := make([]float32, cells)
					for cell := range column {
						column[cell] = a.V.floats(cell, 0, dimV)[d]
					}
					same(t, fmt.Sprintf("%s: value %d of %d of row %d", k.name, d, dimV, row), got[row*dimV+d:][:1], []float32{dot(weights, column)})
				}
			}
		}
	}
}

func TestAttendPanicsWhereCellsAreNotThere(t *testing.T) {
	r := rand.New(rand.NewPCG(97, 98))
	for _, k := range append(available(), inOrderOfUpstream()...) {
		for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0} {
			for _, missing := range []string{"keys", "values"} {
				a := (&attentionCase{k: typ, v: typ, n: 3, cells: 64, heads: 2, headsKV: 1, dimK: 64, dimV: 64, visible: causal(60)}).build(r)
				rows := map[string]*KVRows{"keys": &a.K, "values": &a.V}[missing]
				rows.Data = rows.Data[:16*rows.Stride]
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%s, %v: no panic although %s are missing", k.name, typ, missing)
						}
					}()
					attendedBy(&k, 1, a)
				}()
			}
		}
	}
}

func TestAttendAllocatesNothingInSteadyState(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, c := range attentionCases {
		a, p := c.build(r), NewPool(2)
		for range 20 {
			p.Attend(a)
		}
		if n := testing.AllocsPerRun(20, func() { p.Attend(a) }); n != 0 {
			t.Errorf("%s: %v allocations per call, want 0", c.name, n)
		}
		p.Close()
	}
}
