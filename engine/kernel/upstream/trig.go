package upstream

import (
	"math"
	"math/big"
)

// Sincos returns the sine and cosine of x as the C library (glibc 2.28 and later) computes them on processors with FMA, in
// float64 and rounded: x is n π/2 + r with r about within ±π/4, and a polynomial in r gives each (from Arm's optimized
// routines). x must be finite.
func Sincos(x float32) (sin, cos float32) {
	switch a := abs(x); {
	case a < 0x1p-12:
		return x, 1
	case a < 0.75:
		return sine(float64(x)), cosine(float64(x))
	case a < 120:
		// n is found in fixed point: 24 bits after the point, and half of one more so that the shift rounds.
		n := (int32(float64(x)*(2/math.Pi*(1<<24))) + 1<<23) >> 24
		return turned(math.FMA(-float64(n), math.Pi/2, float64(x)), uint32(n))
	default:
		r, n := reduceLarge(a)
		sin, cos = turned(r, n)
		if x < 0 {
			sin = -sin
		}
		return sin, cos
	}
}

// turned returns sine and cosine of r + n π/2.
func turned(r float64, n uint32) (sin, cos float32) {
	sin, cos = sine(r), cosine(r)
	switch n % 4 {
	case 1:
		return cos, -sin
	case 2:
		return -sin, -cos
	case 3:
		return -cos, sin
	}
	return sin, cos
}

func sine(x float64) float32 {
	x2 := x * x
	x3 := x * x2
	high := math.FMA(x2, -0x1.994eb3774cf24p-13, 0x1.1107605230bc4p-7)
	low := math.FMA(x3, -0x1.555545995a603p-3, x)
	return float32(math.FMA(x3*x2, high, low))
}

func cosine(x float64) float32 {
	x2 := x * x
	x4 := x2 * x2
	high := math.FMA(x2, 0x1.99343027bf8c3p-16, -0x1.6c087e89a359dp-10)
	low := math.FMA(x2, -0x1.ffffffd0c621cp-2, 1)
	low = math.FMA(x4, 0x1.55553e1068f19p-5, low)
	return float32(math.FMA(x4*x2, high, low))
}

// reduceLarge returns r and n mod 4 of x = n π/2 + r, x >= 120: 96 bits of 4/π, from where they matter, are multiplied by the
// mantissa of x in fixed point (Payne and Hanek, "Radian reduction for trigonometric functions", 1983).
func reduceLarge(x float32) (r float64, n uint32) {
	bits := math.Float32bits(x)
	digits := fourOverPi[bits>>26&15:]
	mantissa := (bits&(1<<23-1) | 1<<23) << (bits >> 23 & 7)
	high := uint64(mantissa*digits[0]) << 32
	high |= uint64(mantissa) * uint64(digits[8]) >> 32
	high += uint64(mantissa) * uint64(digits[4])
	quarter := (high + 1<<61) >> 62
	return float64(int64(high-quarter<<62)) * (math.Pi / (1 << 63)), uint32(quarter)
}

// fourOverPi holds the binary digits of 4/π, 32 from each eighth on.
var fourOverPi = func() (digits [24]uint32) {
	const precision = 400
	pi, _ := new(big.Float).SetPrec(precision).SetString("3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067982148086513282306647")
	q := new(big.Float).SetPrec(precision).Quo(big.NewFloat(4), pi)
	whole, _ := q.SetMantExp(q, 7+8*(len(digits)-1)).Int(nil)
	for i := range digits {
		shifted := new(big.Int).Rsh(whole, uint(8*(len(digits)-1-i)))
		digits[i] = uint32(shifted.And(shifted, big.NewInt(math.MaxUint32)).Uint64())
	}
	return digits
}()

// Rotate turns (a, b) by the angle with this sine and cosine. Of each pair of products the first is fused.
func Rotate(a, b, sin, cos float32) (float32, float32) {
	return fma(a, cos, -(b * sin)), fma(a, sin, b*cos)
}
