package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pairDecoder multiplies one activation row with eight weight rows of a K format at a time, in 256 bits. Headers are worked
// out for two rows at once, r and r+4, so that sums over rows come out in their order. Scales go through memory for want of registers.
type pairDecoder struct {
	blockFormat
	rows rows
	memo Mem // scales of a pair
	held map[Mem]reg.VecVirtual
}

func (d *pairDecoder) kernel() {
	begin("dotEights"+d.name+"AVX2", "func(dst *float32, w *byte, stride int, eights int, x *int8, side *byte, blocks int)",
		"dst[r] = product of quantised activations with row r of eight times eights, stride bytes apart; eights and blocks > 0.")
	d.memo = AllocLocal(128)
	dst, from, stride, eights := arg("dst"), arg("w"), arg("stride"), arg("eights")
	d.held = hold(map[string][]Mem{
		"Q2_K": {bytes(3)}, "Q3_K": {bytes(3), bytes(4)}, "Q4_K": {bytes(15)}, "Q5_K": {bytes(15), bytes(16)}, "Q6_K": {bytes(15), bytes(0x30)},
		"IQ4_XS": {bytes(15), lowHigh(), iq4Points()},
	}[d.name]...)
	Label("eight")
	x, side, blocks := arg("x"), arg("side"), arg("blocks")
	first, next := GP64(), GP64()
	MOVQ(from, first)
	LEAQ(Mem{Base: from, Index: stride, Scale: 8}, from)
	MOVQ(from, next)
	d.rows = newRows(first, stride, 8)
	total := YMM()
	zero(total)
	VMOVUPS(total, Mem{Base: dst})
	loop("block", blocks, 1, func() {
		for off := 0; off < 8*d.bytes; off += 64 {
			PREFETCHT0(Mem{Base: next, Disp: off})
		}
		ADDQ(U32(8*d.bytes), next)
		d.block(x, side, Mem{Base: dst})
		d.rows.advance(d.bytes)
		ADDQ(U32(256), x)
		ADDQ(U32(sideBytes), side)
	})
	ADDQ(Imm(32), dst)
	DECQ(eights)
	JNZ(LabelRef("eight"))
	end()
}

