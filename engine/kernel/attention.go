package kernel

import (
	"fmt"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// Span is a run of cells [From, To).
type Span struct{ From, To int }

// Attention describes one attention: Out = softmax(Scale * Q Kᵀ) V over the visible cells. Query head h reads head
// h*HeadsKV/Heads of K and V. Scores, weights and sums are float32 whatever the cache type. Where K is quantised, queries are
// rounded to Q8_0, because upstream multiplies codes with codes.
type Attention struct {
	Q, Out         []float32 // [N][Heads*DimK], [N][Heads*DimV]
	K, V           KVRows
	N              int
	Heads, HeadsKV int
	DimK, DimV     int
	Scale          float32
	Visible        [][]Span // per query row: the cells it sees, ascending, not overlapping; none gives zeros
	Cells          int      // that upstream looks at, visible or not; 0 = up to the last visible one, in steps of 256
}

const (
	chunkCells = 256 // cells that share a local maximum; chunks start at multiples of it whatever the spans are
	groupCells = 64  // cells loaded together; also the granularity at which invisible parts of a chunk are skipped
	tileRows   = 96  // query rows x heads of a group that read a chunk together, about
)

// attention is the Attend in progress.
type attention struct {
	*Attention
	*kernels
	group    int // query heads per KV head
	tileN    int // query rows per tile
	tiles    int // tiles over the query rows
	chunks   int // chunks up to the last visible cell; 0 = a tile goes through its chunks by itself
	partial  []attentionTile
	rowItem  func(worker, i int)
	cellItem func(worker, i int)
	joinItem func(worker, i int)
}

// attentionTile is the state and scratch of one tile: rows = query rows x group, the heads of one query row side by side.
type attentionTile struct {
	k    []float32 // [DimK][groupCells], transposed
	v    []float32 // [groupCells][DimV]
	q    []float32 // [rows][DimK]
	few  []float32 // [16][DimK]
	s    []float32 // [rows][chunkCells]: scores, then weights
	part []float32 // [rows][DimV]: weighted values of the current chunk
	out  []float32 // [rows][DimV]: of all chunks so far
	top  []float32 // [rows]: greatest logit so far
	sum  []float32 // [rows]: sum of the weights so far
	m, l []float32 // [rows]: of the current chunk

	codes []int8      // [rows][DimK], q in Q8_0
	side  []blockSide // [rows][DimK/32]
}

// Attend computes a. The result of a query row depends on that row, the cells and their numbers alone.
func (p *Pool) Attend(a *Attention) {
	if a.HeadsKV == 0 || a.Heads%a.HeadsKV != 0 || len(a.Visible) < a.N || len(a.Q) < a.N*a.Heads*a.DimK || len(a.Out) < a.N*a.Heads*a.DimV {
		panic(fmt.Sprintf("kernel: attention of %d rows, %d/%d heads with %d queries, %d spans, %d outputs",
			a.N, a.Heads, a.HeadsKV, len(a.Q), len(a.Visible), len(a.Out)))
	}
	switch {
	case a.K.Type == gguf.F32 && a.V.Type == gguf.F32:
		p.whole.run(p, a)
	case p.kernels.attend != nil:
		p.kernels.attend(p, a)
	default:
		p.attention.run(p, a)
	}
}

func (t *attention) init(p *Pool) {
	t.rowItem = func(worker, i int) { t.wholeTile(&p.scratch[worker].tile, i) }
	t.cellItem = func(worker, i int) { t.oneChunk(&p.scratch[worker].tile, i) }
	t.joinItem = func(worker, i int) { t.join(i) }
}

func (t *attention) run(p *Pool, a *Attention) {
	t.Attention, t.kernels = a, p.kernels
	t.group = a.Heads / a.HeadsKV
	t.tileN = min(a.N, max(1, tileRows/t.group))
	t.tiles = (a.N + t.tileN - 1) / t.tileN
	items := t.tiles * a.HeadsKV
	if t.chunks = t.lastChunk(); items >= 2*p.Threads() || t.chunks < 2 {
		p.Run(items, t.rowItem)
	} else {
		t.partial = growTiles(t.partial, items*t.chunks)
		p.Run(items*t.chunks, t.cellItem)
		p.Run(items, t.joinItem)
	}
	t.Attention = nil
}

// growTiles keeps the buffers of the tiles it has.
func growTiles(s []attentionTile, n int) []attentionTile {
	if n <= cap(s) {
		return s[:n]
	}
	return append(s[:cap(s)], make([]attentionTile, n-cap(s))...)
}

// lastChunk returns the number of chunks up to the last visible cell.
func (t *attention) lastChunk() int {
	return (t.lastCell() + chunkCells - 1) / chunkCells
}

// lastCell returns the end of what is visible.
func (a *Attention) lastCell() (end int) {
	for _, spans := range a.Visible[:a.N] {
		if len(spans) > 0 {
			end = max(end, spans[len(spans)-1].To)
		}
	}
	return end
}

// place says which tile an item is: KV head and query rows [from, to).
func (t *attention) place(item int) (head, from, to int) {
	head, tile := item%t.HeadsKV, item/t.HeadsKV
	from = tile * t.tileN
	return head, from, min(t.N, from+t.tileN)
}

// wholeTile takes a tile through all its chunks.
func (t *attention) wholeTile(b *attentionTile, item int) {
	head, from, to := t.place(item)
	t.begin(b, head, from, to)
	for c := range t.chunks {
		if t.chunk(b, head, from, to, c) {
			t.merge(b, b.m, b.l, b.part)
		}
	}
	t.finish(b, head, from, to)
}

// oneChunk computes one chunk of a tile and leaves it in partial.
func (t *attention) oneChunk(b *attentionTile, i int) {
	item, c := i/t.chunks, i%t.chunks
	head, from, to := t.place(item)
	t.begin(b, head, from, to)
	p := &t.partial[i]
	p.m = p.m[:0]
	if t.chunk(b, head, from, to, c) {
		p.m, p.l, p.part = append(p.m, b.m...), append(p.l[:0], b.l...), append(p.part[:0], b.part...)
	}
}

// join merges the chunks of a tile in order.
func (t *attention) join(item int) {
	head, from, to := t.place(item)
	parts := t.partial[item*t.chunks:][:t.chunks]
	b := &parts[0]
	b.reset((to-from)*t.group, t.DimV)
	for i := range parts {
		if p := &parts[i]; len(p.m) > 0 {
			t.merge(b, p.m, p.l, p.part)
		}
	}
	t.finish(b, head, from, to)
}

// begin gathers the queries of a tile and empties its sums.
func (t *attention) begin(b *attentionTile, head, from, to int) {
	rows, width := (to-from)*t.group, t.group*t.DimK
	b.reset(rows, t.DimV)
	b.q, b.s, b.part = grow(b.q, rows*t.DimK), grow(b.s, rows*chunkCells), grow(b.part, rows*t.DimV)
	b.few = grow(b.few, 16*t.DimK)
	b.m, b.l = grow(b.m, rows), grow(b.l, rows)
	b.k, b.v = grow(b.k, t.DimK*groupCells), grow(b.v, t.DimV*groupCells)
	for i := from; i < to; i++ {
		copy(b.q[(i-from)*width:][:width], t.Q[i*t.Heads*t.DimK+head*width:])
	}
	if !isFloat(t.K.Type) {
		t.roundToCodes(b)
	}
}

// roundToCodes replaces the queries of a tile by what blocks of Q8_0 hold of them.
func (t *attention) roundToCodes(b *attentionTile) {
	b.codes, b.side = grow(b.codes, len(b.q)), grow(b.side, len(b.q)/32)
	t.quantiseBlocks(b.codes, b.side, b.q)
	for i, c := range b.codes {
		b.q[i] = b.side[i/32].d * float32(c)
	}
}

func (b *attentionTile) reset(rows, dim int) {
	b.out, b.top, b.sum = grow(b.out, rows*dim), grow(b.top, rows), grow(b.sum, rows)
	clear(b.out)
	clear(b.sum)
	for i := range b.top {
		b.top[i] = negInf
	}
}

// chunk computes the local maximum m, sum of weights l and weighted values part of chunk c for every row of the tile. It
// reports whether any row sees any cell of it.
func (t *attention) chunk(b *attentionTile, head, from, to, c int) bool {
	base := c * chunkCells
	lo, hi := t.seen(from, to, base)
	if lo >= hi {
		return false
	}
	rows := (to - from) * t.group
	width := (hi - lo + groupCells - 1) / groupCells * groupCells // lo is a multiple of groupCells
	for r := range rows {
		clear(b.s[r*chunkCells+lo:][:width])
	}
	for c := lo; c < hi; c += groupCells {
		t.loadKeys(b, head, base+c, min(groupCells, hi-c))
		t.multiplyAdd(b.s[c:], chunkCells, b.q, t.DimK, b.k, groupCells, rows, t.DimK, groupCells)
	}
	for r := range rows {
		scores := b.s[r*chunkCells+lo:][:width]
		hide(scores, t.Visible[from+r/t.group], base+lo)
		b.m[r], b.l[r] = t.expSum(scores, t.Scale)
	}
	clear(b.part)
	for c := lo; c < hi; c += groupCells {
		n := min(groupCells, hi-c)
		t.values(b.v, &t.V, head, base+c, n, t.DimV)
		t.multiplyAdd(b.part, t.DimV, b.s[c:], chunkCells, b.v, t.DimV, rows, n, t.DimV)
	}
	return true
}

// seen returns the range of cells of the chunk at base that any of the rows sees, relative to base, with lo rounded down
// to a multiple of groupCells.
func (t *attention) seen(from, to, base int) (lo, hi int) {
	lo = chunkCells
	for _, spans := range t.Visible[from:to] {
		for _, s := range spans {
			if s.From < base+chunkCells && s.To > base && s.From < s.To {
				lo, hi = min(lo, max(0, s.From-base)), max(hi, min(chunkCells, s.To-base))
			}
		}
	}
	return lo / groupCells * groupCells, hi
}

// hide sets the scores of cells outside the spans to -Inf; scores[0] is that of cell first.
func hide(scores []float32, spans []Span, first int) {
	at := 0
	for _, s := range spans {
		from, to := max(at, s.From-first), min(len(scores), s.To-first)
		if from >= to {
			continue
		}
		blank(scores[at:from])
		at = to
	}
	blank(scores[at:])
}

func blank(s []float32) {
	for i := range s {
		s[i] = negInf
	}
}

// loadKeys writes the keys of a group of cells from cell on, transposed. It goes on to a whole number of vectors while there
// are cells, for speed. What lies in the other columns is anything: their scores are hidden.
func (t *attention) loadKeys(b *attentionTile, head, cell, cells int) {
	whole := (cells + lanes - 1) / lanes * lanes
	if there := len(t.K.Data)/t.K.Stride - cell; whole <= there {
		cells = whole
	}
	t.keys(b.k, groupCells, &t.K, head, cell, cells, t.DimK, b.few)
}

// merge adds a chunk to the running softmax: both sides are scaled to their common maximum.
func (t *attention) merge(b *attentionTile, m, l, part []float32) {
	for r, chunkTop := range m {
		if chunkTop == negInf {
			continue
		}
		top := max(b.top[r], chunkTop)
		old, add := exp(b.top[r]-top), exp(chunkTop-top)
		b.top[r] = top
		b.sum[r] = float32(b.sum[r]*old) + float32(l[r]*add)
		t.combine(b.out[r*t.DimV:][:t.DimV], part[r*t.DimV:][:t.DimV], old, add)
	}
}

// finish divides by the sums of weights and scatters the tile to Out.
func (t *attention) finish(b *attentionTile, head, from, to int) {
	for r := range (to - from) * t.group {
		out := t.Out[((from+r/t.group)*t.Heads+head*t.group+r%t.group)*t.DimV:][:t.DimV]
		if b.sum[r] == 0 {
			clear(out)
			continue
		}
		t.scale(out, b.out[r*t.DimV:][:t.DimV], 1/b.sum[r])
	}
}

// multiplyAdd, keys and values define what kernels says of them.
func multiplyAdd(c []float32, strideC int, a []float32, strideA int, b []float32, strideB int, rows, depth, cols int) {
	for r := range rows {
		out := c[r*strideC:][:cols]
		for k, f := range a[r*strideA:][:depth] {
			for i, v := range b[k*strideB:][:cols] {
				out[i] += float32(f * v) // fused on no machine
			}
		}
	}
}

func keys(dst []float32, strideDst int, k *KVRows, head, cell, cells, dim int, few []float32) {
	size := k.Type.RowBytes(dim)
	for c := range cells {
		quant.Dequantize(k.Type, few[:dim], k.head(cell+c, head, size))
		for d, v := range few[:dim] {
			dst[d*strideDst+c] = v
		}
	}
}

func values(dst []float32, v *KVRows, head, cell, cells, dim int) {
	size := v.Type.RowBytes(dim)
	for c := range cells {
		quant.Dequantize(v.Type, dst[c*dim:][:dim], v.head(cell+c, head, size))
	}
}
