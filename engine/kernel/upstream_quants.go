package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
)

// quantPanelUpstream is quantPanel with the sums of blocks added as upstream does.
func quantPanelUpstream(m *product, s *scratch, from, to int) {
	f := formatOf(m.w.Type)
	cols, rows := m.w.Cols, m.w.Rows
	s.codes.resize(cols, f)
	for r := from; r < to; r++ {
		f.unpack(&s.codes, m.w.row(r))
		for i := range m.in.n {
			if f.super {
				x, side := m.in.q8k.row(i, cols)
				m.dst[i*rows+r] = superOrderOf(m.w, m.in.n, i)(&s.codes, x, side)
			} else {
				x, side := m.in.q8.row(i, cols)
				m.dst[i*rows+r] = blockOrderOf(m.w, m.in.n)(&s.codes, x, side)
			}
		}
	}
}

// interleaved reports whether upstream stores the matrix in another layout, eight rows side by side, and so multiplies it by
// other routines ("repack").
func interleaved(w *Matrix) bool {
	return (w.Type == gguf.Q4_0 || w.Type == gguf.Q4_K || w.Type == gguf.IQ4_NL) && w.Rows%8 == 0
}

type (
	blockOrder = func(w *rowCodes, x []int8, side []blockSide) float32
	superOrder = func(w *rowCodes, x []int8, side []superSide) float32
)

// blockOrderOf returns the product of a weight row of a simple format with one of n activation rows.
func blockOrderOf(w *Matrix, n int) blockOrder {
	switch {
	case interleaved(w):
		return blocksInTurn
	case w.Type == gguf.IQ4_NL && n == 1:
		return blocksAlternating
	case formatOf(w.Type).minima:
		return blocksInLanesWithMinima
	}
	return blocksInLanes
}

// blocksInTurn adds the blocks to a single sum.
func blocksInTurn(w *rowCodes, x []int8, side []blockSide) (sum float32) {
	for b, s := range w.simple {
		sum = upstream.FMA(float32(dotCodes(w.codes[b*32:][:32], x[b*32:][:32])), s.d*side[b].d, sum)
	}
	return sum
}

func blocksInLanes(w *rowCodes, x []int8, side []blockSide) float32 {
	var lanes upstream.Lanes
	for b, s := range w.simple {
		sums := upstream.Fours(w.codes[b*32:], x[b*32:])
		lanes.Add(s.d*side[b].d, &sums)
	}
	return lanes.Sum()
}

// blocksInLanesWithMinima adds the minima on their own.
func blocksInLanesWithMinima(w *rowCodes, x []int8, side []blockSide) float32 {
	var low float32
	for b, s := range w.simple {
		low = upstream.FMA(s.m, side[b].s, low)
	}
	return blocksInLanes(w, x, side) + low
}

// blocksAlternating adds even and odd blocks apart, and a last one that has no pair to the total.
func blocksAlternating(w *rowCodes, x []int8, side []blockSide) float32 {
	var lanes [2]upstream.Lanes
	pairs := len(w.simple) / 2 * 2
	for b, s := range w.simple[:pairs] {
		sums := upstream.Fours(w.codes[b*32:], x[b*32:])
		lanes[b%2].Add(s.d*side[b].d, &sums)
	}
	lanes[0].Plus(&lanes[1])
	total := lanes[0].Sum()
	for b := pairs; b < len(w.simple); b++ {
		total = upstream.FMA(w.simple[b].d*side[b].d, float32(dotCodes(w.codes[b*32:], x[b*32:][:32])), total)
	}
	return total
}

// superOrderOf returns the product of a weight row of a K format with activation row i of n.
func superOrderOf(w *Matrix, n, i int) superOrder {
	switch {
	case interleaved(w) && i < n/4*4:
		return quartersInTurn
	case interleaved(w):
		return supersInTurn
	case w.Type == gguf.IQ4_XS && w.Rows%8 == 0 && n >= 8: // interleaved for the time of the product
		return supersInTurn
	case w.Type == gguf.Q2_K:
		return supersWithMinimaInLanes
	case w.Type == gguf.Q4_K:
		return supersWithMinimaInFour
	case w.Type == gguf.Q5_K:
		return supersWithMinimaInTurn
	case w.Type == gguf.Q6_K:
		return supersRaised
	}
	return supersInLanes
}

