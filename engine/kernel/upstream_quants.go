package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
)

// quantOrder is the order in which upstream adds up the blocks of a product with quantised weights. What is within a block is
// an integer, and so the same in any order.
type quantOrder int

// Orders. Four neighbouring elements go to the same partial sum.
const (
	blocksInTurn        quantOrder = iota // blocks of 32: one sum
	blocksInLanes                         // eight partial sums
	blocksMinimaInTurn                    // the same, and a sum for the minima
	blocksAlternating                     // eight partial sums for even blocks and eight for odd ones
	supersInTurn                          // blocks of 256: one sum, and one for the minima
	supersInLanes                         // eight partial sums
	supersRaised                          // the same; an offset of the codes is taken from other partial sums than theirs
	supersMinimaInLanes                   // the same; minima go to the same partial sums, before the products
	supersMinimaInFour                    // the same; minima have four partial sums
	supersMinimaInTurn                    // the same; minima have a sum
)

// interleaved reports whether upstream stores the matrix in another layout, eight rows side by side, and so multiplies it by
// other routines ("repack").
func interleaved(w *Matrix) bool {
	return (w.Type == gguf.Q4_0 || w.Type == gguf.Q4_K || w.Type == gguf.IQ4_NL) && w.Rows%8 == 0
}

// quantOrderOf returns the order of products with n activation rows, those apart that foursOf counts.
func quantOrderOf(w *Matrix, n int) quantOrder {
	switch t := w.Type; {
	case interleaved(w) && t == gguf.Q4_K:
		return supersInTurn
	case interleaved(w):
		return blocksInTurn
	case t == gguf.IQ4_XS && w.Rows%8 == 0 && n >= 8: // interleaved for as long as the product takes
		return supersInTurn
	case t == gguf.IQ4_NL && n == 1:
		return blocksAlternating
	case t == gguf.Q2_K:
		return supersMinimaInLanes
	case t == gguf.Q4_K:
		return supersMinimaInFour
	case t == gguf.Q5_K:
		return supersMinimaInTurn
	case t == gguf.Q6_K:
		return supersRaised
	case formatOf(t).super:
		return supersInLanes
	case formatOf(t).minima:
		return blocksMinimaInTurn
	}
	return blocksInLanes
}

// foursOf returns how many activation rows, from the first on, are multiplied four at a time by a routine that adds quarters of
// blocks in turn.
func foursOf(w *Matrix, n int) int {
	if interleaved(w) && w.Type == gguf.Q4_K {
		return n / 4 * 4
	}
	return 0
}

// quantPanelUpstream is quantPanel with the blocks added up as upstream does.
func quantPanelUpstream(m *product, s *scratch, from, to int) {
	f := formatOf(m.w.Type)
	cols, rows := m.w.Cols, m.w.Rows
	order, fours := quantOrderOf(m.w, m.in.n), foursOf(m.w, m.in.n)
	s.codes.resize(cols, f)
	for r := from; r < to; r++ {
		f.unpack(&s.codes, m.w.row(r))
		for i := range m.in.n {
			out := &m.dst[i*rows+r]
			switch {
			case !f.super:
				x, side := m.in.q8.row(i, cols)
				*out = sumBlocks(order, &s.codes, x, side)
			case i < fours:
				x, side := m.in.q8k.row(i, cols)
				*out = sumSupersInTurn(&s.codes, x, side, 64)
			default:
				x, side := m.in.q8k.row(i, cols)
				*out = sumSupers(order, &s.codes, x, side)
			}
		}
	}
}

// sumBlocks is the product of a weight row of a simple format with an activation row.
func sumBlocks(order quantOrder, w *rowCodes, x []int8, side []blockSide) float32 {
	switch order {
	case blocksInTurn:
		return sumBlocksInTurn(w, x, side, 0, 0)
	case blocksAlternating:
		return sumBlocksAlternating(w, x, side)
	}
	var lanes upstream.Lanes
	var low float32
	for b, s := range w.simple {
		sums := upstream.Fours(w.codes[b*32:], x[b*32:])
		lanes.Add(s.d*side[b].d, &sums)
		if order == blocksMinimaInTurn {
			low = upstream.FMA(s.m, side[b].s, low)
		}
	}
	return lanes.Sum() + low
}

