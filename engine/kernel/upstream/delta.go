package upstream

// Softplus is ln(1 + e^x), and x where the difference vanishes.
func Softplus(x float32) float32 {
	if x > 20 {
		return x
	}
	return Log(1 + ScalarExp(x))
}

// Sigmoid is 1 / (1 + e^-x) of single numbers: upstream has no vector code for it.
func Sigmoid(x float32) float32 { return 1 / (1 + ScalarExp(-x)) }

// Taps is the sum of n products of a convolution, x[0] weights[0] first, then those a stride further.
func Taps(x []float32, strideX int, weights []float32, strideWeights, n int) float32 {
	return addRest(0, x, strideX, weights, strideWeights, n)
}

// DeltaToken advances a gated delta rule by a token: state [len(k)][len(v)] decays, learns beta (v - state k) where k points, and
// gives out = scale state q. len(v) is at most 32. Both products with the state are Dot32.
func DeltaToken(state, q, k, v, out []float32, decay, beta, scale float32) {
	cols := len(v)
	for i := range state {
		state[i] *= decay
	}
	known := dotColumns(state, k, cols)
	for c, x := range v {
		known[c] = (x - known[c]) * beta
	}
	for i, x := range k {
		for c, s := range state[i*cols:][:cols] {
			state[i*cols+c] = fma(x, known[c], s)
		}
	}
	product := dotColumns(state, q, cols)
	for c := range out[:cols] {
		out[c] = product[c] * scale
	}
}

// dotColumns returns Dot32 of x and each column of m [len(x)][cols].
func dotColumns(m, x []float32, cols int) (dots [32]float32) {
	var sums [32][32]float32
	whole := len(x) / 32 * 32
	for i, v := range x[:whole] {
		sum := sums[i%32][:cols]
		for c, s := range m[i*cols:][:cols] {
			sum[c] = fma(s, v, sum[c])
		}
	}
	for c := range cols {
		var v [8]float32
		for l := range v {
			v[l] = (sums[l][c] + sums[16+l][c]) + (sums[8+l][c] + sums[24+l][c])
		}
		dots[c] = sumPairs(&v)
		if rest := x[whole:]; len(rest) > 0 {
			dots[c] = addRest(dots[c], m[whole*cols+c:], cols, rest, 1, len(rest))
		}
	}
	return dots
}
