package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stateStrip is kernel.StateStrip.
const stateStrip = 32

// A sum over a column has dotSums partial sums (upstream.Dot32), element i in number i mod dotSums. Number n and n+dotLanes are
// added, which makes the lanes.
const (
	dotSums  = 32
	dotLanes = 16
)

// columnParts is the number of vectors of columns that go together.
const columnParts = 2

func delta() {
	avx2.deltaColumns()
	avx512.deltaColumns()
	avx2.convolve()
	avx512.convolve()
}

// columnSums makes the sums of vectors of columns.
type columnSums struct {
	width
	partial [dotSums / dotLanes][]reg.VecVirtual // of one lane
	lanes   Mem                                  // on the stack, laneStride bytes from one to the next
}

// laneStride is also that of the rows of a strip.
const laneStride = stateStrip * 4

func (w width) newColumnSums() *columnSums {
	c := &columnSums{width: w, lanes: AllocLocal(dotLanes * laneStride)}
	for i := range c.partial {
		c.partial[i] = w.vectors(columnParts)
	}
	return c
}

func (c *columnSums) start() {
	for _, p := range c.partial {
		zero(p...)
	}
}

// keep makes a lane of its partial sums.
func (c *columnSums) keep(lane reg.GPVirtual) {
	for p, v := range c.partial[0] {
		VADDPS(c.partial[1][p], v, v)
		VMOVUPS(v, c.lanes.Idx(lane, 1).Offset(p*c.bytes))
	}
}

// total adds the lanes of vector p: halves, and their halves, then neighbours.
func (c *columnSums) total(p int) reg.VecVirtual {
	lane := func(i int) Mem { return c.lanes.Offset(i*laneStride + p*c.bytes) }
	s, t := c.vectors(dotLanes/4), c.vector()
	for i, v := range s {
		VMOVUPS(lane(i), v)
		VADDPS(lane(i+8), v, v)
		VMOVUPS(lane(i+4), t)
		VADDPS(lane(i+12), t, t)
		VADDPS(t, v, v)
	}
	VADDPS(s[1], s[0], s[0])
	VADDPS(s[3], s[2], s[2])
	VADDPS(s[2], s[0], s[0])
	return s[0]
}

// stateRows addresses the rows of a strip, and the elements of queries and keys that belong to them.
type stateRows struct {
	width
	state, lane, row, at, end reg.GPVirtual
}

func (w width) newStateRows() *stateRows {
	r := &stateRows{w, arg("state"), GP64(), GP64(), GP64(), arg("dim")}
	SHLQ(Imm(2), r.end)
	return r
}

// vector is vector p of the row of partial sum i of a lane.
func (r *stateRows) vector(i, p int) Mem {
	return Mem{Base: r.row, Disp: i*dotLanes*laneStride + p*r.bytes}
}

// element is that of a query or key which belongs to the row.
func (r *stateRows) element(of reg.GPVirtual, i int) Mem {
	return Mem{Base: of, Index: r.at, Scale: 1, Disp: i * dotLanes * 4}
}

// each runs body, which does the rows of all partial sums of a lane, until all rows are done.
func (r *stateRows) each(label string, sums []*columnSums, body func(i int)) {
	XORQ(r.lane, r.lane)
	Label(label + "Lane")
	for _, s := range sums {
		s.start()
	}
	LEAQ(Mem{Base: r.state, Index: r.lane, Scale: 1}, r.row)
	MOVQ(r.lane, r.at)
	SHRQ(Imm(5), r.at) // stateStrip
	Label(label)
	for i := range dotSums / dotLanes {
		body(i)
	}
	ADDQ(U32(dotSums*laneStride), r.row)
	ADDQ(U32(dotSums*4), r.at)
	CMPQ(r.at, r.end)
	JLT(LabelRef(label))
	for _, s := range sums {
		s.keep(r.lane)
	}
	ADDQ(U32(laneStride), r.lane)
	CMPQ(r.lane, U32(dotLanes*laneStride))
	JLT(LabelRef(label + "Lane"))
}

