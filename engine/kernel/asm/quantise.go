package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Rounding and quantising are a small part of a product, so that 256 bits do for every processor.
func quantise() {
	avx2.roundF16()
	avx2.narrowF16()
	avx2.roundBF16()
	avx2.quantiseBlocks()
	avx2.quantiseSupers()
}

func (w width) roundF16() {
	begin("roundF16"+w.name, "func(dst *float32, x *float32, n int)", "dst = x rounded to half precision; n is a positive multiple of 16.")
	dst, x, left := arg("dst"), arg("x"), arg("n")
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		v := w.vector()
		VMOVUPS(Mem{Base: x, Disp: p * w.bytes}, v)
		h := w.half(w.vector())
		VCVTPS2PH(Imm(0), v, h)
		VCVTPH2PS(h, v)
		VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

func (w width) narrowF16() {
	begin("narrowF16"+w.name, "func(dst *byte, x *float32, n int)", "dst = x as half precision numbers; n is a positive multiple of 16.")
	dst, x, left := arg("dst"), arg("x"), arg("n")
	w.stream(left, []reg.GPVirtual{dst, x}, []int{2, 4}, func(p int) {
		v := w.vector()
		VMOVUPS(Mem{Base: x, Disp: p * w.bytes}, v)
		VCVTPS2PH(Imm(0), v, Mem{Base: dst, Disp: p * w.bytes / 2})
	})
	end()
}

// roundBF16 adds half a unit in the last place, less one if the last kept bit is even.
func (w width) roundBF16() {
	begin("roundBF16"+w.name, "func(dst *float32, x *float32, n int)", "dst = x rounded to bfloat16; n is a positive multiple of 16.")
	dst, x, left := arg("dst"), arg("x"), arg("n")
	one, almost, keep := w.fill("one", 1), w.fill("almostHalf", 0x7fff), w.fill("upperHalf", 0xffff0000)
	quiet := w.fill("quiet", 0x400000)
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		v, r, nan := w.vector(), w.vector(), w.vector()
		VMOVUPS(Mem{Base: x, Disp: p * w.bytes}, v)
		VPSRLD(Imm(16), v, r)
		VPAND(one, r, r)
		VPADDD(almost, r, r)
		VPADDD(v, r, r)
		VORPS(quiet, v, nan)
		r = w.choose(unordered, v, v, nan, r)
		VPAND(keep, r, r)
		VMOVUPS(r, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

// greatest leaves the greatest of the eight magnitudes in v in all lanes. Magnitudes compare like the integers that have their
// bits, and so compared a NaN is greater than any number, while VMAXPS may lose it.
func greatest(v reg.VecVirtual) {
	t := YMM()
	VPERM2F128(Imm(1), v, v, t)
	VPMAXSD(t, v, v)
	VPERMILPD(Imm(5), v, t)
	VPMAXSD(t, v, v)
	VPERMILPS(Imm(0xb1), v, t)
	VPMAXSD(t, v, v)
}

// narrowed packs four vectors of eight int32 into 32 signed bytes, in order.
func narrowed(q []reg.VecVirtual) reg.VecVirtual {
	a, b, order := YMM(), YMM(), YMM()
	VPACKSSDW(q[1], q[0], a)
	VPACKSSDW(q[3], q[2], b)
	VPACKSSWB(b, a, a)
	VMOVDQU(packOrder(), order)
	VPERMD(a, order, a)
	return a
}

// packOrder undoes the interleaving of 128-bit parts that two packs leave.
func packOrder() Mem {
	if m, ok := constants["packOrder"]; ok {
		return m
	}
	m := GLOBL(group+"_packOrder", RODATA|NOPTR)
	for i, v := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, U32(v))
	}
	constants["packOrder"] = m
	return m
}

func (w width) quantiseBlocks() {
	begin("quantiseBlocks"+w.name, "func(codes *int8, side *byte, x *float32, blocks int)",
		"Quantises blocks of 32 as the function of that name defines; blocks > 0.")
	codes, side, x, left := arg("codes"), arg("side"), arg("x"), arg("blocks")
	limit, sign := w.fill("limit", float32bits(127)), w.fill("magnitude", 0x7fffffff)
	ones := w.fill("bytes", 0x01010101)
	words := w.fill("words", 0x00010001)
	loop("next", left, 1, func() {
		v := w.vectors(4)
		top := w.vector()
		for i := range v {
			VMOVUPS(Mem{Base: x, Disp: i * 32}, v[i])
			if i == 0 {
				VANDPS(v[i], sign, top)
			} else {
				a := w.vector()
				VANDPS(v[i], sign, a)
				VPMAXSD(a, top, top)
			}
		}
		greatest(top)
		inverse, scale, nothing := w.vector(), w.vector(), w.vector()
		VDIVPS(top, limit, inverse)
		VDIVPS(limit, top, scale)
		zero(nothing)
		inverse = w.choose(notEqual, top, nothing, inverse, nothing)
		for i := range v {
			VMULPS(inverse, v[i], v[i])
			VCVTPS2DQ(v[i], v[i])
		}
		q := narrowed(v)
		VMOVDQU(q, Mem{Base: codes})
		// Products with one, twice, add neighbours: bytes to words to double words.
		VPMADDUBSW(q, ones, q)
		VPMADDWD(q, words, q)
		t := XMM()
		VEXTRACTI128(Imm(1), q, t)
		VPADDD(t, q.AsX(), t)
		VPHADDD(t, t, t)
		VPHADDD(t, t, t)
		sum, bias, y := XMM(), XMM(), XMM()
		VMOVDQA(t, sum)
		VPSLLD(Imm(7), sum, bias)
		negate := XMM()
		VPXOR(negate, negate, negate)
		VPSUBD(bias, negate, bias)
		VPUNPCKLDQ(bias, sum, sum)
		VCVTDQ2PS(t, y)
		VMULSS(scale.AsX(), y, y)
		VUNPCKLPS(y, scale.AsX(), y)
		VCVTPS2PH(Imm(0), y, y)
		VCVTPH2PS(y, y)
		VPUNPCKLQDQ(sum, y, y)
		VMOVDQU(y, Mem{Base: side})
		ADDQ(Imm(128), x)
		ADDQ(Imm(32), codes)
		ADDQ(Imm(16), side)
	})
	end()
}

func (w width) quantiseSupers() {
	begin("quantiseSupers"+w.name, "func(codes *int8, side *byte, x *float32, blocks int)",
		"Quantises blocks of 256 as the function of that name defines; blocks > 0.")
	codes, side, x, left := arg("codes"), arg("side"), arg("x"), arg("blocks")
	sign, limit := w.fill("magnitude", 0x7fffffff), w.fill("minusLimit", float32bits(-127))
	ones, words := w.fill("bytes", 0x01010101), w.fill("words", 0x00010001)
	loop("next", left, 1, func() {
		top := w.vectors(4)
		for i := range 32 {
			a := top[i%4]
			if i >= 4 {
				a = w.vector()
			}
			VANDPS(Mem{Base: x, Disp: 32 * i}, sign, a)
			if i >= 4 {
				VPMAXSD(a, top[i%4], top[i%4])
			}
		}
		VPMAXSD(top[1], top[0], top[0])
		VPMAXSD(top[3], top[2], top[2])
		VPMAXSD(top[2], top[0], top[0])
		greatest(top[0])
		scale, inverse, nothing := w.vector(), w.vector(), w.vector()
		w.firstOfMagnitude(x, top[0], sign, scale)
		VDIVPS(scale, limit, scale) // -127 / value
		VDIVPS(scale, w.fill("unit", float32bits(1)), inverse)
		zero(nothing)
		scale = w.choose(notEqual, top[0], nothing, scale, nothing)
		inverse = w.choose(notEqual, top[0], nothing, inverse, nothing)
		VMOVSS(inverse.AsX(), Mem{Base: side, Disp: sideD})
		group, total := GP64(), GP64()
		MOVQ(U32(8), group)
		MOVQ(side, total)
		loop("codes", group, 1, func() {
			v := w.vectors(4)
			for i := range v {
				VMULPS(Mem{Base: x, Disp: 32 * i}, scale, v[i])
				VCVTPS2DQ(v[i], v[i])
			}
			q := narrowed(v)
			VMOVDQU(q, Mem{Base: codes})
			VPMADDUBSW(q, ones, q)
			VPMADDWD(q, words, q)
			VPHADDD(q, q, q)
			VPHADDD(q, q, q)
			t := XMM()
			VEXTRACTI128(Imm(1), q, t)
			VPUNPCKLWD(t, q.AsX(), t)
			VMOVD(t, Mem{Base: total})
			ADDQ(Imm(128), x)
			ADDQ(Imm(32), codes)
			ADDQ(Imm(4), total)
		})
		w.superSums(side)
		ADDQ(U32(sideBytes), side)
	})
	end()
}

// Where the fields of a superSide are.
const (
	sideSums   = 0
	sideSums32 = 32
	sideD      = 48
	sideBias   = 64
	sideBias32 = 128
	sideBytes  = 160
)

// superSums completes a superSide that has its sums of 16.
func (w width) superSums(side reg.GPVirtual) {
	nothing, pairs, half := YMM(), XMM(), YMM()
	VPXOR(nothing, nothing, nothing)
	negated := func(v reg.VecVirtual, off int) {
		VPSLLD(Imm(7), v, v)
		VPSUBD(v, nothing, v)
		VMOVDQU(v, Mem{Base: side, Disp: off})
	}
	for h := range 2 {
		v := YMM()
		VPMOVSXWD(Mem{Base: side, Disp: sideSums + 16*h}, v)
		negated(v, sideBias+32*h)
	}
	VMOVDQU(Mem{Base: side, Disp: sideSums}, pairs)
	VPHADDW(Mem{Base: side, Disp: sideSums + 16}, pairs, pairs)
	VMOVDQU(pairs, Mem{Base: side, Disp: sideSums32})
	VPMOVSXWD(pairs, half)
	negated(half, sideBias32)
}

// firstOfMagnitude fills value with the first of the 256 numbers at x whose magnitude is that in top's lanes.
func (w width) firstOfMagnitude(x reg.GPVirtual, top, sign, value reg.VecVirtual) {
	at, mask := GP64(), GP32()
	MOVQ(x, at)
	Label("search")
	v := w.vector()
	VANDPS(Mem{Base: at}, sign, v)
	VPCMPEQD(top, v, v) // as integers: a NaN equals itself
	VMOVMSKPS(v, mask)
	TESTL(mask, mask)
	JNZ(LabelRef("found"))
	ADDQ(Imm(32), at)
	JMP(LabelRef("search"))
	Label("found")
	BSFL(mask, mask)
	VBROADCASTSS(Mem{Base: at, Index: mask.As64(), Scale: 4}, value)
}
