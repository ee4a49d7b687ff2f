package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
)

// wholeAttention is the Attend in progress over a float32 cache: the scores of all cells, a softmax over them, and a weighted
// sum of values. It is not the fast way, but in this way every sum has the order that it has in upstream without flash
// attention, and where nothing else is rounded the results are upstream's to the last bit.
type wholeAttention struct {
	*Attention
	kernels *kernels
	item    func(worker, i int)
}

// wholeScratch is what one query head needs.
type wholeScratch struct {
	scores []float32 // [cells]
	sums   []float32 // [valueSums][DimV]
}

// Cells go to the partial sums of the values by their number.
const (
	valueSums       = 8
	valueSumsSingle = 32 // where upstream has one query row
)

func (t *wholeAttention) init(p *Pool) {
	t.item = func(worker, i int) { t.head(&p.scratch[worker].whole, i/t.Heads, i%t.Heads) }
}

func (t *wholeAttention) run(p *Pool, a *Attention) {
	t.Attention, t.kernels = a, p.kernels
	p.Run(a.N*a.Heads, t.item)
	t.Attention = nil
}

// head computes one head of one query row.
func (t *wholeAttention) head(s *wholeScratch, row, head int) {
	out := t.Out[(row*t.Heads+head)*t.DimV:][:t.DimV]
	spans := t.Visible[row]
	if len(spans) == 0 {
		clear(out)
		return
	}
	// Sums depend on a cell's number, so the first cell is rounded down.
	first, end := spans[0].From/valueSumsSingle*valueSumsSingle, (spans[len(spans)-1].To+7)/8*8
	s.scores = grow(s.scores, end-first)
	top := t.scoreAll(s.scores, spans, first, t.Q[(row*t.Heads+head)*t.DimK:][:t.DimK], head)
	t.kernels.scale(s.scores, s.scores, float32(1/t.kernels.softMax(s.scores, top)))
	sums := valueSums
	if t.N == 1 && t.kernels.singles || t.DimV%4 != 0 {
		sums = valueSumsSingle
	}
	s.sums = grow(s.sums, sums*t.DimV)
	clear(s.sums)
	group, v := t.Heads/t.HeadsKV, t.V
	for _, span := range spans {
		for c := span.From; c < span.To; c++ {
			t.kernels.addScaled(s.sums[c%sums*t.DimV:][:t.DimV], v.floats(c, head/group, t.DimV), s.scores[c-first])
		}
	}
	t.kernels.foldValues(out, s.sums, sums)
}

// scoreAll computes the scores of the cells from first on, -Inf where the row sees none, and returns the greatest.
func (t *wholeAttention) scoreAll(scores []float32, spans []Span, first int, q []float32, head int) float32 {
	blank(scores)
	top, kv := negInf, head/(t.Heads/t.HeadsKV)
	for _, span := range spans {
		for c := span.From; c < span.To; c++ {
			score := t.kernels.dot32(gguf.F32, t.K.floats(c, kv, t.DimK), q) * t.Scale
			scores[c-first], top = score, max(top, score)
		}
	}
	return top
}

// foldValues adds the partial sums [sums][len(dst)] as upstream does eight or 32.
func (k *kernels) foldValues(dst, sums []float32, n int) {
	add := func(i, j int) { k.add(sums[i*len(dst):][:len(dst)], sums[j*len(dst):][:len(dst)]) }
	if n == valueSumsSingle {
		for i := range 8 {
			add(i, 16+i)
			add(8+i, 24+i)
			add(i, 8+i)
		}
	}
	for i := range 4 {
		add(i, 4+i)
	}
	if n == valueSumsSingle {
		add(0, 1)
		add(2, 3)
		add(0, 2)
	} else {
		add(0, 2)
		add(1, 3)
		add(0, 1)
	}
	copy(dst, sums)
}

// floats returns the numbers of one head of a cell of a float32 cache.
func (k *KVRows) floats(cell, head, dim int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(k.head(cell, head, 4*dim)))), dim)
}
