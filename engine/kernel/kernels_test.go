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

// extremes mixes numbers of ordinary size with zeros, signed zeros, tiny, huge and repeated ones.
func extremes(r *rand.Rand, n int) []float32 {
	x := random(r, n)
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-8, -1e-8, 6e-5, 1, -1, 3e4, -3e4, 0.5, 1.5, 2.5, 127, -127, 63.5, 1e-20}
	for i := range x {
		switch {
		case i/64%5 == 3:
			x[i] = 0
		case i/64%5 == 4:
			x[i] = float32(r.IntN(511)-255) / 2 // halves: rounding ties
		case r.IntN(6) == 0:
			x[i] = special[r.IntN(len(special))]
		}
	}
	return x
}

// vectorKernels runs f for every kernel set but the generic one.
func vectorKernels(t *testing.T, f func(t *testing.T, k *kernels)) {
	all := available()
	if len(all) == 1 {
		t.Skip("this build or processor has generic kernels alone")
	}
	for i := range all[1:] {
		t.Run(all[i+1].name, func(t *testing.T) { f(t, &all[i+1]) })
	}
}

func TestUnknownKernelsAreRefusedAndChangeNothing(t *testing.T) {
	before := Name()
	err := Use("avx1024")
	if err == nil || !strings.Contains(err.Error(), "avx1024") || !strings.Contains(err.Error(), "generic") || !strings.Contains(err.Error(), Upstream) {
		t.Errorf("the error is %v", err)
	}
	if Name() != before {
		t.Errorf("%q was in use, now %q is", before, Name())
	}
}

func TestElementwiseKernelsAgreeWithGeneric(t *testing.T) {
	g := generic()
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(41, 42))
		for _, n := range []int{1, 15, 16, 17, 48, 64, 100, 256, 1000} {
			x, y, z := extremes(r, n), extremes(r, n), extremes(r, n)
			pair := func(f func(k *kernels, dst []float32)) (got, want []float32) {
				got, want = append([]float32(nil), z...), append([]float32(nil), z...)
				f(k, got)
				f(&g, want)
				return got, want
			}
			exact := func(name string, f func(k *kernels, dst []float32)) {
				t.Helper()
				got, want := pair(f)
				same(t, fmt.Sprintf("%s of %d", name, n), got, want)
			}
			exact("add", func(k *kernels, d []float32) { k.add(d, x) })
			exact("mul", func(k *kernels, d []float32) { k.mul(d, x) })
			exact("scale", func(k *kernels, d []float32) { k.scale(d, x, 1.7) })
			exact("scaleMul", func(k *kernels, d []float32) { k.scaleMul(d, x, y, 1.7) })
			exact("addScaled", func(k *kernels, d []float32) { k.addScaled(d, x, 1.7) })
			if n%8 == 0 {
				exact("softMax", func(k *kernels, d []float32) {
					copy(d, x)
					d[0] = negInf
					d[0] += float32(k.softMax(d, 2.5))
				})
			}
			exact("combine", func(k *kernels, d []float32) { k.combine(d, x, 0.3, 1.7) })
			exact("geluMul", func(k *kernels, d []float32) { k.geluMul(d, x, y) })
			exact("roundF16", func(k *kernels, d []float32) { k.roundF16(d, x) })
			exact("roundBF16", func(k *kernels, d []float32) { k.roundBF16(d, x) })
			exact("silu", func(k *kernels, d []float32) { k.silu(d, x) })
			exact("siluMul", func(k *kernels, d []float32) { k.siluMul(d, x, y) })
			close := func(name string, f func(k *kernels, dst []float32)) {
				t.Helper()
				got, want := pair(f)
				for i, v := range got {
					if !(math.Abs(float64(v-want[i])) <= 4e-7*math.Abs(float64(want[i]))+1e-33) {
						t.Fatalf("%s of %d: element %d is %g, want %g", name, n, i, v, want[i])
					}
				}
			}
			close("expSum", func(k *kernels, d []float32) {
				copy(d, x)
				for i := range d {
					d[i] = max(-60, min(60, d[i]))
				}
				if n > 3 {
					d[3] = negInf
				}
				d[0], d[n-1] = k.expSum(d, 0.37)
			})
			if a, b := k.squares(x), g.squares(x); a != b {
				t.Errorf("squares of %d: %v, want %v", n, a, b)
			}
			h, w := make([]byte, 2*n), make([]byte, 2*n)
			k.narrowF16(h, x)
			g.narrowF16(w, x)
			if string(h) != string(w) {
				t.Errorf("narrowF16 of %d differs", n)
			}
		}
	})
}

