//go:build !purego

package kernel

import "unsafe"

type laneFunc = func(dst *float32, strideDst int, sums *float32, codes *int8, scales *byte, x *int8, strideX int, side *byte, strideSide int, blocks int)

// upstreamTiles computes products with quantised weights in upstream's order: where sums are in lanes, from rows of codes as
// they are, where they are in turn, from panels with a weight row in each lane.
type upstreamTiles struct {
	inputs   []int // activation rows of the kernels
	laneRows int   // weight rows of a lane kernel
	lanes    map[quantOrder][]laneFunc
	turn     map[quantOrder][]integerFunc // of formats without minima

	whole, quarters  []integerFunc // of formats with minima, in turn, a block or a quarter of one at a time
	signed, unsigned panelLayout   // for kernels in turn: codes of formats with minima are unsigned
}

// Distance of rows in a panel of codes, in bytes, which the assembly knows. Longer rows are left to the generic kernels.
const (
	laneCols  = 16384
	laneCodes = laneCols + 64
	laneSide  = laneCols/256*int(unsafe.Sizeof(superScale{})) + 64
)

func upstreamTilesAVX2() *upstreamTiles {
	return &upstreamTiles{
		inputs: []int{4, 2, 1}, laneRows: 1,
		lanes: map[quantOrder][]laneFunc{
			blocksInLanes:       {laneBlocks4AVX2, laneBlocks2AVX2, laneBlocks1AVX2},
			blocksMinimaInTurn:  {laneBlocksMin4AVX2, laneBlocksMin2AVX2, laneBlocksMin1AVX2},
			supersInLanes:       {laneSupers4AVX2, laneSupers2AVX2, laneSupers1AVX2},
			supersRaised:        {laneSupersRaised4AVX2, laneSupersRaised2AVX2, laneSupersRaised1AVX2},
			supersMinimaInLanes: {laneSupersMinLanes4AVX2, laneSupersMinLanes2AVX2, laneSupersMinLanes1AVX2},
			supersMinimaInTurn:  {laneSupersMinTurn4AVX2, laneSupersMinTurn2AVX2, laneSupersMinTurn1AVX2},
		},
		turn: map[quantOrder][]integerFunc{
			blocksInTurn: {blocksInTurn4AVX2, blocksInTurn2AVX2, blocksInTurn1AVX2},
			supersInTurn: {supersInTurn4AVX2, supersInTurn2AVX2, supersInTurn1AVX2},
		},
		whole:    []integerFunc{minimaInTurn256x4AVX2, minimaInTurn256x2AVX2, minimaInTurn256x1AVX2},
		quarters: []integerFunc{minimaInTurn64x4AVX2, minimaInTurn64x2AVX2, minimaInTurn64x1AVX2},
		signed:   layoutAVX2(), unsigned: layoutAVX2(),
	}
}

func upstreamTilesAVX512() *upstreamTiles {
	return &upstreamTiles{
		inputs: []int{6, 4, 2, 1}, laneRows: 4,
		lanes: map[quantOrder][]laneFunc{
			blocksInLanes:       {laneBlocks6AVX512, laneBlocks4AVX512, laneBlocks2AVX512, laneBlocks1AVX512},
			blocksMinimaInTurn:  {laneBlocksMin6AVX512, laneBlocksMin4AVX512, laneBlocksMin2AVX512, laneBlocksMin1AVX512},
			supersInLanes:       {laneSupers6AVX512, laneSupers4AVX512, laneSupers2AVX512, laneSupers1AVX512},
			supersRaised:        {laneSupersRaised6AVX512, laneSupersRaised4AVX512, laneSupersRaised2AVX512, laneSupersRaised1AVX512},
			supersMinimaInLanes: {laneSupersMinLanes6AVX512, laneSupersMinLanes4AVX512, laneSupersMinLanes2AVX512, laneSupersMinLanes1AVX512},
			supersMinimaInTurn:  {laneSupersMinTurn6AVX512, laneSupersMinTurn4AVX512, laneSupersMinTurn2AVX512, laneSupersMinTurn1AVX512},
		},
		turn: map[quantOrder][]integerFunc{
			blocksInTurn: {blocksInTurn6AVX512, blocksInTurn4AVX512, blocksInTurn2AVX512, blocksInTurn1AVX512},
			supersInTurn: {supersInTurn6AVX512, supersInTurn4AVX512, supersInTurn2AVX512, supersInTurn1AVX512},
		},
		whole:    []integerFunc{minimaInTurn256x6AVX512, minimaInTurn256x4AVX512, minimaInTurn256x2AVX512, minimaInTurn256x1AVX512},
		quarters: []integerFunc{minimaInTurn64x6AVX512, minimaInTurn64x4AVX512, minimaInTurn64x2AVX512, minimaInTurn64x1AVX512},
		signed:   layoutAVX512().raised(), unsigned: layoutAVX512(),
	}
}

