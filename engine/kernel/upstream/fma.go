package upstream

import "math"

// fma returns a*b + c rounded once to float32, as the FMA instructions do on every machine. The product is exact in float64;
// their sum is rounded to odd there, so that rounding it again to float32 is innocent (Boldo and Melquiond, "Emulation of
// FMA and correctly rounded sums", 2008).
func fma(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := float64(p + q)
	if bits := math.Float64bits(s); bits&(1<<28-1) == 0 { // near no tie between two float32 otherwise
		if e := sumError(p, q, s); e != 0 && !math.IsNaN(e) && bits&1 == 0 {
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