// sumBlocksInTurn adds the blocks from one on to sum.
func sumBlocksInTurn(w *rowCodes, x []int8, side []blockSide, from int, sum float32) float32 {
	for b := from; b < len(w.simple); b++ {
		sum = upstream.FMA(float32(dotCodes(w.codes[b*32:][:32], x[b*32:][:32])), w.simple[b].d*side[b].d, sum)
	}
	return sum
}

// sumBlocksAlternating adds a last block that has no pair to the total.
func sumBlocksAlternating(w *rowCodes, x []int8, side []blockSide) float32 {
	var lanes [2]upstream.Lanes
	pairs := len(w.simple) / 2 * 2
	for b, s := range w.simple[:pairs] {
		sums := upstream.Fours(w.codes[b*32:], x[b*32:])
		lanes[b%2].Add(s.d*side[b].d, &sums)
	}
	lanes[0].Plus(&lanes[1])
	return sumBlocksInTurn(w, x, side, pairs, lanes[0].Sum())
}

// sumSupers is the product of a weight row of a K format with an activation row.
func sumSupers(order quantOrder, w *rowCodes, x []int8, side []superSide) float32 {
	if order == supersInTurn {
		return sumSupersInTurn(w, x, side, 256)
	}
	var lanes, fours upstream.Lanes // the upper half of fours stays zero
	var low float32
	for b := range w.super {
		s, a := &w.super[b], &side[b]
		m := s.m * a.d
		switch order {
		case supersMinimaInLanes:
			sums := upstream.Pairs(&s.mins, &a.sums)
			lanes.Add(-m, &sums)
		case supersMinimaInFour:
			sums := minima32(s, a)
			fours.Add(-m, &sums)
		case supersMinimaInTurn:
			sums := minima32(s, a)
			low = upstream.FMA(-m, float32(upstream.Total(sums[:])), low)
		}
		sums := upstream.ScaledFours(w.codes[b*256:], x[b*256:], &s.scales)
		if order == supersRaised {
			raise(&sums, s, x[b*256:], &a.sums)
		}
		lanes.Add(s.d*a.d, &sums)
	}
	return lanes.Sum() + (fours.Sum() + low)
}

// thirtyTwo is the offset of all codes of a block of Q6_K.
var thirtyTwo = func() (codes [256]int8) {
	for i := range codes {
		codes[i] = 32
	}
	return codes
}()

// raise makes of a block's sums those of codes without their offset, less what that comes to in the whole block, which is divided
// among the partial sums in another way.
func raise(sums *[8]int32, s *superScale, x []int8, activations *[16]int16) {
	offset, made := upstream.ScaledFours(thirtyTwo[:], x, &s.scales), upstream.Pairs(&s.scales, activations)
	for i := range sums {
		sums[i] += offset[i] - 32*made[i]
	}
}

// minima32 returns the sums of two minima each times the sums of the activations.
func minima32(s *superScale, a *superSide) [8]int32 {
	var sums [16]int16
	copy(sums[:], a.sums32[:])
	return upstream.Pairs(&s.mins, &sums)
}

// sumSupersInTurn adds parts of blocks to a sum, and their minima to another.
func sumSupersInTurn(w *rowCodes, x []int8, side []superSide, part int) float32 {
	var sum, low float32
	for b := range w.super {
		s, a := &w.super[b], &side[b]
		d, m := s.d*a.d, s.m*a.d
		for at := 0; at < 256; at += part {
			var v, l int32
			for j := at / 32; j < (at+part)/32; j++ {
				c := b*256 + j*32
				v += int32(s.scales[2*j]) * dotCodes(w.codes[c:][:32], x[c:][:32])
				l += int32(s.mins[j]) * int32(a.sums32[j])
			}
			sum, low = upstream.FMA(float32(v), d, sum), upstream.FMA(float32(l), m, low)
		}
	}
	return sum - low
}