// supersInTurn adds whole blocks to a single sum, and their minima to another.
func supersInTurn(w *rowCodes, x []int8, side []superSide) float32 {
	return inTurn(w, x, side, 256)
}

// quartersInTurn is supersInTurn with a quarter of a block added at a time: what four activation rows together get.
func quartersInTurn(w *rowCodes, x []int8, side []superSide) float32 {
	return inTurn(w, x, side, 64)
}

func inTurn(w *rowCodes, x []int8, side []superSide, step int) float32 {
	var sum, low float32
	for b := range w.super {
		s, a := &w.super[b], &side[b]
		d, m := s.d*a.d, s.m*a.d
		for at := 0; at < 256; at += step {
			var v, l int32
			for j := at / 32; j < (at+step)/32; j++ {
				c := b*256 + j*32
				v += int32(s.scales[2*j]) * dotCodes(w.codes[c:][:32], x[c:][:32])
				l += int32(s.mins[j]) * int32(a.sums32[j])
			}
			sum, low = upstream.FMA(float32(v), d, sum), upstream.FMA(float32(l), m, low)
		}
	}
	return sum - low
}

func supersInLanes(w *rowCodes, x []int8, side []superSide) float32 {
	var lanes upstream.Lanes
	for b := range w.super {
		addSuper(&lanes, w, x, side, b)
	}
	return lanes.Sum()
}

// addSuper adds block b.
func addSuper(lanes *upstream.Lanes, w *rowCodes, x []int8, side []superSide, b int) {
	s := &w.super[b]
	sums := upstream.ScaledFours(w.codes[b*256:], x[b*256:], &s.scales, 0)
	lanes.Add(s.d*side[b].d, &sums)
}

// supersWithMinimaInLanes is Q2_K: the minima of a block go to the same partial sums before the block does.
func supersWithMinimaInLanes(w *rowCodes, x []int8, side []superSide) float32 {
	var lanes upstream.Lanes
	for b := range w.super {
		s, a := &w.super[b], &side[b]
		low := upstream.Pairs(&s.mins, &a.sums)
		lanes.Add(-s.m*a.d, &low)
		addSuper(&lanes, w, x, side, b)
	}
	return lanes.Sum()
}

// supersWithMinimaInFour is Q4_K: the minima have four partial sums of their own.
func supersWithMinimaInFour(w *rowCodes, x []int8, side []superSide) float32 {
	var lanes, low upstream.Lanes // the upper half of low stays zero
	for b := range w.super {
		addSuper(&lanes, w, x, side, b)
		pairs := minima32(&w.super[b], &side[b])
		low.Add(-w.super[b].m*side[b].d, &pairs)
	}
	return lanes.Sum() + low.Sum()
}

// supersWithMinimaInTurn is Q5_K: the minima have a sum of their own.
func supersWithMinimaInTurn(w *rowCodes, x []int8, side []superSide) float32 {
	var lanes upstream.Lanes
	var low float32
	for b := range w.super {
		addSuper(&lanes, w, x, side, b)
		pairs := minima32(&w.super[b], &side[b])
		low = upstream.FMA(-w.super[b].m*side[b].d, float32(upstream.Total(pairs[:])), low)
	}
	return lanes.Sum() + low
}

// minima32 returns the sums of two minima each times the sums of the activations.
func minima32(s *superScale, a *superSide) [8]int32 {
	var sums [16]int16
	copy(sums[:], a.sums32[:])
	return upstream.Pairs(&s.mins, &sums)
}

// supersRaised is Q6_K: codes are multiplied without their offset, which is made good by sums of the activations that lie in
// other partial sums.
func supersRaised(w *rowCodes, x []int8, side []superSide) float32 {
	var lanes upstream.Lanes
	for b := range w.super {
		s, a := &w.super[b], &side[b]
		sums := upstream.ScaledFours(w.codes[b*256:], x[b*256:], &s.scales, 32)
		for i, v := range upstream.Pairs(&s.scales, &a.sums) {
			sums[i] -= 32 * v
		}
		lanes.Add(s.d*a.d, &sums)
	}
	return lanes.Sum()
}
