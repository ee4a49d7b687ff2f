package model

import (
	"slices"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
)

// Variants computes one sequence of tokens under several masks in one pass over the weights. A variant is a mask with its
// own copy of the sequence; a mask that begins like another shares its rows up to the layer where they part, so that what
// masks have in common is computed once. The rows of the variants lie behind one another in the order in which they come to
// life: at every layer those alive are the first.
//
// Results are those of a pass with that mask alone, to the bit when the sequence is a multiple of 256 tokens long (attention
// adds up in chunks of 256 cells).
type Variants struct {
	pass      *Pass
	tokens    int // of the sequence
	most      int // variants
	lastStore int

	// OnBranch, when set, is shown what the token mixing of every layer read and what it added to the residual stream, for
	// the variants that keep it: h and y [len(tokens)][Embd], and which tokens the rows are. Token t of the batch is at position t mod the length of the sequence.
	OnBranch func(layer int, tokens []int, h, y []float32)

	list    []variant // in the order in which they come to life
	alive   int
	outputs []int
	all     []int   // what the pass's live is outside of branches
	picked  []int   // rows of the residual stream that the branch in progress computes
	output  *Linear // the output projection
	out     []float32
}

// variant comes to life before layer from, as a copy of an earlier one.
type variant struct {
	mask   drop.Mask
	index  int // in the caller's list
	parent int
	from   int
}

// NewVariants allocates the caches and scratch memory for at most `most` masks on sequences of the given number of tokens.
// Keys and values are stored in F16.
func NewVariants(n Network, pool *kernel.Pool, tokens, most int) (*Variants, error) {
	layout := n.Config().Layout(drop.Mask{})
	size := tokens * most
	memory, err := kvcache.New(layout, kvcache.Params{Cells: size, UBatch: size, Seqs: most, TypeK: gguf.F16, TypeV: gguf.F16})
	if err != nil {
		return nil, err
	}
	v := &Variants{
		pass: NewPass(n, pool, drop.Mask{}, memory, size), tokens: tokens, most: most, lastStore: lastStore(layout),
	}
	p := v.pass
	p.variants, p.lastStore = v, -1 // rows are narrowed here instead
	p.tokens, p.pos = make([]int32, size), make([]int32, size)
	seqs := make([]kvcache.SeqSet, size)
	for i := range size {
		p.pos[i], seqs[i] = int32(i%tokens), kvcache.SetOf(int32(i/tokens))
	}
	// Every pass stores into the same cells and starts from nothing, so the tokens need placing only once.
	return v, memory.Place(p.pos, seqs)
}

// Replace makes surrogates stand in for the attention that variants drop, until the next call.
func (v *Variants) Replace(s Surrogates) { v.pass.Replace(s) }

// Run computes tokens, as many as NewVariants was told, from position 0 on, under each of the masks, which must differ. It
// returns the normalised hidden states of the given outputs, ascending positions, before the output projection: [mask][len(outputs)][Embd],
// valid until the next Run.
func (v *Variants) Run(tokens []int32, outputs []int, masks []drop.Mask) []float32 {
	if len(tokens) != v.tokens || len(masks) > v.most || len(masks) == 0 || len(outputs) == 0 {
		panic("model: Variants.Run with sizes it was not made for")
	}
	v.plan(masks)
	v.alive, v.outputs = 1, outputs
	p := v.pass
	for i := range p.tokens {
		p.tokens[i] = tokens[i%v.tokens]
	}
	p.live = p.live[:0]
	for i := range v.tokens {
		p.live = append(p.live, i)
	}
	p.outputs = outputs
	p.forward()

	n := len(outputs) * p.config.Embd
	v.out = slices.Grow(v.out[:0], len(masks)*n)[:len(masks)*n]
	for at, one := range v.list {
		copy(v.out[one.index*n:][:n], p.h.data[at*n:])
	}
	return v.out
}

// Project computes the logits dst [n][Vocab] of hidden states [n][Embd] that Run returned.
func (v *Variants) Project(dst, hidden []float32) {
	p := v.pass
	p.h.reshape(len(hidden)/p.config.Embd, p.config.Embd)
	copy(p.h.data, hidden)
	p.project(dst, v.output)
}

// plan finds for every mask from which other it parts latest, and orders them by when they part.
func (v *Variants) plan(masks []drop.Mask) {
	layers := len(v.pass.config.Layers)
	order := make([]int, len(masks))
	for i := range order {
		order[i] = i
	}
	// In the order of the masks read as binary numbers, layer 0 first, the nearest relatives are neighbours.
	slices.SortFunc(order, func(a, b int) int { return compareMasks(masks[a], masks[b], layers) })
	list := make([]variant, len(order))
	for i, index := range order {
		list[i] = variant{mask: masks[index], index: index}
		if i == 0 {
			continue
		}
		list[i].from = parting(list[i-1].mask, list[i].mask, layers)
		if list[i].from == layers {
			panic("model: the same mask twice in Variants.Run")
		}
		// The neighbour may not be alive yet; one that is and that the neighbour comes from shares as much.
		for list[i].parent = i - 1; list[list[i].parent].from > list[i].from; list[i].parent-- {
		}
	}
	v.list = byLife(list)
}

