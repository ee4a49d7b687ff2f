package kernel

import (
	"math"

	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

// RMSNorm computes dst = x / √(mean(x²) + eps) * weight for one row; a nil weight means none. Squares are summed in
// float64. dst may be x.
func RMSNorm(dst, x, weight []float32, eps float32) {
	sums := active.squares(x)
	for n := lanes / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	mean := float32(sums[0] / float64(len(x)))
	scale := 1 / float32(math.Sqrt(float64(mean+eps)))
	if weight == nil {
		active.scale(dst, x, scale)
	} else {
		active.scaleMul(dst, x, weight, scale)
	}
}

// Add computes dst += x.
func Add(dst, x []float32) { active.add(dst, x) }

// Mul computes dst *= x.
func Mul(dst, x []float32) { active.mul(dst, x) }

// Scale computes x *= s.
func Scale(x []float32, s float32) { active.scale(x, x, s) }

// Sigmoid computes dst = 1 / (1 + exp(-x)), as upstream with the C library's function. dst may be x.
func Sigmoid(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = upstream.Sigmoid(v)
	}
}

// SiLU computes dst = x / (1 + exp(-x)). dst may be x.
func SiLU(dst, x []float32) { active.silu(dst, x) }

// SiLUMul computes dst = silu(gate) * up. dst may be either.
func SiLUMul(dst, gate, up []float32) { active.siluMul(dst, gate, up) }

// GELUMul computes dst = gelu(gate) * up with the tanh approximation of GELU, evaluated as upstream does through a table
// of half precision numbers: the argument and the value are rounded to F16. dst may be either.
func GELUMul(dst, gate, up []float32) { active.geluMul(dst, gate, up) }

// SoftCap replaces every x by limit tanh(x/limit), rounding as upstream does: 1/limit first, and tanh in float32.
func SoftCap(x []float32, limit float32) {
	inverse := 1 / limit
	for i, v := range x {
		x[i] = upstream.Tanh(v*inverse) * limit
	}
}

// Softmax replaces x by exp(x-max(x)) / Σ exp(x-max(x)). A row of -Inf becomes zeros.
func Softmax(x []float32) {
	if _, sum := active.expSum(x, 1); sum != 0 {
		Scale(x, 1/sum)
	}
}

// The generic kernels. Those that exponentiate do so with upstream's approximation, eight elements at a time there, and with the
// C library's function for the rest of a row.

// squares returns the squares of x summed in lanes. It returns the sums instead of writing them through a pointer,
// because what a function value is given a pointer to is allocated.
func squares(x []float32) (sums [lanes]float64) {
	for i, v := range x {
		sums[i%lanes] += float64(float32(v * v))
	}
	return sums
}

func add(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += v
	}
}

func mul(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] *= v
	}
}

func scale(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = v * s
	}
}

func scaleMul(dst, x, y []float32, s float32) {
	dst, y = dst[:len(x)], y[:len(x)]
	for i, v := range x {
		dst[i] = v * s * y[i]
	}
}

func combine(dst, x []float32, a, b float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = float32(dst[i]*a) + float32(v*b)
	}
}

func silu(dst, x []float32) {
	dst = dst[:len(x)]
	whole := len(x) / 8 * 8
	for i, v := range x[:whole] {
		dst[i] = v / (1 + exp(-v))
	}
	for i, v := range x[whole:] {
		dst[whole+i] = v / (1 + upstream.ScalarExp(-v))
	}
}

func siluMul(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	whole := len(gate) / 8 * 8
	for i, g := range gate[:whole] {
		dst[i] = g / (1 + exp(-g)) * up[i]
	}
	for i, g := range gate[whole:] {
		dst[whole+i] = g / (1 + upstream.ScalarExp(-g)) * up[whole+i]
	}
}

func geluMul(dst, gate, up []float32) {
	table := upstream.GELUTable()
	dst, up = dst[:len(gate)], up[:len(gate)]
	for i, g := range gate {
		switch {
		case g <= -10:
			g = 0
		case g < 10:
			g = table[quant.FloatToHalf(g)]
		}
		dst[i] = g * up[i]
	}
}

// expSum replaces x by exp(scale*x - top), top = max(scale*x), and returns top and the sum of the results. Elements of
// -Inf give 0; if there are no others, top is -Inf and the sum 0.
func expSum(x []float32, scale float32) (top, sum float32) {
	top = negInf
	for i, v := range x {
		x[i] = v * scale
		top = max(top, x[i])
	}
	if top == negInf {
		clear(x)
		return top, 0
	}
	var part [lanes]float32
	for i, v := range x {
		x[i] = exp(v - top)
		part[i%lanes] += x[i]
	}
	return top, fold(&part)
}

func exp(x float32) float32 { return upstream.Exp(x) }

var negInf = float32(math.Inf(-1))