// block adds the products of a block of eight rows to total, which stays in memory for want of registers.
func (d *pairDecoder) block(x, side reg.GPVirtual, total Mem) {
	var low, upper, least tree // rows 0 to 3, rows 4 to 7, minima of all
	for p := range 4 {
		d.header(p, side, &least)
		low.add(d.row(p, 0, x))
		upper.add(d.row(p+4, 1, x))
	}
	whole, t := YMM(), YMM()
	VPERM2I128(Imm(0x20), upper.parts[0], low.parts[0], whole)
	VPERM2I128(Imm(0x31), upper.parts[0], low.parts[0], t)
	VPADDD(t, whole, whole)
	var minima reg.VecVirtual
	if len(least.parts) > 0 {
		minima = least.parts[0]
	}
	if d.offset > 0 {
		VPSLLD(Imm(uint64(bits.TrailingZeros8(d.offset))), minima, minima)
		VPSUBD(minima, whole, whole)
	}
	halves := newHalfColumn(d.minima)
	at := map[string]int{"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}[d.name]
	for r := range 8 {
		halves.insert(r, d.rows.at(r, at))
	}
	scale, minimum := halves.floats()
	dx := YMM()
	VBROADCASTSS(Mem{Base: side, Disp: sideD}, dx)
	VCVTDQ2PS(whole, whole)
	VMULPS(dx, scale, scale)
	VMULPS(scale, whole, whole)
	VADDPS(total, whole, whole)
	if d.minima {
		VCVTDQ2PS(minima, minima)
		VMULPS(dx, minimum, minimum)
		VMULPS(minimum, minima, minima)
		VSUBPS(minima, whole, whole)
	}
	VMOVUPS(whole, total)
}

// tree adds vectors pair by pair: of four, what is left has the sums of neighbours of neighbours of each, in both halves.
type tree struct {
	parts []reg.VecVirtual
	added int
}

func (t *tree) add(v reg.VecVirtual) {
	t.parts = append(t.parts, v)
	t.added++
	for n := t.added; n%2 == 0; n /= 2 {
		last := len(t.parts) - 1
		VPHADDD(t.parts[last], t.parts[last-1], t.parts[last-1])
		t.parts = t.parts[:last]
	}
}

// header reads those of rows p and p+4, leaves their scales in memory, and adds the product of their minima to least.
func (d *pairDecoder) header(p int, side reg.GPVirtual, least *tree) {
	h := &blockHeader{width: avx2, bytes: YMM()}
	VBROADCASTI128(d.rows.at(p, headers[d.name].offset), h.bytes)
	VINSERTI128(Imm(1), d.rows.at(p+4, headers[d.name].offset), h.bytes, h.bytes)
	headers[d.name].read(h)
	d.keep(h)
	if !d.minima && d.offset == 0 {
		return
	}
	sums := [2]reg.VecVirtual{YMM(), YMM()}
	if h.scales[1] != nil {
		VBROADCASTI128(Mem{Base: side, Disp: sideSums}, sums[0])
		VBROADCASTI128(Mem{Base: side, Disp: sideSums + 16}, sums[1])
	} else {
		VBROADCASTI128(Mem{Base: side, Disp: sideSums32}, sums[0])
	}
	least.add(h.sumProduct(sums))
}

// keep leaves the scales of a pair in memory, 64 bytes a row: every scale twice, as 32 bits, so that one shuffle spreads it
// over a vector of codes. Scales of 16 codes lie in the half of the vector that their codes are in.
func (d *pairDecoder) keep(h *blockHeader) {
	place := func(row, part int) Mem {
		m := d.memo
		m.Disp += 64*row + 32*part
		return m
	}
	if h.scales[1] == nil {
		for part := range 2 {
			twice, row := YMM(), YMM()
			if part == 0 {
				VPUNPCKLWD(h.scales[0], h.scales[0], twice)
			} else {
				VPUNPCKHWD(h.scales[0], h.scales[0], twice)
			}
			VPERMQ(Imm(0x44), twice, row)
			VMOVDQU(row, place(0, part))
			VPERMQ(Imm(0xee), twice, row)
			VMOVDQU(row, place(1, part))
		}
		return
	}
	for part, scales := range h.scales {
		even, odd, row := YMM(), YMM(), YMM()
		VPSHUFB(repeated("evenTwice", 0x0504050401000100, 0x0d0c0d0c09080908), scales, even)
		VPSHUFB(repeated("oddTwice", 0x0706070603020302, 0x0f0e0f0e0b0a0b0a), scales, odd)
		VPERM2I128(Imm(0x20), odd, even, row)
		VMOVDQU(row, place(0, part))
		VPERM2I128(Imm(0x31), odd, even, row)
		VMOVDQU(row, place(1, part))
	}
}

// row returns parts of the product of row r in all lanes; row kept of the pair has its scales.
func (d *pairDecoder) row(r, kept int, x reg.GPVirtual) reg.VecVirtual {
	var scales [2]reg.VecVirtual
	for part := range scales {
		m := d.memo
		m.Disp += 64*kept + 32*part
		scales[part] = YMM()
		VMOVDQU(m, scales[part])
	}
	var sum reg.VecVirtual
	product := dotter{format: d.blockFormat}
	u := &unpacker{src: d.rows.at(r, 0), raw: true, held: d.held}
	u.emit = func(at int, codes reg.VecVirtual) {
		j, scale := at/32, YMM()
		VPSHUFD(Imm(uint64(j%4*0x55)), scales[j/4], scale)
		t := product.products(codes, Mem{Base: x, Disp: at}, scale)
		if sum == nil {
			sum = t
		} else {
			VPADDD(t, sum, sum)
		}
	}
	d.codes(u)
	return sum
}
