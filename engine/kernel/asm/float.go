package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// partial is the number of partial sums of a product with float weights: element i goes to sum i mod 8.
const partial = 8

// number is an element type of float weights.
type number struct {
	name  string
	bytes int
}

var numbers = []number{{"F32", 4}, {"F16", 2}, {"BF16", 2}}

// load widens as many elements at m as v holds.
func (n number) load(m Mem, v reg.VecVirtual) {
	switch n.name {
	case "F16":
		VCVTPH2PS(m, v)
	case "BF16":
		VPMOVZXWD(m, v)
		VPSLLD(Imm(16), v, v)
	default:
		VMOVUPS(m, v)
	}
}

func float() {
	for _, n := range numbers {
		n.dotRows(8, 1)
		for inputs := 1; inputs <= 3; inputs++ {
			n.dotRows(4, inputs)
		}
		n.interleave()
	}
	foldSums()
	sums32()
	for _, w := range []width{avx2, avx512} {
		for _, n := range numbers[1:] {
			w.widen(n)
		}
		rows, inputs := 4, 3
		if w == avx512 {
			rows, inputs = 8, 6
		}
		for i := range inputs {
			w.dotTile(rows, i+1)
		}
	}
}

// dotRows: products of some weight rows with a few activation rows. Vectors of 512 bits would gain nothing: with eight
// partial sums they hold two rows, which must first be brought together.
func (n number) dotRows(count, inputs int) {
	begin(fmt.Sprintf("dot%s_%dx%dAVX2", n.name, count, inputs),
		"func(dst *float32, strideDst int, w *byte, stride int, x *float32, strideX int, n int)",
		fmt.Sprintf("dst [%d][%d] = products of x rows with w rows; strides in bytes; n is a positive multiple of 8.", inputs, count))
	dst, strideDst, weights, stride, x, strideX, left := arg("dst"), arg("strideDst"), arg("w"), arg("stride"), arg("x"), arg("strideX"), arg("n")
	row, in := newRows(weights, stride, count), newRows(x, strideX, inputs)
	// The rows after these are fetched meanwhile, in the order in which they lie: short rows end before the processor's
	// own prefetcher has caught on.
	ahead := GP64()
	MOVQ(weights, ahead)
	for range count {
		ADDQ(stride, ahead)
	}
	acc := avx2.vectors(count * inputs)
	zero(acc...)
	loop("next", left, partial, func() {
		for off := 0; off < count*partial*n.bytes; off += 64 {
			PREFETCHT0(Mem{Base: ahead, Disp: off})
		}
		ADDQ(U32(count*partial*n.bytes), ahead)
		xv := avx2.vectors(inputs)
		for i, v := range xv {
			VMOVUPS(in.at(i, 0), v)
		}
		for r := range count {
			n.multiply(row.at(r, 0), xv, acc[r*inputs:])
		}
		in.advance(partial * 4)
		row.advance(partial * n.bytes)
	})
	to := newRows(dst, strideDst, inputs)
	for i := range inputs {
		for r := 0; r < count; r += 4 {
			var v [4]reg.VecVirtual
			for j := range v {
				sum := acc[(r+j)*inputs+i]
				v[j] = XMM()
				VEXTRACTF128(Imm(1), sum, v[j])
				VADDPS(sum.AsX(), v[j], v[j])
			}
			VMOVUPS(totals(v), to.at(i, 4*r))
		}
	}
	end()
}

// multiply adds the products of eight weights with the vectors x to acc.
func (n number) multiply(weights Mem, x, acc []reg.VecVirtual) {
	if n.bytes == 4 && len(x) == 1 {
		VFMADD231PS(weights, x[0], acc[0])
		return
	}
	w := YMM()
	n.load(weights, w)
	for i, v := range x {
		VFMADD231PS(v, w, acc[i])
	}
}

// totals adds the numbers of each of four vectors: (x0 + x2) + (x1 + x3).
func totals(v [4]reg.VecVirtual) reg.VecVirtual {
	pairs := func(a, b reg.VecVirtual) reg.VecVirtual {
		low, high := XMM(), XMM()
		VUNPCKLPD(b, a, low)
		VUNPCKHPD(b, a, high)
		VADDPS(high, low, low)
		return low
	}
	first, second := pairs(v[0], v[1]), pairs(v[2], v[3])
	VHADDPS(second, first, first)
	return first
}

// interleave lays four rows side by side for dotTile.
func (n number) interleave() {
	begin(fmt.Sprintf("interleave%sAVX2", n.name), "func(dst *float32, strideDst int, src *byte, strideSrc int, n int)",
		"dst [n/8][4][8] = rows src [4][n] as float32; strides, in bytes, of the outer dimensions; n is a positive multiple of 8.")
	dst, strideDst, src, strideSrc, left := arg("dst"), arg("strideDst"), arg("src"), arg("strideSrc"), arg("n")
	row := newRows(src, strideSrc, 4)
	loop("next", left, partial, func() {
		for r := range 4 {
			v := YMM()
			n.load(row.at(r, 0), v)
			VMOVUPS(v, Mem{Base: dst, Disp: r * partial * 4})
		}
		ADDQ(strideDst, dst)
		row.advance(partial * n.bytes)
	})
	end()
}