func TestRotationsAgreeWithGeneric(t *testing.T) {
	g := generic()
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(43, 44))
		for _, pairs := range []int{1, 8, 16, 20, 32, 64, 128} {
			cos, sin := random(r, pairs), random(r, pairs)
			x := extremes(r, 2*pairs)
			for _, f := range []func(k *kernels, x []float32){
				func(k *kernels, x []float32) { k.rotateHalves(x, cos, sin) },
				func(k *kernels, x []float32) { k.rotatePairs(x, cos, sin) },
			} {
				got, want := append([]float32(nil), x...), append([]float32(nil), x...)
				f(k, got)
				f(&g, want)
				same(t, fmt.Sprintf("%d pairs", pairs), got, want)
			}
		}
	})
}

func TestExpSumOfHiddenScoresIsZero(t *testing.T) {
	for _, k := range available() {
		x := make([]float32, 64)
		blank(x)
		if top, sum := k.expSum(x, 0.5); top != negInf || sum != 0 || x[0] != 0 || x[63] != 0 {
			t.Errorf("%s: top %g, sum %g, weights %g %g; want -Inf and zeros", k.name, top, sum, x[0], x[63])
		}
		for i := range x {
			x[i] = negInf
		}
		x[5] = -3
		if top, sum := k.expSum(x, 1); top != -3 || sum != 1 || x[4] != 0 || x[5] != 1 {
			t.Errorf("%s: one visible cell: top %g, sum %g, weights %g %g", k.name, top, sum, x[4], x[5])
		}
	}
}

func TestNotANumberIsNotLost(t *testing.T) {
	nan := float32(math.NaN())
	for _, k := range available() {
		x := make([]float32, 64)
		x[20], x[63] = nan, nan
		dst := make([]float32, 64)
		for name, f := range map[string]func(){
			"silu":      func() { k.silu(dst, x) },
			"roundF16":  func() { k.roundF16(dst, x) },
			"roundBF16": func() { k.roundBF16(dst, x) },
			"expSum":    func() { copy(dst, x); k.expSum(dst, 1) },
		} {
			f()
			if !math.IsNaN(float64(dst[20])) || !math.IsNaN(float64(dst[63])) {
				t.Errorf("%s: %s turns NaN into %g and %g", k.name, name, dst[20], dst[63])
			}
		}
	}
}

func TestQuantisingKernelsAgreeWithGeneric(t *testing.T) {
	g := generic()
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(43, 44))
		for round := range 40 {
			n := 256 * (1 + round%3)
			x := extremes(r, n)
			if round%4 == 0 {
				x[r.IntN(n)], x[r.IntN(n)] = 40000, -40000 // the same magnitude twice
			}
			if round%7 == 0 {
				clear(x[:256])
			}
			var got, want q8Blocks
			for q, k := range map[*q8Blocks]*kernels{&got: k, &want: &g} {
				*q = q8Blocks{codes: make([]int8, n), side: make([]blockSide, n/32)}
				k.quantiseBlocks(q.codes, q.side, x)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("quantiseBlocks of %v:\n got %v\nwant %v", x, got, want)
			}
			var gotK, wantK q8Supers
			for q, k := range map[*q8Supers]*kernels{&gotK: k, &wantK: &g} {
				*q = q8Supers{codes: make([]int8, n), side: make([]superSide, n/256)}
				k.quantiseSupers(q.codes, q.side, x)
			}
			if fmt.Sprint(gotK) != fmt.Sprint(wantK) {
				t.Fatalf("quantiseSupers of %v:\n got %v\nwant %v", x, gotK, wantK)
			}
		}
	})
}

