package quant

import (
	"encoding/binary"
	"math"
)

// Encoders of the K formats: fit every group, round the groups' scales to small integers times the super-block's half
// precision scale, then round the elements once more with the scales as they will be read back.

func quantizeQ2_K(dst []byte, src []float32) {
	search := affineSearch{most: 3, first: -0.5, step: 0.1, steps: 15, absolute: true}
	for ; len(src) > 0; dst, src = dst[84:], src[256:] {
		x, b := (*[256]float32)(src), (*[84]byte)(dst)
		var codes [256]uint8
		var scales, minima [16]float32
		for g := range 16 {
			group := x[16*g : 16*g+16]
			var weights [16]float32
			for i, v := range group {
				weights[i] = abs(v)
			}
			var fitted [32]uint8
			scales[g], minima[g], fitted = fitAffine(group, weights[:], search)
			copy(codes[16*g:], fitted[:16])
		}
		clear(b[:16])
		storeHalf(b[80:], shareScale(scales[:], 15, func(g, q int) { b[g] = byte(q) }))
		storeHalf(b[82:], shareScale(minima[:], 15, func(g, q int) { b[g] |= byte(q) << 4 }))
		d, dmin := loadHalf(b[80:]), loadHalf(b[82:])
		for g := range 16 {
			roundAffine(codes[16*g:16*g+16], x[16*g:], d*float32(b[g]&15), float32(dmin*float32(b[g]>>4)), 3)
		}
		packCrumbs((*[64]byte)(b[16:]), &codes)
	}
}

func quantizeQ3_K(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[110:], src[256:] {
		x, b := (*[256]float32)(src), (*[110]byte)(dst)
		var scales [16]float32
		var codes [16][16]uint8
		for g := range scales {
			scales[g], codes[g] = fitScaleByCode((*[16]float32)(x[16*g:]), 4)
		}
		clear(b[:])
		packed := (*[12]byte)(b[96:])
		if extreme := largest(scales[:]); extreme != 0 {
			inverse := -32 / extreme
			for g, s := range scales {
				q := byte(clip(nearestProduct(inverse, s), -32, 31) + 32)
				packed[g%8] |= q & 15 << (g / 8 * 4)
				packed[8+g%4] |= q >> 4 << (g / 4 * 2)
			}
			storeHalf(b[108:], 1/inverse)
		}
		d := loadHalf(b[108:])
		var low [256]uint8
		for g, s := range scalesQ3_K(packed) {
			roundScaled(&codes[g], (*[16]float32)(x[16*g:]), d*float32(s), 4)
			for i, q := range codes[g] {
				low[16*g+i] = q & 3
				b[g%2*16+i] |= q >> 2 << (g / 2)
			}
		}
		packCrumbs((*[64]byte)(b[32:]), &low)
	}
}

func quantizeQ4_K(dst []byte, src []float32) {
	search := affineSearch{most: 15, first: -1, step: 0.1, steps: 20}
	for ; len(src) > 0; dst, src = dst[144:], src[256:] {
		b := (*[144]byte)(dst)
		var codes [256]uint8
		encodeEighths((*[16]byte)(b[:]), &codes, (*[256]float32)(src), search)
		packNibbles((*[128]byte)(b[16:]), &codes)
	}
}

func quantizeQ5_K(dst []byte, src []float32) {
	search := affineSearch{most: 31, first: -0.5, step: 0.1, steps: 15}
	for ; len(src) > 0; dst, src = dst[176:], src[256:] {
		b := (*[176]byte)(dst)
		var codes [256]uint8
		encodeEighths((*[16]byte)(b[:]), &codes, (*[256]float32)(src), search)
		high := b[16:48]
		clear(high)
		for i, q := range codes {
			high[i%32] |= q >> 4 << (i / 32)
		}
		packNibbles((*[128]byte)(b[48:]), &codes)
	}
}

// encodeEighths fits the eight groups of Q4_K or Q5_K, fills the 16 header bytes that both share (scale, scale of the minima,
// packed scales and minima) and returns the codes.
func encodeEighths(header *[16]byte, codes *[256]uint8, x *[256]float32, search affineSearch) {
	var scales, minima [8]float32
	for g := range 8 {
		group := x[32*g : 32*g+32]
		var squares float32
		for _, v := range group {
			squares = mulAdd(v, v, squares)
		}
		rms := float32(math.Sqrt(float64(squares / 32)))
		var weights [32]float32
		for i, v := range group {
			weights[i] = rms + abs(v)
		}
		var fitted [32]uint8
		scales[g], minima[g], fitted = fitAffine(group, weights[:], search)
		copy(codes[32*g:], fitted[:])
	}
	packed := (*[12]byte)(header[4:])
	clear(packed[:])
	storeHalf(header[0:], shareScale(scales[:], 63, func(g, q int) {
		if g < 4 {
			packed[g] |= byte(q)
		} else {
			packed[g+4] |= byte(q) & 15
			packed[g-4] |= byte(q) >> 4 << 6
		}
	}))
	storeHalf(header[2:], shareScale(minima[:], 63, func(g, q int) {
		if g < 4 {
			packed[g+4] |= byte(q)
		} else {
			packed[g+4] |= byte(q) << 4
			packed[g] |= byte(q) >> 4 << 6
		}
	}))
	d, dmin := loadHalf(header[0:]), loadHalf(header[2:])
	kept, keptMinima := scalesQ4_K(packed)
	for g := range 8 {
		roundAffine(codes[32*g:32*g+32], x[32*g:], d*float32(kept[g]), float32(dmin*float32(keptMinima[g])), search.most)
	}
}

func quantizeQ6_K(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[210:], src[256:] {
		x, b := (*[256]float32)(src), (*[210]byte)(dst)
		clear(b[:])
		var scales [16]float32
		var codes [16][16]uint8
		for g := range scales {
			scales[g], codes[g] = fitScale((*[16]float32)(x[16*g:]), 32)
		}
		extreme := largest(scales[:])
		if abs(extreme) < negligible {
			continue
		}
		inverse := -128 / extreme
		storeHalf(b[208:], 1/inverse)
		d := loadHalf(b[208:])
		for g, s := range scales {
			multiple := min(127, nearestProduct(inverse, s))
			b[192+g] = byte(multiple)
			roundScaled(&codes[g], (*[16]float32)(x[16*g:]), d*float32(multiple), 32)
			quarter, first := g/2%4, g%2*16
			for i, q := range codes[g] {
				b[g/8*64+quarter%2*32+first+i] |= q & 15 << (quarter / 2 * 4)
				b[128+g/8*32+first+i] |= q >> 4 << (quarter * 2)
			}
		}
	}
}

func quantizeQ8_K(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[292:], src[256:] {
		x, b := (*[256]float32)(src), (*[292]byte)(dst)
		clear(b[:])
		extreme := largest(x[:])
		if extreme == 0 {
			continue
		}
		inverse := -127 / extreme
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(1/inverse))
		for g := range 16 {
			sum := 0
			for i, v := range x[16*g : 16*g+16] {
				q := min(127, nearestProduct(inverse, v))
				b[4+16*g+i] = byte(q)
				sum += q
			}
			storeU16(b[260+2*g:], uint16(sum))
		}
	}
}

// shareScale rounds the groups' values (scales or minima, none negative counts) to integers in [0, most] times one shared
// scale, hands each integer to put and returns the shared scale.
func shareScale(values []float32, most int, put func(group, q int)) float32 {
	var top float32
	for _, v := range values {
		top = max(top, v)
	}
	if !(top > 0) {
		return 0
	}
	inverse := float32(most) / top
	for g, v := range values {
		put(g, clip(nearestProduct(inverse, v), 0, most))
	}
	return top / float32(most)
}

// roundScaled rounds x to codes q + half, q in [-half, half-1], for x ≈ scale*q. A group whose scale came out as zero keeps the
// codes of its fit, which then mean nothing.
func roundScaled(codes *[16]uint8, x *[16]float32, scale float32, half int) {
	if scale == 0 {
		return
	}
	for i, v := range x {
		codes[i] = uint8(clip(nearest(v/scale), -half, half-1) + half)
	}
}

// roundAffine rounds x to codes in [0, most] for x ≈ scale*q - minimum; a scale of zero as in roundScaled.
func roundAffine(codes []uint8, x []float32, scale, minimum float32, most int) {
	if scale == 0 {
		return
	}
	for i := range codes {
		codes[i] = uint8(clip(nearest((x[i]+minimum)/scale), 0, most))
	}
}

// packCrumbs stores 2-bit codes: byte i of each 32 bytes holds elements i, i+32, i+64 and i+96 of its 128.
func packCrumbs(dst *[64]byte, codes *[256]uint8) {
	for i := range 64 {
		c := codes[i/32*128+i%32:]
		dst[i] = c[0] | c[32]<<2 | c[64]<<4 | c[96]<<6
	}
}

// packNibbles stores the low four bits of the codes: byte i of each 32 bytes holds elements i and i+32 of its 64.
func packNibbles(dst *[128]byte, codes *[256]uint8) {
	for i := range 128 {
		c := codes[i/32*64+i%32:]
		dst[i] = c[0]&15 | c[32]<<4
	}
}
