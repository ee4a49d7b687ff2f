package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ordered are the loops of attention over a float32 cache, whose order of sums is eight wide on every processor.
func ordered() {
	avx2.softMax()
	for _, w := range []width{avx2, avx512} {
		w.addScaled()
	}
}

// softMax: x = exp(x - top), summed across eight at a time in float32, the groups one by one in float64.
func (w width) softMax() {
	begin("softMax"+w.name, "func(x *float32, n int, top float32) float64", "x = exp(x - top); returns the sum; n is a positive multiple of 8.")
	x, left, top := arg("x"), arg("n"), w.param("top")
	c := w.expConstants()
	total := XMM()
	VXORPD(total, total, total)
	loop("next", left, 8, func() {
		v := w.vector()
		VMOVUPS(Mem{Base: x}, v)
		VSUBPS(top, v, v)
		e := w.exp(c, v)
		VMOVUPS(e, Mem{Base: x})
		s := sumAcross(e)
		VCVTSS2SD(s, s, s)
		VADDSD(s, total, total)
		ADDQ(Imm(32), x)
	})
	Store(total, ReturnIndex(0))
	end()
}

// addScaled: fused, so that the sum is rounded once.
func (w width) addScaled() {
	begin("addScaled"+w.name, "func(dst *float32, x *float32, n int, s float32)", "dst += x*s, fused; n is a positive multiple of 16.")
	dst, x, left, s := arg("dst"), arg("x"), arg("n"), w.param("s")
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		v := w.vector()
		VMOVUPS(Mem{Base: dst, Disp: p * w.bytes}, v)
		VFMADD231PS(Mem{Base: x, Disp: p * w.bytes}, s, v)
		VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}
