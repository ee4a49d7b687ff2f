package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// recordedFlash is an attention that upstream's flash attention has computed as well: two query heads read one KV head, K has 64
// elements and V 32. The last query row sees all cells but three, and every row before it one less.
type recordedFlash struct {
	k, v             gguf.Type
	n, cells, looked int
	threads          int
}

var recordedFlashes = []recordedFlash{
	{gguf.F16, gguf.F16, 3, 200, 256, 1},  // row by row, sums in half precision
	{gguf.F16, gguf.F16, 66, 190, 256, 1}, // in tiles
	{gguf.F16, gguf.F16, 1, 600, 768, 1},  // a single row: in one piece,
	{gguf.F16, gguf.F16, 1, 600, 768, 2},  // in two
	{gguf.F16, gguf.F16, 1, 500, 512, 3},  // and in three that divide no group of cells
	{gguf.Q8_0, gguf.Q8_0, 66, 140, 256, 1},
	{gguf.Q4_0, gguf.Q4_0, 2, 140, 256, 1},
	{gguf.F16, gguf.Q8_0, 2, 140, 256, 1},
	{gguf.Q8_0, gguf.F16, 2, 140, 256, 1},
	{gguf.F32, gguf.F16, 2, 140, 256, 1},
	{gguf.BF16, gguf.BF16, 2, 140, 256, 1},
}

func (c recordedFlash) name() string {
	return fmt.Sprintf("%v %v, %d rows, %d cells, %d threads", c.k, c.v, c.n, c.cells, c.threads)
}

// rows are the query rows that are recorded.
func (c recordedFlash) rows() []int { return slices.Compact([]int{0, c.n / 2, c.n - 1}) }

func (c recordedFlash) build() *Attention {
	r := rand.NewPCG(uint64(c.n), uint64(c.cells))
	a := &Attention{
		Q: made(r, c.n*2*64, 4), Out: make([]float32, c.n*2*32), N: c.n, Heads: 2, HeadsKV: 1, DimK: 64, DimV: 32,
		Scale: 0.125, Cells: c.looked,
	}
	store := func(t gguf.Type, dim int) KVRows {
		rows := KVRows{Type: t, Stride: t.RowBytes(dim)}
		rows.Data = make([]byte, c.looked*rows.Stride)
		for cell := range c.looked {
			g := generic()
			g.store(t, rows.Data[cell*rows.Stride:][:rows.Stride], made(r, dim, 2))
		}
		return rows
	}
	a.K, a.V = store(c.k, 64), store(c.v, 32)
	for row := range c.n {
		end := c.cells - c.n + row + 1
		a.Visible = append(a.Visible, []Span{{0, 7}, {10, end}})
	}
	return a
}

// attendedBy is Attend with given kernels.
func attendedBy(k *kernels, threads int, a *Attention) []float32 {
	p := NewPool(threads)
	defer p.Close()
	p.kernels = k
	p.Attend(a)
	return append([]float32(nil), a.Out...)
}

// inOrderOfUpstream returns every kernel set this machine can run, in upstream's order.
func inOrderOfUpstream() []kernels {
	all := available()
	for i, k := range all {
		all[i] = inUpstreamsOrder(k)
		all[i].name += " on " + k.name
	}
	return all
}

// The file has the results of upstream's own FLASH_ATTN_EXT for these attentions, of the first, the middle and the last query
// row, as the bits of float32 in hexadecimal. A C program called it on a graph of that one node. Upstream's CPU code was compiled
// by GCC 12.2 with -O3 -mavx2 -mfma -mf16c, as it was for the conformance data. (GCC 11, of which the release build is, does
// not fuse the sum of weights where a row goes cell by cell.)
func TestFlashAttentionIsUpstreams(t *testing.T) {
	want := recorded(t, "flash.txt")
	for _, k := range inOrderOfUpstream() {
		for _, c := range recordedFlashes {
			for _, looked := range []int{c.looked, 0} { // 0: what is made of the visible cells
				a := c.build()
				a.Cells = looked
				out := attendedBy(&k, c.threads, a)
				var bits []string
				for _, row := range c.rows() {
					for _, v := range out[row*64:][:64] {
						bits = append(bits, fmt.Sprintf("%08x", math.Float32bits(v)))
					}
				}
				if got := strings.Join(bits, " "); got != want[c.name()] {
					t.Errorf("%s: %s, Cells %d:\n got %s\nwant %s", k.name, c.name(), looked, got, want[c.name()])
				}
			}
		}
	}
}

func TestFlashAttentionAgreesAcrossKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	all := inOrderOfUpstream()
	for _, c := range attentionCases {
		a := c.build(r)
		want := attendedBy(&all[0], 2, a)
		for _, k := range all[1:] {
			same(t, c.name+", "+k.name, attendedBy(&k, 2, a), want)
		}
	}
}

// Sums in half precision over some hundred cells, and queries rounded as keys are, leave two or three digits.
func TestFlashAttentionIsCloseToTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 74))
	k := inUpstreamsOrder(best())
	for _, c := range attentionCases {
		a := c.build(r)
		want, limit := plainAttention(a), 1e-4
		if isFloat(a.K.Type) {
			limit = 4e-3
		}
		for i, v := range attendedBy(&k, 3, a) {
			if !(math.Abs(float64(v)-want[i]) < limit) {
				t.Fatalf("%s: element %d is %g, want %g", c.name, i, v, want[i])
			}
		}
	}
}

func TestFlashAttentionAllocatesNothingInSteadyState(t *testing.T) {
	r := rand.New(rand.NewPCG(77, 78))
	k := inUpstreamsOrder(best())
	for _, c := range attentionCases {
		a, p := c.build(r), NewPool(2)
		p.kernels = &k
		for range 20 {
			p.Attend(a)
		}
		if n := testing.AllocsPerRun(20, func() { p.Attend(a) }); n != 0 {
			t.Errorf("%s: %v allocations per call, want 0", c.name, n)
		}
		p.Close()
	}
}

func TestFlashKernelsAgreeWithGeneric(t *testing.T) {
	g := generic()
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(79, 80))
		for _, n := range []int{1, 16, 24, 64, 100, 128, 256} {
			x := extremes(r, n)
			y := append([]float32(nil), x...)
			same(t, "scaleMax", []float32{k.scaleMax(x, 0.3)}, []float32{g.scaleMax(y, 0.3)})
			same(t, "scaled", x, y)
			for i := range x {
				x[i] = min(-x[i]*x[i], 3) // small and large, zero and underflow
			}
			y = append(y[:0], x...)
			k.expBelow(x, 3)
			g.expBelow(y, 3)
			same(t, "expBelow", x, y)
			for _, cells := range []int{0, 1, 3, 4, 7, 64} {
				what := fmt.Sprintf("%d cells of %d", cells, n)
				weights, v := random(r, cells), random(r, cells*n)
				got, want := rounded(gguf.F16, extremes(r, n)), make([]float32, n)
				copy(want, got)
				k.addHalves(got, weights, v)
				g.addHalves(want, weights, v)
				same(t, "addHalves, "+what, got, want)
				if n%32 != 0 {
					continue
				}
				q, got, want := extremes(r, n), make([]float32, cells), make([]float32, cells)
				k.dotCells(got, q, v)
				g.dotCells(want, q, v)
				same(t, "dotCells, "+what, got, want)
				codes, side := make([]int8, n), make([]blockSide, n/32)
				g.quantiseBlocks(codes, side, q)
				for _, typ := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q5_1} {
					var row rowCodes
					row.resize(n, formatOf(typ))
					keys := KVRows{Type: typ, Stride: typ.RowBytes(3*n) + 2, Data: make([]byte, (cells+2)*(typ.RowBytes(3*n)+2))}
					for cell := range cells + 2 {
						quant.Quantize(typ, keys.Data[cell*keys.Stride:][:typ.RowBytes(3*n)], extremes(r, 3*n))
					}
					k.dotCodedCells(got, codes, side, &keys, 1, 2, &row)
					g.dotCodedCells(want, codes, side, &keys, 1, 2, &row)
					same(t, fmt.Sprintf("dotCodedCells, %v, %s", typ, what), got, want)
				}
			}
		}
	})
}
