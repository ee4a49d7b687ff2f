package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The wide decode kernels multiply one activation row with eight weight rows of a K format at a time, in 512 bits. What
// belongs to a row's block as a whole (scales, minima, d) is worked out for four rows at once, a row per 128 bits, and
// block results are scaled for eight rows at once, a row per lane. A vector of codes holds two runs of 32 elements, runs
// that lie a fixed distance apart in the block's bytes; the activation codes are put into the same order once a block and
// stay in registers while the rows go by.
type wideFormat struct {
	blockFormat
	runs   [4][2]int                                                      // the 32-element runs of each vector of codes; of the eights of IQ4_XS, see quarters
	run16  bool                                                           // scales are of 16 elements
	masks  []byte                                                         // bytes that codes masks with
	halves func(w *wideDecoder) reg.VecVirtual                            // d in the lower word of eight lanes, and m in the upper
	codes  func(w *wideDecoder, row int, emit func(codes reg.VecVirtual)) // the four vectors of a row
}

var nibbleRuns, quarterRuns = [4][2]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}, [4][2]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}

// wideFormats gives the layouts to 512 bits.
func wideFormats() []wideFormat {
	by := map[string]wideFormat{
		"Q2_K":   {runs: quarterRuns, run16: true, halves: insertedHalves(80, 0), masks: []byte{15, 3}, codes: (*wideDecoder).q2K},
		"Q3_K":   {runs: quarterRuns, run16: true, halves: headerHalves(3, 16), masks: []byte{3, 7}, codes: (*wideDecoder).q3K},
		"Q4_K":   {runs: nibbleRuns, halves: headerHalves(0, 0), masks: []byte{15}, codes: (*wideDecoder).q4K},
		"Q5_K":   {runs: nibbleRuns, halves: headerHalves(0, 0), masks: []byte{15, 31}, codes: (*wideDecoder).q5K},
		"IQ4_XS": {halves: headerHalves(0, 0), masks: []byte{15}, codes: (*wideDecoder).iq4XS},
		"Q6_K":   {runs: quarterRuns, run16: true, halves: insertedHalves(206, 16), masks: []byte{15, 63}, codes: (*wideDecoder).q6K},
	}
	var out []wideFormat
	for _, f := range blockFormats {
		if w, ok := by[f.name]; ok {
			w.blockFormat = f
			if f.signed {
				w.offset = 128 // raised to be the unsigned operand
			}
			out = append(out, w)
		}
	}
	return out
}

// wideDecoder are the registers of a kernel in the making.
type wideDecoder struct {
	wideFormat
	rows    rows
	loaded  map[string]reg.VecVirtual // constants
	headers [2]*blockHeader
}

func decodeWide() {
	for _, f := range blockFormats {
		w := &wideDecoder{loaded: map[string]reg.VecVirtual{}}
		if f.elements == 32 {
			w.blockFormat = f
			p := &widePairs{wideDecoder: w, raised: f.signed}
			p.kernel()
		}
	}
	for _, f := range wideFormats() {
		w := &wideDecoder{wideFormat: f, loaded: map[string]reg.VecVirtual{}}
		w.kernel()
	}
}

func (w *wideDecoder) kernel() {
	begin("dotEights"+w.name+"AVX512", "func(dst *float32, w *byte, stride int, eights int, x *int8, side *byte, blocks int)",
		"dst[r] = product of quantised activations with row r of eight times eights, stride bytes apart; eights and blocks > 0.")
	dst, from, stride, eights := arg("dst"), arg("w"), arg("stride"), arg("eights")
	w.preload()
	w.eachEight(dst, from, stride, eights, 1, 256, sideBytes, w.block)
	end()
}

// eachEight takes eight rows after the other through their blocks, so many blocks at a time, with so many bytes of activations
// and of what belongs to these. block adds the products of those blocks to total.
func (w *wideDecoder) eachEight(dst, from, stride, eights reg.GPVirtual, atOnce, codes, sides int, block func(x, side reg.GPVirtual, total reg.VecVirtual)) {
	Label("eight")
	x, side, blocks := arg("x"), arg("side"), arg("blocks")
	first, next := GP64(), GP64()
	MOVQ(from, first)
	LEAQ(Mem{Base: from, Index: stride, Scale: 8}, from)
	MOVQ(from, next)
	w.rows = newRows(first, stride, 8)
	total := YMM()
	zero(total)
	loop("block", blocks, atOnce, func() {
		for off := 0; off < 8*atOnce*w.bytes; off += 64 {
			PREFETCHT0(Mem{Base: next, Disp: off})
		}
		ADDQ(U32(8*atOnce*w.bytes), next)
		block(x, side, total)
		w.rows.advance(atOnce * w.bytes)
		ADDQ(U32(codes), x)
		ADDQ(U32(sides), side)
	})
	VMOVUPS(total, Mem{Base: dst})
	ADDQ(Imm(32), dst)
	DECQ(eights)
	JNZ(LabelRef("eight"))
}

