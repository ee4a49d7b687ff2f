package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The integer kernels multiply a panel of weight rows, one row per lane, with a few activation rows. A panel holds groups
// of four codes: [cols/4][rows][4], and records of scales whose fields have a value per row.
//
// With AVX-512 VNNI the weight codes are raised by 128 to be the unsigned operand, and the sum of a run starts at -128 times
// the sum of the activation codes to make up for it. With AVX2 the magnitudes of the weight codes multiply activation codes
// that took over their signs; two such products fit 16 bits (128*127*2 < 32768). Codes of fewer bits do better, see narrowTile.
type integerTile struct {
	width
	vectors int // per panel row
	inputs  int
}

func (t integerTile) rows() int { return t.vectors * t.lanes() }

// Byte offsets in a record of the activations, as package kernel lays them out.
const (
	blockSideD     = 0
	blockSideS     = 4
	blockSideSum   = 8
	blockSideBias  = 12
	blockSideBytes = 16
)

func integer() {
	for _, t := range []integerTile{{avx2, 1, 1}, {avx2, 1, 2}, {avx2, 1, 4}} {
		t.blocks(false)
		t.supers(32, false)
	}
	for _, t := range []integerTile{{avx2, 2, 1}, {avx2, 2, 2}, {avx2, 2, 3}} {
		for _, bits := range []int{4, 5} {
			n := narrowTile{t, bits}
			if bits == 4 || t.inputs < 3 { // there are no more registers
				n.blocks(false)
				n.blocks(true)
			}
			n.supers(32, true)
		}
		narrowTile{t, 2}.supers(16, true)
		narrowTile{t, 3}.supers(16, false)
		narrowTile{t, 6}.supers(16, false)
	}
	for _, t := range []integerTile{{avx512, 2, 1}, {avx512, 2, 2}, {avx512, 2, 4}, {avx512, 2, 6}} {
		for _, minima := range []bool{false, true} {
			t.blocks(minima)
			for _, run := range []int{16, 32} {
				t.supers(run, minima)
			}
		}
	}
	avx2.interleave()
	avx512.interleave()
}

// interleave transposes groups of four codes and adds to the codes.
func (w width) interleave() {
	n := w.lanes()
	begin("interleave"+w.name, "func(dst *int8, strideDst int, src *int8, strideSrc int, n int, raise int8)",
		fmt.Sprintf("dst [n/4][%d][4] = src [%d][n] + raise by groups of four; strides in bytes; n is a positive multiple of %d.", n, n, w.bytes))
	dst, strideDst, src, strideSrc, left := arg("dst"), arg("strideDst"), arg("src"), arg("strideSrc"), arg("n")
	by, err := Param("raise").Resolve()
	if err != nil {
		panic(err)
	}
	raise := w.vector()
	VPBROADCASTB(by.Addr, raise)
	loop("next", left, 4*n, func() {
		row := GP64()
		MOVQ(src, row)
		v := w.vectors(n)
		for i := range v {
			VPADDB(Mem{Base: row}, raise, v[i])
			if i+1 < n {
				ADDQ(strideSrc, row)
			}
		}
		for _, v := range w.transposed(v) {
			VMOVUPS(v, Mem{Base: dst})
			ADDQ(strideDst, dst)
		}
		ADDQ(Imm(uint64(4*n)), src)
	})
	end()
}

// dpbusd adds, to each 32-bit lane of acc, the products of four unsigned bytes of u with four signed bytes of s. The
// instruction is not in the assembler generator's list.
func dpbusd(s, u, acc reg.VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode: "VPDPBUSD", Operands: []Op{s, u, acc}, Inputs: []Op{s, u, acc}, Outputs: []Op{acc},
		ISA: []string{"AVX512_VNNI"},
	})
}

// dpwssd adds products of pairs of signed words.
func dpwssd(a, b, acc reg.VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode: "VPDPWSSD", Operands: []Op{a, b, acc}, Inputs: []Op{a, b, acc}, Outputs: []Op{acc},
		ISA: []string{"AVX512_VNNI"},
	})
}

// integerState are the registers of a kernel in the making.
type integerState struct {
	integerTile
	panel, scales reg.GPVirtual
	acc           [][]reg.VecVirtual
	ones          reg.VecVirtual
}

func (t integerTile) grid() [][]reg.VecVirtual {
	g := make([][]reg.VecVirtual, t.inputs)
	for i := range g {
		g[i] = t.width.vectors(t.vectors)
	}
	return g
}

func (t integerTile) each(f func(i, v int)) {
	for i := range t.inputs {
		for v := range t.vectors {
			f(i, v)
		}
	}
}

