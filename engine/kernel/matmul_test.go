package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

var weightTypes = []gguf.Type{
	gguf.F32, gguf.F16, gguf.BF16,
	gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0, gguf.IQ4_NL,
	gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ4_XS,
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// randomMatrix quantises normal random weights.
func randomMatrix(r *rand.Rand, t gguf.Type, rows, cols int) *Matrix {
	w := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, rows*t.RowBytes(cols))}
	quant.Quantize(t, w.Data, random(r, rows*cols))
	return w
}

// extremeMatrix is random bytes with scales of moderate size: every code and sub-scale occurs, the largest included.
func extremeMatrix(r *rand.Rand, t gguf.Type, rows, cols int) *Matrix {
	if isFloat(t) {
		return randomMatrix(r, t, rows, cols)
	}
	w := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, rows*t.RowBytes(cols))}
	for i := range w.Data {
		if w.Data[i] = byte(r.Uint32()); r.IntN(8) == 0 {
			w.Data[i] = []byte{0, 0xff, 0x80, 0x7f}[r.IntN(4)]
		}
	}
	for b := 0; b < len(w.Data); b += t.BlockBytes() {
		for _, o := range scaleOffsets(t) {
			h := quant.FloatToHalf(float32(r.NormFloat64()))
			w.Data[b+o], w.Data[b+o+1] = byte(h), byte(h>>8)
		}
	}
	return w
}

// scaleOffsets are where a block of a quantised type has its half precision numbers.
func scaleOffsets(t gguf.Type) []int {
	switch t {
	case gguf.F32, gguf.F16, gguf.BF16:
		return nil
	case gguf.Q4_1, gguf.Q5_1, gguf.Q4_K, gguf.Q5_K:
		return []int{0, 2}
	case gguf.Q2_K:
		return []int{80, 82}
	case gguf.Q3_K:
		return []int{108}
	case gguf.Q6_K:
		return []int{208}
	}
	return []int{0}
}

func multiplied(t *testing.T, threads int, w *Matrix, x []float32, n int) []float32 {
	t.Helper()
	p := NewPool(threads)
	defer p.Close()
	in := NewInput()
	in.Set(p, x, n, w.Cols)
	dst := make([]float32, n*w.Rows)
	p.MatMul(dst, w, in)
	return dst
}

// expected is the product in float64 of the dequantised weights with the activations as they are.
func expected(w *Matrix, x []float32, n int) (y, magnitude []float64) {
	y, magnitude = make([]float64, n*w.Rows), make([]float64, n*w.Rows)
	row := make([]float32, w.Cols)
	for r := range w.Rows {
		quant.Dequantize(w.Type, row, w.row(r))
		for i := range n {
			var sum, size float64
			for c, v := range row {
				p := float64(v) * float64(x[i*w.Cols+c])
				sum, size = sum+p, size+p*p
			}
			y[i*w.Rows+r], magnitude[i*w.Rows+r] = sum, math.Sqrt(size)
		}
	}
	return y, magnitude
}

func TestMatMulAgreesWithDequantisedWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range weightTypes {
		t.Run(typ.String(), func(t *testing.T) {
			const rows, cols, n = 37, 768, 5
			w, x := randomMatrix(r, typ, rows, cols), random(r, n*cols)
			got := multiplied(t, 1, w, x, n)
			want, size := expected(w, x, n)
			// Rounding activations to 8 bits makes an error of up to half a step of max/127 per element; with the sizes
			// here that is below two percent of the root of the summed squares. Half types lose 2^-9 or 2^-12.
			tolerance := map[gguf.Type]float64{gguf.F32: 2e-6, gguf.F16: 1e-3, gguf.BF16: 8e-3}[typ]
			if tolerance == 0 {
				tolerance = 0.05
			}
			var worst float64
			for i, v := range got {
				worst = max(worst, math.Abs(float64(v)-want[i])/size[i])
			}
			if !(worst < tolerance) {
				t.Errorf("relative error %.3g, want below %g", worst, tolerance)
			}
		})
	}
}

func TestMatMulOfExactActivationsIsExactToRounding(t *testing.T) {
	// Activations that are their own 8-bit codes: only float32 rounding of block sums is left.
	r := rand.New(rand.NewPCG(3, 4))
	for _, typ := range weightTypes {
		t.Run(typ.String(), func(t *testing.T) {
			const rows, cols, n = 19, 512, 3
			x := make([]float32, n*cols)
			for i := range x {
				x[i] = float32(r.IntN(255) - 127)
				if i%32 == 0 {
					x[i] = -127
				}
			}
			for _, w := range []*Matrix{randomMatrix(r, typ, rows, cols), extremeMatrix(r, typ, rows, cols)} {
				got := multiplied(t, 1, w, x, n)
				want, size := expected(w, x, n)
				for i, v := range got {
					// s of Q8_1 is rounded to half precision.
					tolerance := 1e-5
					if typ == gguf.Q4_1 || typ == gguf.Q5_1 {
						tolerance = 1e-3
					}
					if e := math.Abs(float64(v)-want[i]) / size[i]; !(e < tolerance) {
						t.Fatalf("element %d: got %g, want %g: error %.3g", i, v, want[i], e)
					}
				}
			}
		})
	}
}

func TestMatMulDependsNeitherOnThreadsNorOnBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, typ := range weightTypes {
		for _, shape := range [][3]int{{16, 256, 1}, {50, 512, 33}, {7, 1280, 9}, {64, 256, 64}} {
			rows, cols, n := shape[0], shape[1], shape[2]
			w, x := extremeMatrix(r, typ, rows, cols), random(r, n*cols)
			want := multiplied(t, 1, w, x, n)
			for _, threads := range []int{2, 5} {
				same(t, fmt.Sprintf("%v %v, %d threads", typ, shape, threads), multiplied(t, threads, w, x, n), want)
			}
			for _, part := range []int{1, 2, 3, 4, 5, 6, 7, 8, 13} {
				if active.singles { // upstream's order depends on the batch
					break
				}
				for from := 0; from+part <= n; from += part {
					got := multiplied(t, 1, w, x[from*cols:], part)
					same(t, fmt.Sprintf("%v %v, rows %d+%d", typ, shape, from, part), got, want[from*rows:][:part*rows])
				}
			}
		}
	}
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if math.Float32bits(v) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g, want exactly %g", what, i, v, want[i])
		}
	}
}

func TestMatMulOfRowsThatFillNoVector(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
		for _, cols := range []int{1, 3, 15, 16, 17, 31, 33, 100} {
			for _, n := range []int{1, 2, 7} {
				w, x := randomMatrix(r, typ, 9, cols), make([]float32, n*cols)
				for i := range x {
					x[i] = float32(r.IntN(17)-8) / 8 // exact in every type
				}
				got := multiplied(t, 2, w, x, n)
				want, size := expected(w, x, n)
				for i, v := range got {
					if math.Abs(float64(v)-want[i]) > 1e-5*(1e-3+size[i]) {
						t.Fatalf("%v, %d columns, %d rows: element %d is %g, want %g", typ, cols, n, i, v, want[i])
					}
				}
			}
		}
	}
}

func TestMatMulAllocatesNothingInSteadyState(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 20} {
		for _, typ := range weightTypes {
			p, in := NewPool(2), NewInput()
			w, x := randomMatrix(r, typ, 40, 512), random(r, n*512)
			dst := make([]float32, n*40)
			call := func() {
				in.Set(p, x, n, 512)
				p.MatMul(dst, w, in)
			}
			for range 20 { // until every worker had its share
				call()
			}
			if a := testing.AllocsPerRun(20, call); a != 0 {
				t.Errorf("%v, %d rows: %v allocations per call, want 0", typ, n, a)
			}
			p.Close()
		}
	}
}

func TestProductsThatDoNotFitPanic(t *testing.T) {
	p, in := NewPool(1), NewInput()
	defer p.Close()
	matrix := func(typ gguf.Type, rows, cols, bytes int) *Matrix {
		return &Matrix{Type: typ, Rows: rows, Cols: cols, Data: make([]byte, bytes)}
	}
	x := make([]float32, 2*64)
	for name, f := range map[string]func(){
		"short weights":     func() { p.MatMul(make([]float32, 8), matrix(gguf.Q8_0, 4, 64, 4*68-1), in) },
		"part of a block":   func() { p.MatMul(make([]float32, 8), matrix(gguf.Q4_K, 4, 64, 4*144), in) },
		"other columns":     func() { p.MatMul(make([]float32, 8), matrix(gguf.F32, 4, 32, 4*32*4), in) },
		"short destination": func() { p.MatMul(make([]float32, 7), matrix(gguf.F32, 4, 64, 4*64*4), in) },
		"integers":          func() { p.MatMul(make([]float32, 8), matrix(gguf.I32, 4, 64, 4*64*4), in) },
		"short activations": func() { in.Set(p, x[:127], 2, 64) },
	} {
		in.Set(p, x, 2, 64)
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "kernel: ") {
					t.Errorf("%s: recovered %q", name, s)
				}
			}()
			f()
		}()
	}
}

func TestInputForgetsWhatItWas(t *testing.T) {
	r := rand.New(rand.NewPCG(101, 102))
	p, in := NewPool(1), NewInput()
	defer p.Close()
	const rows, cols, n = 8, 256, 2
	for _, typ := range weightTypes {
		w := randomMatrix(r, typ, rows, cols)
		for range 2 {
			x, got := random(r, n*cols), make([]float32, n*rows)
			in.Set(p, x, n, cols)
			p.MatMul(got, w, in)
			same(t, typ.String(), got, multiplied(t, 1, w, x, n))
		}
	}
}
