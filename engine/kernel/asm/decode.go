package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The decode kernels multiply one activation row with weights straight from their blocks. They stream the weights once,
// so that memory is what limits them. A simple format takes eight rows at a time, because its blocks are short and eight
// sums of a block fit one vector; a K format takes one row after the other.
func decode() {
	for _, f := range blockFormats {
		if f.elements == 32 {
			dotEight(f)
		} else {
			dotSuper(f)
			d := pairDecoder{blockFormat: f}
			d.kernel()
		}
	}
	decodeWide()
}

// dotter multiplies unpacked weight codes with activation codes.
type dotter struct {
	format blockFormat
	ones   reg.VecVirtual
}

// products returns, in 8 lanes, sums of four products each of weight codes with the 32 activation codes at x.
func (d dotter) products(codes reg.VecVirtual, x Op, scale reg.VecVirtual) reg.VecVirtual {
	t := YMM()
	if d.format.signed {
		// The unsigned operand must be the magnitude; activation codes take over the sign.
		magnitude, xs := YMM(), YMM()
		VPABSB(codes, magnitude)
		v, held := x.(reg.VecVirtual)
		if !held {
			v = xs
			VMOVDQU(x, v)
		}
		VPSIGNB(codes, v, xs)
		VPMADDUBSW(xs, magnitude, t)
	} else {
		VPMADDUBSW(x, codes, t)
	}
	VPMADDWD(scale, t, t)
	return t
}

// dotEight: eight rows of a simple format.
func dotEight(f blockFormat) {
	begin("dot8"+f.name+"AVX2", "func(dst *float32, w *byte, stride int, x *int8, side *byte, blocks int)",
		"dst[r] = product of quantised activations with row r of eight, stride bytes apart; blocks > 0.")
	dst, w, stride, x, side, blocks := arg("dst"), arg("w"), arg("stride"), arg("x"), arg("side"), arg("blocks")
	ahead := GP64()
	LEAQ(Mem{Base: w, Index: stride, Scale: 8}, ahead)
	wr := newRows(w, stride, 8)
	total := YMM()
	zero(total)
	d := dotter{f, avx2.fill("words1", 0x00010001)}
	held := hold(map[string][]Mem{
		"Q4_0": {bytes(15), lowHigh()}, "Q4_1": {bytes(15), lowHigh()}, "IQ4_NL": {bytes(15), lowHigh(), iq4Points()},
		"Q5_0": {bytes(15), lowHigh(), spread(), bitOfByte()}, "Q5_1": {bytes(15), lowHigh(), spread(), bitOfByte()},
	}[f.name]...)
	loop("block", blocks, 1, func() {
		for off := 0; off < 8*f.bytes; off += 64 {
			PREFETCHT0(Mem{Base: ahead, Disp: off})
		}
		ADDQ(U32(8*f.bytes), ahead)
		halves, xs := newHalfColumn(f.minima), YMM()
		VMOVDQU(Mem{Base: x}, xs)
		row := func(r int) (sums reg.VecVirtual) {
			u := &unpacker{src: wr.at(r, 0), raw: true, held: held}
			u.scale = func(off int) { halves.insert(r, u.at(off)) }
			u.emit = func(_ int, codes reg.VecVirtual) { sums = d.products(codes, xs, d.ones) }
			f.unpack(u)
			return sums
		}
		sums := addEight(row)
		if f.offset > 0 {
			correct := YMM()
			VPBROADCASTD(Mem{Base: side, Disp: blockSideSum}, correct)
			VPSLLD(Imm(uint64(bits.TrailingZeros8(f.offset))), correct, correct)
			VPSUBD(correct, sums, sums)
		}
		scale, minimum := halves.floats()
		VCVTDQ2PS(sums, sums)
		dx := YMM()
		VBROADCASTSS(Mem{Base: side, Disp: blockSideD}, dx)
		VMULPS(dx, scale, scale)
		VMULPS(scale, sums, sums)
		VADDPS(sums, total, total)
		if f.minima {
			s := YMM()
			VBROADCASTSS(Mem{Base: side, Disp: blockSideS}, s)
			VMULPS(s, minimum, minimum)
			VADDPS(minimum, total, total)
		}
		wr.advance(f.bytes)
		ADDQ(U32(32), x)
		ADDQ(U32(blockSideBytes), side)
	})
	VMOVUPS(total, Mem{Base: dst})
	end()
}

// addEight adds the eight lanes of each of eight vectors: lane r of the result is the sum of row(r).
func addEight(row func(r int) reg.VecVirtual) reg.VecVirtual {
	four := func(r int) reg.VecVirtual {
		a, b := row(r), row(r+1)
		VPHADDD(b, a, a)
		c, d := row(r+2), row(r+3)
		VPHADDD(d, c, c)
		VPHADDD(c, a, a)
		return a
	}
	a, b := four(0), four(4)
	low, high := YMM(), YMM()
	VPERM2I128(Imm(0x20), b, a, low)
	VPERM2I128(Imm(0x31), b, a, high)
	VPADDD(high, low, low)
	return low
}

// halfColumn collects the half precision scales of eight rows.
type halfColumn struct {
	parts []reg.VecVirtual // eight words, or twice four pairs
}

func newHalfColumn(pairs bool) halfColumn {
	h := halfColumn{parts: []reg.VecVirtual{XMM()}}
	if pairs {
		h.parts = append(h.parts, XMM())
	}
	for _, p := range h.parts {
		VPXOR(p, p, p)
	}
	return h
}