func TestWidenKernelsAgreeWithGeneric(t *testing.T) {
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(45, 46))
		for _, typ := range weightTypes {
			for _, n := range []int{1, 16, 20, 32, 64, 96, 256, 768} {
				if n%typ.BlockSize() != 0 {
					continue
				}
				m := extremeMatrix(r, typ, 1, n)
				got, want := make([]float32, n), make([]float32, n)
				k.widen(typ, got, m.Data)
				quant.Dequantize(typ, want, m.Data)
				same(t, fmt.Sprintf("widen %d of %v", n, typ), got, want)
			}
		}
		for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0} {
			for _, dim := range []int{1, 8, 16, 20, 32, 64, 96, 128, 256} {
				if dim%typ.BlockSize() != 0 {
					continue
				}
				const cells, heads, head = 53, 3, 1
				n := typ.RowBytes(heads * dim)
				rows := &KVRows{Type: typ, Data: extremeMatrix(r, typ, cells, heads*dim).Data, Stride: n}
				for _, c := range [][2]int{{0, 53}, {7, 1}, {3, 16}, {5, 40}} {
					got, want := make([]float32, dim*64), make([]float32, dim*64)
					few := make([]float32, 16*dim)
					k.keys(got, 60, rows, head, c[0], c[1], dim, few)
					keys(want, 60, rows, head, c[0], c[1], dim, few)
					same(t, fmt.Sprintf("keys of %v, %d, cells %v", typ, dim, c), got, want)
					clear(got)
					clear(want)
					k.values(got, rows, head, c[0], c[1], dim)
					values(want, rows, head, c[0], c[1], dim)
					same(t, fmt.Sprintf("values of %v, %d, cells %v", typ, dim, c), got, want)
				}
			}
		}
	})
}

func TestMultiplyKernelsAgreeWithGeneric(t *testing.T) {
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(47, 48))
		for _, shape := range [][3]int{{1, 1, 1}, {1, 64, 64}, {6, 128, 64}, {7, 33, 80}, {13, 5, 100}, {2, 256, 16}, {96, 7, 256}} {
			rows, depth, cols := shape[0], shape[1], shape[2]
			a, b := random(r, rows*(depth+3)), random(r, depth*(cols+5))
			got := random(r, rows*(cols+1))
			want := append([]float32(nil), got...)
			k.multiplyAdd(got, cols+1, a, depth+3, b, cols+5, rows, depth, cols)
			multiplyAdd(want, cols+1, a, depth+3, b, cols+5, rows, depth, cols)
			for i, v := range got {
				if math.Abs(float64(v-want[i])) > 1e-5*float64(depth) {
					t.Fatalf("%v: element %d is %g, want %g", shape, i, v, want[i])
				}
			}
		}
	})
}

// multipliedBy is multiplied with given kernels.
func multipliedBy(k *kernels, w *Matrix, x []float32, n int) []float32 {
	p, in := NewPool(1), NewInput()
	defer p.Close()
	p.kernels = k
	in.Set(p, x, n, w.Cols)
	dst := make([]float32, n*w.Rows)
	p.MatMul(dst, w, in)
	return dst
}

func TestProductKernelsAgreeWithGeneric(t *testing.T) {
	g := generic()
	var widths []kernels
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(49, 50))
		for _, typ := range weightTypes {
			for _, shape := range [][3]int{{1, 256, 1}, {33, 512, 1}, {5, 768, 2}, {16, 256, 3}, {37, 2304, 4}, {32, 512, 90}, {70, 256, 17}, {24, 288, 1}} {
				rows, cols, n := shape[0], shape[1], shape[2]
				if cols%typ.BlockSize() != 0 {
					continue
				}
				for _, w := range []*Matrix{randomMatrix(r, typ, rows, cols), extremeMatrix(r, typ, rows, cols)} {
					x := extremes(r, n*cols)
					got, want := multipliedBy(k, w, x, n), multipliedBy(&g, w, x, n)
					what := fmt.Sprintf("%v %v", typ, shape)
					same(t, what, got, want)
					for i := range widths {
						same(t, what+", compared with "+widths[i].name, got, multipliedBy(&widths[i], w, x, n))
					}
				}
			}
		}
		widths = append(widths, *k)
	})
}

// TestProductsOfTheLargestCodesDoNotOverflow: kernels that add up in 16 bits must hold the sum of the largest products there are.
func TestProductsOfTheLargestCodesDoNotOverflow(t *testing.T) {
	const rows, cols, n = 33, 512, 5
	g := generic()
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(67, 68))
		for _, typ := range weightTypes {
			w, filled := extremeMatrix(r, typ, rows, cols), slices.Repeat([]byte{0xff}, rows*typ.RowBytes(cols))
			for _, o := range scaleOffsets(typ) {
				for b := o; b < len(filled); b += typ.BlockBytes() {
					copy(filled[b:b+2], w.Data[b:])
				}
			}
			w.Data = filled
			for _, x := range []float32{1, -1} {
				same(t, fmt.Sprintf("%v times %g", typ, x), multipliedBy(k, w, slices.Repeat([]float32{x}, n*cols), n), multipliedBy(&g, w, slices.Repeat([]float32{x}, n*cols), n))
			}
		}
	})
}

