package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// laneTile is a few weight rows times a few activation rows with eight partial sums for each pair. A vector of 256 bits has
// 32 codes of one weight row, one of 512 bits those of two rows. With 512 bits there are four weight rows, and what a row
// has a single number of lies in one of the four quarters of a vector.
type laneTile struct {
	width
	vectors int // of weights
	inputs  int
}

// Distance of the rows of a panel in bytes, as package kernel lays them out.
const (
	laneCodes = 16384 + 64
	laneSide  = 4608 + 64
)

func (t laneTile) rows() int { return t.vectors * t.bytes / 32 }

// laneState are the registers of a kernel in the making.
type laneState struct {
	laneTile
	codes, side reg.GPVirtual // of the weights
	x, xSide    rows          // of the activations
	masks       map[int]reg.Register
	constants   map[string]reg.VecVirtual
}

// start declares a kernel and loads its arguments.
func (t laneTile) start(name, doc string) (s *laneState, blocks reg.GPVirtual) {
	begin(fmt.Sprintf("%s%d%s", name, t.inputs, t.name),
		"func(dst *float32, strideDst int, sums *float32, codes *int8, scales *byte, x *int8, strideX int, side *byte, strideSide int, blocks int)",
		fmt.Sprintf("dst [%d][%d] = products, summed in lanes, %s", t.inputs, t.rows(), doc))
	s = &laneState{laneTile: t, codes: arg("codes"), side: arg("scales"), masks: map[int]reg.Register{}, constants: map[string]reg.VecVirtual{}}
	x, strideX, side, strideSide := arg("x"), arg("strideX"), arg("side"), arg("strideSide")
	s.x, s.xSide = newRows(x, strideX, t.inputs), newRows(side, strideSide, t.inputs)
	if t.width == avx512 {
		s.mask(0xff00)
	}
	return s, arg("blocks")
}

func (s *laneState) mask(bits int) {
	m := GP32()
	s.masks[bits] = K()
	MOVL(U32(bits), m)
	KMOVW(m, s.masks[bits])
}

// quarters prepares for ofQuarters.
func (s *laneState) quarters() {
	if s.width == avx512 {
		s.mask(0x00f0)
		s.mask(0x0f00)
		s.mask(0xf000)
	}
}

// row is the address of byte off of the codes of a row, record that of its scales.
func (s *laneState) row(r, off int) Mem    { return Mem{Base: s.codes, Disp: r*laneCodes + off} }
func (s *laneState) record(r, off int) Mem { return Mem{Base: s.side, Disp: r*laneSide + off} }

// ofRows loads, for vector v, what load gets of each of its rows.
func (s *laneState) ofRows(v int, at func(r, off int) Mem, off int, load func(ops ...Op)) reg.VecVirtual {
	out := s.vector()
	if s.width == avx2 {
		load(at(v, off), out)
		return out
	}
	load(at(2*v, off), out)
	load(at(2*v+1, off), s.masks[0xff00], out)
	return out
}

// ofQuarters loads, for all rows, what load gets of each into its quarter; with 256 bits the one row there is.
func (s *laneState) ofQuarters(off int, load func(ops ...Op)) reg.VecVirtual {
	out := s.vector()
	load(s.record(0, off), out)
	if s.width == avx512 {
		for r, mask := range []int{0x00f0, 0x0f00, 0xf000} {
			load(s.record(r+1, off), s.masks[mask], out)
		}
	}
	return out
}

// bytes32 loads 32 bytes, into both halves of 512 bits; bytes16 loads 16 into each quarter.
func (s *laneState) bytes32() func(ops ...Op) {
	if s.width == avx512 {
		return VBROADCASTI32X8
	}
	return func(ops ...Op) { VMOVDQU(ops[0], ops[1]) }
}

func (s *laneState) bytes16() func(ops ...Op) {
	if s.width == avx512 {
		return VBROADCASTI32X4
	}
	return func(ops ...Op) { VBROADCASTI128(ops[0], ops[1]) }
}

// broadcastSingle and broadcastDouble are VBROADCASTSS and VPBROADCASTD, with or without a mask.
func broadcastSingle(ops ...Op) { VBROADCASTSS(ops...) }
func broadcastDouble(ops ...Op) { VPBROADCASTD(ops...) }

// load is bytes32 of the activations.
func (s *laneState) load(m Mem) reg.VecVirtual {
	v := s.vector()
	s.bytes32()(m, v)
	return v
}

// times returns y times the number at m.
func (s *laneState) times(m Mem, y reg.VecVirtual) reg.VecVirtual {
	d := s.vector()
	if s.width == avx512 {
		VMULPS_BCST(m, y, d)
	} else {
		VBROADCASTSS(m, d)
		VMULPS(y, d, d)
	}
	return d
}

// fill is width.fill, once for a kernel.
func (s *laneState) fill(name string, bits uint32) reg.VecVirtual {
	if s.constants[name] == nil {
		s.constants[name] = s.laneTile.fill(name, bits)
	}
	return s.constants[name]
}

// grid returns a cleared vector for each vector of weights and activation row.
func (t laneTile) grid() [][]reg.VecVirtual {
	g := make([][]reg.VecVirtual, t.inputs)
	for i := range g {
		g[i] = t.width.vectors(t.vectors)
		zero(g[i]...)
	}
	return g
}