// start declares a kernel and loads its arguments.
func (t integerTile) start(name, doc string) (s *integerState, sum, blocks reg.GPVirtual, xr, sr rows) {
	begin(fmt.Sprintf("%s%d%s", name, t.inputs, t.name),
		"func(sums *float32, panel *int8, scales *byte, x *int8, strideX int, side *byte, strideSide int, blocks int)", doc)
	sum = arg("sums")
	s = &integerState{integerTile: t, panel: arg("panel"), scales: arg("scales")}
	x, strideX, side, strideSide := arg("x"), arg("strideX"), arg("side"), arg("strideSide")
	blocks = arg("blocks")
	xr, sr = newRows(x, strideX, t.inputs), newRows(side, strideSide, t.inputs)
	s.acc = t.grid()
	if t.width == avx2 {
		s.ones = t.fill("words1", 0x00010001)
	}
	return s, sum, blocks, xr, sr
}

// beginRun sets the sums of a run of codes to what corrects for raised codes.
func (s *integerState) beginRun(sr rows, biasOffset int) {
	for i := range s.inputs {
		if s.width == avx512 {
			VPBROADCASTD(sr.at(i, biasOffset), s.acc[i][0])
			for v := 1; v < s.vectors; v++ {
				VMOVDQA64(s.acc[i][0], s.acc[i][v])
			}
		} else {
			zero(s.acc[i]...)
		}
	}
}

// codes adds the products of n groups of four codes and moves on.
func (s *integerState) codes(xr rows, groups int) {
	step := s.rows() * 4
	for g := range groups {
		w := s.width.vectors(s.vectors)
		magnitude := s.width.vectors(s.vectors)
		for v := range w {
			m := Mem{Base: s.panel, Disp: g*step + v*s.bytes}
			if s.width == avx512 {
				VMOVDQU32(m, w[v])
			} else {
				VMOVDQU(m, w[v])
				VPABSB(w[v], magnitude[v])
			}
		}
		for i := range s.inputs {
			x := s.vector()
			VPBROADCASTD(xr.at(i, 4*g), x)
			for v := range w {
				if s.width == avx512 {
					dpbusd(x, w[v], s.acc[i][v])
					continue
				}
				t := s.vector()
				VPSIGNB(w[v], x, t)
				VPMADDUBSW(t, magnitude[v], t)
				VPMADDWD(s.ones, t, t)
				VPADDD(t, s.acc[i][v], s.acc[i][v])
			}
		}
	}
	ADDQ(U32(groups*step), s.panel)
	xr.advance(4 * groups)
}

// blocks: the simple formats. The records of weights are [blocks][2][rows] float32: d, m.
func (t integerTile) blocks(minima bool) {
	name := "blocks"
	if minima {
		name = "blocksMin"
	}
	t.blocksAdding(name, minima, (*integerState).block, addProduct)
}

// block leaves the integers of a block in acc.
func (s *integerState) block(xr, sr rows) {
	s.beginRun(sr, blockSideBias)
	s.codes(xr, 8)
}

// addProduct adds a product y, multiplied by its scale d, to total.
func addProduct(d, y, total reg.VecVirtual) {
	VMULPS(d, y, y)
	VADDPS(y, total, total)
}

// blocksAdding is blocks by any name, of any kind of codes and with any order of adding.
func (t integerTile) blocksAdding(name string, minima bool, block func(s *integerState, xr, sr rows), add func(d, y, total reg.VecVirtual)) {
	s, sum, blocks, xr, sr := t.start(name, fmt.Sprintf("sums [%d][%d] += products over blocks of 32; strides in bytes; blocks > 0.", t.inputs, t.rows()))
	total := t.grid()
	at := func(i, v int) Mem { return Mem{Base: sum, Disp: (i*t.vectors + v) * t.bytes} }
	t.each(func(i, v int) { VMOVUPS(at(i, v), total[i][v]) })
	loop("block", blocks, 1, func() {
		block(s, xr, sr)
		for i := range t.inputs {
			dx := t.vector()
			VBROADCASTSS(sr.at(i, blockSideD), dx)
			for v := range t.vectors {
				d, y := t.vector(), s.acc[i][v]
				VMULPS(Mem{Base: s.scales, Disp: v * t.bytes}, dx, d)
				VCVTDQ2PS(y, y)
				add(d, y, total[i][v])
			}
			if minima {
				VBROADCASTSS(sr.at(i, blockSideS), dx)
				for v := range t.vectors {
					m := t.vector()
					VMULPS(Mem{Base: s.scales, Disp: (t.vectors + v) * t.bytes}, dx, m)
					VADDPS(m, total[i][v], total[i][v])
				}
			}
		}
		ADDQ(U32(2*t.rows()*4), s.scales)
		sr.advance(blockSideBytes)
	})
	t.each(func(i, v int) { VMOVUPS(total[i][v], at(i, v)) })
	end()
}

// supers: the K formats.
func (t integerTile) supers(run int, minima bool) {
	name := fmt.Sprintf("supers%dx", run)
	if minima {
		name = fmt.Sprintf("supersMin%dx", run)
	}
	t.supersAdding(name, run, func(s *integerState, part int, xr, sr rows, whole [][]reg.VecVirtual) {
		off := sideBias + 4*part
		if run == 32 {
			off = sideBias32
		}
		s.beginRun(sr, off)
		s.codes(xr, run/4)
		s.scaled(whole, run == 16 && part == 0)
	}, func(s *integerState, sum reg.GPVirtual, sr rows, whole [][]reg.VecVirtual) {
		t.finishSuper(s, sum, sr, whole, run, minima)
	})
}