// deltaColumns advances columnParts vectors of columns of a strip over all tokens. While a token advances the state, the state decays
// for the next one, and the product with that one's key is taken.
func (w width) deltaColumns() {
	TEXT("deltaColumns"+w.name, 0, "func(state *float32, q *float32, k *float32, v *float32, out *float32, strideV int, strideOut int, decay *float32, beta *float32, n int, dim int, scale float32)")
	Pragma("noescape")
	Doc(fmt.Sprintf("The gated delta rule for %d of the %d columns of a strip; strides in bytes; n > 0, dim is a positive multiple of %d.", columnParts*w.lanes(), stateStrip, dotSums))
	q, k, v, out, decays, betas, n := arg("q"), arg("k"), arg("v"), arg("out"), arg("decay"), arg("beta"), arg("n")
	known, product := w.newColumnSums(), w.newColumnSums()
	rows, decay := w.newStateRows(), w.vector()
	finish := func(i int, states []reg.VecVirtual, key reg.GPVirtual) {
		x := w.vector()
		VBROADCASTSS(rows.element(key, i), x)
		for p, s := range states {
			VMULPS(decay, s, s)
			VMOVUPS(s, rows.vector(i, p))
			VFMADD231PS(x, s, known.partial[i][p])
		}
	}

	VBROADCASTSS(Mem{Base: decays}, decay)
	rows.each("first", []*columnSums{known}, func(i int) {
		states := w.vectors(columnParts)
		for p, s := range states {
			VMOVUPS(rows.vector(i, p), s)
		}
		finish(i, states, k)
	})

	Label("token")
	change, beta := w.vectors(columnParts), w.vector()
	VBROADCASTSS(Mem{Base: betas}, beta)
	for p, c := range change {
		VMOVUPS(Mem{Base: v, Disp: p * w.bytes}, c)
		VSUBPS(known.total(p), c, c)
		VMULPS(beta, c, c)
	}
	next := GP64() // the next token's key; after the last token nothing decays, and its own key is read
	MOVQ(k, next)
	VBROADCASTSS(constant("one", float32bits(1)), decay)
	CMPQ(n, Imm(1))
	JE(LabelRef("advance"))
	ADDQ(rows.end, next)
	VBROADCASTSS(Mem{Base: decays, Disp: 4}, decay)
	Label("advance")
	rows.each("row", []*columnSums{known, product}, func(i int) {
		states, x := w.vectors(columnParts), w.vector()
		VBROADCASTSS(rows.element(k, i), x)
		for p, s := range states {
			VMOVUPS(rows.vector(i, p), s)
			VFMADD231PS(x, change[p], s)
		}
		x = w.vector()
		VBROADCASTSS(rows.element(q, i), x)
		for p, s := range states {
			VFMADD231PS(x, s, product.partial[i][p])
		}
		finish(i, states, next)
	})
	scale := w.param("scale")
	for p := range columnParts {
		sum := product.total(p)
		VMULPS(scale, sum, sum)
		VMOVUPS(sum, Mem{Base: out, Disp: p * w.bytes})
	}
	ADDQ(rows.end, q)
	ADDQ(rows.end, k)
	ADDQ(arg("strideV"), v)
	ADDQ(arg("strideOut"), out)
	ADDQ(Imm(4), decays)
	ADDQ(Imm(4), betas)
	DECQ(n)
	JNZ(LabelRef("token"))
	end()
}

// convolve: each channel by itself, 16 at a time.
func (w width) convolve() {
	begin("convolve"+w.name,
		"func(dst *float32, strideDst int, x *float32, strideX int, weights *float32, strideWeights int, n int, taps int, channels int)",
		"dst[t][c] = sum of weights[j][c] x[t+j][c] over j, nothing fused; strides in bytes; n, taps > 0, channels is a positive multiple of 16.")
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
					VMULPS(Mem{Base: wr, Disp: p * w.bytes}, v, v)
					VADDPS(v, a, a)
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