func (h halfColumn) insert(r int, m Mem) {
	if len(h.parts) == 1 {
		VPINSRW(Imm(uint64(r)), m, h.parts[0], h.parts[0])
	} else {
		p := h.parts[r/4]
		VPINSRD(Imm(uint64(r%4)), m, p, p)
	}
}

// floats widens the scales, and the minima if there are any.
func (h halfColumn) floats() (scale, minimum reg.VecVirtual) {
	scale = YMM()
	if len(h.parts) == 1 {
		VCVTPH2PS(h.parts[0], scale)
		return scale, nil
	}
	minimum = YMM()
	mask, low, high := XMM(), XMM(), XMM()
	VBROADCASTSS(constant("lowWord", 0x0000ffff), mask)
	VPAND(mask, h.parts[0], low)
	VPAND(mask, h.parts[1], high)
	VPACKUSDW(high, low, low)
	VCVTPH2PS(low, scale)
	VPSRLD(Imm(16), h.parts[0], low)
	VPSRLD(Imm(16), h.parts[1], high)
	VPACKUSDW(high, low, low)
	VCVTPH2PS(low, minimum)
	return scale, minimum
}

// dotSuper: rows of a K format.
func dotSuper(f blockFormat) {
	begin("dot"+f.name+"AVX2", "func(dst *float32, w *byte, stride int, rows int, x *int8, side *byte, blocks int)",
		"dst[r] = product of quantised activations with row r, stride bytes apart; rows and blocks > 0.")
	dst, w, rows := arg("dst"), arg("w"), arg("rows")
	Label("row")
	from, x, side, blocks := GP64(), arg("x"), arg("side"), arg("blocks")
	MOVQ(w, from)
	total := XMM()
	VXORPS(total, total, total)
	loop("block", blocks, 1, func() {
		for off := 0; off < f.bytes; off += 64 {
			PREFETCHT0(Mem{Base: from, Disp: 1024 + off})
		}
		superBlock(f, from, x, side, total)
		ADDQ(U32(f.bytes), from)
		ADDQ(U32(256), x)
		ADDQ(U32(sideBytes), side)
	})
	VMOVSS(total, Mem{Base: dst})
	ADDQ(Imm(4), dst)
	stride, err := Param("stride").Resolve()
	if err != nil {
		panic(err)
	}
	ADDQ(stride.Addr, w)
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

// superBlock adds the product of one block to total.
func superBlock(f blockFormat, from, x, side reg.GPVirtual, total reg.VecVirtual) {
	var halves, low, scalesLow, scalesHigh reg.VecVirtual
	sums := [2]reg.VecVirtual{YMM(), YMM()}
	zero(sums[0], sums[1])
	d := dotter{format: f}
	u := &unpacker{src: Mem{Base: from}, raw: true}
	u.super = func(off int) { halves = u.halves(off, f.minima) }
	u.scales = func(scales, mins reg.VecVirtual) {
		scalesLow, scalesHigh = YMM(), YMM()
		VPERMQ(Imm(0x44), scales, scalesLow)
		VPERMQ(Imm(0xee), scales, scalesHigh)
		if f.offset > 0 {
			t := YMM()
			VPMADDWD(Mem{Base: side, Disp: sideSums}, scales, t)
			VPSLLD(Imm(uint64(bits.TrailingZeros8(f.offset))), t, t)
			VPSUBD(t, sums[0], sums[0])
		}
		if mins != nil {
			low = minimaProduct(mins, side)
		}
	}
	u.emit = func(at int, codes reg.VecVirtual) {
		j := at / 32
		source, scale := scalesLow, YMM()
		if j >= 4 {
			source = scalesHigh
		}
		VPSHUFB(pickWords(j%4), source, scale)
		p := d.products(codes, Mem{Base: x, Disp: at}, scale)
		VPADDD(p, sums[j%2], sums[j%2])
	}
	f.unpack(u)
	VPADDD(sums[1], sums[0], sums[0])
	t := XMM()
	VEXTRACTI128(Imm(1), sums[0], t)
	VPADDD(t, sums[0].AsX(), t)
	if low == nil {
		low = t
	}
	VPHADDD(low, t, t)
	VPHADDD(t, t, t) // sum, sum of minima
	VCVTDQ2PS(t, t)
	dx := XMM()
	VBROADCASTSS(Mem{Base: side, Disp: sideD}, dx)
	VMULPS(dx, halves, halves)
	VMULPS(halves, t, t)
	VADDSS(t, total, total)
	if f.minima {
		VMOVSHDUP(t, t)
		VSUBSS(t, total, total)
	}
}

// minimaProduct returns, in four lanes, sums of minima times sums of activation codes.
func minimaProduct(mins reg.VecVirtual, side reg.GPVirtual) reg.VecVirtual {
	if mins.Size() == 16 {
		low := XMM()
		VPMADDWD(Mem{Base: side, Disp: sideSums32}, mins, low)
		return low
	}
	whole, low := YMM(), XMM()
	VPMADDWD(Mem{Base: side, Disp: sideSums}, mins, whole)
	VEXTRACTI128(Imm(1), whole, low)
	VPADDD(whole.AsX(), low, low)
	return low
}

// pickWords fills the lower half of a vector with word 2j, the upper with word 2j+1 of their 128 bits.
func pickWords(j int) Mem {
	w := uint64(4*j) | uint64(4*j+1)<<8
	w *= 0x0001000100010001
	const two = 0x0202020202020202
	return table("pick"+hex(byte(j)), []uint64{w, w, w + two, w + two})
}