// scaled adds the sum of a run times its scale: the upper word of a pair, or the lower.
func (s *integerState) scaled(whole [][]reg.VecVirtual, lower bool) {
	for v := range s.vectors {
		scale := s.vector()
		s.loadInt(Mem{Base: s.scales, Disp: v * s.bytes}, scale)
		if lower {
			VPSLLD(Imm(16), scale, scale)
		}
		VPSRAD(Imm(16), scale, scale)
		for i := range s.inputs {
			VPMULLD(scale, s.acc[i][v], s.acc[i][v])
			VPADDD(s.acc[i][v], whole[i][v], whole[i][v])
		}
	}
}

// supersAdding is a kernel over blocks of 256 of any kind of codes: add adds a run of codes, of which a step of 32 has one part or
// two, to the integers of a block, and finish scales those and adds them to the sums. The records of weights are [blocks][18][rows]
// of 32 bits: 8 pairs of scales, which add finds at s.scales and finish before it, 8 pairs of minima, d, m.
func (t integerTile) supersAdding(name string, run int, add func(s *integerState, part int, xr, sr rows, whole [][]reg.VecVirtual),
	finish func(s *integerState, sum reg.GPVirtual, sr rows, whole [][]reg.VecVirtual)) {
	s, sum, blocks, xr, sr := t.start(name, fmt.Sprintf("sums [%d][%d] += products over blocks of 256 with scales of %d elements; strides in bytes; blocks > 0.", t.inputs, t.rows(), run))
	field := t.rows() * 4
	whole := t.grid()
	perStep := 0 // bytes by which the pointers to the biases walk with the steps
	if t.width == avx512 {
		perStep = 4 * 32 / run
	}
	loop("block", blocks, 1, func() {
		t.each(func(i, v int) { zero(whole[i][v]) })
		steps := GP64()
		MOVQ(U32(8), steps)
		loop("step", steps, 1, func() {
			for part := range 32 / run {
				add(s, part, xr, sr, whole)
			}
			ADDQ(U32(field), s.scales)
			if perStep > 0 {
				sr.advance(perStep)
			}
		})
		if perStep > 0 {
			sr.advance(-8 * perStep)
		}
		finish(s, sum, sr, whole)
		ADDQ(U32(10*field), s.scales)
		sr.advance(sideBytes)
	})
	end()
}

func (t integerTile) loadInt(m Mem, v reg.VecVirtual) {
	if t.width == avx512 {
		VMOVDQU32(m, v)
	} else {
		VMOVDQU(m, v)
	}
}

// sumProducts sets acc to products of pairs of words, of all rows at from, with sums of the activation codes.
func (s *integerState) sumProducts(sr rows, off, pairs int, from Mem) {
	s.each(func(i, v int) { zero(s.acc[i][v]) })
	for p := range pairs {
		words := s.width.vectors(s.vectors)
		for v := range words {
			m := from
			m.Disp += p*s.rows()*4 + v*s.bytes
			s.loadInt(m, words[v])
		}
		for i := range s.inputs {
			x := s.vector()
			VPBROADCASTD(sr.at(i, off+4*p), x)
			for v := range words {
				if s.width == avx512 {
					dpwssd(x, words[v], s.acc[i][v])
				} else {
					y := s.vector()
					VPMADDWD(x, words[v], y)
					VPADDD(y, s.acc[i][v], s.acc[i][v])
				}
			}
		}
	}
}

// finishSuper scales the sum of a block and adds it. s.scales is past the pairs of scales.
func (t integerTile) finishSuper(s *integerState, sum reg.GPVirtual, sr rows, whole [][]reg.VecVirtual, run int, minima bool) {
	field := t.rows() * 4
	at := func(i, v int) Mem { return Mem{Base: sum, Disp: (i*t.vectors + v) * t.bytes} }
	if minima {
		pairs, off := 8, sideSums
		if run == 32 {
			pairs, off = 4, sideSums32
		}
		s.sumProducts(sr, off, pairs, Mem{Base: s.scales})
	}
	for i := range t.inputs {
		dx := t.vector()
		VBROADCASTSS(sr.at(i, sideD), dx)
		for v := range t.vectors {
			d, y, total := t.vector(), whole[i][v], t.vector()
			VMULPS(Mem{Base: s.scales, Disp: 8*field + v*t.bytes}, dx, d)
			VCVTDQ2PS(y, y)
			VMULPS(d, y, y)
			VADDPS(at(i, v), y, total)
			if minima {
				low := s.acc[i][v]
				VMULPS(Mem{Base: s.scales, Disp: 9*field + v*t.bytes}, dx, d)
				VCVTDQ2PS(low, low)
				VMULPS(d, low, low)
				VSUBPS(low, total, total)
			}
			VMOVUPS(total, at(i, v))
		}
	}
}
