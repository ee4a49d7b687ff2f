package kernel

import (
	"math"

	"attnbudget/engine/quant"
)

// quantiseBlocks quantises activations in blocks of 32: d = max|x|/127, codes = x*127/max|x| rounded to nearest even,
// which is what upstream computes for Q8_0 and Q8_1 on x86. d and s = d * sum of codes are rounded to F16; s is made from
// the unrounded d.
func quantiseBlocks(codes []int8, side []blockSide, x []float32) {
	for b := range side {
		xs, cs := x[b*32:][:32], codes[b*32:][:32]
		var top float32
		for _, v := range xs {
			top = max(top, abs(v))
		}
		var inverse float32
		if top != 0 {
			inverse = 127 / top
		}
		var sum int32
		for i, v := range xs {
			c := int32(nearestEven(v * inverse))
			cs[i] = int8(c)
			sum += c
		}
		scale := top / 127
		side[b] = blockSide{
			d:    quant.HalfToFloat(quant.FloatToHalf(scale)),
			s:    quant.HalfToFloat(quant.FloatToHalf(scale * float32(sum))),
			sum:  sum,
			bias: -128 * sum,
		}
	}
}

// quantiseSupers quantises activations in blocks of 256 (Q8_K): the element of largest magnitude gets code -127, d is the
// reciprocal of that scale.
func quantiseSupers(codes []int8, side []superSide, x []float32) {
	for b := range side {
		xs, cs := x[b*256:][:256], codes[b*256:][:256]
		var top, magnitude float32
		for _, v := range xs {
			if a := abs(v); a > magnitude || a != a { // d of what is not a number must not be one
				top, magnitude = v, a
			}
		}
		if magnitude == 0 {
			clear(cs)
			side[b] = superSide{}
			continue
		}
		scale := -127 / top
		for i, v := range xs {
			cs[i] = int8(min(127, nearestEven(scale*v)))
		}
		a := &side[b]
		for j := range 16 {
			var sum int16
			for _, c := range cs[j*16:][:16] {
				sum += int16(c)
			}
			a.sums[j], a.bias[j] = sum, -128*int32(sum)
		}
		for j := range 8 {
			a.sums32[j] = a.sums[2*j] + a.sums[2*j+1]
			a.bias32[j] = -128 * int32(a.sums32[j])
		}
		a.d = 1 / scale
	}
}

// roundF16 computes dst = x rounded to half precision, roundBF16 to bfloat16.
func roundF16(dst, x []float32) {
	for i, v := range x {
		dst[i] = quant.HalfToFloat(quant.FloatToHalf(v))
	}
}

func roundBF16(dst, x []float32) {
	for i, v := range x {
		dst[i] = quant.BF16ToFloat(quant.FloatToBF16(v))
	}
}

// narrowF16 writes x as half precision numbers.
func narrowF16(dst []byte, x []float32) {
	for i, v := range x {
		h := quant.FloatToHalf(v)
		dst[2*i], dst[2*i+1] = byte(h), byte(h>>8)
	}
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// nearestEven rounds |x| < 2^22 to the nearest integer, ties to even: adding 1.5*2^23 leaves no room for a fraction. The
// conversion of x keeps compilers from fusing the addition with the product that x is.
func nearestEven(x float32) float32 {
	const shift = 3 << 22
	return float32(float32(x)+shift) - shift
}
