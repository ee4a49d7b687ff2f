package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// flash are the loops of upstream's attention for few query rows, whose order of sums is eight wide on every processor.
func flash() {
	dotCells(4)
	dotCells(1)
	dotCodedCells("Q8_0", 34)
	dotCodedCells("Q4_0", 18)
	addHalves(64)
	addHalves(16)
	expBelow()
}

// dotCells: products of a query with the keys of some cells, each in 32 partial sums.
func dotCells(count int) {
	begin(fmt.Sprintf("dotCells%dAVX2", count), "func(dst *float32, q *float32, k *float32, n int)",
		fmt.Sprintf("dst[i] = product of q [n] and row i of k [%d][n] in 32 partial sums; n is a positive multiple of 32.", count))
	dst, query, k := arg("dst"), arg("q"), arg("k")
	total := make([]reg.VecVirtual, count)
	for i := range total {
		sum := avx2.vectors(4)
		zero(sum...)
		q, left := GP64(), arg("n")
		MOVQ(query, q)
		loop(fmt.Sprintf("cell%d", i), left, 32, func() {
			for j, s := range sum {
				v := YMM()
				VMOVUPS(Mem{Base: k, Disp: j * 32}, v)
				VFMADD231PS(Mem{Base: q, Disp: j * 32}, v, s)
			}
			SUBQ(I8(-128), k)
			SUBQ(I8(-128), q)
		})
		VADDPS(sum[2], sum[0], sum[0])
		VADDPS(sum[3], sum[1], sum[1])
		VADDPS(sum[1], sum[0], sum[0])
		total[i] = XMM()
		VEXTRACTF128(Imm(1), sum[0], total[i])
		VADDPS(sum[0].AsX(), total[i], total[i])
	}
	if count == 4 {
		VHADDPS(total[1], total[0], total[0])
		VHADDPS(total[3], total[2], total[2])
		VHADDPS(total[2], total[0], total[0])
		VMOVUPS(total[0], Mem{Base: dst})
	} else {
		VHADDPS(total[0], total[0], total[0])
		VHADDPS(total[0], total[0], total[0])
		VMOVSS(total[0], Mem{Base: dst})
	}
	end()
}

// dotCodedCells: products of a query in Q8_0 with the keys of some cells, each in eight partial sums of four neighbours.
func dotCodedCells(name string, size int) {
	begin("dotCells"+name+"AVX2", "func(dst *float32, codes *int8, side *byte, k *byte, strideK int, cells int, blocks int)",
		"dst[i] = product of a quantised query and row i of k [cells]; stride in bytes; cells and blocks > 0.")
	dst, codes, sides, k, stride, cells := arg("dst"), arg("codes"), arg("side"), arg("k"), arg("strideK"), arg("cells")
	ones := avx2.fill("words", 0x00010001)
	loop("cell", cells, 1, func() {
		x, side, block, left := GP64(), GP64(), GP64(), arg("blocks")
		MOVQ(codes, x)
		MOVQ(sides, side)
		MOVQ(k, block)
		sum := YMM()
		zero(sum)
		loop("block", left, 1, func() {
			u := &unpacker{src: Mem{Base: block}}
			d, scale := YMM(), u.halves(0, false).AsX()
			VMULSS(Mem{Base: side}, scale, scale)
			VBROADCASTSS(scale, d)
			var w reg.VecVirtual
			if name == "Q8_0" {
				w = YMM()
				VMOVDQU(u.at(2), w)
			} else {
				w = u.less(u.nibbles(2), 8)
			}
			// Products of unsigned with signed bytes: the signs go over to the query.
			magnitude, v := YMM(), YMM()
			VPSIGNB(w, w, magnitude)
			VMOVDQU(Mem{Base: x}, v)
			VPSIGNB(w, v, v)
			VPMADDUBSW(v, magnitude, v)
			VPMADDWD(ones, v, v)
			VCVTDQ2PS(v, v)
			VFMADD231PS(v, d, sum)
			ADDQ(Imm(32), x)
			ADDQ(Imm(16), side)
			ADDQ(Imm(uint64(size)), block)
		})
		VMOVSS(sumAcross(sum), Mem{Base: dst})
		ADDQ(Imm(4), dst)
		ADDQ(stride, k)
	})
	end()
}

