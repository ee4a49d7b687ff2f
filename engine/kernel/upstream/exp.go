package upstream

import "math"

// Exp is e^x as upstream's vector code computes it: x = n ln 2 + b, a polynomial of degree 5 in b (from Arm's optimized
// routines, error below 2 units in the last place), and a scaling by 2^n in two steps where one would overflow.
func Exp(x float32) float32 {
	const shift = 0x1.8p23
	z := fma(x, 0x1.715476p+0, shift)
	n := z - shift
	b := fma(-n, 0x1.7f7d1cp-20, fma(-n, 0x1.62e4p-1, x))
	power := math.Float32bits(z) << 23
	k := math.Float32frombits(power + math.Float32bits(1))
	u := b * b
	high := fma(fma(0x1.0e4020p-7, b, 0x1.573e2ep-5), u, fma(0x1.555e66p-3, b, 0x1.fffdb6p-2))
	j := fma(high, u, 0x1.ffffecp-1*b)
	switch a := abs(n); {
	case a > 192 || a != a:
		return expFar(x, n)
	case a > 126:
		half := uint32(0)
		if n <= 0 {
			half = 0x82000000
		}
		s1, s2 := math.Float32frombits(half+0x7f000000), math.Float32frombits(power-half)
		return fma(s2, j, s2) * s1
	}
	return fma(j, k, k)
}

// expFar is Exp where the result is beyond float32.
func expFar(x, n float32) float32 {
	switch {
	case x != x:
		return x
	case n > 0:
		return float32(math.Inf(1))
	}
	return 0
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// ScalarExp is e^x as the C library (glibc 2.27 and later) computes it for a single number, on processors with FMA: 2^(k/32)
// from a table times a polynomial of degree 3, in float64 (from Arm's optimized routines).
func ScalarExp(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > 0x1.62e42ep6:
		return float32(math.Inf(1))
	case x < -0x1.9fe368p6:
		return 0
	}
	const shift = 0x1.8p+52
	const perHalving = 0x1.71547652b82fep+0 * 32
	k := math.FMA(float64(x), perHalving, shift)
	index := math.Float64bits(k)
	r := math.FMA(float64(x), perHalving, -float64(k-shift))
	s := math.Float64frombits(exp2Table[index%32] + index<<47)
	high := math.FMA(0x1.c6af84b912394p-5/32/32/32, r, 0x1.ebfce50fac4f3p-3/32/32)
	low := math.FMA(0x1.62e42ff0c52d6p-1/32, r, 1)
	return float32(math.FMA(high, r*r, low) * s)
}

// Exp2Table is what ScalarExp looks up: 2^(i/32) with i subtracted from its exponent field.
func Exp2Table() *[32]uint64 { return &exp2Table }

// exp2Table holds 2^(i/32) with i subtracted from its exponent field, so that adding i there again gives any 2^(k/32).
var exp2Table = func() (table [32]uint64) {
	for i := range table {
		table[i] = math.Float64bits(math.Exp2(float64(i)/32)) - uint64(i)<<47
	}
	return table
}()
