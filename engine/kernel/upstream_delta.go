package kernel

import "attnbudget/engine/kernel/upstream"

func deltaUpstream(d DeltaRule, from, to int) {
	for i := from; i < to; i++ {
		state, cols := d.strip(i)
		for t := range d.N {
			q, k := d.Q[t*d.DimK:][:d.DimK], d.K[t*d.DimK:][:d.DimK]
			v, out := d.V[t*d.StrideV+i*StateStrip:][:cols], d.Out[t*d.StrideOut+i*StateStrip:][:cols]
			upstream.DeltaToken(state, q, k, v, out, d.Decay[t], d.Beta[t], d.Scale)
		}
	}
}

func convolveUpstream(c Convolution) {
	var x, weights [8]float32
	for t := range c.N {
		y := c.Dst[t*c.StrideDst:][:c.Channels]
		for i := range y {
			sum := float32(0)
			for j := 0; j < c.Taps; j += len(x) {
				n := min(len(x), c.Taps-j)
				for k := range n {
					x[k], weights[k] = c.X[(t+j+k)*c.StrideX+i], c.Weights[(j+k)*c.StrideWeights+i]
				}
				sum = upstream.Taps(sum, weights[:n], x[:n])
			}
			y[i] = sum
		}
	}
}

func sigmoidUpstream(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = upstream.Sigmoid(v)
	}
}
