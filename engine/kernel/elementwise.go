package kernel

import (
	"math"
	"sync"

	"attnbudget/engine/quant"
)

// RMSNorm computes dst = x / √(mean(x²) + eps) * weight for one row; a nil weight means none. Squares are summed in
// float64. dst may be x.
func RMSNorm(dst, x, weight []float32, eps float32) {
	scale := float32(1 / math.Sqrt(float64(float32(squares(x)/float64(len(x)))+eps)))
	dst = dst[:len(x)]
	if weight == nil {
		for i, v := range x {
			dst[i] = v * scale
		}
		return
	}
	weight = weight[:len(x)]
	for i, v := range x {
		dst[i] = v * scale * weight[i]
	}
}

// squares returns the sum of the squares of x in float64.
func squares(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v * v)
	}
	return sum
}

// Add computes dst += x.
func Add(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += v
	}
}

// Scale computes x *= s.
func Scale(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

// Mul computes dst *= x.
func Mul(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] *= v
	}
}

// Sigmoid computes dst = 1 / (1 + exp(-x)). dst may be x.
func Sigmoid(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = 1 / (1 + exp(-v))
	}
}

// SiLU computes dst = x / (1 + exp(-x)). dst may be x.
func SiLU(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = v / (1 + exp(-v))
	}
}

// SiLUMul computes dst = silu(gate) * up. dst may be either.
func SiLUMul(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	for i, g := range gate {
		dst[i] = g / (1 + exp(-g)) * up[i]
	}
}

// GELUMul computes dst = gelu(gate) * up with the tanh approximation of GELU, evaluated as upstream does through a table
// of half precision numbers: the argument and the value are rounded to F16. dst may be either.
func GELUMul(dst, gate, up []float32) {
	table := geluTable()
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

// geluTable returns gelu(x) for every half precision x, rounded to half precision.
var geluTable = sync.OnceValue(func() *[1 << 16]float32 {
	var table [1 << 16]float32
	for h := range table {
		x := quant.HalfToFloat(uint16(h))
		inner := float32(float32(x*0.79788456080286535587989211986876) * (1 + float32(float32(0.044715*x)*x)))
		y := float32(float32(0.5*x) * (1 + float32(math.Tanh(float64(inner)))))
		table[h] = quant.HalfToFloat(quant.FloatToHalf(y))
	}
	return &table
})

// Softmax replaces x by exp(x-max(x)) / Σ exp(x-max(x)). A row of -Inf becomes zeros.
func Softmax(x []float32) {
	_, sum := expSum(x, 1)
	if sum != 0 {
		Scale(x, 1/sum)
	}
}

// expSum replaces x by exp(scale*x - m), m = max(scale*x), and returns m and the sum of the results. Elements of -Inf
// give 0; if there are no others, m is -Inf and the sum 0.
func expSum(x []float32, scale float32) (m, sum float32) {
	m = float32(math.Inf(-1))
	for i, v := range x {
		x[i] = v * scale
		m = max(m, x[i])
	}
	if math.IsInf(float64(m), -1) {
		clear(x)
		return m, 0
	}
	var part [lanes]float32
	for i, v := range x {
		x[i] = exp(v - m)
		part[i%lanes] += x[i]
	}
	return m, fold(&part)
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }
