//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

type (
	dotFunc        = func(dst *float32, strideDst int, w *byte, stride int, x *float32, strideX int, n int)
	tileFunc       = func(acc *float32, w *float32, x *float32, strideX int, n int)
	interleaveFunc = func(dst *float32, strideDst int, src *byte, strideSrc int, n int)
)

// floatTiles computes products with float weights by assembly kernels. Their shape differs between instruction sets, the
// order of accumulation does not.
type floatTiles struct {
	rows, inputs        int        // weight rows, a multiple of four, and activation rows of a full tile
	tile                []tileFunc // by activation rows - 1
	widenF16, widenBF16 func(dst *float32, src *byte, n int)
}

// By gguf.Type; dotRows4 further by activation rows - 1.
var (
	dotRows4 = [32][vectorInputs]dotFunc{
		gguf.F32:  {dotF32_4x1AVX2, dotF32_4x2AVX2, dotF32_4x3AVX2},
		gguf.F16:  {dotF16_4x1AVX2, dotF16_4x2AVX2, dotF16_4x3AVX2},
		gguf.BF16: {dotBF16_4x1AVX2, dotBF16_4x2AVX2, dotBF16_4x3AVX2},
	}
	dotRows8    = [32]dotFunc{gguf.F32: dotF32_8x1AVX2, gguf.F16: dotF16_8x1AVX2, gguf.BF16: dotBF16_8x1AVX2}
	interleave4 = [32]interleaveFunc{gguf.F32: interleaveF32AVX2, gguf.F16: interleaveF16AVX2, gguf.BF16: interleaveBF16AVX2}
)

const (
	depthBlock   = 1024 // columns taken at a time: the activations of a tile stay in the first-level cache while the weights pass by
	inputBlock   = 72   // activation rows taken at a time: with the weights and partial sums they stay in the second-level cache
	vectorInputs = 3    // up to so many activation rows it is not worth widening weights to memory
	shortRow     = 2048 // bytes of a weight row up to which eight and the eight after them stay in the first-level cache
)

// panel is floatPanel.
func (f *floatTiles) panel(m *product, s *scratch, from, to int) {
	switch {
	case !inEights(m.w):
		rowByRow(m, s, from, to, f.widen, dot32OnAVX2)
	case m.in.n <= vectorInputs:
		floatVectors(m, from, to)
	default:
		f.tiles(m, s, from, to)
	}
}

// dot32OnAVX2 is dot32.
func dot32OnAVX2(t gguf.Type, a, b []float32) float32 {
	b = b[:len(a)]
	whole := len(a) / 32 * 32
	var sums [8]float32
	if whole > 0 {
		sums32AVX2(&sums, &a[0], &b[0], whole)
	}
	return endDot32(t, &sums, a[whole:], b[whole:])
}

// floatVectors multiplies straight from the blocks.
func floatVectors(m *product, from, to int) {
	n, rows, cols, t := m.in.n, m.w.Rows, m.w.Cols, m.w.Type
	x, stride := m.in.floats(t), t.RowBytes(cols)
	for r := from; r < to; {
		dot, step := dotRows4[t][n-1], 4
		if n == 1 && stride <= shortRow && r+8 <= to {
			dot, step = dotRows8[t], 8
		}
		dot(&m.dst[r], rows*4, &m.w.Data[r*stride], stride, &x[0], cols*4, cols)
		r += step
	}
}

// tiles widens blocks of weights and runs them against blocks of activations.
func (f *floatTiles) tiles(m *product, s *scratch, from, to int) {
	rows := (to - from + f.rows - 1) / f.rows * f.rows
	s.row = grow(s.row, rows*depthBlock)
	s.sums = grow(s.sums, inputBlock*rows*8)
	for i0 := 0; i0 < m.in.n; i0 += inputBlock {
		i1 := min(m.in.n, i0+inputBlock)
		clear(s.sums)
		for k0 := 0; k0 < m.w.Cols; k0 += depthBlock {
			depth := min(depthBlock, m.w.Cols-k0)
			f.interleave(m, s, from, to, k0, depth)
			f.multiply(m, s, rows, i0, i1, k0, depth)
		}
		f.scatter(m, s, from, to, i0, i1)
	}
}

// interleave widens columns [k0, k0+depth) of weight rows [from, to) to s.row, tile after tile, the rows of a tile side by
// side in pieces of eight. What fills up the last tile is arbitrary.
func (f *floatTiles) interleave(m *product, s *scratch, from, to, k0, depth int) {
	t := m.w.Type
	stride := t.RowBytes(m.w.Cols)
	for r := 0; r < to-from; r += 4 {
		at := r/f.rows*f.rows*depth + r%f.rows*8
		interleave4[t](&s.row[at], f.rows*8*4, &m.w.Data[(from+r)*stride+t.RowBytes(k0)], stride, depth)
	}
}

// multiply adds the partial sums of columns [k0, k0+depth) for activation rows [i0, i1). The sums of a tile lie together:
// those of activation rows i.. and weight rows r.. begin at (i*rows + r*inputs) * 8.
func (f *floatTiles) multiply(m *product, s *scratch, rows, i0, i1, k0, depth int) {
	x, cols := m.in.floats(m.w.Type), m.w.Cols
	for i := i0; i < i1; i += f.inputs {
		n := min(f.inputs, i1-i)
		for r := 0; r < rows; r += f.rows {
			f.tile[n-1](&s.sums[((i-i0)*rows+r*n)*8], &s.row[r*depth], &x[i*cols+k0], cols*4, depth)
		}
	}
}

// scatter folds the partial sums and writes them to the product's destination.
func (f *floatTiles) scatter(m *product, s *scratch, from, to, i0, i1 int) {
	rows := (to - from + f.rows - 1) / f.rows * f.rows
	for i := i0; i < i1; i += f.inputs {
		n := min(f.inputs, i1-i)
		for r := 0; r < rows; r += f.rows {
			foldSumsAVX2(&s.few[0], &s.sums[((i-i0)*rows+r*n)*8], n*f.rows)
			for j := range n {
				copy(m.dst[(i+j)*m.w.Rows+from+r:(i+j)*m.w.Rows+to], s.few[j*f.rows:][:f.rows])
			}
		}
	}
}

// widen is quant.Dequantize with the common types in assembly.
func (f *floatTiles) widen(t gguf.Type, dst []float32, src []byte) {
	n := wholeVectors(len(dst))
	switch {
	case t == gguf.F32 && n > 0:
		n = copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src) / 4
	case t == gguf.F16 && n > 0:
		f.widenF16(&dst[0], &src[0], n)
	case t == gguf.BF16 && n > 0:
		f.widenBF16(&dst[0], &src[0], n)
	default:
		n = 0
	}
	if n < len(dst) {
		quant.Dequantize(t, dst[n:], src[t.RowBytes(n):])
	}
}
