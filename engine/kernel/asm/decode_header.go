package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blockHeader is what a block of a K format has beside its codes, of as many rows as a vector has times 128 bits, worked out
// for all of them at once.
type blockHeader struct {
	width
	bytes        reg.VecVirtual    // 16 of each row, from headerOffset on
	scales, mins [2]reg.VecVirtual // words; the second nil with 8 scales; mins nil without
}

// header says where the bytes are and how they are read.
type header struct {
	offset int
	read   func(h *blockHeader)
}

var headers = map[string]header{
	"Q2_K": {0, (*blockHeader).q2K}, "Q3_K": {94, (*blockHeader).q3K}, "Q4_K": {0, (*blockHeader).q4K}, "Q5_K": {0, (*blockHeader).q4K},
	"Q6_K": {192, (*blockHeader).q6K}, "IQ4_XS": {0, (*blockHeader).iq4XS},
}

// sumProduct returns, in the four lanes of each row, parts of the product of sums of activation codes with the minima; with
// the scales, if what has to be made up for is the codes' offset.
func (h *blockHeader) sumProduct(sums [2]reg.VecVirtual) reg.VecVirtual {
	by, out := h.mins, h.vector()
	if by[0] == nil {
		by = h.scales
	}
	VPMADDWD(sums[0], by[0], out)
	switch {
	case by[1] == nil:
	case h.width == avx512:
		dpwssd(sums[1], by[1], out)
	default:
		t := h.vector()
		VPMADDWD(sums[1], by[1], t)
		VPADDD(t, out, out)
	}
	return out
}

// repeated is a table that repeats 16 bytes four times.
func repeated(name string, low, high uint64) Mem {
	return table(name, []uint64{low, high, low, high, low, high, low, high})
}

func repeatedByte(b byte) Mem {
	x := uint64(b) * 0x0101010101010101
	return repeated("all"+hex(b), x, x)
}

func (h *blockHeader) and(mask Mem, v, out reg.VecVirtual) {
	if h.width == avx512 {
		VPANDD(mask, v, out)
	} else {
		VPAND(mask, v, out)
	}
}

func (h *blockHeader) or(a, out reg.VecVirtual) {
	if h.width == avx512 {
		VPORD(a, out, out)
	} else {
		VPOR(a, out, out)
	}
}

// unsigned widens bytes to words.
func (h *blockHeader) unsigned(v reg.VecVirtual) (words [2]reg.VecVirtual) {
	none := h.vector()
	zero(none)
	words = [2]reg.VecVirtual{h.vector(), h.vector()}
	VPUNPCKLBW(none, v, words[0])
	VPUNPCKHBW(none, v, words[1])
	return words
}

// signed widens signed bytes to words.
func (h *blockHeader) signed(v reg.VecVirtual) (words [2]reg.VecVirtual) {
	words = [2]reg.VecVirtual{h.vector(), h.vector()}
	VPUNPCKLBW(v, v, words[0])
	VPUNPCKHBW(v, v, words[1])
	for _, w := range words {
		VPSRAW(Imm(8), w, w)
	}
	return words
}

// q2K: a byte has four bits of a scale and four of a minimum.
func (h *blockHeader) q2K() {
	low, high := h.vector(), h.vector()
	h.and(repeatedByte(15), h.bytes, low)
	VPSRLW(Imm(4), h.bytes, high)
	h.and(repeatedByte(15), high, high)
	h.scales, h.mins = h.unsigned(low), h.unsigned(high)
}

// q3K: the header begins two bytes before the scales. The first eight bytes have the lower four bits of the scales, the last
// four the upper two, scales 0 to 3 lowest.
func (h *blockHeader) q3K() {
	low, high := h.vector(), h.vector()
	VPSHUFB(repeated("k3Low", 0x0908070605040302, 0x0908070605040302), h.bytes, low)
	VPSHUFB(repeated("k3High", 0x0d0c0b0a0d0c0b0a, 0x0d0c0b0a0d0c0b0a), h.bytes, high)
	VPSRLVQ(repeated("k3ShiftLow", 0, 4), low, low)
	VPSLLVD(repeated("k3ShiftLeft", 4|2<<32, 0), high, high)
	VPSRLVD(repeated("k3ShiftRight", 0, 2<<32), high, high)
	h.and(repeatedByte(15), low, low)
	h.and(repeatedByte(0x30), high, high)
	h.or(high, low)
	VPSUBB(repeatedByte(32), low, low)
	h.scales = h.signed(low)
}

// q4K: words 1 and 2 have the lower six bits of four scales and four minima each, word 3 the lower four bits of the others,
// whose upper two are the upper two of words 1 and 2.
func (h *blockHeader) q4K() {
	low, high := h.vector(), h.vector()
	VPSHUFD(Imm(0xed), h.bytes, low) // words 1, 3, 2, 3
	VPSRLVD(repeated("k4Shift", 0, 4<<32), low, low)
	h.and(repeated("k4Low", 0x0f0f0f0f_3f3f3f3f, 0x0f0f0f0f_3f3f3f3f), low, low)
	VPSHUFD(Imm(0x84), h.bytes, high) // any, 1, any, 2
	VPSRLD(Imm(2), high, high)
	h.and(repeated("k4High", 0x30303030_00000000, 0x30303030_00000000), high, high)
	h.or(high, low)
	words := h.unsigned(low)
	h.scales[0], h.mins[0] = words[0], words[1]
}

func (h *blockHeader) q6K() { h.scales = h.signed(h.bytes) }

// iq4XS: bytes 2 and 3 have the upper two bits of eight scales, bytes 4 to 7 the lower four. Multiplications move them to
// the same place in every word.
func (h *blockHeader) iq4XS() {
	low, high := h.vector(), h.vector()
	VPSHUFB(repeated("x4Low", 0x8005800580048004, 0x8007800780068006), h.bytes, low)
	VPMULLW(repeated("x4TimesLow", 0x0001001000010010, 0x0001001000010010), low, low)
	VPSRLW(Imm(4), low, low)
	VPSHUFB(repeated("x4High", 0x0302030203020302, 0x0302030203020302), h.bytes, high)
	VPMULLW(repeated("x4TimesHigh", 0x0100040010004000, 0x0001000400100040), high, high)
	VPSRLW(Imm(14), high, high)
	VPSLLW(Imm(4), high, high)
	h.and(repeated("x4Mask", 0x000f000f000f000f, 0x000f000f000f000f), low, low)
	h.or(high, low)
	VPSUBW(repeated("eachWord32", 0x0020002000200020, 0x0020002000200020), low, low)
	h.scales[0] = low
}