// strangeScales replaces the half precision numbers of w by zeros, subnormal numbers, the largest, infinities and NaNs.
func strangeScales(r *rand.Rand, w *Matrix) {
	strange := []uint16{0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00}
	offsets := scaleOffsets(w.Type)
	if w.Type == gguf.F16 {
		offsets = []int{0}
	}
	for b := 0; b < len(w.Data); b += w.Type.BlockBytes() {
		for _, at := range offsets {
			h := strange[r.IntN(len(strange))]
			if r.IntN(2) == 0 { // few rows with infinities
				h &= 0x83ff
			}
			w.Data[b+at], w.Data[b+at+1] = byte(h), byte(h>>8)
		}
	}
}

func TestProductsWithStrangeScalesAgree(t *testing.T) {
	sets := [][]kernels{available(), inOrderOfUpstream()}
	r := rand.New(rand.NewPCG(95, 96))
	for _, typ := range weightTypes {
		for _, shape := range [][3]int{{24, 512, 1}, {24, 512, 3}, {33, 256, 8}, {13, 256, 1}} {
			rows, cols, n := shape[0], shape[1], shape[2]
			w, x := extremeMatrix(r, typ, rows, cols), extremes(r, n*cols)
			strangeScales(r, w)
			for _, set := range sets {
				want := multipliedBy(&set[0], w, x, n)
				for _, k := range set[1:] {
					for i, v := range multipliedBy(&k, w, x, n) {
						if math.Float32bits(v) != math.Float32bits(want[i]) && !(v != v && want[i] != want[i]) {
							t.Fatalf("%s: %v %v: element %d is %g, %s has %g", k.name, typ, shape, i, v, set[0].name, want[i])
						}
					}
				}
			}
		}
	}
}

// A model that is broken somewhere must not go on as if it were not: what is not finite comes out as something that is not.
func TestProductsDoNotLoseWhatIsNotFinite(t *testing.T) {
	r := rand.New(rand.NewPCG(93, 94))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, k := range append(available(), inOrderOfUpstream()...) {
		for _, typ := range weightTypes {
			const rows, cols = 9, 512
			w := randomMatrix(r, typ, rows, cols)
			for _, bad := range []float32{nan, -nan, inf, -inf} {
				for _, at := range []int{0, 9, 18, 31, 255, 256, 300, 511} {
					for _, n := range []int{1, 5} {
						x := random(r, n*cols)
						x[(n-1)*cols+at] = bad
						for i, y := range multipliedBy(&k, w, x, n) {
							if last := i >= (n-1)*rows; (y-y == 0) == last {
								t.Fatalf("%s, %v: %g at %d of row %d: result %d of row %d is %g", k.name, typ, bad, at, n-1, i%rows, i/rows, y)
							}
						}
					}
				}
			}
		}
	}
}

func TestAttentionKernelsAgreeAcrossWidths(t *testing.T) {
	var widths []*kernels
	vectorKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(51, 52))
		for _, c := range attentionCases {
			a := c.build(r)
			run := func(k *kernels) []float32 {
				p := NewPool(1)
				defer p.Close()
				p.kernels = k
				p.Attend(a)
				return append([]float32(nil), a.Out...)
			}
			got := run(k)
			for i, want := range plainAttention(a) {
				if math.Abs(float64(got[i])-want) > 2e-5 {
					t.Fatalf("%s: element %d is %g, want %g", c.name, i, got[i], want)
				}
			}
			for _, other := range widths {
				same(t, c.name+", compared with "+other.name, got, run(other))
			}
		}
		widths = append(widths, k)
	})
}

func TestStoredRowsAgreeAcrossKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 54))
	x := extremes(r, 512)
	for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0} {
		want := make([]byte, typ.RowBytes(512))
		g := generic()
		g.store(typ, want, x)
		for _, k := range available() {
			got := make([]byte, len(want))
			k.store(typ, got, x)
			if string(got) != string(want) {
				t.Errorf("%v stored by %s differs", typ, k.name)
			}
		}
	}
}
