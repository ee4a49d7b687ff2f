package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
)

// flash is Attend the way upstream's flash attention does it. Upstream has two ways to take a query row through the cells,
// flashTiles and flashRows, and may cut the cells into pieces. A row's result depends on which way it takes, on the pieces
// and on the numbers of the cells, but not on the other rows, so that work is shared out differently here: a tile is some rows
// that read the same KV head, each the query of one head of one token.
type flash struct {
	*Attention
	*kernels
	group      int // query heads per KV head
	rows       int // rows per KV head
	tileRows   int
	tiles      int // per KV head
	cells      int // upstream looks at cells [0, cells)
	piece      int // cells of a piece
	pieces     int
	whole      bool               // by flashTiles
	softmax    []upstream.Running // [heads][pieces]: of the pieces, while there are several
	sums       []float32          // [heads][pieces][DimV]
	item, join func(worker, i int)
}

// flashTile is the state and scratch of one tile.
type flashTile struct {
	head     int // KV head
	from, to int // rows
	first    int // piece of the cells: [first, end)
	end      int

	q       []float32   // [rows][DimK]
	codes   []int8      // [rows][DimK], q in Q8_0
	side    []blockSide // [rows][DimK/32]
	k       []float32   // [groupCells][DimK], or transposed
	few     []float32   // [16][DimK]
	v       []float32   // [groupCells][DimV]
	s       []float32   // [rows][groupCells]: scores, then weights
	out     []float32   // [rows][DimV]
	softmax []upstream.Running
	row     rowCodes
}

const (
	upstreamTile   = 64  // query rows from which on upstream's attention works in tiles
	upstreamPieces = 512 // cells from which on it shares those of a single query row out to the threads
)

func (f *flash) init(p *Pool) {
	f.item = func(worker, i int) { f.tile(&p.scratch[worker].flash, i) }
	f.join = func(_, i int) { f.joinPieces(i) }
}

func (f *flash) run(p *Pool, a *Attention) {
	f.Attention, f.kernels = a, p.kernels
	f.group = a.Heads / a.HeadsKV
	f.rows = a.N * f.group
	f.cells = a.Cells
	if f.cells == 0 {
		f.cells = (a.lastCell() + 255) / 256 * 256
	}
	alike := a.K.Type == a.V.Type && (a.K.Type == gguf.F16 || a.K.Type == gguf.F32)
	f.whole = alike && a.N >= upstreamTile && a.DimV%8 == 0
	f.piece, f.pieces = f.cells, 1
	if alike && a.N == 1 && f.cells >= upstreamPieces {
		f.piece = (f.cells + p.Threads() - 1) / p.Threads()
		f.pieces = (f.cells + f.piece - 1) / f.piece
	}
	share := f.rows * a.HeadsKV / (2 * p.Threads())
	f.tileRows = min(f.rows, tileRows, max(share, 1))
	f.tiles = (f.rows + f.tileRows - 1) / f.tileRows
	if f.pieces > 1 {
		f.softmax = grow(f.softmax, a.Heads*f.pieces)
		f.sums = grow(f.sums, a.Heads*f.pieces*a.DimV)
	}
	p.Run(f.tiles*a.HeadsKV*f.pieces, f.item)
	if f.pieces > 1 {
		p.Run(a.Heads, f.join)
	}
	f.Attention = nil
}

// tile takes the rows of an item through its cells.
func (f *flash) tile(t *flashTile, item int) {
	piece, item := item%f.pieces, item/f.pieces
	t.head = item % f.HeadsKV
	t.from = item / f.HeadsKV * f.tileRows
	t.to = min(f.rows, t.from+f.tileRows)
	t.first, t.end = piece*f.piece, min(f.cells, (piece+1)*f.piece)
	f.begin(t)
	lo, hi := f.seen(t, t.first, t.end)
	for base := lo / groupCells * groupCells; base < hi; base += groupCells {
		lo, hi := f.seen(t, max(base, t.first), min(base+groupCells, t.end))
		switch {
		case lo >= hi:
		case f.whole:
			f.flashTiles(t, base, hi)
		default:
			f.flashRows(t, lo, hi)
		}
	}
	f.finish(t, piece)
}

// begin gathers the queries of a tile, as the products with keys need them, and empties its sums.
func (f *flash) begin(t *flashTile) {
	rows := t.to - t.from
	t.q, t.s = grow(t.q, rows*f.DimK), grow(t.s, rows*groupCells)
	t.k, t.v, t.few = grow(t.k, groupCells*f.DimK), grow(t.v, groupCells*f.DimV), grow(t.few, 16*f.DimK)
	t.out, t.softmax = grow(t.out, rows*f.DimV), grow(t.softmax, rows)
	clear(t.out)
	for r := range rows {
		t.softmax[r] = upstream.Nothing
		copy(t.q[r*f.DimK:][:f.DimK], f.Q[f.place(t, r)*f.DimK:])
	}
	switch {
	case f.whole:
	case f.K.Type == gguf.F16:
		f.roundF16(t.q, t.q)
	case f.K.Type == gguf.BF16:
		f.roundBF16(t.q, t.q)
	case !isFloat(f.K.Type):
		t.codes, t.side = grow(t.codes, rows*f.DimK), grow(t.side, rows*f.DimK/32)
		f.quantiseBlocks(t.codes, t.side, t.q)
		t.row.resize(f.DimK, formatOf(f.K.Type))
	}
}

// place is the index of row r of a tile among the heads of all query rows.
func (f *flash) place(t *flashTile, r int) int {
	r += t.from
	return r/f.group*f.Heads + t.head*f.group + r%f.group
}

// spans are the cells that row r of a tile sees.
func (f *flash) spans(t *flashTile, r int) []Span { return f.Visible[(t.from+r)/f.group] }

// seen returns the first of the cells [first, end) that a row of the tile sees, and the one after the last.
func (f *flash) seen(t *flashTile, first, end int) (lo, hi int) {
	lo = end
	for _, spans := range f.Visible[t.from/f.group : (t.to-1)/f.group+1] {
		for _, s := range spans {
			if from, to := max(s.From, first), min(s.To, end); from < to {
				lo, hi = min(lo, from), max(hi, to)
			}
		}
	}
	return lo, hi
}

// finish writes the rows of a tile out, or keeps what they are of this piece of the cells.
func (f *flash) finish(t *flashTile, piece int) {
	for r, softmax := range t.softmax[:t.to-t.from] {
		out, at := t.out[r*f.DimV:][:f.DimV], f.place(t, r)
		if f.pieces > 1 {
			f.softmax[at*f.pieces+piece] = softmax
			copy(f.sums[(at*f.pieces+piece)*f.DimV:], out)
			continue
		}
		f.write(at, out, softmax.Sum)
	}
}

// write divides a row by the sum of its weights.
func (f *flash) write(at int, out []float32, sum float32) {
	inverse := float32(0)
	if sum != 0 {
		inverse = 1 / sum
	}
	f.scale(f.Out[at*f.DimV:][:f.DimV], out, inverse)
}

// joinPieces makes one of the pieces of a head.
func (f *flash) joinPieces(head int) {
	out, softmax := f.Out[head*f.DimV:][:f.DimV], upstream.Nothing
	clear(out)
	for i := head * f.pieces; i < (head+1)*f.pieces; i++ {
		if f.softmax[i].Sum != 0 {
			old, new := softmax.Join(f.softmax[i])
			upstream.Combine(out, f.sums[i*f.DimV:][:f.DimV], old, new)
		}
	}
	f.write(head, out, softmax.Sum)
}
