package upstream

import "math"

// Tanh is the hyperbolic tangent as the C library computes it in float32 (glibc up to 2.40; after Sun's fdlibm): from
// e^2|x| - 1 where |x| >= 1, else from e^-2|x| - 1.
func Tanh(x float32) float32 {
	a := abs(x)
	var y float32
	switch {
	case x != x:
		return x
	case a < 0x1p-55:
		return x
	case a >= 22:
		y = 1
	case a >= 1:
		y = 1 - 2/(expm1(2*a)+2)
	default:
		t := expm1(-2 * a)
		y = -t / (t + 2)
	}
	return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&(1<<31))
}

// expm1 is e^x - 1 for |x| < 44 (fdlibm): x = k ln 2 + r, a rational function of r, corrected by what r lost to rounding, and
// 2^k applied before or after subtracting 1, whichever keeps more digits.
func expm1(x float32) float32 {
	const halfLn2 = 0x1.62e43p-2 // in steps of which k is found
	a := abs(x)
	if a < 0x1p-25 {
		return x
	}
	if x < 0 && a >= 0x1.2b7088p4 {
		return -1 // below half a unit in the last place
	}
	k, lost := 0, float32(0)
	if a > halfLn2 {
		k, x, lost = reduceExp(x)
	}
	half := 0.5 * x
	square := float32(x * half)
	r := 1 + float32(square*expm1Series(square))
	t := 3 - float32(r*half)
	e := float32(square * ((r - t) / (6 - float32(x*t))))
	if k == 0 {
		return x - (float32(x*e) - square)
	}
	e = (float32(x*(e-lost)) - lost) - square
	scale := uint32(k) << 23
	switch {
	case k == -1:
		return 0.5*(x-e) - 0.5
	case k == 1 && x < -0.25:
		return -2 * (e - (x + 0.5))
	case k == 1:
		return 1 + 2*(x-e)
	case k <= -2 || k > 56:
		return math.Float32frombits(math.Float32bits(1-(e-x))+scale) - 1
	case k < 23:
		one := 1 - math.Float32frombits((127-uint32(k))<<23)
		return math.Float32frombits(math.Float32bits(one-(e-x)) + scale)
	}
	small := math.Float32frombits((127 - uint32(k)) << 23)
	return math.Float32frombits(math.Float32bits(x-(e+small)+1) + scale)
}

// reduceExp returns k and r of x = k ln 2 + r, and what r lost by rounding.
func reduceExp(x float32) (k int, r, lost float32) {
	const high, low = 0x1.62e3p-1, 0x1.2fefa2p-17 // ln 2
	sign := float32(1)
	if x < 0 {
		sign = -1
	}
	n := sign
	if abs(x) >= 0x1.0a2b24p0 {
		n = float32(int32(float32(0x1.715476p0*x) + sign*0.5))
	}
	top, bottom := x-float32(n*high), float32(n*low)
	r = top - bottom
	return int(n), r, (top - r) - bottom
}

func expm1Series(x float32) float32 {
	y := 0x1.0cfca8p-18 + float32(x*-0x1.afdb76p-23)
	y = -0x1.4ce19ap-14 + float32(x*y)
	y = 0x1.a01a02p-10 + float32(x*y)
	return -0x1.111112p-5 + float32(x*y)
}
