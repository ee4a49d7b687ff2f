package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ofUpstream are the products with quantised weights in upstream's order: with sums in lanes, in lane.go, and with blocks in
// turn, here.
func ofUpstream() {
	for _, t := range []laneTile{{avx2, 1, 1}, {avx2, 1, 2}, {avx2, 1, 4}, {avx512, 2, 1}, {avx512, 2, 2}, {avx512, 2, 4}, {avx512, 2, 6}} {
		t.blocks(false)
		t.blocks(true)
		for _, f := range laneFormats {
			t.supers(f)
		}
	}
	for _, t := range []integerTile{{avx2, 1, 1}, {avx2, 1, 2}, {avx2, 1, 4}, {avx512, 2, 1}, {avx512, 2, 2}, {avx512, 2, 4}, {avx512, 2, 6}} {
		t.blocksInTurn()
		t.supersInTurn()
		t.minimaInTurn(256)
		t.minimaInTurn(64)
	}
}

// blocksInTurn is blocks with the product and the addition fused.
func (t integerTile) blocksInTurn() {
	t.blocksAdding("blocksInTurn", false, (*integerState).block, func(d, y, total reg.VecVirtual) { VFMADD231PS(d, y, total) })
}

// addFused adds, to the totals in memory, sums times the weights' scales at from times the activations' scales.
func (s *integerState) addFused(sr rows, from func(v int) Mem, sums [][]reg.VecVirtual, total func(i, v int) Mem) {
	for i := range s.inputs {
		dx := s.vector()
		VBROADCASTSS(sr.at(i, sideD), dx)
		for v := range s.vectors {
			d, y := s.vector(), sums[i][v]
			VMULPS(from(v), dx, d)
			VCVTDQ2PS(y, y)
			VFMADD213PS(total(i, v), d, y)
			VMOVUPS(y, total(i, v))
		}
	}
}

// supersInTurn: signed codes with scales of 32 elements and no minima.
func (t integerTile) supersInTurn() {
	t.supersAdding("supersInTurn", 32, func(s *integerState, _ int, xr, sr rows, whole [][]reg.VecVirtual) {
		s.beginRun(sr, sideBias32)
		s.codes(xr, 8)
		s.scaled(whole, false)
	}, func(s *integerState, sum reg.GPVirtual, sr rows, whole [][]reg.VecVirtual) {
		s.addFused(sr, func(v int) Mem { return Mem{Base: s.scales, Disp: 8*4*t.rows() + v*t.bytes} }, whole,
			func(i, v int) Mem { return Mem{Base: sum, Disp: (i*t.vectors + v) * t.bytes} })
	})
}

// minimaInTurn: unsigned codes with scales and minima of 32 elements. What is added at a time is a part of a block.
func (t integerTile) minimaInTurn(part int) {
	s, sum, blocks, xr, sr := t.start(fmt.Sprintf("minimaInTurn%dx", part),
		fmt.Sprintf("sums [%d][2][%d]: to the first are added products over blocks of 256, %d elements at a time, to the second products of minima; strides in bytes; blocks > 0.", t.inputs, t.rows(), part))
	field := t.rows() * 4
	whole := t.grid()
	record := GP64()
	of := func(f, v int) Mem { return Mem{Base: record, Disp: f*field + v*t.bytes} }
	at := func(i, second, v int) Mem { return Mem{Base: sum, Disp: ((2*i+second)*t.vectors + v) * t.bytes} }
	add := func() {
		s.addFused(sr, func(v int) Mem { return of(16, v) }, whole, func(i, v int) Mem { return at(i, 0, v) })
	}
	loop("block", blocks, 1, func() {
		MOVQ(s.scales, record)
		t.each(func(i, v int) { s.lowInTurn(sr, i, func(f int) Mem { return of(f, v) }, at(i, 1, v), part) })
		t.each(func(i, v int) { zero(whole[i][v]) })
		quarters := GP64()
		MOVQ(U32(4), quarters)
		loop("quarter", quarters, 1, func() {
			for range 2 {
				t.each(func(i, v int) { zero(s.acc[i][v]) })
				s.codes(xr, 8)
				s.scaled(whole, false)
				ADDQ(U32(field), s.scales)
			}
			if part == 64 {
				add()
				t.each(func(i, v int) { zero(whole[i][v]) })
			}
		})
		if part == 256 {
			add()
		}
		ADDQ(U32(10*field), s.scales)
		sr.advance(sideBytes)
	})
	end()
}

// lowInTurn adds the products of minima with sums of the activations, for the rows of one vector, to total.
func (s *integerState) lowInTurn(sr rows, i int, field func(f int) Mem, total Mem, part int) {
	m, acc, sum := s.vector(), s.vector(), s.vector()
	VBROADCASTSS(sr.at(i, sideD), m)
	VMULPS(field(17), m, m)
	VMOVUPS(total, acc)
	zero(sum)
	for q := range 4 {
		y := s.vector()
		VPBROADCASTD(sr.at(i, sideSums32+4*q), y)
		VPMADDWD(field(8+q), y, y)
		if part == 256 {
			VPADDD(y, sum, sum)
			if q < 3 {
				continue
			}
			y = sum
		}
		VCVTDQ2PS(y, y)
		VFMADD231PS(y, m, acc)
	}
	VMOVUPS(acc, total)
}
