package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// laneFormat is a way to sum blocks of 256 in lanes.
type laneFormat struct {
	name   string
	signed bool   // codes are signed; else they are, once raised, not
	raise  uint32 // added to the codes, and made good by sums of the activations
	low    lowSum
}

// lowSum is where products of minima go.
type lowSum int

const (
	noLow      lowSum = iota
	lowInLanes        // to the same partial sums as the products of codes
	lowInTurn         // those of a block are added up, to a sum of their own
)

var laneFormats = []laneFormat{
	{name: "laneSupers", signed: true},
	{name: "laneSupersRaised", raise: 32},
	{name: "laneSupersMinLanes", low: lowInLanes},
	{name: "laneSupersMinTurn", low: lowInTurn},
}

// laneSupers are the registers of a kernel for blocks of 256.
type laneSupers struct {
	*laneState
	laneFormat
	total           func(i, v int) Mem
	nothing, spread reg.VecVirtual
	acc             [][]reg.VecVirtual
}

// supers: the K formats. sums has room for the partial sums: [inputs][vectors+1] vectors.
func (t laneTile) supers(f laneFormat) {
	s, blocks := t.start(f.name, "over blocks of 256; sums has room for [inputs][vectors+1] vectors; strides in bytes; blocks > 0.")
	sums := arg("sums")
	k := &laneSupers{laneState: s, laneFormat: f, nothing: s.vector(), acc: t.grid(), spread: s.vector()}
	k.total = func(i, v int) Mem { return Mem{Base: sums, Disp: (i*(t.vectors+1) + v) * t.bytes} }
	zero(k.nothing)
	for i := range t.inputs {
		for v := range t.vectors + 1 {
			VMOVUPS(k.nothing, k.total(i, v))
		}
	}
	if f.low == lowInTurn {
		s.quarters()
	}
	VMOVUPS(table("spread16", spread16), k.spread)
	loop("block", blocks, 1, func() {
		for i := range k.acc {
			zero(k.acc[i]...)
		}
		steps := GP64()
		MOVQ(U32(8), steps)
		loop("step", steps, 1, func() {
			k.step()
			ADDQ(Imm(32), s.codes)
			ADDQ(Imm(4), s.side)
			s.x.advance(32)
		})
		SUBQ(Imm(32), s.side)
		k.finish()
		ADDQ(U32(superScaleBytes), s.side)
		s.xSide.advance(sideBytes)
	})
	s.store(func(i int) ([]reg.VecVirtual, reg.VecVirtual) {
		v := t.width.vectors(t.vectors + 1)
		for j := range v {
			VMOVUPS(k.total(i, j), v[j])
		}
		if f.low == lowInTurn {
			return v[:t.vectors], v[t.vectors]
		}
		return v[:t.vectors], nil
	})
}

// spread16 are the indices that give eight words of the first of two scales and then eight of the second, twice.
var spread16 = []uint64{
	0x0100010001000100, 0x0100010001000100, 0x0302030203020302, 0x0302030203020302,
	0x0100010001000100, 0x0100010001000100, 0x0302030203020302, 0x0302030203020302,
}

// step adds 32 elements to the integers.
func (k *laneSupers) step() {
	n := k.vectors
	w, magnitude, scales, negative := make([]reg.VecVirtual, n), make([]reg.VecVirtual, n), make([]reg.VecVirtual, n), make([]reg.Register, n)
	for v := range n {
		w[v] = k.ofRows(v, k.row, 0, k.bytes32())
		if k.raise > 0 {
			VPADDB(k.fill(fmt.Sprint("raise", k.raise), k.raise*0x01010101), w[v], w[v])
		}
		if k.signed {
			magnitude[v] = k.vector()
			VPABSB(w[v], magnitude[v])
			if k.width == avx512 {
				negative[v] = K()
				VPMOVB2M(w[v], negative[v])
			}
		}
		scales[v] = k.ofRows(v, k.record, 0, broadcastDouble)
		VPSHUFB(k.spread, scales[v], scales[v])
	}
	for i := range k.inputs {
		x := k.load(k.x.at(i, 0))
		for v := range n {
			y := k.vector()
			switch {
			case !k.signed:
				VPMADDUBSW(x, w[v], y)
			case k.width == avx512:
				VMOVDQA64(x, y)
				VPSUBB(x, k.nothing, negative[v], y)
				VPMADDUBSW(y, magnitude[v], y)
			default:
				VPSIGNB(w[v], x, y)
				VPMADDUBSW(y, magnitude[v], y)
			}
			if k.width == avx512 {
				dpwssd(y, scales[v], k.acc[i][v])
			} else {
				VPMADDWD(scales[v], y, y)
				VPADDD(y, k.acc[i][v], k.acc[i][v])
			}
		}
	}
}

// finish scales the integers of a block and adds them to the partial sums.
func (k *laneSupers) finish() {
	for v := range k.vectors {
		d := k.ofRows(v, k.record, superD, broadcastSingle)
		var pairs, m reg.VecVirtual
		switch {
		case k.raise > 0:
			pairs = k.ofRows(v, k.record, 0, k.bytes32())
		case k.low == lowInLanes:
			pairs = k.ofRows(v, k.record, superMins, k.bytes32())
			m = k.ofRows(v, k.record, superD+4, broadcastSingle)
		}
		for i := range k.inputs {
			k.finishLanes(i, v, d, m, pairs)
		}
	}
	if k.low == lowInTurn {
		k.finishLow()
	}
}

// finishLanes adds a block of the rows of vector v. Sums of two neighbouring pairs' products with sums of the activations are
// taken from the integers or, times the minima's scale m, from the partial sums.
func (k *laneSupers) finishLanes(i, v int, d, m, pairs reg.VecVirtual) {
	y, sum := k.acc[i][v], k.vector()
	VMOVUPS(k.total(i, v), sum)
	if pairs != nil {
		p := k.load(k.xSide.at(i, sideSums))
		VPMADDWD(pairs, p, p)
		if k.raise > 0 {
			VPSLLD(Imm(5), p, p)
			VPSUBD(p, y, y)
		} else {
			VCVTDQ2PS(p, p)
			VFNMADD231PS(k.times(k.xSide.at(i, sideD), m), p, sum)
		}
	}
	VCVTDQ2PS(y, y)
	VFMADD231PS(k.times(k.xSide.at(i, sideD), d), y, sum)
	VMOVUPS(sum, k.total(i, v))
}

// finishLow adds the minima of a block, a row in a quarter.
func (k *laneSupers) finishLow() {
	mins, m := k.ofQuarters(superMins, k.bytes16()), k.ofQuarters(superD+4, broadcastSingle)
	for i := range k.inputs {
		p, other, sum := k.vector(), k.vector(), k.vector()
		k.bytes16()(k.xSide.at(i, sideSums32), p)
		VPMADDWD(mins, p, p)
		for _, swap := range []uint64{0x4e, 0xb1} {
			VPSHUFD(Imm(swap), p, other)
			VPADDD(other, p, p)
		}
		VCVTDQ2PS(p, p)
		VMOVUPS(k.total(i, k.vectors), sum)
		VFNMADD231PS(k.times(k.xSide.at(i, sideD), m), p, sum)
		VMOVUPS(sum, k.total(i, k.vectors))
	}
}
