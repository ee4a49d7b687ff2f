package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

// inUpstreamsOrder replaces in k whatever sums or approximates by what upstream's build for AVX2 does, so that results are
// upstream's to the last bit. Unlike with the other kernels they then depend on the size of the batch: upstream has one
// order for a single row and another for more.
func inUpstreamsOrder(k kernels) kernels {
	k.multiplyAdd = fused(k.multiplyAdd, k.name == "generic")
	k.attend = func(p *Pool, a *Attention) { p.flash.run(p, a) }
	k.name = "upstream"
	k.floatPanel = floatPanelUpstream
	k.quantPanel = quantPanelUpstream
	k.squares = squaresOneByOne
	k.singles = true
	return k
}

// fused is multiplyAdd with fused multiply-adds in every column: assembly has them in whole vectors, generic code in none.
func fused(f multiplyAddFunc, generic bool) multiplyAddFunc {
	return func(c []float32, strideC int, a []float32, strideA int, b []float32, strideB int, rows, depth, cols int) {
		whole := cols / lanes * lanes
		if generic {
			whole = 0
		}
		f(c, strideC, a, strideA, b, strideB, rows, depth, whole)
		if whole == cols || depth == 0 {
			return
		}
		for r := range rows {
			upstream.MultiplyAdd(c[r*strideC+whole:][:cols-whole], a[r*strideA:][:depth], b[whole:], strideB)
		}
	}
}

// floatPanelUpstream is floatPanel. Batches go through another routine than single rows, if its tiles fit.
func floatPanelUpstream(m *product, s *scratch, from, to int) {
	in, cols, rows := m.in, m.w.Cols, m.w.Rows
	x := in.floats(m.w.Type)
	dot := upstream.Dot32
	switch {
	case in.n > 1 && cols%8 == 0 && rows%4 == 0:
		dot = upstream.Dot8
	case m.w.Type == gguf.BF16:
		dot = upstream.DotBF16
	}
	for r := from; r < to; r++ {
		s.row = grow(s.row, cols)
		quant.Dequantize(m.w.Type, s.row, m.w.row(r))
		for i := range in.n {
			m.dst[i*rows+r] = dot(s.row, x[i*cols:][:cols])
		}
	}
}

func squaresOneByOne(x []float32) (sums [lanes]float64) {
	for _, v := range x {
		sums[0] += float64(float32(v * v))
	}
	return sums
}
