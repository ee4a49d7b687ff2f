package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stateStrip is kernel.StateStrip.
const stateStrip = 32

// rowsAtOnce is how many rows of a strip a turn of the loop takes.
const rowsAtOnce = 2

func delta() {
	avx2.deltaStrips(1)
	avx512.deltaStrips(1)
	avx512.deltaStrips(2)
	avx2.convolve()
	avx512.convolve()
}

// strips addresses the rows of neighbouring strips of a state.
type strips struct {
	width
	base, size reg.GPVirtual // size in bytes of a strip
}

// at is vector p of row i.
func (s strips) at(i, p int) Mem {
	m := Mem{Base: s.base, Disp: i*stateStrip*4 + p*s.bytes%(stateStrip*4)}
	if p*s.lanes() >= stateStrip {
		m.Index, m.Scale = s.size, 1
	}
	return m
}

// deltaStrips advances strips over all tokens. Besides the first, the product of a token's key with the state is taken while
// the state is advanced by the token before it.
func (w width) deltaStrips(count int) {
	begin(fmt.Sprintf("deltaStrips%d%s", count, w.name),
		"func(state *float32, q *float32, k *float32, v *float32, out *float32, strideV int, strideOut int, decay *float32, beta *float32, n int, dim int, scale float32)",
		fmt.Sprintf("The gated delta rule for %d strips of %d value elements; strides in bytes; n > 0, dim is a positive multiple of %d.", count, stateStrip, rowsAtOnce))
	q, k, v, out, decays, betas, n := arg("q"), arg("k"), arg("v"), arg("out"), arg("decay"), arg("beta"), arg("n")
	parts := count * stateStrip / w.lanes()
	known, change, product := w.vectors(parts), w.vectors(parts), w.vectors(parts)
	s := strips{w, GP64(), GP64()}
	restart := func() reg.GPVirtual {
		Load(Param("state"), s.base)
		return arg("dim")
	}
	left := restart()
	MOVQ(left, s.size)
	SHLQ(Imm(7), s.size) // stateStrip floats a row

	zero(known...)
	ahead := GP64()
	MOVQ(k, ahead)
	loop("first", left, rowsAtOnce, func() {
		for i := range rowsAtOnce {
			x := w.vector()
			VBROADCASTSS(Mem{Base: ahead, Disp: 4 * i}, x)
			for p := range parts {
				VFMADD231PS(s.at(i, p), x, known[p])
			}
		}
		ADDQ(Imm(4*rowsAtOnce), ahead)
		ADDQ(U32(4*rowsAtOnce*stateStrip), s.base)
	})

	Label("token")
	decay, beta := w.vector(), w.vector()
	VBROADCASTSS(Mem{Base: decays}, decay)
	VBROADCASTSS(Mem{Base: betas}, beta)
	for p := range parts {
		VMOVUPS(Mem{Base: v, Disp: p * w.bytes}, change[p])
		VFNMADD231PS(known[p], decay, change[p])
		VMULPS(beta, change[p], change[p])
	}
	zero(known...)
	zero(product...)
	left = restart()
	next := GP64() // from this token's key to the one ahead; the last token has none, and reads its own
	XORQ(next, next)
	step := GP64()
	LEAQ(Mem{Base: next, Index: left, Scale: 4}, step)
	CMPQ(n, Imm(1))
	CMOVQNE(step, next)
	loop("row", left, rowsAtOnce, func() {
		for i := range rowsAtOnce {
			w.deltaRow(s, i, Mem{Base: q, Disp: 4 * i}, Mem{Base: k, Disp: 4 * i}, Mem{Base: k, Index: next, Scale: 1, Disp: 4 * i}, decay, known, change, product)
		}
		ADDQ(Imm(4*rowsAtOnce), q)
		ADDQ(Imm(4*rowsAtOnce), k)
		ADDQ(U32(4*rowsAtOnce*stateStrip), s.base)
	})
	scale := w.param("scale")
	for p := range parts {
		VMULPS(scale, product[p], product[p])
		VMOVUPS(product[p], Mem{Base: out, Disp: p * w.bytes})
	}
	ADDQ(arg("strideV"), v)
	ADDQ(arg("strideOut"), out)
	ADDQ(Imm(4), decays)
	ADDQ(Imm(4), betas)
	DECQ(n)
	JNZ(LabelRef("token"))
	end()
}

// deltaRow advances row i of the state by a token, and adds its products with the token's query and the next one's key.
// AVX2 has registers for two vectors of a row at a time.
func (w width) deltaRow(s strips, i int, q, k, next Mem, decay reg.VecVirtual, known, change, product []reg.VecVirtual) {
	batch := len(known)
	if w == avx2 {
		batch = 2
	}
	for from := 0; from < len(known); from += batch {
		state := w.vectors(batch)
		x := w.vector()
		VBROADCASTSS(k, x)
		for j, v := range state {
			VMULPS(s.at(i, from+j), decay, v)
			VFMADD231PS(x, change[from+j], v)
			VMOVUPS(v, s.at(i, from+j))
		}
		x = w.vector()
		VBROADCASTSS(q, x)
		for j, v := range state {
			VFMADD231PS(x, v, product[from+j])
		}
		x = w.vector()
		VBROADCASTSS(next, x)
		for j, v := range state {
			VFMADD231PS(x, v, known[from+j])
		}
	}
}

// convolve: each channel by itself, 16 at a time.
func (w width) convolve() {
	begin("convolve"+w.name,
		"func(dst *float32, strideDst int, x *float32, strideX int, weights *float32, strideWeights int, n int, taps int, channels int)",
		"dst[t][c] = sum of weights[j][c] x[t+j][c] over j; strides in bytes; n, taps > 0, channels is a positive multiple of 16.")
	dst, x, n, strideX, strideW := arg("dst"), arg("x"), arg("n"), arg("strideX"), arg("strideWeights")
	loop("token", n, 1, func() {
		from, to, weights, left := GP64(), GP64(), arg("weights"), arg("channels")
		MOVQ(x, from)
		MOVQ(dst, to)
		loop("channels", left, sums, func() {
			xr, wr, taps := GP64(), GP64(), arg("taps")
			MOVQ(from, xr)
			MOVQ(weights, wr)
			acc := w.vectors(sums / w.lanes())
			zero(acc...)
			loop("tap", taps, 1, func() {
				for p, a := range acc {
					v := w.vector()
					VMOVUPS(Mem{Base: xr, Disp: p * w.bytes}, v)
					VFMADD231PS(Mem{Base: wr, Disp: p * w.bytes}, v, a)
				}
				ADDQ(strideX, xr)
				ADDQ(strideW, wr)
			})
			for p, a := range acc {
				VMOVUPS(a, Mem{Base: to, Disp: p * w.bytes})
			}
			for _, p := range []reg.GPVirtual{from, to, weights} {
				ADDQ(Imm(4*sums), p)
			}
		})
		ADDQ(strideX, x)
		ADDQ(arg("strideDst"), dst)
	})
	end()
}
