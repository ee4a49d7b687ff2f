package kernel

import (
	"attnbudget/engine/kernel/upstream"
)

// inUpstreamsOrder replaces in k whatever sums or approximates by what upstream's build for AVX2 does, so that results are
// upstream's to the last bit. Unlike with the other kernels they then depend on the size of the batch: upstream has one
// order for a single row and another for more.
func inUpstreamsOrder(k kernels) kernels {
	k.multiplyAdd = fused(k.multiplyAdd, k.name == "generic")
	k.attend = func(p *Pool, a *Attention) { p.flash.run(p, a) }
	k.name = Upstream
	k.floatPanel = singleRowsIn32(&k)
	k.quantPanel = k.upstreamQuantPanel
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

// singleRowsIn32 is floatPanel with batches as in k and single rows in 32 partial sums.
func singleRowsIn32(k *kernels) func(m *product, s *scratch, from, to int) {
	batch, widen, dot := k.floatPanel, k.widen, k.dot32
	return func(m *product, s *scratch, from, to int) {
		if m.in.n > 1 {
			batch(m, s, from, to)
		} else {
			rowByRow(m, s, from, to, widen, dot)
		}
	}
}

func squaresOneByOne(x []float32) (sums [lanes]float64) {
	for _, v := range x {
		sums[0] += float64(float32(v * v))
	}
	return sums
}