// blocks: the simple formats; those with minima have unsigned codes.
func (t laneTile) blocks(minima bool) {
	name := "laneBlocks"
	if minima {
		name = "laneBlocksMin"
	}
	s, blocks := t.start(name, "over blocks of 32; strides in bytes; blocks > 0.")
	acc, low := t.grid(), t.width.vectors(t.inputs)
	var signed *signedCodes
	if minima {
		s.quarters()
		zero(low...)
	} else {
		signed = newSigned(s)
	}
	loop("block", blocks, 1, func() {
		w, d := make([]preparedCodes, t.vectors), make([]reg.VecVirtual, t.vectors)
		for v := range w {
			w[v] = signed.prepare(s.ofRows(v, s.row, 0, s.bytes32()))
			d[v] = s.ofRows(v, s.record, 0, broadcastSingle)
		}
		var m reg.VecVirtual
		if minima {
			m = s.ofQuarters(4, broadcastSingle)
		}
		for i := range t.inputs {
			x := signed.activations(s, s.x.at(i, 0))
			for v := range w {
				y := signed.products(s, w[v], x)
				VCVTDQ2PS(y, y)
				VFMADD231PS(s.times(s.xSide.at(i, blockSideD), d[v]), y, acc[i][v])
			}
			switch {
			case minima && s.width == avx512:
				VFMADD231PS_BCST(s.xSide.at(i, blockSideS), m, low[i])
			case minima:
				VFMADD231SS(s.xSide.at(i, blockSideS), m.AsX(), low[i].AsX())
			}
		}
		ADDQ(Imm(32), s.codes)
		ADDQ(Imm(blockScaleBytes), s.side)
		s.x.advance(32)
		s.xSide.advance(blockSideBytes)
	})
	s.store(func(i int) ([]reg.VecVirtual, reg.VecVirtual) {
		if minima {
			return acc[i], low[i]
		}
		return acc[i], nil
	})
}

// signedCodes multiplies signed codes by codes, four neighbouring products to a lane. With 512 bits the activations are
// raised by 128 to be the unsigned operand, and sums start at -128 times the sums of the weights. A nil signedCodes is for
// codes that are not signed.
type signedCodes struct{ raise, zero reg.VecVirtual }

func newSigned(s *laneState) *signedCodes {
	if s.width == avx2 {
		return &signedCodes{}
	}
	c := &signedCodes{s.fill("raise128", 0x80808080), s.vector()}
	zero(c.zero)
	return c
}

// preparedCodes is a vector of weights with what goes with it: sums to start from, or magnitudes.
type preparedCodes struct{ w, with reg.VecVirtual }

func (c *signedCodes) prepare(w reg.VecVirtual) preparedCodes {
	switch {
	case c == nil:
		return preparedCodes{w: w}
	case c.raise == nil:
		magnitude := YMM()
		VPABSB(w, magnitude)
		return preparedCodes{w, magnitude}
	}
	start := ZMM()
	zero(start)
	dpbusd(w, c.raise, start)
	VPSUBD(start, c.zero, start)
	return preparedCodes{w, start}
}

func (c *signedCodes) activations(s *laneState, m Mem) reg.VecVirtual {
	x := s.load(m)
	if c != nil && c.raise != nil {
		VPXORD(c.raise, x, x)
	}
	return x
}

func (c *signedCodes) products(s *laneState, w preparedCodes, x reg.VecVirtual) reg.VecVirtual {
	y := s.vector()
	switch {
	case s.width == avx512 && c == nil:
		zero(y)
		dpbusd(x, w.w, y)
	case s.width == avx512:
		VMOVDQA64(w.with, y)
		dpbusd(w.w, x, y)
	case c == nil:
		VPMADDUBSW(x, w.w, y)
		VPMADDWD(s.fill("words1", 0x00010001), y, y)
	default:
		VPSIGNB(w.w, x, y)
		VPMADDUBSW(y, w.with, y)
		VPMADDWD(s.fill("words1", 0x00010001), y, y)
	}
	return y
}

// store adds up the lanes of each activation row, and another number for each row if there is one, and returns.
func (s *laneState) store(sums func(i int) (lanes []reg.VecVirtual, low reg.VecVirtual)) {
	dst, stride := arg("dst"), arg("strideDst")
	var order reg.VecVirtual
	if s.width == avx512 {
		order = ZMM()
		VMOVDQU32(table("firsts", []uint64{0x400000000, 0xc00000008, 0, 0, 0, 0, 0, 0}), order)
	}
	for i := range s.inputs {
		v, low := sums(i)
		if s.width == avx512 {
			storeFour(v, low, order, dst)
		} else {
			storeOne(v[0], low, dst)
		}
		if i+1 < s.inputs {
			ADDQ(stride, dst)
		}
	}
	end()
}

// storeFour adds up the lanes of four weight rows.
func storeFour(v []reg.VecVirtual, low, order reg.VecVirtual, dst reg.GPVirtual) {
	a, b := ZMM(), ZMM()
	VSHUFF32X4(Imm(0x88), v[1], v[0], a)
	VSHUFF32X4(Imm(0xdd), v[1], v[0], b)
	acrossQuarter(b, a, a, 0x55)
	if low != nil {
		VADDPS(low, a, a)
	}
	VPERMPS(a, order, a)
	VMOVUPS(a.AsX(), Mem{Base: dst})
}

func storeOne(v, low reg.VecVirtual, dst reg.GPVirtual) {
	x, t := v.AsX(), XMM()
	VEXTRACTF128(Imm(1), v, t)
	acrossQuarter(t, x, x, 1)
	if low != nil {
		VADDSS(low.AsX(), x, x)
	}
	VMOVSS(x, Mem{Base: dst})
}

// acrossQuarter leaves, in the first lane of each quarter of out, the sum of eight lanes, four of which are in a and four in b.
// swap is the immediate with which VPERMILPD swaps neighbours.
func acrossQuarter(a, b, out reg.Register, swap uint64) {
	VADDPS(a, b, out)
	VPERMILPD(Imm(swap), out, a)
	VADDPS(a, out, out)
	VMOVSHDUP(out, a)
	VADDPS(a, out, out)
}
