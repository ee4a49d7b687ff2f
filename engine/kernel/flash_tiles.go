package kernel

// flashTiles takes a tile through the cells [base, base+groupCells), of which none from hi on is visible, the way upstream
// does it for many query rows: all scores first, every product summed element after element; one step of the softmax; then
// the values, cell after cell.
func (f *flash) flashTiles(t *flashTile, base, hi int) {
	rows, cells := t.to-t.from, hi-base
	scores := t.s[:rows*groupCells]
	clear(scores)
	f.keys(t.k, groupCells, &f.K, t.head, base, cells, f.DimK, t.few) // in the other columns is anything: weigh hides them
	f.multiplyAdd(scores, groupCells, t.q, f.DimK, t.k, groupCells, rows, f.DimK, groupCells)
	for r := range rows {
		f.weigh(t, r, scores[r*groupCells:][:groupCells], base)
	}
	f.values(t.v, &f.V, t.head, base, cells, f.DimV)
	f.multiplyAdd(t.out, f.DimV, scores, groupCells, t.v, f.DimV, rows, cells, f.DimV)
}

// weigh turns the scores of row r and the cells from base on into weights.
func (f *flash) weigh(t *flashTile, r int, scores []float32, base int) {
	hide(scores, f.spans(t, r), base)
	top := f.scaleMax(scores, f.Scale)
	if top == negInf {
		clear(scores)
		return
	}
	softmax := &t.softmax[r]
	if top > softmax.Top {
		out := t.out[r*f.DimV:][:f.DimV]
		f.scale(out, out, softmax.RaiseTo(top))
	}
	softmax.Add(f.softMax(scores, softmax.Top))
}

// scaleMax computes x *= scale and returns the greatest result.
func scaleMax(x []float32, scale float32) float32 {
	top := negInf
	for i, v := range x {
		x[i] = v * scale
		top = max(top, x[i])
	}
	return top
}
