package quant

import (
	"encoding/binary"
	"math"
)

// HalfToFloat widens an IEEE 754 binary16 number; every half has an exact float32. A signalling NaN keeps its payload.
func HalfToFloat(h uint16) float32 {
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)<<13
	switch {
	case rest < 1<<23:
		// A subnormal half is mantissa * 2^-24. Borrowing the exponent of 2^-14 and subtracting it again keeps both
		// operands normal: arithmetic on subnormal float32 operands traps into microcode on many CPUs.
		return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest|113<<23)-0x1p-14))
	case rest >= 31<<23:
		return math.Float32frombits(sign | rest | 0xff<<23)
	}
	return math.Float32frombits(sign | (rest + 112<<23))
}

// FloatToHalf rounds to the nearest binary16, ties to even. Numbers of 65520 and more become infinite, every NaN the
// quiet NaN of its sign.
func FloatToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520, half way between the largest half and the next power of two
		return sign | 0x7c00
	case b < 0x38800000: // 2^-14: the result is subnormal; one unit in the last place of 0.5 is 2^-24, as of a subnormal half
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	return sign | uint16((b-112<<23+0xfff+b>>13&1)>>13)
}

// BF16ToFloat widens a bfloat16: the upper half of a float32.
func BF16ToFloat(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// FloatToBF16 rounds to the nearest bfloat16, ties to even. A NaN stays a (quiet) NaN of the same sign and payload.
func FloatToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func dequantizeF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = HalfToFloat(loadU16(src[2*i:]))
	}
}

func quantizeF16(dst []byte, src []float32) {
	for i, x := range src {
		storeU16(dst[2*i:], FloatToHalf(x))
	}
}

func dequantizeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BF16ToFloat(loadU16(src[2*i:]))
	}
}

func quantizeBF16(dst []byte, src []float32) {
	for i, x := range src {
		storeU16(dst[2*i:], FloatToBF16(x))
	}
}

func loadU16(b []byte) uint16     { return binary.LittleEndian.Uint16(b) }
func storeU16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }

// loadHalf and storeHalf move a half precision scale between a block and a float32.
func loadHalf(b []byte) float32     { return HalfToFloat(loadU16(b)) }
func storeHalf(b []byte, f float32) { storeU16(b, FloatToHalf(f)) }
