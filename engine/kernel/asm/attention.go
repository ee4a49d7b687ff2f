package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileInputs is the number of rows that multiply takes at most.
const tileInputs = 6

func attention() {
	for rows := 1; rows <= tileInputs; rows++ {
		avx2.multiplyTile(rows, 16)
		avx512.multiplyTile(rows, 16)
		avx512.multiplyTile(rows, 64)
	}
	for _, w := range []width{avx2, avx512} {
		for _, n := range numbers {
			w.transpose(n)
			w.widenRows(n)
		}
		w.widenBlocks("Q8_0", 34)
		w.widenBlocks("Q4_0", 18)
	}
}

// multiplyTile: a few rows of a times a few columns of b, accumulated over depth in order.
func (w width) multiplyTile(count, cols int) {
	begin(fmt.Sprintf("multiply%dx%d%s", count, cols, w.name),
		"func(c *float32, strideC int, a *float32, strideA int, b *float32, strideB int, depth int)",
		fmt.Sprintf("c += a b for a [%d][depth], b [depth][%d]; strides in bytes; depth > 0.", count, cols))
	c, strideC, a, strideA, b, strideB, left := arg("c"), arg("strideC"), arg("a"), arg("strideA"), arg("b"), arg("strideB"), arg("depth")
	ar := newRows(a, strideA, count)
	parts := cols / w.lanes()
	acc := make([][]reg.VecVirtual, count)
	cr := newRows(c, strideC, count)
	for r := range acc {
		acc[r] = w.vectors(parts)
		for p, v := range acc[r] {
			VMOVUPS(cr.at(r, p*w.bytes), v)
		}
	}
	loop("next", left, 1, func() {
		bv := w.vectors(parts)
		for p, v := range bv {
			VMOVUPS(Mem{Base: b, Disp: p * w.bytes}, v)
		}
		for r := range count {
			av := w.vector()
			VBROADCASTSS(ar.at(r, 0), av)
			for p, v := range bv {
				VFMADD231PS(av, v, acc[r][p])
			}
		}
		ar.advance(4)
		ADDQ(strideB, b)
	})
	for r := range count {
		for p, v := range acc[r] {
			VMOVUPS(v, cr.at(r, p*w.bytes))
		}
	}
	end()
}

// cellsAhead is how many cells in advance a cache row is fetched. The rows of one head lie far apart, and the processor's
// own prefetcher does not follow.
const cellsAhead = 16

// transpose turns lanes rows into lanes columns.
func (w width) transpose(t number) {
	n := w.lanes()
	begin("transpose"+t.name+w.name, "func(dst *float32, strideDst int, src *byte, strideSrc int, n int)",
		fmt.Sprintf("dst [n][%d] = src [%d][n] transposed and widened; strides in bytes; n is a positive multiple of %d.", n, n, n))
	dst, strideDst, src, strideSrc, left := arg("dst"), arg("strideDst"), arg("src"), arg("strideSrc"), arg("n")
	ahead := GP64()
	MOVQ(strideSrc, ahead)
	SHLQ(Imm(uint64(bits.TrailingZeros(cellsAhead))), ahead)
	loop("next", left, n, func() {
		row := GP64()
		MOVQ(src, row)
		v := w.vectors(n)
		for i := range v {
			t.load(Mem{Base: row}, v[i])
			if t.bytes < 4 {
				PREFETCHT0(Mem{Base: row, Index: ahead, Scale: 1})
			}
			if i+1 < n {
				ADDQ(strideSrc, row)
			}
		}
		v = w.transposed(v)
		for i := range v {
			VMOVUPS(v[i], Mem{Base: dst})
			ADDQ(strideDst, dst)
		}
		ADDQ(Imm(uint64(n*t.bytes)), src)
	})
	end()
}

// widenRows turns rows of numbers into rows of float32.
func (w width) widenRows(t number) {
	begin("widenRows"+t.name+w.name, "func(dst *float32, src *byte, strideSrc int, rows int, n int)",
		"dst [rows][n] = src as float32; stride in bytes; rows > 0, n is a positive multiple of 16.")
	dst, src, strideSrc, count := arg("dst"), arg("src"), arg("strideSrc"), arg("rows")
	ahead := GP64()
	MOVQ(strideSrc, ahead)
	SHLQ(Imm(uint64(bits.TrailingZeros(cellsAhead))), ahead)
	loop("row", count, 1, func() {
		from, left := GP64(), arg("n")
		MOVQ(src, from)
		loop("next", left, sums, func() {
			PREFETCHT0(Mem{Base: from, Index: ahead, Scale: 1})
			for p := range sums / w.lanes() {
				v := w.vector()
				t.load(Mem{Base: from, Disp: p * w.lanes() * t.bytes}, v)
				VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
			}
			ADDQ(Imm(uint64(sums*t.bytes)), from)
			ADDQ(Imm(sums*4), dst)
		})
		ADDQ(strideSrc, src)
	})
	end()
}

