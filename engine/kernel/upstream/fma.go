package upstream

import "math"

// fma returns a*b + c rounded once to float32, as the FMA instructions do on every machine. The product is exact in float64;
// their sum is rounded to odd there, so that rounding it again to float32 is innocent (Boldo and Melquiond, "Emulation of
// FMA and correctly rounded sums", 2008).
func fma(a, b, c float32) float32 {
	if s := float64(a)*float64(b) + float64(c); !nearTie(s) {
		return float32(s)
	}
	return fmaNearTie(a, b, c)
}

// multiplyAdd8 adds the products of x and y to sum, each rounded once. It is fma eight times without the calls.
func multiplyAdd8(sum, x, y *[8]float32) {
	for l := range sum {
		s := float64(x[l])*float64(y[l]) + float64(sum[l])
		if nearTie(s) {
			s = float64(fmaNearTie(x[l], y[l], sum[l]))
		}
		sum[l] = float32(s)
	}
}

// nearTie reports whether the rounding of s may have made it a tie between two float32, or taken it from one. Elsewhere its
// last bit does not matter.
func nearTie(s float64) bool { return math.Float64bits(s)&(1<<28-1) == 0 }

func fmaNearTie(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := float64(p + q)
	if bits := math.Float64bits(s); bits&1 == 0 {
		if e := sumError(p, q, s); e != 0 && !math.IsNaN(e) {
			if (e > 0) == (s > 0) {
				s = math.Float64frombits(bits + 1)
			} else {
				s = math.Float64frombits(bits - 1)
			}
		}
	}
	return float32(s)
}

// sumError returns what s = a + b lost by rounding (Knuth's two-sum).
func sumError(a, b, s float64) float64 {
	t := float64(s - a)
	return float64(a-float64(s-t)) + float64(b-t)
}
