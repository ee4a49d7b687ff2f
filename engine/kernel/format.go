package kernel

import (
	"encoding/binary"
	"fmt"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// format says how a quantised type is computed with. All types reduce to signed 8-bit codes with scales:
//
//	simple formats, block of 32:   w = d*code + m
//	K formats, block of 256:       w = d*scales[i/16]*code - m*mins[i/run]
type format struct {
	super  bool // blocks of 256 with integer sub-scales
	minima bool // m (and mins) are used
	run    int  // K formats: elements that share a scale and a minimum, 16 or 32
	unpack func(r *rowCodes, src []byte)
}

// rowCodes is a weight row unpacked into codes and scales; simple or super has the scales.
type rowCodes struct {
	codes  []int8 // [cols]
	simple []blockScale
	super  []superScale
}

// blockScale holds the scales of 32 weights.
type blockScale struct{ d, m float32 }

// superScale holds the scales of 256 weights. A scale of 32 elements is there twice, a minimum is not.
type superScale struct {
	scales, mins [16]int16
	d, m         float32
}

func (r *rowCodes) resize(cols int, f *format) {
	r.codes = grow(r.codes, cols)
	if f.super {
		r.super = grow(r.super, cols/256)
	} else {
		r.simple = grow(r.simple, cols/32)
	}
}

var formats = map[gguf.Type]*format{
	gguf.Q4_0:   {unpack: unpackQ4_0},
	gguf.Q4_1:   {unpack: unpackQ4_1, minima: true},
	gguf.Q5_0:   {unpack: unpackQ5_0},
	gguf.Q5_1:   {unpack: unpackQ5_1, minima: true},
	gguf.Q8_0:   {unpack: unpackQ8_0},
	gguf.IQ4_NL: {unpack: unpackIQ4_NL},
	gguf.Q2_K:   {unpack: unpackQ2_K, super: true, run: 16, minima: true},
	gguf.Q3_K:   {unpack: unpackQ3_K, super: true, run: 16},
	gguf.Q4_K:   {unpack: unpackQ4_K, super: true, run: 32, minima: true},
	gguf.Q5_K:   {unpack: unpackQ5_K, super: true, run: 32, minima: true},
	gguf.Q6_K:   {unpack: unpackQ6_K, super: true, run: 16},
	gguf.IQ4_XS: {unpack: unpackIQ4_XS, super: true, run: 32},
}

func formatOf(t gguf.Type) *format {
	f, ok := formats[t]
	if !ok {
		panic(fmt.Sprintf("kernel: no product with weights of type %v", t))
	}
	return f
}

func half(b []byte) float32 { return quant.HalfToFloat(binary.LittleEndian.Uint16(b)) }

// iq4Values are the sixteen reconstruction points of the IQ4 formats.
var iq4Values = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// nibbles spreads 16 bytes over 32 codes: low halves first, then high halves.
func nibbles(codes []int8, qs []byte) {
	qs, codes = qs[:16], codes[:32]
	for i, q := range qs {
		codes[i], codes[i+16] = int8(q&15), int8(q>>4)
	}
}

func unpackQ4_0(r *rowCodes, src []byte) {
	for b := range r.simple {
		block, codes := src[b*18:][:18], r.codes[b*32:][:32]
		r.simple[b] = blockScale{d: half(block)}
		nibbles(codes, block[2:])
		for i := range codes {
			codes[i] -= 8
		}
	}
}

func unpackQ4_1(r *rowCodes, src []byte) {
	for b := range r.simple {
		block := src[b*20:][:20]
		r.simple[b] = blockScale{half(block), half(block[2:])}
		nibbles(r.codes[b*32:], block[4:])
	}
}

// fifthBits adds the high bit of 32 five-bit codes.
func fifthBits(codes []int8, bits []byte) {
	h := binary.LittleEndian.Uint32(bits)
	for i := range codes[:32] {
		codes[i] |= int8(h >> i & 1 << 4)
	}
}

func unpackQ5_0(r *rowCodes, src []byte) {
	for b := range r.simple {
		block, codes := src[b*22:][:22], r.codes[b*32:][:32]
		r.simple[b] = blockScale{d: half(block)}
		nibbles(codes, block[6:])
		fifthBits(codes, block[2:])
		for i := range codes {
			codes[i] -= 16
		}
	}
}

func unpackQ5_1(r *rowCodes, src []byte) {
	for b := range r.simple {
		block, codes := src[b*24:][:24], r.codes[b*32:][:32]
		r.simple[b] = blockScale{half(block), half(block[2:])}
		nibbles(codes, block[8:])
		fifthBits(codes, block[4:])
	}
}

func unpackQ8_0(r *rowCodes, src []byte) {
	for b := range r.simple {
		block, codes := src[b*34:][:34], r.codes[b*32:][:32]
		r.simple[b] = blockScale{d: half(block)}
		for i, q := range block[2:] {
			codes[i] = int8(q)
		}
	}
}

func unpackIQ4_NL(r *rowCodes, src []byte) {
	for b := range r.simple {
		block, codes := src[b*18:][:18], r.codes[b*32:][:32]
		r.simple[b] = blockScale{d: half(block)}
		nibbles(codes, block[2:])
		for i, c := range codes {
			codes[i] = iq4Values[c]
		}
	}
}
