package quant

import (
	"encoding/binary"
	"math"
)

// The K formats: super-blocks of 256 elements cut into groups of 16 or 32, each group with a small integer scale (and for
// Q2_K, Q4_K and Q5_K a small integer minimum) that is a multiple of the super-block's half precision scale.

// Q2_K: 16 bytes of group scales (low half) and minima (high half), 64 bytes of 2-bit codes, scale, scale of the minima.
// Each byte of codes holds elements i, i+32, i+64 and i+96 of its 128.
func dequantizeQ2_K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[84:] {
		b := (*[84]byte)(src)
		d, dmin := loadHalf(b[80:]), loadHalf(b[82:])
		for g := range 16 {
			scale, least := d*float32(b[g]&15), float32(dmin*float32(b[g]>>4))
			y := (*[16]float32)(dst[16*g:])
			codes, shift := (*[16]byte)(b[16+crumbs(g):]), crumbShift(g)
			for i, q := range codes {
				y[i] = float32(scale*float32(q>>shift&3)) - least
			}
		}
	}
}

// crumbs and crumbShift locate the 2-bit codes of group g (of 16) in the 64 code bytes of Q2_K and Q3_K.
func crumbs(g int) int      { return g/8*32 + g%2*16 }
func crumbShift(g int) uint { return uint(g / 2 % 4 * 2) }

// Q3_K: 32 bytes with the third bit of each code (bit g/2 of byte i for elements of group g), 64 bytes of 2-bit codes as in
// Q2_K, 12 bytes of sixteen 6-bit scales, the super-block's scale. A clear third bit means minus four.
func dequantizeQ3_K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[110:] {
		b := (*[110]byte)(src)
		d := loadHalf(b[108:])
		scales := scalesQ3_K((*[12]byte)(b[96:]))
		for g := range 16 {
			scale := d * float32(scales[g])
			y := (*[16]float32)(dst[16*g:])
			codes, shift := (*[16]byte)(b[32+crumbs(g):]), crumbShift(g)
			high, bit := (*[16]byte)(b[g%2*16:]), uint(g/2)
			for i, q := range codes {
				y[i] = scale * float32(int(q>>shift&3)+int(high[i]>>bit&1)<<2-4)
			}
		}
	}
}

// scalesQ3_K unpacks the sixteen signed 6-bit scales of Q3_K: the low four bits lie in bytes 0 to 7 (scales 0..7 in the low,
// 8..15 in the high half), the upper two in bytes 8 to 11.
func scalesQ3_K(p *[12]byte) (scales [16]int8) {
	for g := range scales {
		low := p[g%8] >> (g / 8 * 4) & 15
		high := p[8+g%4] >> (g / 4 * 2) & 3
		scales[g] = int8(low|high<<4) - 32
	}
	return scales
}

// Q4_K: scale, scale of the minima, 12 bytes of eight 6-bit scales and minima, 128 bytes of 4-bit codes: per 64 elements 32
// bytes, low halves first.
func dequantizeQ4_K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[144:] {
		b := (*[144]byte)(src)
		d, dmin := loadHalf(b[:]), loadHalf(b[2:])
		scales, minima := scalesQ4_K((*[12]byte)(b[4:]))
		for g := range 8 {
			scale, least := d*float32(scales[g]), float32(dmin*float32(minima[g]))
			y := (*[32]float32)(dst[32*g:])
			codes, shift := (*[32]byte)(b[16+g/2*32:]), uint(g&1*4)
			for i, q := range codes {
				y[i] = float32(scale*float32(q>>shift&15)) - least
			}
		}
	}
}

// scalesQ4_K unpacks the 6-bit scales and minima of Q4_K and Q5_K. The first four of each are the low six bits of bytes 0..3
// and 4..7; the last four keep their low halves in bytes 8..11 and their upper two bits on top of bytes 0..7.
func scalesQ4_K(p *[12]byte) (scales, minima [8]uint8) {
	for g := range 4 {
		scales[g], minima[g] = p[g]&63, p[g+4]&63
		scales[g+4] = p[g+8]&15 | p[g]>>6<<4
		minima[g+4] = p[g+8]>>4 | p[g+4]>>6<<4
	}
	return scales, minima
}

// Q5_K: as Q4_K with 32 bytes of fifth bits (bit g of byte i for element i of group g) before the codes.
func dequantizeQ5_K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[176:] {
		b := (*[176]byte)(src)
		d, dmin := loadHalf(b[:]), loadHalf(b[2:])
		scales, minima := scalesQ4_K((*[12]byte)(b[4:]))
		high := (*[32]byte)(b[16:])
		for g := range 8 {
			scale, least := d*float32(scales[g]), float32(dmin*float32(minima[g]))
			y := (*[32]float32)(dst[32*g:])
			codes, shift := (*[32]byte)(b[48+g/2*32:]), uint(g&1*4)
			for i, q := range codes {
				y[i] = float32(scale*float32(q>>shift&15|high[i]>>g&1<<4)) - least
			}
		}
	}
}

// Q6_K: 128 bytes with the low four bits of each code, 64 bytes with the upper two, sixteen signed 8-bit scales, the
// super-block's scale. Per 128 elements, quarter k (32 elements) has its low bits in half k/2 of bytes 32*(k%2).. and its upper
// bits at position 2k.
func dequantizeQ6_K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[210:] {
		b := (*[210]byte)(src)
		d := loadHalf(b[208:])
		for g := range 16 {
			scale := d * float32(int8(b[192+g]))
			y := (*[16]float32)(dst[16*g:])
			quarter, half := g/2%4, g%2*16
			low, lowShift := (*[16]byte)(b[g/8*64+quarter%2*32+half:]), uint(quarter/2*4)
			high, highShift := (*[16]byte)(b[128+g/8*32+half:]), uint(quarter*2)
			for i, q := range low {
				y[i] = scale * float32(int(q>>lowShift&15|high[i]>>highShift&3<<4)-32)
			}
		}
	}
}

// Q8_K: the activation format that K formats are multiplied with: float32 scale, 256 signed bytes, then the sums of the
// codes of each 16 elements as 16-bit integers.
func dequantizeQ8_K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[292:] {
		y, b := (*[256]float32)(dst), (*[292]byte)(src)
		d := math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
		for i, q := range b[4:260] {
			y[i] = d * float32(int8(q))
		}
	}
}
