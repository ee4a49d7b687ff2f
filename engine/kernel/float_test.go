package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

var floatTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16}

// allKernels returns every kernel set, that in upstream's order included.
func allKernels() []kernels { return append(available(), inUpstreamsOrder(best())) }

// inOrder is the product of x, in a type's precision already, with the widened rows of w by the given sum.
func inOrder(w *Matrix, x []float32, n int, dot func(a, b []float32) float32) []float32 {
	dst, row := make([]float32, n*w.Rows), make([]float32, w.Cols)
	for r := range w.Rows {
		quant.Dequantize(w.Type, row, w.row(r))
		for i := range n {
			dst[i*w.Rows+r] = dot(row, x[i*w.Cols:][:w.Cols])
		}
	}
	return dst
}

// rounded is what is left of x in type t.
func rounded(t gguf.Type, x []float32) []float32 {
	b, y := make([]byte, t.RowBytes(len(x))), make([]float32, len(x))
	quant.Quantize(t, b, x)
	quant.Dequantize(t, y, b)
	return y
}

func TestFloatProductsAreSummedInUpstreamsOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	for _, typ := range floatTypes {
		in32 := func(a, b []float32) float32 { return dot32(typ, a, b) }
		for _, shape := range [][3]int{
			{4, 8, 1}, {8, 8, 3}, {12, 24, 7}, {4, 64, 2}, {36, 1032, 8}, {76, 2056, 80}, {68, 3072, 5}, // in eights
			{5, 40, 3}, {8, 100, 5}, {32, 31, 2}, {7, 1056, 1}, {3, 1, 1}, {66, 77, 20}, // not
		} {
			rows, cols, n := shape[0], shape[1], shape[2]
			w, x := randomMatrix(r, typ, rows, cols), rounded(typ, extremes(r, n*cols))
			dot := in32
			if cols%8 == 0 && rows%4 == 0 {
				dot = upstream.Dot8
			}
			want, single := inOrder(w, x, n, dot), inOrder(w, x, n, in32)
			for _, k := range allKernels() {
				want := want
				if n == 1 && k.singles {
					want = single
				}
				same(t, fmt.Sprintf("%s: %v %v", k.name, typ, shape), multipliedBy(&k, w, x, n), want)
			}
		}
	}
}

func TestProductsOfSingleRowsAgreeWithGeneric(t *testing.T) {
	r := rand.New(rand.NewPCG(63, 64))
	for _, typ := range floatTypes {
		for _, n := range []int{1, 8, 31, 32, 33, 64, 100, 768, 1000} {
			a, b := rounded(typ, extremes(r, n)), rounded(typ, extremes(r, n))
			for _, k := range allKernels() {
				same(t, fmt.Sprintf("%s: %d of %v", k.name, n, typ), []float32{k.dot32(typ, a, b)}, []float32{dot32(typ, a, b)})
			}
		}
	}
}