// addHalves: a weighted sum of values that is rounded to half precision at every cell.
func addHalves(cols int) {
	begin(fmt.Sprintf("addHalves%dAVX2", cols), "func(sums *float32, weights *float32, v *float32, strideV int, cells int)",
		fmt.Sprintf("sums [%d] += weights[i] * row i of v [cells], rounded to half precision each time; stride in bytes; cells > 0.", cols))
	sums, weights, values, stride, cells := arg("sums"), arg("weights"), arg("v"), arg("strideV"), arg("cells")
	acc := avx2.vectors(cols / 8)
	for i, a := range acc {
		VMOVUPS(Mem{Base: sums, Disp: i * 32}, a)
	}
	loop("cell", cells, 1, func() {
		weight := YMM()
		VBROADCASTSS(Mem{Base: weights}, weight)
		for i, a := range acc {
			VFMADD231PS(Mem{Base: values, Disp: i * 32}, weight, a)
			VCVTPS2PH(Imm(0), a, a.AsX())
			VCVTPH2PS(a.AsX(), a)
		}
		ADDQ(Imm(4), weights)
		ADDQ(stride, values)
	})
	for i, a := range acc {
		VMOVUPS(a, Mem{Base: sums, Disp: i * 32})
	}
	end()
}

// expBelow computes in float64 as upstream.ScalarExp does: x = k/32 ln 2 + r, 2^(k/32) from the table and
// e^r by a polynomial.
func expBelow() {
	begin("expBelowAVX2", "func(scores *float32, n int, top float32, table *[32]uint64)",
		"scores = exp(scores - top), for scores that are not above top; n is a positive multiple of 8.")
	scores, left, top, powers := arg("scores"), arg("n"), avx2.param("top"), arg("table")
	constant := func(name string, f float64) Mem {
		bits := math.Float64bits(f)
		return table(name, []uint64{bits, bits, bits, bits})
	}
	nothing := avx2.fill("smallest", float32bits(-0x1.9fe368p6))
	shift, index := YMM(), YMM()
	VMOVUPD(constant("shift64", 0x1.8p+52), shift)
	VMOVDQU(table("index", []uint64{31, 31, 31, 31}), index)
	loop("next", left, 8, func() {
		x, tiny := YMM(), YMM()
		VMOVUPS(Mem{Base: scores}, x)
		VSUBPS(top, x, x)
		VCMPPS(Imm(lessThan), nothing, x, tiny)
		upper := XMM()
		VEXTRACTF128(Imm(1), x, upper)
		low, high := expHalf(constant, x.AsX(), shift, index, powers), expHalf(constant, upper.AsX(), shift, index, powers)
		VINSERTF128(Imm(1), high, low.AsY(), x)
		VANDNPS(x, tiny, x)
		VMOVUPS(x, Mem{Base: scores})
		ADDQ(Imm(32), scores)
	})
	end()
}

// expHalf returns e^x of four lanes.
func expHalf(constant func(string, float64) Mem, x reg.Register, shift, index reg.VecVirtual, powers reg.GPVirtual) reg.VecVirtual {
	z, k, r, at, power, all := YMM(), YMM(), YMM(), YMM(), YMM(), YMM()
	VCVTPS2PD(x, z)
	VMOVUPD(constant("log2e32", 0x1.71547652b82fep+0*32), r)
	VMOVAPD(shift, k)
	VFMADD231PD(r, z, k)
	VPAND(index, k, at)
	VPCMPEQD(all, all, all)
	VXORPD(power, power, power)
	VGATHERQPD(all, Mem{Base: powers, Index: at, Scale: 8}, power)
	whole, first, second := YMM(), YMM(), YMM()
	VSUBPD(shift, k, whole)
	VFMSUB213PD(whole, z, r)
	VPSLLQ(Imm(47), k, k)
	VPADDQ(k, power, power)
	VMOVUPD(constant("exp64a", 0x1.c6af84b912394p-5/32/32/32), first)
	VFMADD213PD(constant("exp64b", 0x1.ebfce50fac4f3p-3/32/32), r, first)
	VMOVUPD(constant("exp64c", 0x1.62e42ff0c52d6p-1/32), second)
	VFMADD213PD(constant("exp64d", 1), r, second)
	VMULPD(r, r, r)
	VFMADD213PD(second, r, first)
	VMULPD(power, first, first)
	out := XMM()
	VCVTPD2PSY(first, out)
	return out
}