// dotTile: products of a few weight rows with a few activation rows, as partial sums, so that long rows can be taken in
// parts that stay in the cache. A vector of 512 bits has the partial sums of two weight rows.
func (w width) dotTile(weightRows, inputs int) {
	begin(fmt.Sprintf("dotTile%d%s", inputs, w.name),
		"func(acc *float32, w *float32, x *float32, strideX int, n int)",
		fmt.Sprintf("acc [%d][%d][8] += partial sums of x rows times w [n/8][%[2]d][8]; strideX in bytes; n is a positive multiple of 8.", inputs, weightRows))
	sum, weights, x, strideX, left := arg("acc"), arg("w"), arg("x"), arg("strideX"), arg("n")
	row := newRows(x, strideX, inputs)
	vectors := weightRows * partial / w.lanes()
	acc := w.vectors(inputs * vectors)
	for i, v := range acc {
		VMOVUPS(Mem{Base: sum, Disp: i * w.bytes}, v)
	}
	loop("next", left, partial, func() {
		xv := w.vectors(inputs)
		for i, v := range xv {
			w.eight(row.at(i, 0), v)
		}
		for r := range vectors {
			wv := w.vector()
			VMOVUPS(Mem{Base: weights, Disp: r * w.bytes}, wv)
			for i, v := range xv {
				VFMADD231PS(v, wv, acc[i*vectors+r])
			}
		}
		ADDQ(I32(weightRows*partial*4), weights)
		row.advance(partial * 4)
	})
	for i, v := range acc {
		VMOVUPS(v, Mem{Base: sum, Disp: i * w.bytes})
	}
	end()
}

// eight fills a vector with the eight numbers at m, twice where it is that long.
func (w width) eight(m Mem, v reg.VecVirtual) {
	if w == avx512 {
		VBROADCASTF32X8(m, v)
	} else {
		VMOVUPS(m, v)
	}
}

// foldSums turns partial sums into sums.
func foldSums() {
	begin("foldSumsAVX2", "func(dst *float32, acc *float32, n int)",
		"dst[i] = total of the 8 partial sums acc[i]: halves, quarters, the last two; n is a positive multiple of 4.")
	dst, acc, left := arg("dst"), arg("acc"), arg("n")
	loop("next", left, 4, func() {
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = XMM()
			VMOVUPS(Mem{Base: acc, Disp: i * partial * 4}, v[i])
			VADDPS(Mem{Base: acc, Disp: i*partial*4 + 16}, v[i], v[i])
		}
		VMOVUPS(totals(v), Mem{Base: dst})
		ADDQ(Imm(4*partial*4), acc)
		ADDQ(Imm(16), dst)
	})
	end()
}

// sums32: the part of a product in 32 partial sums that is worth vectors. Four vectors of 256 bits are as fast as two of
// 512, since each waits for its last addition.
func sums32() {
	begin("sums32AVX2", "func(sums *[8]float32, a *float32, b *float32, n int)",
		"sums[l] = (s[l] + s[16+l]) + (s[8+l] + s[24+l]) with s[i] the sum of a[j]*b[j] for j mod 32 = i; n is a positive multiple of 32.")
	sum, a, b, left := arg("sums"), arg("a"), arg("b"), arg("n")
	acc := avx2.vectors(4)
	zero(acc...)
	loop("next", left, 32, func() {
		for i, s := range acc {
			v := YMM()
			VMOVUPS(Mem{Base: a, Disp: i * 32}, v)
			VFMADD231PS(Mem{Base: b, Disp: i * 32}, v, s)
		}
		ADDQ(I32(32*4), a)
		ADDQ(I32(32*4), b)
	})
	VADDPS(acc[2], acc[0], acc[0])
	VADDPS(acc[3], acc[1], acc[1])
	VADDPS(acc[1], acc[0], acc[0])
	VMOVUPS(acc[0], Mem{Base: sum})
	end()
}

// widen turns a run of numbers into float32.
func (w width) widen(n number) {
	begin(fmt.Sprintf("widen%s%s", n.name, w.name), "func(dst *float32, src *byte, n int)",
		"dst[i] = src[i] as float32; n is a positive multiple of 16.")
	dst, src, left := arg("dst"), arg("src"), arg("n")
	w.stream(left, []reg.GPVirtual{dst, src}, []int{4, n.bytes}, func(p int) {
		v := w.vector()
		n.load(Mem{Base: src, Disp: p * w.lanes() * n.bytes}, v)
		VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
	})
	end()
}
