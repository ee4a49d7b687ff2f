//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
)

func scaleMaxOn(vector func(x *float32, n int, scale float32) float32) func(x []float32, scale float32) float32 {
	return func(x []float32, scale float32) float32 {
		n := wholeVectors(len(x))
		top := scaleMax(x[n:], scale)
		if n > 0 {
			top = max(top, vector(&x[0], n, scale))
		}
		return top
	}
}

func dotCellsOnAVX2(dst, q, k []float32) {
	i, n := 0, len(q)
	for ; i+4 <= len(dst); i += 4 {
		dotCells4AVX2(&dst[i], &q[0], &k[i*n : (i+4)*n][0], n)
	}
	for ; i < len(dst); i++ {
		dotCells1AVX2(&dst[i], &q[0], &k[i*n : (i+1)*n][0], n)
	}
}

func dotCodedCellsOnAVX2(dst []float32, codes []int8, side []blockSide, k *KVRows, head, cell int, row *rowCodes) {
	vector := dotCellsQ8_0AVX2
	switch {
	case len(dst) == 0:
		return
	case k.Type == gguf.Q4_0:
		vector = dotCellsQ4_0AVX2
	case k.Type != gguf.Q8_0:
		dotCodedCells(dst, codes, side, k, head, cell, row)
		return
	}
	size := k.Type.RowBytes(len(codes))
	_ = k.head(cell+len(dst)-1, head, size)
	vector(&dst[0], &codes[0], (*byte)(unsafe.Pointer(&side[0])), &k.head(cell, head, size)[0], k.Stride, len(dst), len(side))
}

func addHalvesOnAVX2(sums, weights, v []float32) {
	n, j := len(sums), 0
	if len(weights) == 0 {
		return
	}
	v = v[:len(weights)*n]
	for ; j+64 <= n; j += 64 {
		addHalves64AVX2(&sums[j], &weights[0], &v[j], 4*n, len(weights))
	}
	for ; j+16 <= n; j += 16 {
		addHalves16AVX2(&sums[j], &weights[0], &v[j], 4*n, len(weights))
	}
	if j < n {
		addHalfColumns(sums, weights, v, j)
	}
}

func expBelowOnAVX2(scores []float32, top float32) {
	n := len(scores) / 8 * 8
	if n > 0 {
		expBelowAVX2(&scores[0], n, top, upstream.Exp2Table())
	}
	expBelow(scores[n:], top)
}
