package upstream

// Dot8 returns the product of two rows with element i in partial sum i mod 8: the order of the matrix products of batches
// (tinyBLAS). len(a) must be a multiple of 8.
func Dot8(a, b []float32) float32 {
	var sum [8]float32
	b = b[:len(a)]
	for ; len(a) >= 8; a, b = a[8:], b[8:] {
		multiplyAdd8(&sum, (*[8]float32)(a), (*[8]float32)(b))
	}
	return sumAcross(&sum)
}

// Dot32 returns the product of two float32 rows with element i in partial sum i mod 32: the order of products of single
// rows. What does not fill 32 is added one by one.
func Dot32(a, b []float32) float32 {
	whole := len(a) / 32 * 32
	sums := Sums32(a[:whole], b[:whole])
	return EndDot32(&sums, a[whole:], b[whole:])
}

// Sums32 returns the 32 partial sums of a product as four vectors of eight, added first to third, second to fourth, and the
// two that are left. len(a) must be a multiple of 32.
func Sums32(a, b []float32) [8]float32 {
	var sum [32]float32
	b = b[:len(a)]
	for ; len(a) >= 32; a, b = a[32:], b[32:] {
		for l := 0; l < 32; l += 8 {
			multiplyAdd8((*[8]float32)(sum[l:]), (*[8]float32)(a[l:]), (*[8]float32)(b[l:]))
		}
	}
	return foldTo8(&sum)
}

// EndDot32 adds what Sums32 leaves: its eight sums, and one by one the elements that do not fill 32. EndDotF16 is for numbers
// of half precision and EndDotBF16 for bfloat16, whose last additions are others.
func EndDot32(sums *[8]float32, a, b []float32) float32 {
	return addRest(sumPairs(sums), a, 1, b, 1, len(a))
}

func EndDotF16(sums *[8]float32, a, b []float32) float32 {
	return addProducts(sumPairs(sums), a, b)
}

func EndDotBF16(sums *[8]float32, a, b []float32) float32 {
	return addProducts(sumAcross(sums), a, b)
}

// addRest adds n products to sum, one after the other: the plain loop of a C program. GCC multiplies four at a time in a vector
// before it adds them, and fuses those that are left over.
func addRest(sum float32, a []float32, strideA int, b []float32, strideB, n int) float32 {
	for i := range n {
		x, y := a[i*strideA], b[i*strideB]
		if i < n/4*4 {
			sum += float32(x * y)
		} else {
			sum = fma(x, y, sum)
		}
	}
	return sum
}

// addProducts adds float32 products in float64.
func addProducts(first float32, a, b []float32) float32 {
	total := float64(first)
	for i, v := range a {
		total += float64(float32(v * b[i]))
	}
	return float32(total)
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

// foldTo8 adds four vectors of eight, first to third and second to fourth, and then those two.
func foldTo8(s *[32]float32) (v [8]float32) {
	for l := range v {
		v[l] = (s[l] + s[16+l]) + (s[8+l] + s[24+l])
	}
	return v
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
