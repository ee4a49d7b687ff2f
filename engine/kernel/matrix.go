package kernel

import (
	"fmt"

	"attnbudget/engine/gguf"
)

// Matrix is a weight matrix W as a GGUF file stores it: Rows rows of Cols numbers, each row in blocks of Type.
type Matrix struct {
	Type       gguf.Type
	Rows, Cols int
	Data       []byte // Rows * Type.RowBytes(Cols) bytes
}

// row returns the blocks of row r.
func (w *Matrix) row(r int) []byte {
	n := w.Type.RowBytes(w.Cols)
	return w.Data[r*n : (r+1)*n : (r+1)*n]
}

func (w *Matrix) check() {
	if b := w.Type.BlockSize(); b == 0 || w.Cols%b != 0 || len(w.Data) < w.Rows*w.Type.RowBytes(w.Cols) {
		panic(fmt.Sprintf("kernel: matrix %v %dx%d does not fit its %d bytes", w.Type, w.Rows, w.Cols, len(w.Data)))
	}
}

// panelRows is the number of weight rows that one item of work covers: the more, the less often many activation rows are
// read, as long as there are enough items to share out. With few, nothing is read again, and an item takes a few
// microseconds: that is how long threads wait for the last one.
func panelRows(rows, rowBytes, inputs, threads int) int {
	switch {
	case inputs <= decodeInputs:
		return max(8, min(64, (96<<10)/max(1, rowBytes)/8*8))
	case rows < 4*64*threads:
		return 32
	}
	return 64
}

// decodeInputs is the number of activation rows up to which reading the blocks once for each is faster than unpacking.
const decodeInputs = 3

// product is the MatMul in progress.
type product struct {
	dst  []float32
	w    *Matrix
	in   *Input
	rows int // weight rows per item
	item func(worker, i int)
}

// MatMul computes dst = x Wᵀ for the activations x [n][cols] of in: dst [n][w.Rows], row after row. w.Cols must be the
// cols of in. The result of a row depends on that row and w alone.
func (p *Pool) MatMul(dst []float32, w *Matrix, in *Input) {
	w.check()
	if w.Cols != in.cols || len(dst) < in.n*w.Rows {
		panic(fmt.Sprintf("kernel: product of %dx%d activations with %dx%d weights into %d floats", in.n, in.cols, w.Rows, w.Cols, len(dst)))
	}
	in.prepare(p, w.Type)
	p.product.dst, p.product.w, p.product.in = dst, w, in
	p.product.rows = panelRows(w.Rows, w.Type.RowBytes(w.Cols), in.n, p.Threads())
	p.Run((w.Rows+p.product.rows-1)/p.product.rows, p.product.item)
	p.product.dst, p.product.w, p.product.in = nil, nil, nil
}

// init binds the loop body once: a closure made per call would be an allocation per call.
func (m *product) init(p *Pool) {
	m.item = func(worker, i int) {
		from, to := i*m.rows, min((i+1)*m.rows, m.w.Rows)
		s := &p.scratch[worker]
		if isFloat(m.w.Type) {
			p.kernels.floatPanel(m, s, from, to)
		} else {
			p.kernels.quantPanel(m, s, from, to)
		}
	}
}

// scratch is the memory one worker needs; it grows to what the largest call asked for.
type scratch struct {
	row   []float32   // weight rows widened to float32
	sums  []float32   // partial sums
	few   [48]float32 // sums of a tile
	panel integerPanel
	codes rowCodes
	tile  attentionTile
	whole wholeScratch
	flash flashTile
}

// grow returns s with length n, reusing its memory where it suffices.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