// widenBlocks dequantises rows of a cache type with blocks of 32.
func (w width) widenBlocks(name string, size int) {
	begin("widenRows"+name+w.name, "func(dst *float32, src *byte, strideSrc int, rows int, n int)",
		"dst [rows][n] = src as float32; stride in bytes; rows > 0, n is a positive multiple of 32.")
	dst, src, strideSrc, count := arg("dst"), arg("src"), arg("strideSrc"), arg("rows")
	ahead := GP64()
	MOVQ(strideSrc, ahead)
	SHLQ(Imm(uint64(bits.TrailingZeros(cellsAhead))), ahead)
	loop("row", count, 1, func() {
		from, left := GP64(), arg("n")
		MOVQ(src, from)
		loop("next", left, 32, func() {
			PREFETCHT0(Mem{Base: from, Index: ahead, Scale: 1})
			u := &unpacker{src: Mem{Base: from}}
			d, codes := w.vector(), [2]reg.VecVirtual{}
			VBROADCASTSS(u.halves(0, false).AsX(), d)
			if name == "Q8_0" {
				codes = [2]reg.VecVirtual{XMM(), XMM()}
				VMOVDQU(u.at(2), codes[0])
				VMOVDQU(u.at(18), codes[1])
			} else {
				v, upper := u.less(u.nibbles(2), 8), XMM()
				VEXTRACTI128(Imm(1), v, upper)
				codes = [2]reg.VecVirtual{v, upper}
			}
			for i, c := range codes {
				for at := 0; at < 16; at += w.lanes() {
					x, v := c.AsX(), w.vector()
					if at > 0 {
						y := XMM()
						VPSRLDQ(Imm(uint64(at)), x, y)
						x = y.AsX()
					}
					VPMOVSXBD(x, v)
					VCVTDQ2PS(v, v)
					VMULPS(d, v, v)
					VMOVUPS(v, Mem{Base: dst, Disp: (16*i + at) * 4})
				}
			}
			ADDQ(Imm(uint64(size)), from)
			ADDQ(U32(32*4), dst)
		})
		ADDQ(strideSrc, src)
	})
	end()
}

// transposed exchanges rows and columns of a square of 32-bit lanes: pairs, then quadruples within 128 bits, then the
// 128-bit parts.
func (w width) transposed(v []reg.VecVirtual) []reg.VecVirtual {
	n := len(v)
	t := w.vectors(n)
	for i := 0; i < n; i += 2 {
		VUNPCKLPS(v[i+1], v[i], t[i])
		VUNPCKHPS(v[i+1], v[i], t[i+1])
	}
	// u[i+j], i a multiple of 4: element j of the rows i..i+3 in each 128-bit part.
	u := w.vectors(n)
	for i := 0; i < n; i += 4 {
		VUNPCKLPD(t[i+2], t[i], u[i])
		VUNPCKHPD(t[i+2], t[i], u[i+1])
		VUNPCKLPD(t[i+3], t[i+1], u[i+2])
		VUNPCKHPD(t[i+3], t[i+1], u[i+3])
	}
	out := w.vectors(n)
	if w == avx2 {
		for j := range 4 {
			VPERM2F128(Imm(0x20), u[4+j], u[j], out[j])
			VPERM2F128(Imm(0x31), u[4+j], u[j], out[4+j])
		}
		return out
	}
	for j := range 4 {
		lowA, lowB, highA, highB := ZMM(), ZMM(), ZMM(), ZMM()
		VSHUFF32X4(Imm(0x44), u[4+j], u[j], lowA)    // parts 0, 1 of rows 0-3, 4-7
		VSHUFF32X4(Imm(0xee), u[4+j], u[j], highA)   // parts 2, 3
		VSHUFF32X4(Imm(0x44), u[12+j], u[8+j], lowB) // the same of rows 8-11, 12-15
		VSHUFF32X4(Imm(0xee), u[12+j], u[8+j], highB)
		VSHUFF32X4(Imm(0x88), lowB, lowA, out[j])
		VSHUFF32X4(Imm(0xdd), lowB, lowA, out[4+j])
		VSHUFF32X4(Imm(0x88), highB, highA, out[8+j])
		VSHUFF32X4(Imm(0xdd), highB, highA, out[12+j])
	}
	return out
}
