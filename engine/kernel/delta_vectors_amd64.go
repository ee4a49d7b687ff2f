//go:build !purego

package kernel

type (
	deltaFunc    = func(state, q, k, v, out *float32, strideV, strideOut int, decay, beta *float32, n, dim int, scale float32)
	convolveFunc = func(dst *float32, strideDst int, x *float32, strideX int, weights *float32, strideWeights, n, taps, channels int)
)

// withDelta wraps a kernel for some columns of a strip. Narrower strips, and keys that are no multiple of 32 long, are left to
// the generic code.
func withDelta(f deltaFunc, columns int) func(d DeltaRule, from, to int) {
	return func(d DeltaRule, from, to int) {
		whole := min(to, d.DimV/StateStrip)
		if d.DimK%32 != 0 {
			whole = from
		}
		for ; from < whole; from++ {
			state, _ := d.strip(from)
			for c := 0; c < StateStrip; c += columns {
				at := from*StateStrip + c
				f(&state[c], &d.Q[0], &d.K[0], &d.V[at], &d.Out[at], 4*d.StrideV, 4*d.StrideOut, &d.Decay[0], &d.Beta[0], d.N, d.DimK, d.Scale)
			}
		}
		delta(d, from, to)
	}
}

// withConvolve wraps a kernel that fuses nothing, as is right for multiples of four taps.
func withConvolve(vector convolveFunc) func(c Convolution) {
	return func(c Convolution) {
		if n := wholeVectors(c.Channels); n > 0 && c.Taps%4 == 0 {
			vector(&c.Dst[0], 4*c.StrideDst, &c.X[0], 4*c.StrideX, &c.Weights[0], 4*c.StrideWeights, c.N, c.Taps, n)
			c.Dst, c.X, c.Weights, c.Channels = c.Dst[n:], c.X[n:], c.Weights[n:], c.Channels-n
		}
		if c.Channels > 0 {
			convolve(c)
		}
	}
}
