package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func rope() {
	for _, w := range []width{avx2, avx512} {
		w.rotateHalves()
	}
	avx2.rotatePairs()
}

// rotateHalves: pairs lie half a head apart. Of each two products the first is fused.
func (w width) rotateHalves() {
	begin("rotateHalves"+w.name, "func(a *float32, b *float32, cos *float32, sin *float32, n int)",
		"(a, b) = (a cos - b sin, a sin + b cos); n is a positive multiple of 16.")
	a, b, cos, sin, left := arg("a"), arg("b"), arg("cos"), arg("sin"), arg("n")
	w.stream(left, []reg.GPVirtual{a, b, cos, sin}, []int{4, 4, 4, 4}, func(p int) {
		at := func(base reg.GPVirtual) Mem { return Mem{Base: base, Disp: p * w.bytes} }
		u, c, s, low, high := w.vector(), w.vector(), w.vector(), w.vector(), w.vector()
		VMOVUPS(at(a), u)
		VMOVUPS(at(cos), c)
		VMOVUPS(at(sin), s)
		VMULPS(at(b), s, low)
		VMULPS(at(b), c, high)
		VFMSUB231PS(u, c, low)
		VFMADD231PS(u, s, high)
		VMOVUPS(low, at(a))
		VMOVUPS(high, at(b))
	})
	end()
}

// rotatePairs: pairs are neighbours.
func (w width) rotatePairs() {
	begin("rotatePairs"+w.name, "func(x *float32, cos *float32, sin *float32, n int)",
		"rotateHalves of neighbours; n pairs, a positive multiple of 16.")
	x, cos, sin, left := arg("x"), arg("cos"), arg("sin"), arg("n")
	loop("next", left, 4, func() {
		c, s, cs, sc, first, second := w.vector(), w.vector(), w.vector(), w.vector(), w.vector(), w.vector()
		VPMOVZXDQ(Mem{Base: cos}, c)
		VPMOVZXDQ(Mem{Base: sin}, s)
		VPSLLQ(Imm(32), s, cs)
		VPOR(c, cs, cs)
		VPSLLQ(Imm(32), c, sc)
		VPOR(s, sc, sc)
		VMOVSLDUP(Mem{Base: x}, first)
		VMOVSHDUP(Mem{Base: x}, second)
		VMULPS(second, sc, second)
		VFMADDSUB231PS(first, cs, second) // subtracts in even lanes, adds in odd ones
		VMOVUPS(second, Mem{Base: x})
		ADDQ(Imm(32), x)
		ADDQ(Imm(16), cos)
		ADDQ(Imm(16), sin)
	})
	end()
}
