package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sums is the number of partial sums of a float dot product, whatever the vector width.
const sums = 16

// number is an element type of float weights.
type number struct {
	name  string
	bytes int
}

var numbers = []number{{"F32", 4}, {"F16", 2}, {"BF16", 2}}

// load widens lanes elements at m.
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
	for _, w := range []width{avx2, avx512} {
		for _, n := range numbers {
			w.dotRows(n, 4)
			w.dotRows(n, 1)
			if n.name != "F32" {
				w.widen(n)
			}
		}
		tileRows, tileInputs := 2, 3
		if w == avx512 {
			tileRows, tileInputs = 4, 6
		}
		for inputs := 1; inputs <= tileInputs; inputs++ {
			w.dotTile(tileRows, inputs)
		}
		w.foldSums()
	}
}

// dotRows: products of some weight rows with one activation row.
func (w width) dotRows(n number, count int) {
	begin(fmt.Sprintf("dot%s%s%s", n.name, map[int]string{1: "", 4: "x4"}[count], w.name),
		"func(dst *float32, w *byte, stride int, x *float32, n int)",
		fmt.Sprintf("dst[r] = product of x and row r of %d rows of w, stride bytes apart; n is a positive multiple of 16.", count))
	dst, weights, stride, x, left := arg("dst"), arg("w"), arg("stride"), arg("x"), arg("n")
	row := newRows(weights, stride, count)
	// The rows after these are fetched meanwhile, in the order in which they lie: short rows end before the processor's
	// own prefetcher has caught on.
	ahead := GP64()
	MOVQ(weights, ahead)
	for range count {
		ADDQ(stride, ahead)
	}
	parts := sums / w.lanes()
	acc := make([][]reg.VecVirtual, count)
	for r := range acc {
		acc[r] = w.vectors(parts)
		zero(acc[r]...)
	}
	loop("next", left, sums, func() {
		for off := 0; off < count*sums*n.bytes; off += 64 {
			PREFETCHT0(Mem{Base: ahead, Disp: off})
		}
		ADDQ(U32(count*sums*n.bytes), ahead)
		for p := range parts {
			xv := w.vector()
			VMOVUPS(Mem{Base: x, Disp: p * w.bytes}, xv)
			for r := range count {
				wv := w.vector()
				n.load(row.at(r, p*w.lanes()*n.bytes), wv)
				VFMADD231PS(xv, wv, acc[r][p])
			}
		}
		ADDQ(Imm(sums*4), x)
		row.advance(sums * n.bytes)
	})
	for r := range count {
		VMOVSS(w.fold(acc[r]), Mem{Base: dst, Disp: 4 * r})
	}
	end()
}

// dotTile: products of a few weight rows with a few activation rows, as partial sums, so that long rows can be taken in
// parts that stay in the cache.
func (w width) dotTile(weightRows, inputs int) {
	begin(fmt.Sprintf("dotTile%d%s", inputs, w.name),
		"func(acc *float32, w *float32, strideW int, x *float32, strideX int, n int)",
		fmt.Sprintf("acc [%d][%d][16] += partial sums of x rows times w rows; strides in bytes; n is a positive multiple of 16.", inputs, weightRows))
	sum, weights, strideW, x, strideX, left := arg("acc"), arg("w"), arg("strideW"), arg("x"), arg("strideX"), arg("n")
	wr, xr := newRows(weights, strideW, weightRows), newRows(x, strideX, inputs)
	parts := sums / w.lanes()
	at := func(i, r, p int) Mem { return Mem{Base: sum, Disp: ((i*weightRows+r)*sums + p*w.lanes()) * 4} }
	acc := map[[3]int]reg.VecVirtual{}
	each := func(f func(i, r, p int)) {
		for i := range inputs {
			for r := range weightRows {
				for p := range parts {
					f(i, r, p)
				}
			}
		}
	}
	each(func(i, r, p int) {
		v := w.vector()
		VMOVUPS(at(i, r, p), v)
		acc[[3]int{i, r, p}] = v
	})
	loop("next", left, sums, func() {
		for p := range parts {
			wv := w.vectors(weightRows)
			for r, v := range wv {
				VMOVUPS(wr.at(r, p*w.bytes), v)
			}
			for i := range inputs {
				xv := w.vector()
				VMOVUPS(xr.at(i, p*w.bytes), xv)
				for r, v := range wv {
					VFMADD231PS(xv, v, acc[[3]int{i, r, p}])
				}
			}
		}
		wr.advance(sums * 4)
		xr.advance(sums * 4)
	})
	each(func(i, r, p int) { VMOVUPS(acc[[3]int{i, r, p}], at(i, r, p)) })
	end()
}

// foldSums turns partial sums into sums.
func (w width) foldSums() {
	begin("foldSums"+w.name, "func(dst *float32, acc *float32, n int)", "dst[i] = total of the 16 partial sums acc[i]; n > 0.")
	dst, acc, left := arg("dst"), arg("acc"), arg("n")
	parts := sums / w.lanes()
	loop("next", left, 1, func() {
		v := w.vectors(parts)
		for p := range parts {
			VMOVUPS(Mem{Base: acc, Disp: p * w.bytes}, v[p])
		}
		VMOVSS(w.fold(v), Mem{Base: dst})
		ADDQ(Imm(sums*4), acc)
		ADDQ(Imm(4), dst)
	})
	end()
}

// widen turns a run of numbers into float32.
func (w width) widen(n number) {
	begin(fmt.Sprintf("widen%s%s", n.name, w.name), "func(dst *float32, src *byte, n int)",
		"dst[i] = src[i] as float32; n is a positive multiple of 16.")
	dst, src, left := arg("dst"), arg("src"), arg("n")
	loop("next", left, sums, func() {
		for p := range sums / w.lanes() {
			v := w.vector()
			n.load(Mem{Base: src, Disp: p * w.lanes() * n.bytes}, v)
			VMOVUPS(v, Mem{Base: dst, Disp: p * w.bytes})
		}
		ADDQ(Imm(uint64(sums*n.bytes)), src)
		ADDQ(Imm(sums*4), dst)
	})
	end()
}
