package upstream

// Dot8 returns the product of two rows with element i in partial sum i mod 8: the order of the matrix products of batches
// (tinyBLAS). len(a) must be a multiple of 8.
func Dot8(a, b []float32) float32 {
	var sum [8]float32
	b = b[:len(a)]
	for ; len(a) >= 8; a, b = a[8:], b[8:] {
		x, y := (*[8]float32)(a), (*[8]float32)(b)
		for l := range sum {
			sum[l] = fma(x[l], y[l], sum[l])
		}
	}
	return sumAcross(&sum)
}

// Dot32 returns the product of two rows with element i in partial sum i mod 32: the order of products of single rows. What
// does not fill 32 is added one by one.
func Dot32(a, b []float32) float32 {
	var sum [32]float32
	b = b[:len(a)]
	for ; len(a) >= 32; a, b = a[32:], b[32:] {
		x, y := (*[32]float32)(a), (*[32]float32)(b)
		for l := range sum {
			sum[l] = fma(x[l], y[l], sum[l])
		}
	}
	total := sumOf32(&sum)
	for i, v := range a {
		total = fma(v, b[i], total)
	}
	return total
}

// sumAcross adds eight partial sums: halves, quarters, then the two that are left.
func sumAcross(s *[8]float32) float32 {
	x0, x1, x2, x3 := s[4]+s[0], s[5]+s[1], s[6]+s[2], s[7]+s[3]
	return (x0 + x2) + (x1 + x3)
}

// sumPairs adds eight partial sums: halves, then neighbours.
func sumPairs(s *[8]float32) float32 {
	x0, x1, x2, x3 := s[0]+s[4], s[1]+s[5], s[2]+s[6], s[3]+s[7]
	return (x0 + x1) + (x2 + x3)
}

// sumOf32 adds four vectors of eight, first to third and second to fourth, and then across.
func sumOf32(s *[32]float32) float32 {
	var v [8]float32
	for l := range v {
		v[l] = (s[l] + s[16+l]) + (s[8+l] + s[24+l])
	}
	return sumPairs(&v)
}

// SoftMax replaces the scores by e^(x-top) and returns their sum: eight at a time across, groups in float64. len(x) must be
// a multiple of 8.
func SoftMax(x []float32, top float32) float64 {
	var sum float64
	for ; len(x) >= 8; x = x[8:] {
		v := (*[8]float32)(x)
		for l := range v {
			v[l] = Exp(v[l] - top)
		}
		sum += float64(sumAcross(v))
	}
	return sum
}

// AddScaled adds s*x to dst, fused.
func AddScaled(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = fma(v, s, dst[i])
	}
}

// DotBF16 is Dot32 of bfloat16 numbers, whose last additions come in another order.
func DotBF16(a, b []float32) float32 {
	var sum [32]float32
	b = b[:len(a)]
	for ; len(a) >= 32; a, b = a[32:], b[32:] {
		x, y := (*[32]float32)(a), (*[32]float32)(b)
		for l := range sum {
			sum[l] = fma(x[l], y[l], sum[l])
		}
	}
	var v [8]float32
	for l := range v {
		v[l] = (sum[l] + sum[16+l]) + (sum[8+l] + sum[24+l])
	}
	total := float64(sumAcross(&v))
	for i, x := range a {
		total += float64(float32(x * b[i]))
	}
	return float32(total)
}
