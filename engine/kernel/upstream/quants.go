package upstream

// Lanes are the eight partial sums of a product with quantised weights. Of 32 elements, four neighbours each belong to a
// sum: integers that are exact until a scale turns them into float32.
type Lanes [8]float32

// Add adds d times the integers to the sums.
func (l *Lanes) Add(d float32, sums *[8]int32) {
	for i, v := range sums {
		l[i] = fma(d, float32(v), l[i])
	}
}

// Sum adds the partial sums.
func (l *Lanes) Sum() float32 { return sumAcross((*[8]float32)(l)) }

// Plus adds two sets of partial sums.
func (l *Lanes) Plus(other *Lanes) {
	for i, v := range other {
		l[i] += v
	}
}

// Fours returns the sums of four neighbouring products each, of 32.
func Fours(w, x []int8) (sums [8]int32) {
	w, x = w[:32], x[:32]
	for i, v := range w {
		sums[i/4] += int32(v) * int32(x[i])
	}
	return sums
}

// ScaledFours adds up Fours of eight times 32 elements, with an integer scale for each 16 of them.
func ScaledFours(w, x []int8, scales *[16]int16) (sums [8]int32) {
	w, x = w[:256], x[:256]
	for i, v := range w {
		sums[i%32/4] += int32(scales[i/16]) * int32(v) * int32(x[i])
	}
	return sums
}

// Total adds integers.
func Total(v []int32) (sum int32) {
	for _, x := range v {
		sum += x
	}
	return sum
}

// Pairs returns the sums of two neighbouring products each.
func Pairs(a, b *[16]int16) (sums [8]int32) {
	for i, v := range a {
		sums[i/2] += int32(v) * int32(b[i])
	}
	return sums
}

// FMA returns a*b + c rounded once.
func FMA(a, b, c float32) float32 { return fma(a, b, c) }
