package model

import "attnbudget/engine/kernel"

// rows are activations [n][cols] in memory that a Pass owns. Products read them through an Input, which quantises them
// once for all matrices that share them.
type rows struct {
	data  []float32
	n     int
	cols  int
	input *kernel.Input
	valid bool // input stands for data as it is now
}

func newRows(most, cols int) *rows {
	return &rows{data: make([]float32, most*cols), cols: cols, input: kernel.NewInput()}
}

// reshape makes r hold n rows of cols; what it held is lost.
func (r *rows) reshape(n, cols int) {
	r.n, r.cols, r.valid = n, cols, false
}

func (r *rows) row(i int) []float32 { return r.data[i*r.cols : (i+1)*r.cols] }

func (r *rows) all() []float32 { return r.data[:r.n*r.cols] }

// changed says that data was written to.
func (r *rows) changed() { r.valid = false }

// read returns the input of a product.
func (r *rows) read(p *kernel.Pool) *kernel.Input {
	if !r.valid {
		r.input.Set(p, r.data, r.n, r.cols)
		r.valid = true
	}
	return r.input
}

// keep reduces r to the given rows, ascending, in their order.
func (r *rows) keep(which []int) {
	for i, from := range which {
		if i != from {
			copy(r.row(i), r.row(from))
		}
	}
	r.n, r.valid = len(which), false
}

// repeat appends a copy of rows [from, from+n).
func (r *rows) repeat(from, n int) {
	copy(r.data[r.n*r.cols:(r.n+n)*r.cols], r.data[from*r.cols:(from+n)*r.cols])
	r.n, r.valid = r.n+n, false
}
