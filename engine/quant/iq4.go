package quant

// iq4Values are the sixteen reconstruction points that both IQ4 formats share: denser around zero, where weights are.
var iq4Values = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// IQ4_NL: 32 elements, one half precision scale, 4-bit indices laid out as in Q4_0.
func dequantizeIQ4_NL(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		decodeIQ4(y, (*[16]byte)(b[2:]), loadHalf(b[:]))
	}
}

// IQ4_XS: 256 elements: half precision scale, 16 bits with the upper two bits of each of eight 6-bit sub-scales, 4 bytes with
// their lower four bits, then 4-bit indices per 32 elements.
func dequantizeIQ4_XS(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[136:] {
		b := (*[136]byte)(src)
		d, high := loadHalf(b[:]), loadU16(b[2:])
		for g := range 8 {
			scale := int(b[4+g/2]>>(4*(g&1))&15) | int(high>>(2*g)&3)<<4
			decodeIQ4((*[32]float32)(dst[32*g:]), (*[16]byte)(b[8+16*g:]), d*float32(scale-32))
		}
	}
}

func decodeIQ4(y *[32]float32, codes *[16]byte, d float32) {
	for i, q := range codes {
		y[i] = d * float32(iq4Values[q&15])
		y[i+16] = d * float32(iq4Values[q>>4])
	}
}

func quantizeIQ4_NL(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[18:], src[32:] {
		x, b := (*[32]float32)(src), (*[18]byte)(dst)
		d := fitIQ4(x)
		storeHalf(b[:], d)
		encodeIQ4((*[16]byte)(b[2:]), x, invert(d))
	}
}

func quantizeIQ4_XS(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[136:], src[256:] {
		b := (*[136]byte)(dst)
		clear(b[:8])
		var scales [8]float32
		for g := range scales {
			scales[g] = fitIQ4((*[32]float32)(src[32*g:]))
		}
		d := largest(scales[:]) / -32
		storeHalf(b[:], d)
		inverse := invert(d)
		var high uint16
		for g, s := range scales {
			q := clip(nearestProduct(inverse, s), -32, 31)
			encodeIQ4((*[16]byte)(b[8+16*g:]), (*[32]float32)(src[32*g:]), invert(d*float32(q)))
			b[4+g/2] |= byte(q+32) & 15 << (g % 2 * 4)
			high |= uint16(q+32) >> 4 << (2 * g)
		}
		storeU16(b[2:], high)
	}
}

// fitIQ4 finds the scale of one group of 32 for x ≈ d*iq4Values[q], each element weighted by its square: the least squares scale
// for the codes that put the extreme element near the first reconstruction point, over 16 variants of "near".
// Source: quantize_row_iq4_nl_impl of ggml-quants.c with seven tries to each side.
func fitIQ4(x *[32]float32) float32 {
	extreme := largest(x[:])
	if abs(extreme) < negligible {
		return 0
	}
	first := float32(iq4Values[0])
	sumXV, sumVV := momentsIQ4(x, 1/(-extreme/first))
	var scale float32
	if sumVV > 0 {
		scale = sumXV / sumVV
	}
	best := scale * sumXV
	for try := -7; try <= 7; try++ {
		sumXV, sumVV = momentsIQ4(x, (float32(try)+first)/extreme)
		if sumVV > 0 && sumXV*sumXV > best*sumVV {
			scale = sumXV / sumVV
			best = scale * sumXV
		}
	}
	return scale
}

// momentsIQ4 codes x with the inverse scale and returns the sums of w*x*v and w*v*v over the reconstruction points v, w = x².
func momentsIQ4(x *[32]float32, inverse float32) (sumXV, sumVV float32) {
	for _, e := range x {
		w, v := e*e, float32(iq4Values[indexIQ4(inverse, e)])
		sumXV = mulAdd(w*v, e, sumXV)
		sumVV = mulAdd(w*v, v, sumVV)
	}
	return sumXV, sumVV
}

func encodeIQ4(dst *[16]byte, x *[32]float32, inverse float32) {
	for i := range dst {
		dst[i] = indexIQ4(inverse, x[i]) | indexIQ4(inverse, x[i+16])<<4
	}
}

// indexIQ4 finds the reconstruction point nearest to inverse*x by bisecting the midpoints between neighbours; a midpoint
// itself belongs to the upper one. Both sides are doubled to stay in integers.
func indexIQ4(inverse, x float32) uint8 {
	doubled, index := 2*float32(inverse*x), 0
	for step := 8; step > 0; step /= 2 {
		if next := index + step; doubled >= float32(int(iq4Values[next-1])+int(iq4Values[next])) {
			index = next
		}
	}
	return uint8(index)
}
