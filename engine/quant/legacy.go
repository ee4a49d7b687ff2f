package quant

import (
	"encoding/binary"
	"math"
)

// The formats with one half precision scale per 32 elements: x = d*(q - middle), or x = d*q + m with a stored minimum m.
// Four-bit codes lie two to a byte, element i in the low and element i+16 in the high half; the fifth bits of the
// five-bit formats follow the scales as one 32-bit word, bit i for element i.

func dequantizeQ4_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		d := loadHalf(b[:])
		for i, q := range b[2:] {
			y[i] = d * float32(int(q&15)-8)
			y[i+16] = d * float32(int(q>>4)-8)
		}
	}
}

func dequantizeQ4_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[20:] {
		y, b := (*[32]float32)(dst), (*[20]byte)(src)
		d, m := loadHalf(b[:]), loadHalf(b[2:])
		for i, q := range b[4:] {
			y[i] = float32(d*float32(q&15)) + m
			y[i+16] = float32(d*float32(q>>4)) + m
		}
	}
}

func dequantizeQ5_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[22:] {
		y, b := (*[32]float32)(dst), (*[22]byte)(src)
		d, high := loadHalf(b[:]), binary.LittleEndian.Uint32(b[2:])
		for i, q := range b[6:] {
			y[i] = d * float32(int(q&15)|int(high>>i&1)<<4-16)
			y[i+16] = d * float32(int(q>>4)|int(high>>(i+16)&1)<<4-16)
		}
	}
}

func dequantizeQ5_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[24:] {
		y, b := (*[32]float32)(dst), (*[24]byte)(src)
		d, m, high := loadHalf(b[:]), loadHalf(b[2:]), binary.LittleEndian.Uint32(b[4:])
		for i, q := range b[8:] {
			y[i] = float32(d*float32(int(q&15)|int(high>>i&1)<<4)) + m
			y[i+16] = float32(d*float32(int(q>>4)|int(high>>(i+16)&1)<<4)) + m
		}
	}
}

func dequantizeQ8_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[34:] {
		y, b := (*[32]float32)(dst), (*[34]byte)(src)
		d := loadHalf(b[:])
		for i, q := range b[2:] {
			y[i] = d * float32(int8(q))
		}
	}
}

// Q8_1 is Q8_0 with the sum of the block's values (d times the sum of the codes) beside the scale: the activation format
// that Q4_1 and Q5_1 are multiplied with.
func dequantizeQ8_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[36:] {
		y, b := (*[32]float32)(dst), (*[36]byte)(src)
		d := loadHalf(b[:])
		for i, q := range b[4:] {
			y[i] = d * float32(int8(q))
		}
	}
}

func quantizeQ4_0(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[18:], src[32:] {
		x, b := (*[32]float32)(src), (*[18]byte)(dst)
		d := largest(x[:]) / -8
		storeHalf(b[:], d)
		inverse := invert(d)
		for i := range 16 {
			b[2+i] = code(float32(x[i]*inverse)+8.5, 15) | code(float32(x[i+16]*inverse)+8.5, 15)<<4
		}
	}
}

func quantizeQ4_1(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[20:], src[32:] {
		x, b := (*[32]float32)(src), (*[20]byte)(dst)
		least, most := bounds(x[:])
		d := (most - least) / 15
		storeHalf(b[:], d)
		storeHalf(b[2:], least)
		inverse := invert(d)
		for i := range 16 {
			b[4+i] = code(float32((x[i]-least)*inverse)+0.5, 15) | code(float32((x[i+16]-least)*inverse)+0.5, 15)<<4
		}
	}
}

func quantizeQ5_0(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[22:], src[32:] {
		x, b := (*[32]float32)(src), (*[22]byte)(dst)
		d := largest(x[:]) / -16
		storeHalf(b[:], d)
		inverse := invert(d)
		var high uint32
		for i := range 16 {
			low, top := code(float32(x[i]*inverse)+16.5, 31), code(float32(x[i+16]*inverse)+16.5, 31)
			b[6+i] = low&15 | top<<4
			high |= uint32(low>>4)<<i | uint32(top>>4)<<(i+16)
		}
		binary.LittleEndian.PutUint32(b[2:], high)
	}
}

func quantizeQ5_1(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[24:], src[32:] {
		x, b := (*[32]float32)(src), (*[24]byte)(dst)
		least, most := bounds(x[:])
		d := (most - least) / 31
		storeHalf(b[:], d)
		storeHalf(b[2:], least)
		inverse := invert(d)
		var high uint32
		for i := range 16 {
			low, top := code(float32((x[i]-least)*inverse)+0.5, 31), code(float32((x[i+16]-least)*inverse)+0.5, 31)
			b[8+i] = low&15 | top<<4
			high |= uint32(low>>4)<<i | uint32(top>>4)<<(i+16)
		}
		binary.LittleEndian.PutUint32(b[4:], high)
	}
}

func quantizeQ8_0(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[34:], src[32:] {
		x, b := (*[32]float32)(src), (*[34]byte)(dst)
		d := abs(largest(x[:])) / 127
		storeHalf(b[:], d)
		inverse := invert(d)
		for i, v := range x {
			b[2+i] = byte(roundAway(v * inverse))
		}
	}
}

func quantizeQ8_1(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[36:], src[32:] {
		x, b := (*[32]float32)(src), (*[36]byte)(dst)
		d := abs(largest(x[:])) / 127
		storeHalf(b[:], d)
		inverse := invert(d)
		sum := 0
		for i, v := range x {
			q := roundAway(v * inverse)
			b[4+i] = byte(q)
			sum += q
		}
		storeHalf(b[2:], float32(sum)*d)
	}
}

// largest returns the first element of the largest magnitude, with its sign.
func largest(x []float32) float32 {
	var most, signed float32
	for _, v := range x {
		if a := abs(v); a > most {
			most, signed = a, v
		}
	}
	return signed
}

func bounds(x []float32) (least, most float32) {
	least, most = math.MaxFloat32, -math.MaxFloat32
	for _, v := range x {
		if v < least {
			least = v
		}
		if v > most {
			most = v
		}
	}
	return least, most
}

// invert returns 1/d, or 0 for a block of zeros.
func invert(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// code cuts the fraction off a number that was offset for rounding, and clips it to the largest code.
func code(v float32, most int) byte { return byte(min(int(v), most)) }

// roundAway rounds to the nearest integer, halves away from zero. In float64 the addition is exact.
func roundAway(v float32) int {
	if v < 0 {
		return int(float64(v) - 0.5)
	}
	return int(float64(v) + 0.5)
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }
