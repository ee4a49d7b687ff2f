package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func elementwise() {
	for _, w := range []width{avx2, avx512} {
		w.scaleMax()
		w.expSum()
		w.silu()
		w.siluMul()
		w.geluMul()
		w.squares()
		w.combine()
		w.binary("add")
		w.binary("mul")
		w.scale()
		w.scaleMul()
	}
}

// expConstants are what exp needs in registers.
type expConstants struct {
	log2e, shift, ln2High, ln2Low reg.VecVirtual
	series                        []Mem
}

func (w width) expConstants() expConstants {
	c := expConstants{
		log2e:   w.fill("log2e", float32bits(0x1.715476p+0)),
		shift:   w.fill("shift", float32bits(0x1.8p23)),
		ln2High: w.fill("ln2High", float32bits(0x1.62e4p-1)),
		ln2Low:  w.fill("ln2Low", float32bits(0x1.7f7d1cp-20)),
	}
	for i, f := range []float32{0x1.0e4020p-7, 0x1.573e2ep-5, 0x1.555e66p-3, 0x1.fffdb6p-2, 0x1.ffffecp-1} {
		c.series = append(c.series, constant("exp"+string(rune('0'+i)), float32bits(f)))
	}
	return c
}

func (w width) one() reg.VecVirtual { return w.fill("one", float32bits(1)) }

// exp computes e^x as upstream.Exp does: x = n ln 2 + b, e^b - 1 by a polynomial, and a scaling by 2^n in two steps where
// |n| > 126.
func (w width) exp(c expConstants, x reg.VecVirtual) reg.VecVirtual {
	z, n, b := w.vector(), w.vector(), w.vector()
	VMOVAPS(x, z)
	VFMADD213PS(c.shift, c.log2e, z) // n in the low bits
	VSUBPS(c.shift, z, n)
	VMOVAPS(x, b)
	VFNMADD231PS(c.ln2High, n, b)
	VFNMADD231PS(c.ln2Low, n, b)
	j := w.expPolynomial(c, b)
	power, k, near := w.vector(), w.vector(), w.vector()
	VPSLLD(Imm(23), z, power)
	VPADDD(w.one(), power, k)
	VMOVAPS(j, near)
	VFMADD213PS(k, k, near)
	size := w.vector()
	VANDPS(w.fill("magnitude", 0x7fffffff), n, size)
	return w.expFar(n, size, power, j, near)
}

// expPolynomial returns e^b - 1.
func (w width) expPolynomial(c expConstants, b reg.VecVirtual) reg.VecVirtual {
	u, high, low, linear, t := w.vector(), w.vector(), w.vector(), w.vector(), w.vector()
	VMULPS(b, b, u)
	VBROADCASTSS(c.series[0], high)
	VBROADCASTSS(c.series[1], t)
	VFMADD213PS(t, b, high)
	VBROADCASTSS(c.series[2], low)
	VBROADCASTSS(c.series[3], t)
	VFMADD213PS(t, b, low)
	VFMADD213PS(low, u, high)
	VBROADCASTSS(c.series[4], linear)
	VMULPS(b, linear, linear)
	VFMADD213PS(linear, u, high)
	return high
}

// expFar replaces near where |n| > 126, which is rare.
func (w width) expFar(n, size, power, j, near reg.VecVirtual) reg.VecVirtual {
	far, done := w.fill("far", float32bits(126)), newLabel("exp")
	w.skipUnless(lessThan, far, size, done)
	nothing := w.vector()
	zero(nothing)
	half := w.choose(lessEqual, n, nothing, w.fill("halfPower", 0x82000000), nothing)
	s1, s2, scaled := w.fill("topPower", 0x7f000000), w.vector(), w.vector()
	VPADDD(half, s1, s1)
	VPSUBD(half, power, s2)
	VMOVAPS(j, scaled)
	VFMADD213PS(s2, s2, scaled)
	VMULPS(s1, scaled, scaled)
	VMULPS(s1, s1, s1) // 0 or infinity
	scaled = w.choose(lessThan, w.fill("far", float32bits(126)), size, scaled, near)
	VMOVAPS(w.choose(lessThan, w.fill("beyond", float32bits(192)), size, s1, scaled), near)
	Label(done)
	return near
}

// scaleMax: x *= scale, and the greatest of the results.
func (w width) scaleMax() {
	begin("scaleMax"+w.name, "func(x *float32, n int, scale float32) float32", "x *= scale; returns the greatest result; n is a positive multiple of 16.")
	x, left, scale := arg("x"), arg("n"), w.param("scale")
	top := w.fill("minusInfinity", 0xff800000)
	w.stream(left, []reg.GPVirtual{x}, []int{4}, func(p int) {
		v := w.vector()
		VMULPS(Mem{Base: x, Disp: p * w.bytes}, scale, v)
		VMOVUPS(v, Mem{Base: x, Disp: p * w.bytes})
		VMAXPS(v, top, top)
	})
	y, t := top.AsY(), YMM()
	if w == avx512 {
		VEXTRACTF64X4(Imm(1), top, t)
		VMAXPS(t, y, y)
	}
	VEXTRACTF128(Imm(1), y, t.AsX())
	VMAXPS(t.AsX(), top.AsX(), top.AsX())
	VPERMILPD(Imm(1), top.AsX(), t.AsX())
	VMAXPS(t.AsX(), top.AsX(), top.AsX())
	VMOVSHDUP(top.AsX(), t.AsX())
	VMAXSS(t.AsX(), top.AsX(), top.AsX())
	Store(top.AsX(), ReturnIndex(0))
	end()
}

// expSum: x = exp(x - top), and the sum of the results.
func (w width) expSum() {
	begin("expSum"+w.name, "func(x *float32, n int, top float32) float32", "x = exp(x - top); returns the sum; n is a positive multiple of 16.")
	x, left, top := arg("x"), arg("n"), w.param("top")
	c := w.expConstants()
	sum := w.vectors(sums / w.lanes())
	zero(sum...)
	w.stream(left, []reg.GPVirtual{x}, []int{4}, func(p int) {
		v := w.vector()
		VMOVUPS(Mem{Base: x, Disp: p * w.bytes}, v)
		VSUBPS(top, v, v)
		e := w.exp(c, v)
		VMOVUPS(e, Mem{Base: x, Disp: p * w.bytes})
		VADDPS(e, sum[p], sum[p])
	})
	Store(w.fold(sum), ReturnIndex(0))
	end()
}

// siluOf returns x / (1 + exp(-x)).
func (w width) siluOf(c expConstants, x reg.VecVirtual) reg.VecVirtual {
	v := w.vector()
	zero(v)
	VSUBPS(x, v, v)
	e := w.exp(c, v)
	VADDPS(w.one(), e, e)
	VDIVPS(e, x, e)
	return e
}

