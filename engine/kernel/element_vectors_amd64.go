//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/kernel/upstream"
)

// Assembly takes whole vectors of 16; these wrappers leave the rest of a row to the generic code.

type (
	unaryFunc  = func(dst, x *float32, n int)
	scalarFunc = func(dst, x *float32, n int, s float32)
)

// wholeVectors is the part of n elements that fills vectors.
func wholeVectors(n int) int { return n / lanes * lanes }

// unary wraps a kernel of one operand besides dst.
func unary(vector unaryFunc, rest func(dst, x []float32)) func(dst, x []float32) {
	return func(dst, x []float32) {
		dst = dst[:len(x)]
		n := wholeVectors(len(x))
		if n > 0 {
			vector(&dst[0], &x[0], n)
		}
		rest(dst[n:], x[n:])
	}
}

// scaled wraps a kernel of one operand and a factor.
func scaled(vector scalarFunc, rest func(dst, x []float32, s float32)) func(dst, x []float32, s float32) {
	return func(dst, x []float32, s float32) {
		dst = dst[:len(x)]
		n := wholeVectors(len(x))
		if n > 0 {
			vector(&dst[0], &x[0], n, s)
		}
		rest(dst[n:], x[n:], s)
	}
}

func withSiLUMul(vector func(dst, gate, up *float32, n int)) func(dst, gate, up []float32) {
	return func(dst, gate, up []float32) {
		dst, up = dst[:len(gate)], up[:len(gate)]
		n := wholeVectors(len(gate))
		if n > 0 {
			vector(&dst[0], &gate[0], &up[0], n)
		}
		siluMul(dst[n:], gate[n:], up[n:])
	}
}

func withGELUMul(vector func(dst, gate, up *float32, n int, table *[65536]float32)) func(dst, gate, up []float32) {
	return func(dst, gate, up []float32) {
		dst, up = dst[:len(gate)], up[:len(gate)]
		n := wholeVectors(len(gate))
		if n > 0 {
			vector(&dst[0], &gate[0], &up[0], n, upstream.GELUTable())
		}
		geluMul(dst[n:], gate[n:], up[n:])
	}
}

func withScaleMul(vector func(dst, x, y *float32, n int, s float32)) func(dst, x, y []float32, s float32) {
	return func(dst, x, y []float32, s float32) {
		dst, y = dst[:len(x)], y[:len(x)]
		n := wholeVectors(len(x))
		if n > 0 {
			vector(&dst[0], &x[0], &y[0], n, s)
		}
		scaleMul(dst[n:], x[n:], y[n:], s)
	}
}

func withCombine(vector func(dst, x *float32, n int, a, b float32)) func(dst, x []float32, a, b float32) {
	return func(dst, x []float32, a, b float32) {
		dst = dst[:len(x)]
		n := wholeVectors(len(x))
		if n > 0 {
			vector(&dst[0], &x[0], n, a, b)
		}
		combine(dst[n:], x[n:], a, b)
	}
}

// squaresOnAVX2 and squaresOnAVX512 name their assembly instead of taking it as a function value: only then does the
// compiler know that sums does not escape.
func squaresOnAVX2(x []float32) (sums [lanes]float64) {
	n := wholeVectors(len(x))
	if n > 0 {
		squaresAVX2(&sums, &x[0], n)
	}
	addSquares(&sums, x[n:])
	return sums
}

func squaresOnAVX512(x []float32) (sums [lanes]float64) {
	n := wholeVectors(len(x))
	if n > 0 {
		squaresAVX512(&sums, &x[0], n)
	}
	addSquares(&sums, x[n:])
	return sums
}

// addSquares adds the squares of less than a vector.
func addSquares(sums *[lanes]float64, rest []float32) {
	for i, v := range rest {
		sums[i] += float64(float32(v * v))
	}
}

func withExpSum(scaleMax func(x *float32, n int, scale float32) float32, vector func(x *float32, n int, top float32) float32) func(x []float32, scale float32) (top, sum float32) {
	return func(x []float32, scale float32) (top, sum float32) {
		n := wholeVectors(len(x))
		rest := x[n:]
		top = negInf
		if n > 0 {
			top = scaleMax(&x[0], n, scale)
		}
		for i, v := range rest {
			rest[i] = v * scale
			top = max(top, rest[i])
		}
		if top == negInf {
			clear(x)
			return top, 0
		}
		if n > 0 {
			sum = vector(&x[0], n, top)
		}
		for i, v := range rest {
			rest[i] = exp(v - top)
			sum += rest[i]
		}
		return top, sum
	}
}

func withRotateHalves(vector func(a, b, cos, sin *float32, n int)) func(x, cos, sin []float32) {
	return func(x, cos, sin []float32) {
		half := len(cos)
		a, b, sin := x[:half], x[half:2*half], sin[:half]
		n := wholeVectors(half)
		if n > 0 {
			vector(&a[0], &b[0], &cos[0], &sin[0], n)
		}
		for i, c := range cos[n:] {
			a[n+i], b[n+i] = upstream.Rotate(a[n+i], b[n+i], sin[n+i], c)
		}
	}
}

func withRotatePairs(vector func(x, cos, sin *float32, n int)) func(x, cos, sin []float32) {
	return func(x, cos, sin []float32) {
		n := wholeVectors(len(cos))
		if n > 0 {
			vector(&x[:2*n][0], &cos[0], &sin[:n][0], n)
		}
		rotatePairs(x[2*n:], cos[n:], sin[n:])
	}
}

func softMaxOnAVX2(x []float32, top float32) float64 {
	if len(x) == 0 {
		return 0
	}
	return softMaxAVX2(&x[0], len(x), top)
}

func withNarrowF16(vector func(dst *byte, x *float32, n int)) func(dst []byte, x []float32) {
	return func(dst []byte, x []float32) {
		n := wholeVectors(len(x))
		if n > 0 {
			vector(&dst[:2*n][0], &x[0], n)
		}
		narrowF16(dst[2*n:], x[n:])
	}
}

func withBlocks(codes []int8, side []blockSide, x []float32) {
	if n := len(side); n > 0 {
		quantiseBlocksAVX2(&codes[:n*32][0], (*byte)(unsafe.Pointer(&side[0])), &x[:n*32][0], n)
	}
}

func withSupers(codes []int8, side []superSide, x []float32) {
	if n := len(side); n > 0 {
		quantiseSupersAVX2(&codes[:n*256][0], (*byte)(unsafe.Pointer(&side[0])), &x[:n*256][0], n)
	}
}
