package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
)

// flashRows takes a tile through the cells [lo, hi), at most groupCells, the way upstream does it for few query rows and
// for quantised caches: one row and one cell after the other. The sum of values in half precision is rounded at every cell.
func (f *flash) flashRows(t *flashTile, lo, hi int) {
	if isFloat(f.K.Type) {
		f.values(t.k, &f.K, t.head, lo, hi-lo, f.DimK)
	}
	f.values(t.v, &f.V, t.head, lo, hi-lo, f.DimV)
	for r := range t.to - t.from {
		for _, s := range f.spans(t, r) {
			if from, to := max(s.From, lo), min(s.To, hi); from < to {
				scores := t.s[:to-from]
				f.score(scores, t, r, from, lo)
				f.scale(scores, scores, f.Scale)
				f.accumulate(t, r, scores, t.v[(from-lo)*f.DimV:])
			}
		}
	}
}

// score computes the products of row r with the cells from cell on; t.k begins with cell lo.
func (f *flash) score(scores []float32, t *flashTile, r, cell, lo int) {
	if isFloat(f.K.Type) {
		q, k := t.q[r*f.DimK:][:f.DimK], t.k[(cell-lo)*f.DimK:]
		if f.DimK%32 == 0 && f.K.Type != gguf.BF16 {
			f.dotCells(scores, q, k)
			return
		}
		for i := range scores {
			scores[i] = f.dot32(f.K.Type, k[i*f.DimK:][:f.DimK], q)
		}
		return
	}
	codes, side := t.codes[r*f.DimK:][:f.DimK], t.side[r*f.DimK/32:][:f.DimK/32]
	f.dotCodedCells(scores, codes, side, &f.K, t.head, cell, &t.row)
}

// accumulate adds cells with these scores to row r. v [cells][DimV] are their values.
func (f *flash) accumulate(t *flashTile, r int, scores, v []float32) {
	softmax, out := &t.softmax[r], t.out[r*f.DimV:][:f.DimV]
	for from := 0; from < len(scores); {
		first := from // that is not weighed yet
		if s := scores[from]; s > softmax.Top {
			f.scale(out, out, softmax.Raise(s))
			if f.V.Type == gguf.F16 {
				f.roundF16(out, out)
			}
			scores[from] = 1
			first++
		}
		to := first
		for to < len(scores) && !(scores[to] > softmax.Top) {
			to++
		}
		f.expBelow(scores[first:to], softmax.Top)
		softmax.AddEach(scores[first:to])
		f.addCells(out, scores[from:to], v[from*f.DimV:])
		from = to
	}
}

// addCells adds values [len(weights)][DimV] to out.
func (f *flash) addCells(out, weights, v []float32) {
	switch {
	case len(weights) == 0:
	case f.V.Type == gguf.F16:
		f.addHalves(out, weights, v)
	default:
		f.multiplyAdd(out, f.DimV, weights, len(weights), v, f.DimV, 1, len(weights), f.DimV)
	}
}

// expBelow replaces scores by e^(score - top), by the C library's function for single numbers.
func expBelow(scores []float32, top float32) {
	for i, s := range scores {
		scores[i] = upstream.ScalarExp(s - top)
	}
}

// dotCells computes the products of q with rows k [len(dst)][len(q)]; len(q) is a multiple of 32.
func dotCells(dst, q, k []float32) {
	for i := range dst {
		dst[i] = upstream.Dot32(k[i*len(q):][:len(q)], q)
	}
}

// dotCodedCells computes the products of a query in Q8_0 with quantised keys of a head in the cells from cell on.
func dotCodedCells(dst []float32, codes []int8, side []blockSide, k *KVRows, head, cell int, row *rowCodes) {
	format, size := formatOf(k.Type), k.Type.RowBytes(len(codes))
	for i := range dst {
		format.unpack(row, k.head(cell+i, head, size))
		dst[i] = sumBlocks(blocksInLanes, row, codes, side)
	}
}

// addHalves adds weights[i] * v[i] to sums, v [len(weights)][len(sums)], and rounds the sums to half precision each time.
func addHalves(sums, weights, v []float32) { addHalfColumns(sums, weights, v, 0) }

// addHalfColumns is addHalves for the columns from the given one on.
func addHalfColumns(sums, weights, v []float32, from int) {
	n, sums := len(sums), sums[from:]
	for i, weight := range weights {
		upstream.AddScaled(sums, v[i*n+from:(i+1)*n], weight)
		roundF16(sums, sums)
	}
}
