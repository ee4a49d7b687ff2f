package main

import (
	"fmt"

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
		s, t := XMM(), XMM()
		VEXTRACTF128(Imm(1), sum, s)
		VADDPS(sum.AsX(), s, s)
		VMOVHLPS(s, s, t)
		VADDPS(t, s, s)
		VMOVSHDUP(s, t)
		VADDSS(t, s, s)
		VMOVSS(s, Mem{Base: dst})
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