// block adds the products of a block of eight rows to total.
func (w *wideDecoder) block(x, side reg.GPVirtual, total reg.VecVirtual) {
	xs := w.activations(x)
	sums := w.sums(side)
	var fours, low [2]reg.VecVirtual
	for g := range 2 {
		h := &blockHeader{width: avx512, bytes: w.four(4*g, headers[w.name].offset)}
		headers[w.name].read(h)
		w.headers[g] = h
		low[g] = h.sumProduct(sums)
		fours[g] = addPairs(w.pair(h, 4*g, 0, xs), w.pair(h, 4*g, 2, xs))
	}
	whole, least := addFours(fours[0], fours[1]).AsY(), w.addLow(low[0], low[1]).AsY()
	if w.offset > 0 {
		VPSLLD(Imm(uint64(bits.TrailingZeros8(w.offset))), least, least)
		VPSUBD(least, whole, whole)
	}
	halves := w.halves(w).AsY()
	VCVTDQ2PS(whole, whole)
	dx := YMM()
	VBROADCASTSS(Mem{Base: side, Disp: sideD}, dx)
	scale := lowerHalves(halves)
	VMULPS(dx, scale, scale)
	VMULPS(scale, whole, whole)
	VADDPS(whole, total, total)
	if w.minima {
		VPSRLD(Imm(16), halves, halves)
		VCVTDQ2PS(least, least)
		scale := lowerHalves(halves)
		VMULPS(dx, scale, scale)
		VMULPS(scale, least, least)
		VSUBPS(least, total, total)
	}
}

// lowerHalves widens the half precision number in the lower word of each of eight lanes.
func lowerHalves(v reg.Register) reg.VecVirtual {
	words, out := XMM(), YMM()
	VPMOVDW(v, words)
	VCVTPH2PS(words, out)
	return out
}

// activations loads the codes of a block in the order of the weight codes.
func (w *wideDecoder) activations(x reg.GPVirtual) []reg.VecVirtual {
	v := make([]reg.VecVirtual, 4)
	for i, runs := range w.runs {
		v[i] = ZMM()
		if w.signed {
			// Half a run of four neighbouring ones.
			VBROADCASTI32X4(Mem{Base: x, Disp: i/2*128 + i%2*16}, v[i])
			for part := 1; part < 4; part++ {
				VINSERTI32X4(Imm(uint64(part)), Mem{Base: x, Disp: i/2*128 + i%2*16 + part*32}, v[i], v[i])
			}
			continue
		}
		VBROADCASTI64X4(Mem{Base: x, Disp: 32 * runs[0]}, v[i])
		VINSERTI64X4(Imm(1), Mem{Base: x, Disp: 32 * runs[1]}, v[i], v[i])
	}
	return v
}

// sums loads the sums of the activation codes, of 16 or of 32, into every 128 bits.
func (w *wideDecoder) sums(side reg.GPVirtual) [2]reg.VecVirtual {
	v := [2]reg.VecVirtual{ZMM()}
	if !w.run16 {
		VBROADCASTI32X4(Mem{Base: side, Disp: sideSums32}, v[0])
		return v
	}
	v[1] = ZMM()
	VBROADCASTI32X4(Mem{Base: side, Disp: sideSums}, v[0])
	VBROADCASTI32X4(Mem{Base: side, Disp: sideSums + 16}, v[1])
	return v
}

// pair returns the products of rows r and r+1 of four, which begin at row first, as addPairs leaves them.
func (w *wideDecoder) pair(h *blockHeader, first, r int, x []reg.VecVirtual) reg.VecVirtual {
	return addPairs(w.row(h, first, r, x), w.row(h, first, r+1, x))
}

// row returns parts of the product of a row in all lanes.
func (w *wideDecoder) row(h *blockHeader, first, r int, x []reg.VecVirtual) reg.VecVirtual {
	scales := ZMM()
	high := h.scales[1]
	if high == nil {
		high = h.scales[0]
	}
	VSHUFI32X4(Imm(uint64(r*0x55)), high, h.scales[0], scales) // of the row alone: in all parts, or the first eight in two, the others in two
	out := ZMM()
	v := 0
	if w.signed {
		w.wholeRuns(first+r, scales, x, out)
		return out
	}
	w.codes(w, first+r, func(codes reg.VecVirtual) {
		scale := ZMM()
		VPSHUFB(w.pick(v), scales, scale)
		VPMADDUBSW(x[v], codes, codes)
		if v == 0 {
			VPMADDWD(scale, codes, out)
		} else {
			dpwssd(scale, codes, out)
		}
		v++
	})
	return out
}