// panel is quantPanelUpstream.
func (t *upstreamTiles) panel(m *product, s *scratch, from, to int) {
	order := quantOrderOf(m.w, m.in.n)
	switch {
	case t.turn[order] != nil:
		t.inTurn(m, s, order, from, to)
	case t.lanes[order] != nil && m.w.Cols <= laneCols:
		t.inLanes(m, s, t.lanes[order], from, to)
	default:
		quantPanelUpstream(m, s, from, to)
	}
}

// tiles calls f for activation rows i, i+1... with the number of the kernel for so many.
func (t *upstreamTiles) tiles(from, to int, f func(i, kernel int)) {
	for i, k := from, 0; i < to; {
		if to-i < t.inputs[k] {
			k++
			continue
		}
		f(i, k)
		i += t.inputs[k]
	}
}

// inLanes unpacks the weight rows and multiplies a few of them at a time with a few activation rows.
func (t *upstreamTiles) inLanes(m *product, s *scratch, kernels []laneFunc, from, to int) {
	f, cols, stride := formatOf(m.w.Type), m.w.Cols, m.w.Type.RowBytes(m.w.Cols)
	rows, p := to-from, &s.panel
	room := (rows + t.laneRows - 1) / t.laneRows * t.laneRows
	p.codes, p.side = grow(p.codes, room*laneCodes), grow(p.side, room*laneSide/4)
	x, side, strideSide, blocks := m.in.integerForm(f, 0, cols)
	scales := unsafe.Pointer(&p.side[0])
	unpackers[m.w.Type](&p.codes[0], laneCodes, (*byte)(scales), laneSide, &m.w.Data[from*stride], stride, rows, blocks)
	s.sums = grow(s.sums, t.inputs[0]*3*16)
	t.tiles(0, m.in.n, func(i, k int) {
		for r := 0; r < rows; r += t.laneRows {
			dst, strideDst := &m.dst[i*m.w.Rows+from+r], m.w.Rows*4
			partial := r+t.laneRows > rows
			if partial {
				dst, strideDst = &s.few[0], t.laneRows*4
			}
			kernels[k](dst, strideDst, &s.sums[0], &p.codes[r*laneCodes], (*byte)(unsafe.Add(scales, r*laneSide)),
				&x[i*cols], cols, (*byte)(unsafe.Add(side, i*strideSide)), strideSide, blocks)
			for j := 0; partial && j < t.inputs[k]; j++ {
				copy(m.dst[(i+j)*m.w.Rows+from+r:(i+j)*m.w.Rows+to], s.few[j*t.laneRows:])
			}
		}
	})
}

// inTurn lays out panels as integerTiles does.
func (t *upstreamTiles) inTurn(m *product, s *scratch, order quantOrder, from, to int) {
	f := formatOf(m.w.Type)
	layout, size := &t.signed, t.signed.rows
	if f.minima {
		layout, size = &t.unsigned, 2*size
	}
	s.sums = grow(s.sums, m.in.n*size)
	for r := from; r < to; r += layout.rows {
		rows := min(layout.rows, to-r)
		clear(s.sums)
		for k := 0; k < m.w.Cols; k += panelDepth {
			depth := min(panelDepth, m.w.Cols-k)
			layout.pack(m.w, f, unpackers[m.w.Type], &s.panel, r, rows, k, depth)
			if f.minima {
				fours := foursOf(m.w, m.in.n)
				t.addInTurn(m, s, t.quarters, 0, fours, size, k, depth)
				t.addInTurn(m, s, t.whole, fours, m.in.n, size, k, depth)
			} else {
				t.addInTurn(m, s, t.turn[order], 0, m.in.n, size, k, depth)
			}
		}
		for i := range m.in.n {
			out, sums := m.dst[i*m.w.Rows+r:][:rows], s.sums[i*size:][:size]
			copy(out, sums)
			if f.minima {
				for j, low := range sums[layout.rows:][:rows] {
					out[j] -= low
				}
			}
		}
	}
}

// addInTurn adds the products of a panel with columns [k, k+depth) of activation rows [from, to).
func (t *upstreamTiles) addInTurn(m *product, s *scratch, kernels []integerFunc, from, to, size, k, depth int) {
	codes, side, strideSide, blocks := m.in.integerForm(formatOf(m.w.Type), k, depth)
	scales := (*byte)(unsafe.Pointer(&s.panel.laneSide[0]))
	t.tiles(from, to, func(i, j int) {
		kernels[j](&s.sums[i*size], &s.panel.laneCodes[0], scales, &codes[i*m.w.Cols+k], m.w.Cols,
			(*byte)(unsafe.Add(side, i*strideSide)), strideSide, blocks)
	})
}
