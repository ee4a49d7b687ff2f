package main

import (
	"fmt"

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
	avx2.transpose()
	avx512.transpose()
}

// multiplyTile: a few rows of a times a few columns of b, accumulated over depth in order.
func (w width) multiplyTile(count, cols int) {
	begin(fmt.Sprintf("multiply%dx%d%s", count, cols, w.name),
		"func(c *float32, strideC int, a *float32, strideA int, b *float32, strideB int, depth int)",
		fmt.Sprintf("c = a b for a [%d][depth], b [depth][%d]; strides in bytes; depth > 0.", count, cols))
	c, strideC, a, strideA, b, strideB, left := arg("c"), arg("strideC"), arg("a"), arg("strideA"), arg("b"), arg("strideB"), arg("depth")
	ar := newRows(a, strideA, count)
	parts := cols / w.lanes()
	acc := make([][]reg.VecVirtual, count)
	for r := range acc {
		acc[r] = w.vectors(parts)
		zero(acc[r]...)
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
			VMOVUPS(v, Mem{Base: c, Disp: p * w.bytes})
		}
		if r+1 < count {
			ADDQ(strideC, c)
		}
	}
	end()
}

// transpose turns lanes rows into lanes columns.
func (w width) transpose() {
	n := w.lanes()
	begin("transpose"+w.name, "func(dst *float32, strideDst int, src *float32, strideSrc int, n int)",
		fmt.Sprintf("dst [n][%d] = src [%d][n] transposed; strides in bytes; n is a positive multiple of %d.", n, n, n))
	dst, strideDst, src, strideSrc, left := arg("dst"), arg("strideDst"), arg("src"), arg("strideSrc"), arg("n")
	loop("next", left, n, func() {
		row := GP64()
		MOVQ(src, row)
		v := w.vectors(n)
		for i := range v {
			VMOVUPS(Mem{Base: row}, v[i])
			if i+1 < n {
				ADDQ(strideSrc, row)
			}
		}
		v = w.transposed(v)
		for i := range v {
			VMOVUPS(v[i], Mem{Base: dst})
			ADDQ(strideDst, dst)
		}
		ADDQ(Imm(uint64(w.bytes)), src)
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
