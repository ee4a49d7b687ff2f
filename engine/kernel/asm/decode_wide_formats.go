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