// wholeRuns multiplies the sums of whole runs, which do not fit 16 bits.
func (w *wideDecoder) wholeRuns(row int, scales reg.VecVirtual, x []reg.VecVirtual, out reg.VecVirtual) {
	v, sum := 0, reg.VecVirtual(nil)
	w.codes(w, row, func(codes reg.VecVirtual) {
		if v%2 == 0 {
			sum = ZMM()
			zero(sum)
		}
		dpbusd(x[v], codes, sum)
		if v++; v%2 == 1 {
			return
		}
		scale := ZMM()
		VPSHUFB(w.pick(v/2-1), scales, scale)
		VPSRAD(Imm(16), scale, scale)
		if v == 2 {
			VPMULLD(scale, sum, out)
		} else {
			VPMULLD(scale, sum, sum)
			VPADDD(sum, out, out)
		}
	})
}

// pick spreads the scales of a vector of codes over its words.
func (w *wideDecoder) pick(v int) reg.VecVirtual {
	var parts [4]uint64
	for i := range parts {
		word := w.runs[v][i/2]
		switch {
		case w.run16:
			word = (2*word + i%2) % 8
		case w.signed:
			word = 4*v + i
		}
		parts[i] = uint64(2*word) | uint64(2*word+1)<<8
		parts[i] *= 0x0001000100010001
	}
	name := "pickNibbles"
	switch {
	case w.run16:
		name = "pickQuarters"
	case w.signed:
		name = "pickRuns"
	}
	return w.constant(fmt.Sprint(name, v), []uint64{parts[0], parts[0], parts[1], parts[1], parts[2], parts[2], parts[3], parts[3]})
}

// constant is a register that holds a table, loaded before the loops; 32 bytes are repeated.
func (w *wideDecoder) constant(name string, words []uint64) reg.VecVirtual {
	if v, ok := w.loaded[name]; ok {
		return v
	}
	v := ZMM()
	if m := table(name, words); len(words) == 4 {
		VBROADCASTI64X4(m, v)
	} else {
		VMOVDQU32(m, v)
	}
	w.loaded[name] = v
	return v
}

// preload loads the constants that the loops use.
func (w *wideDecoder) preload() {
	for v := range 4 {
		if v < 2 || !w.signed {
			w.pick(v)
		}
	}
	if w.signed {
		w.raisedIQ4()
	}
	for _, b := range w.masks {
		w.mask(b)
	}
	w.rowOrder()
}

// mask is a register of 64 bytes b.
func (w *wideDecoder) mask(b byte) reg.VecVirtual {
	x := uint64(b) * 0x0101010101010101
	return w.constant("each"+hex(b), []uint64{x, x, x, x, x, x, x, x})
}

// four loads 16 bytes at an offset of each of four rows.
func (w *wideDecoder) four(first, off int) reg.VecVirtual {
	v := ZMM()
	VBROADCASTI32X4(w.rows.at(first, off), v)
	for r := 1; r < 4; r++ {
		VINSERTI32X4(Imm(uint64(r)), w.rows.at(first+r, off), v, v)
	}
	return v
}

// addPairs adds neighbours: in each 128 bits the result has two lanes of a, then two of b.
func addPairs(a, b reg.VecVirtual) reg.VecVirtual {
	even, odd := ZMM(), ZMM()
	VSHUFPS(Imm(0x88), b, a, even)
	VSHUFPS(Imm(0xdd), b, a, odd)
	VPADDD(odd, even, even)
	return even
}

// addFours adds the 128-bit parts of two vectors: four lanes of a, then four of b.
func addFours(a, b reg.VecVirtual) reg.VecVirtual {
	even, odd := ZMM(), ZMM()
	VSHUFI32X4(Imm(0x88), b, a, even)
	VSHUFI32X4(Imm(0xdd), b, a, odd)
	VPADDD(odd, even, even)
	low, high := ZMM(), ZMM()
	VSHUFI32X4(Imm(0x08), even, even, low)
	VSHUFI32X4(Imm(0x0d), even, even, high)
	VPADDD(high.AsY(), low.AsY(), low.AsY())
	return low
}

// addLow adds the four lanes of each of twice four rows.
func (w *wideDecoder) addLow(a, b reg.VecVirtual) reg.VecVirtual {
	v := addPairs(a, b)
	v = addPairs(v, v)
	out := ZMM()
	VPERMD(v, w.rowOrder(), out)
	return out
}

// rowOrder picks lanes 0 of four 128-bit parts, then lanes 1.
func (w *wideDecoder) rowOrder() reg.VecVirtual {
	return w.constant("rowOrder", []uint64{4 << 32, 8 | 12<<32, 1 | 5<<32, 9 | 13<<32})
}
