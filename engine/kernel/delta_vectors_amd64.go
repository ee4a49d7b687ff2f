//go:build !purego

package kernel

type (
	deltaFunc    = func(state, q, k, v, out *float32, strideV, strideOut int, decay, beta *float32, n, dim int, scale float32)
	convolveFunc = func(dst *float32, strideDst int, x *float32, strideX int, weights *float32, strideWeights, n, taps, channels int)
)

// withDelta wraps the kernels for one and, where there is one, for two strips at once. Narrower strips, and keys of odd
// size, are left to the generic code.
func withDelta(one, two deltaFunc) func(d DeltaRule, from, to int) {
	return func(d DeltaRule, from, to int) {
		whole := min(to, d.DimV/StateStrip)
		if d.DimK%2 != 0 {
			whole = from
		}
		for from < whole {
			f, count := one, 1
			if two != nil && from+2 <= whole {
				f, count = two, 2
			}
			at := from * StateStrip
			f(&d.State[at*d.DimK], &d.Q[0], &d.K[0], &d.V[at], &d.Out[at], 4*d.StrideV, 4*d.StrideOut, &d.Decay[0], &d.Beta[0], d.N, d.DimK, d.Scale)
			from += count
		}
		delta(d, from, to)
	}
}

func withConvolve(vector convolveFunc) func(c Convolution) {
	return func(c Convolution) {
		if n := wholeVectors(c.Channels); n > 0 {
			vector(&c.Dst[0], 4*c.StrideDst, &c.X[0], 4*c.StrideX, &c.Weights[0], 4*c.StrideWeights, c.N, c.Taps, n)
			c.Dst, c.X, c.Weights, c.Channels = c.Dst[n:], c.X[n:], c.Weights[n:], c.Channels-n
		}
		if c.Channels > 0 {
			convolve(c)
		}
	}
}