// byLife sorts variants by when they come to life and renumbers their parents.
func byLife(list []variant) []variant {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return list[a].from - list[b].from })
	place := make([]int, len(list))
	for at, i := range order {
		place[i] = at
	}
	out := make([]variant, len(list))
	for at, i := range order {
		out[at] = list[i]
		out[at].parent = place[list[i].parent]
	}
	return out
}

// parting is the first layer at which masks differ, layers when none is.
func parting(a, b drop.Mask, layers int) int {
	for l := range layers {
		if a.Has(l) != b.Has(l) {
			return l
		}
	}
	return layers
}

func compareMasks(a, b drop.Mask, layers int) int {
	switch l := parting(a, b, layers); {
	case l == layers:
		return 0
	case a.Has(l):
		return 1
	default:
		return -1
	}
}

// branch computes the branch of layer i for the variants that keep it, and its surrogate for those that do not.
func (v *Variants) branch(i int, norm []float32, mixing func(layer int)) {
	p := v.pass
	v.fork(i)
	v.all = append(v.all[:0], p.live...)
	if v.pick(i, false) {
		v.enter(norm)
		mixing(i)
		if v.OnBranch != nil {
			v.OnBranch(i, p.live, p.h.all(), p.y.all())
		}
		v.leave()
	}
	if r := p.surrogates[i]; r != nil && v.pick(i, true) {
		v.enter(norm)
		p.surrogate(r)
		v.leave()
	}
	p.live = append(p.live[:0], v.all...)
	if i == v.lastStore {
		v.narrow()
	}
}

// fork brings the variants to life that part from others at layer i.
func (v *Variants) fork(i int) {
	p := v.pass
	for ; v.alive < len(v.list) && v.list[v.alive].from <= i; v.alive++ {
		parent := v.list[v.alive].parent
		n := len(p.live) / v.alive
		for _, r := range p.followers {
			if r != p.h {
				r.repeat(parent*n, n)
			}
		}
		for _, token := range p.live[parent*n : (parent+1)*n] {
			p.live = append(p.live, token+(v.alive-parent)*v.tokens)
		}
		v.inherit(parent, i)
	}
}

// inherit gives the newest variant its parent's keys and values of the layers before i that others still read.
func (v *Variants) inherit(parent, i int) {
	p := v.pass
	for _, store := range p.memory.Stores() {
		consumers := drop.Consumers(p.config.Roles, store.Index)
		if store.Index >= i || !slices.ContainsFunc(consumers, func(l int) bool { return l >= i }) {
			continue
		}
		for t := range v.tokens {
			store.Copy(v.alive*v.tokens+t, parent*v.tokens+t)
		}
	}
}

// pick chooses the rows of the living variants that drop layer i, or of those that do not; it reports whether there are any.
func (v *Variants) pick(i int, dropped bool) bool {
	p := v.pass
	v.picked, p.live = v.picked[:0], p.live[:0]
	n := len(v.all) / v.alive
	for at := range v.alive {
		if v.list[at].mask.Has(i) != dropped {
			continue
		}
		for row := at * n; row < (at+1)*n; row++ {
			v.picked = append(v.picked, row)
			p.live = append(p.live, v.all[row])
		}
	}
	return len(v.picked) > 0
}

// enter computes h, the normalised picked rows of x.
func (v *Variants) enter(norm []float32) {
	p := v.pass
	p.h.reshape(len(v.picked), p.x.cols)
	p.op = operands{weight: norm}
	p.each(p.h, func(p *Pass, i int) {
		kernel.RMSNorm(p.h.row(i), p.x.row(p.variants.picked[i]), p.op.weight, p.config.Eps)
	})
}

// leave adds y to the picked rows of x.
func (v *Variants) leave() {
	p := v.pass
	p.each(p.y, func(p *Pass, i int) { kernel.Add(p.x.row(p.variants.picked[i]), p.y.row(i)) })
	p.x.changed()
}

// narrow reduces every variant to the rows that lead to a result.
func (v *Variants) narrow() {
	p := v.pass
	v.picked = v.picked[:0]
	for at := range v.alive {
		for _, o := range v.outputs {
			v.picked = append(v.picked, at*v.tokens+o)
		}
	}
	for _, r := range p.followers {
		if r != p.h {
			r.keep(v.picked)
		}
	}
	p.live = p.live[:len(v.picked)]
	copy(p.live, v.picked)
}
