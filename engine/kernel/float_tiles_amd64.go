//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

type (
	dotFunc  = func(dst *float32, w *byte, stride int, x *float32, n int)
	tileFunc = func(acc *float32, w *float32, strideW int, x *float32, strideX int, n int)
)

// floatTiles computes products with float weights by assembly kernels. Their shape differs between instruction sets, the
// order of accumulation does not.
type floatTiles struct {
	rows, inputs        int         // weight rows and activation rows of a full tile
	dot, dot4           [32]dotFunc // by gguf.Type: one and four weight rows, one activation row
	tile                []tileFunc  // by activation rows - 1
	fold                func(dst *float32, acc *float32, n int)
	widenF16, widenBF16 func(dst *float32, src *byte, n int)
}

const (
	depthBlock   = 1024 // columns taken at a time: the activations of a tile stay in the first-level cache while the weights pass by
	inputBlock   = 72   // activation rows taken at a time: with the weights and partial sums they stay in the second-level cache
	vectorInputs = 2    // up to so many activation rows it is not worth widening weights to memory
)

// panel is floatPanel.
func (f *floatTiles) panel(m *product, s *scratch, from, to int) {
	whole := m.w.Cols / lanes * lanes
	switch {
	case whole == 0:
		clearPanel(m, from, to)
	case m.in.n <= vectorInputs:
		f.vectors(m, from, to, whole)
	default:
		f.tiles(m, s, from, to, whole)
	}
	if whole < m.w.Cols {
		addTails(m, s, from, to, whole)
	}
}

func clearPanel(m *product, from, to int) {
	for i := range m.in.n {
		clear(m.dst[i*m.w.Rows+from : i*m.w.Rows+to])
	}
}

// addTails adds the last columns, which fill no vector.
func addTails(m *product, s *scratch, from, to, whole int) {
	t, cols, x := m.w.Type, m.w.Cols, m.in.floats(m.w.Type)
	for r := from; r < to; r++ {
		w := s.few[:cols-whole]
		quant.Dequantize(t, w, m.w.row(r)[t.RowBytes(whole):])
		for i := range m.in.n {
			total := m.dst[i*m.w.Rows+r]
			for c, v := range x[i*cols+whole:][:len(w)] {
				total += float32(w[c] * v)
			}
			m.dst[i*m.w.Rows+r] = total
		}
	}
}

// vectors multiplies straight from the blocks, one activation row at a time.
func (f *floatTiles) vectors(m *product, from, to, whole int) {
	x, stride := m.in.floats(m.w.Type), m.w.Type.RowBytes(m.w.Cols)
	for r := from; r < to; {
		dot, step := f.dot[m.w.Type], 1
		if r+4 <= to {
			dot, step = f.dot4[m.w.Type], 4
		}
		for i := range m.in.n {
			dot(&m.dst[i*m.w.Rows+r], &m.w.Data[r*stride], stride, &x[i*m.w.Cols], whole)
		}
		r += step
	}
}

// tiles widens blocks of weights and runs them against blocks of activations.
func (f *floatTiles) tiles(m *product, s *scratch, from, to, whole int) {
	rows := (to - from + f.rows - 1) / f.rows * f.rows
	s.row = grow(s.row, rows*depthBlock)
	s.sums = grow(s.sums, inputBlock*rows*lanes)
	for i0 := 0; i0 < m.in.n; i0 += inputBlock {
		i1 := min(m.in.n, i0+inputBlock)
		clear(s.sums)
		for k0 := 0; k0 < whole; k0 += depthBlock {
			depth := min(depthBlock, whole-k0)
			for r := range to - from {
				f.widen(m.w.Type, s.row[r*depth:][:depth], m.w.row(from + r)[m.w.Type.RowBytes(k0):m.w.Type.RowBytes(k0+depth)])
			}
			f.multiply(m, s, rows, i0, i1, k0, depth)
		}
		f.scatter(m, s, from, to, i0, i1)
	}
}

// multiply adds the partial sums of columns [k0, k0+depth) for activation rows [i0, i1). The sums of a tile lie together:
// those of activation rows i.. and weight rows r.. begin at (i*rows + r*inputs) * lanes.
func (f *floatTiles) multiply(m *product, s *scratch, rows, i0, i1, k0, depth int) {
	x, cols := m.in.floats(m.w.Type), m.w.Cols
	for i := i0; i < i1; i += f.inputs {
		n := min(f.inputs, i1-i)
		for r := 0; r < rows; r += f.rows {
			f.tile[n-1](&s.sums[((i-i0)*rows+r*n)*lanes], &s.row[r*depth], depth*4, &x[i*cols+k0], cols*4, depth)
		}
	}
}

// scatter folds the partial sums and writes them to the product's destination.
func (f *floatTiles) scatter(m *product, s *scratch, from, to, i0, i1 int) {
	rows := (to - from + f.rows - 1) / f.rows * f.rows
	for i := i0; i < i1; i += f.inputs {
		n := min(f.inputs, i1-i)
		for r := 0; r < rows; r += f.rows {
			f.fold(&s.few[0], &s.sums[((i-i0)*rows+r*n)*lanes], n*f.rows)
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