func (w width) silu() {
	begin("silu"+w.name, "func(dst *float32, x *float32, n int)", "dst = silu(x); n is a positive multiple of 16.")
	dst, x, left := arg("dst"), arg("x"), arg("n")
	c := w.expConstants()
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		v := w.vector()
		VMOVUPS(Mem{Base: x, Disp: p * w.bytes}, v)
		VMOVUPS(w.siluOf(c, v), Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

func (w width) siluMul() {
	begin("siluMul"+w.name, "func(dst *float32, gate *float32, up *float32, n int)", "dst = silu(gate) * up; n is a positive multiple of 16.")
	dst, gate, up, left := arg("dst"), arg("gate"), arg("up"), arg("n")
	c := w.expConstants()
	w.stream(left, []reg.GPVirtual{dst, gate, up}, []int{4, 4, 4}, func(p int) {
		v := w.vector()
		VMOVUPS(Mem{Base: gate, Disp: p * w.bytes}, v)
		s := w.siluOf(c, v)
		VMULPS(Mem{Base: up, Disp: p * w.bytes}, s, s)
		VMOVUPS(s, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

// geluMul looks gelu up by the half precision bits of its argument.
func (w width) geluMul() {
	begin("geluMul"+w.name, "func(dst *float32, gate *float32, up *float32, n int, table *[65536]float32)",
		"dst = gelu(gate) * up by a table over half precision arguments; n is a positive multiple of 16.")
	dst, gate, up, left, table := arg("dst"), arg("gate"), arg("up"), arg("n"), arg("table")
	low, high := w.fill("geluLow", float32bits(-10)), w.fill("geluHigh", float32bits(10))
	w.stream(left, []reg.GPVirtual{dst, gate, up}, []int{4, 4, 4}, func(p int) {
		g, index, y, nothing := w.vector(), w.vector(), w.vector(), w.vector()
		VMOVUPS(Mem{Base: gate, Disp: p * w.bytes}, g)
		halves := w.half(w.vector())
		VCVTPS2PH(Imm(0), g, halves)
		VPMOVZXWD(halves, index)
		zero(y, nothing)
		from := Mem{Base: table, Index: index, Scale: 4}
		if w == avx512 {
			k := K()
			KXNORW(k, k, k)
			VGATHERDPS(from, k, y)
		} else {
			mask := w.vector()
			VPCMPEQD(mask, mask, mask)
			VGATHERDPS(mask, from, y)
		}
		y = w.choose(lessEqual, g, low, nothing, y)
		y = w.choose(lessEqual, high, g, g, y)
		VMULPS(Mem{Base: up, Disp: p * w.bytes}, y, y)
		VMOVUPS(y, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

// squares: sixteen partial sums in float64 of float32 products.
func (w width) squares() {
	begin("squares"+w.name, "func(sums *[16]float64, x *float32, n int)", "sums[i] = sum of x[j]² over j = i mod 16; n is a positive multiple of 16.")
	out, x, left := arg("sums"), arg("x"), arg("n")
	acc := w.vectors(2 * sums / w.lanes())
	zero(acc...)
	w.stream(left, []reg.GPVirtual{x}, []int{4}, func(p int) {
		for h := range 2 {
			// Half a vector of floats becomes a vector of doubles.
			v, wideV := w.half(w.vector()), w.vector()
			VMOVUPS(Mem{Base: x, Disp: p*w.bytes + h*w.bytes/2}, v)
			VMULPS(v, v, v)
			VCVTPS2PD(v, wideV)
			VADDPD(wideV, acc[2*p+h], acc[2*p+h])
		}
	})
	for i, v := range acc {
		VMOVUPD(v, Mem{Base: out, Disp: i * w.bytes})
	}
	end()
}

// combine: dst = dst*a + x*b, each product rounded.
func (w width) combine() {
	begin("combine"+w.name, "func(dst *float32, x *float32, n int, a float32, b float32)", "dst = dst*a + x*b; n is a positive multiple of 16.")
	dst, x, left := arg("dst"), arg("x"), arg("n")
	a, b := w.param("a"), w.param("b")
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		u, v := w.vector(), w.vector()
		VMULPS(Mem{Base: dst, Disp: p * w.bytes}, a, u)
		VMULPS(Mem{Base: x, Disp: p * w.bytes}, b, v)
		VADDPS(v, u, u)
		VMOVUPS(u, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

func (w width) binary(name string) {
	begin(name+w.name, "func(dst *float32, x *float32, n int)", "dst = dst "+map[string]string{"add": "+", "mul": "*"}[name]+" x; n is a positive multiple of 16.")
	dst, x, left := arg("dst"), arg("x"), arg("n")
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		v, m := w.vector(), Mem{Base: x, Disp: p * w.bytes}
		VMOVUPS(Mem{Base: dst, Disp: p * w.bytes}, v)
		if name == "add" {
			VADDPS(m, v, v)
		} else {
			VMULPS(m, v, v)
		}
		VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

func (w width) scale() {
	begin("scale"+w.name, "func(dst *float32, x *float32, n int, s float32)", "dst = x*s; n is a positive multiple of 16.")
	dst, x, left, s := arg("dst"), arg("x"), arg("n"), w.param("s")
	w.stream(left, []reg.GPVirtual{dst, x}, []int{4, 4}, func(p int) {
		v := w.vector()
		VMULPS(Mem{Base: x, Disp: p * w.bytes}, s, v)
		VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}

func (w width) scaleMul() {
	begin("scaleMul"+w.name, "func(dst *float32, x *float32, y *float32, n int, s float32)", "dst = x*s*y; n is a positive multiple of 16.")
	dst, x, y, left, s := arg("dst"), arg("x"), arg("y"), arg("n"), w.param("s")
	w.stream(left, []reg.GPVirtual{dst, x, y}, []int{4, 4, 4}, func(p int) {
		v := w.vector()
		VMULPS(Mem{Base: x, Disp: p * w.bytes}, s, v)
		VMULPS(Mem{Base: y, Disp: p * w.bytes}, v, v)
		VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}
