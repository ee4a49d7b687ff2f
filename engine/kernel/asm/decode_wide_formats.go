package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// headerHalves takes a lane of the headers, shifted right by some bits.
func headerHalves(lane, shift uint64) func(w *wideDecoder) reg.VecVirtual {
	return func(w *wideDecoder) reg.VecVirtual {
		at := func(row uint64) uint64 { return 4*row + lane | (4*row+4+lane)<<32 }
		order, out := ZMM(), w.headers[0].bytes
		VBROADCASTI64X4(table(fmt.Sprint("lane", lane), []uint64{at(0), at(2), at(4), at(6)}), order)
		VPERMT2D(w.headers[1].bytes, order, out)
		if shift > 0 {
			VPSRLD(Imm(shift), out, out)
		}
		return out
	}
}

// insertedHalves reads them from their place in each row's block, shifted right by some bits.
func insertedHalves(off int, shift uint64) func(w *wideDecoder) reg.VecVirtual {
	return func(w *wideDecoder) reg.VecVirtual {
		var parts [2]reg.VecVirtual
		for i := range parts {
			parts[i] = YMM()
			VPBROADCASTD(w.rows.at(4*i, off), parts[i])
			for r := 1; r < 4; r++ {
				VPINSRD(Imm(uint64(r)), w.rows.at(4*i+r, off), parts[i].AsX(), parts[i].AsX())
			}
		}
		VINSERTI32X4(Imm(1), parts[1].AsX(), parts[0], parts[0])
		if shift > 0 {
			VPSRLD(Imm(shift), parts[0], parts[0])
		}
		return parts[0]
	}
}

// selected takes the bits of a where mask is set, else those of b, which is overwritten.
func selected(mask, a, b reg.VecVirtual) reg.VecVirtual {
	VPTERNLOGD(Imm(0xd8), mask, a, b)
	return b
}

// q4K: words 1 and 2 of the header have the lower six bits of four scales and four minima each, word 3 the lower four bits
// of the others, whose upper two are the upper two of words 1 and 2.
func (h *wideHeader) q4K() {
	low, high := ZMM(), ZMM()
	VPSHUFD(Imm(0xed), h.bytes, low) // words 1, 3, 2, 3
	VPSRLVD(four16("k4Shift", 0, 4<<32), low, low)
	VPANDD(four16("k4Low", 0x0f0f0f0f_3f3f3f3f, 0x0f0f0f0f_3f3f3f3f), low, low)
	VPSHUFD(Imm(0x84), h.bytes, high) // any, 1, any, 2
	VPSRLD(Imm(2), high, high)
	VPANDD(four16("k4High", 0x30303030_00000000, 0x30303030_00000000), high, high)
	VPORD(high, low, low)
	h.scales[0], h.mins[0] = ZMM(), ZMM()
	VPUNPCKLBW(h.w.zero, low, h.scales[0])
	VPUNPCKHBW(h.w.zero, low, h.mins[0])
}

// q2K: a byte has four bits of a scale and four of a minimum.
func (h *wideHeader) q2K() {
	low, high := ZMM(), ZMM()
	VPANDD(h.w.mask(15), h.bytes, low)
	VPSRLW(Imm(4), h.bytes, high)
	VPANDD(h.w.mask(15), high, high)
	for i, v := range []reg.VecVirtual{low, high} {
		words := [2]reg.VecVirtual{ZMM(), ZMM()}
		VPUNPCKLBW(h.w.zero, v, words[0])
		VPUNPCKHBW(h.w.zero, v, words[1])
		if i == 0 {
			h.scales = words
		} else {
			h.mins = words
		}
	}
}

// signed widens signed bytes to the scales.
func (h *wideHeader) signed(v reg.VecVirtual) {
	h.scales = [2]reg.VecVirtual{ZMM(), ZMM()}
	VPUNPCKLBW(v, v, h.scales[0])
	VPUNPCKHBW(v, v, h.scales[1])
	for _, s := range h.scales {
		VPSRAW(Imm(8), s, s)
	}
}

func (h *wideHeader) q6K() { h.signed(h.bytes) }

// q3K: the header begins two bytes before the scales. The first eight bytes have the lower four bits of the scales, the last
// four the upper two, scales 0 to 3 lowest.
func (h *wideHeader) q3K() {
	low, high := ZMM(), ZMM()
	VPSHUFB(four16("k3Low", 0x0908070605040302, 0x0908070605040302), h.bytes, low)
	VPSHUFB(four16("k3High", 0x0d0c0b0a0d0c0b0a, 0x0d0c0b0a0d0c0b0a), h.bytes, high)
	VPSRLVQ(four16("k3ShiftLow", 0, 4), low, low)
	VPROLVD(four16("k3ShiftHigh", 4|2<<32, 0|30<<32), high, high)
	VPANDD(four16("k3MaskLow", 0x0f0f0f0f0f0f0f0f, 0x0f0f0f0f0f0f0f0f), low, low)
	VPANDD(four16("k3MaskHigh", 0x3030303030303030, 0x3030303030303030), high, high)
	VPORD(high, low, low)
	VPSUBB(four16("bytes32", 0x2020202020202020, 0x2020202020202020), low, low)
	h.signed(low)
}

// iq4XS: word 1 has the upper two bits of eight scales, bytes 4 to 7 the lower four.
func (h *wideHeader) iq4XS() {
	low, high := ZMM(), ZMM()
	VPSHUFB(four16("x4Low", 0x8005800580048004, 0x8007800780068006), h.bytes, low)
	VPSRLVW(four16("x4ShiftLow", 0x0004000000040000, 0x0004000000040000), low, low)
	VPSHUFB(four16("x4High", 0x0302030203020302, 0x0302030203020302), h.bytes, high)
	VPSRLVW(four16("x4ShiftHigh", 0x0006000400020000, 0x000e000c000a0008), high, high)
	VPSLLW(Imm(4), high, high)
	VPANDD(four16("x4MaskLow", 0x000f000f000f000f, 0x000f000f000f000f), low, low)
	VPANDD(four16("x4MaskHigh", 0x0030003000300030, 0x0030003000300030), high, high)
	VPORD(high, low, low)
	VPSUBW(four16("words32Wide", 0x0020002000200020, 0x0020002000200020), low, low)
	h.scales[0] = low
}

func (w *wideDecoder) iq4XS(row int, emit func(reg.VecVirtual)) {
	for j := range 2 {
		q := w.load(row, 8+64*j)
		for i := range 2 {
			if i == 1 {
				q = w.shifted(q, -4)
			}
			out := ZMM()
			VPSHUFB(w.masked(q, 15), w.raisedIQ4(), out)
			emit(out)
		}
	}
}

func (w *wideDecoder) load(row, off int) reg.VecVirtual {
	v := ZMM()
	VMOVDQU32(w.rows.at(row, off), v)
	return v
}

// loadTwice loads the 32 bytes at off into both halves.
func (w *wideDecoder) loadTwice(row, off int) reg.VecVirtual {
	v := ZMM()
	VBROADCASTI64X4(w.rows.at(row, off), v)
	return v
}

// loadHalves loads 32 bytes each at two offsets.
func (w *wideDecoder) loadHalves(row, low, high int) reg.VecVirtual {
	v := ZMM()
	VBROADCASTI64X4(w.rows.at(row, low), v)
	VINSERTI64X4(Imm(1), w.rows.at(row, high), v, v)
	return v
}

// shifted moves bits left (n > 0) or right.
func (w *wideDecoder) shifted(v reg.VecVirtual, n int) reg.VecVirtual {
	out := ZMM()
	switch {
	case n > 0:
		VPSLLW(Imm(uint64(n)), v, out)
	case n < 0:
		VPSRLW(Imm(uint64(-n)), v, out)
	default:
		VMOVDQA32(v, out)
	}
	return out
}

// masked keeps the bits of b in every byte.
func (w *wideDecoder) masked(v reg.VecVirtual, b byte) reg.VecVirtual {
	out := ZMM()
	VPANDD(w.mask(b), v, out)
	return out
}

// rotated turns both halves left by their own number of bits, within 64; 64-n turns right.
func (w *wideDecoder) rotated(v reg.VecVirtual, low, high uint64) reg.VecVirtual {
	out := ZMM()
	VPROLVQ(table(fmt.Sprintf("turn%dAnd%d", low, high), []uint64{low, low, low, low, high, high, high, high}), v, out)
	return out
}

func (w *wideDecoder) q4K(row int, emit func(reg.VecVirtual)) {
	for j := range 2 {
		q := w.load(row, 16+64*j)
		emit(w.masked(q, 15))
		emit(w.masked(w.shifted(q, -4), 15))
	}
}

// q5K: bit i of byte l of the high bits is that of element l of run i.
func (w *wideDecoder) q5K(row int, emit func(reg.VecVirtual)) {
	high := w.loadTwice(row, 16)
	left := func(run int) uint64 { return uint64(4-run) & 63 }
	for j := range 2 {
		q := w.load(row, 48+64*j)
		for i := range 2 {
			if i == 1 {
				q = w.shifted(q, -4)
			}
			runs := w.runs[2*j+i]
			emit(w.masked(selected(w.mask(15), q, w.rotated(high, left(runs[0]), left(runs[1]))), 31))
		}
	}
}

func (w *wideDecoder) q6K(row int, emit func(reg.VecVirtual)) {
	a, b, high := w.loadHalves(row, 0, 64), w.loadHalves(row, 32, 96), w.load(row, 128)
	for j, q := range []reg.VecVirtual{a, b, a, b} {
		if j >= 2 {
			q = w.shifted(q, -4)
		}
		emit(w.masked(selected(w.mask(15), q, w.shifted(high, 4-2*j)), 63))
	}
}

func (w *wideDecoder) q2K(row int, emit func(reg.VecVirtual)) {
	q := w.load(row, 16)
	for j := range 4 {
		v := q
		if j > 0 {
			v = w.shifted(q, -2*j)
		}
		emit(w.masked(v, 3))
	}
}

// q3K: bit i of byte l of the high bits is that of element l of run i.
func (w *wideDecoder) q3K(row int, emit func(reg.VecVirtual)) {
	q, high := w.load(row, 32), w.loadTwice(row, 0)
	for j := range 4 {
		v := q
		if j > 0 {
			v = w.shifted(q, -2*j)
		}
		emit(w.masked(selected(w.mask(3), v, w.rotated(high, uint64(2-j)&63, uint64(2-j-4)&63)), 7))
	}
}
