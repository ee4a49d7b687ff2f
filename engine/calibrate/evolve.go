package calibrate

import (
	"context"
	"math/rand/v2"

	"attnbudget/engine/drop"
)

// Evolution sets how Evolve searches.
type Evolution struct {
	Survivors   int // masks of one size that live on
	Offspring   int // new masks of one size in a generation
	Generations int
	Evaluations int // no generation begins once this many scores were asked for; 0 = no limit
	Seed        uint64
}

// Evolve keeps a population of masks for every size on greedy's path, begun with all that greedy compared. A generation adds to
// each size masks that swap one layer of a survivor for another, that grow a survivor one size smaller or that shrink one
// that is larger; they race with the survivors. Returned is for every size the best mask found: never worse than greedy on
// the search split. The same seed takes the same way.
func (s *Search) Evolve(ctx context.Context, greedy []Step, e Evolution) ([]Step, error) {
	rng := rand.New(rand.NewPCG(e.Seed, 0))
	p := &population{search: s, sizes: make([][]Contender, len(greedy)), seen: map[drop.Mask]bool{}}
	for i, t := range greedy {
		for _, c := range t.Field {
			p.seen[c.Mask] = true
			if len(c.Mask.Layers()) == len(t.Mask.Layers()) && !c.Out && len(p.sizes[i]) < e.Survivors {
				p.sizes[i] = append(p.sizes[i], c)
			}
		}
	}
	var found []Contender
	for range e.Generations {
		born := 0
		for i := range greedy {
			if e.Evaluations > 0 && s.Evaluations() >= e.Evaluations {
				return s.improve(greedy, found), nil
			}
			masks := p.offspring(rng, i, len(greedy[i].Mask.Layers()), e.Offspring)
			if born += len(masks); len(masks) == 0 {
				continue
			}
			for _, c := range p.sizes[i] {
				masks = append(masks, c.Mask)
			}
			field, err := s.race(ctx, masks, e.Survivors)
			if err != nil {
				return nil, err
			}
			found = append(found, field...)
			p.survive(i, field, e.Survivors)
		}
		if born == 0 {
			break // every mask that a move can reach has been seen
		}
	}
	return s.improve(greedy, found), nil
}

// population holds the survivors of every size, smallest size first.
type population struct {
	search *Search
	sizes  [][]Contender
	seen   map[drop.Mask]bool
}

func (p *population) survive(i int, field []Contender, n int) {
	p.sizes[i] = append(p.sizes[i][:0], field[:min(n, len(field))]...) // a race for n places leaves as many that are not out
}

// offspring proposes at most n masks of `layers` layers that nobody has seen, in ten times as many attempts.
func (p *population) offspring(rng *rand.Rand, i, layers, n int) []drop.Mask {
	var out []drop.Mask
	for attempt := 0; attempt < 10*n && len(out) < n; attempt++ {
		m, ok := p.move(rng, i)
		if ok && len(m.Layers()) == layers && !p.seen[m] {
			p.seen[m] = true
			out = append(out, m)
		}
	}
	return out
}

// move makes a mask of size i: by a swap half of the time, otherwise by growing or shrinking a neighbour.
func (p *population) move(rng *rand.Rand, i int) (drop.Mask, bool) {
	switch from := rng.IntN(4); {
	case from == 2 && i > 0:
		return p.grow(rng, pick(rng, p.sizes[i-1]))
	case from == 3 && i+1 < len(p.sizes):
		return p.shrink(rng, pick(rng, p.sizes[i+1]))
	default:
		smaller, ok := p.shrink(rng, pick(rng, p.sizes[i]))
		if !ok {
			return drop.Mask{}, false
		}
		return p.grow(rng, smaller)
	}
}

func (p *population) grow(rng *rand.Rand, m drop.Mask) (drop.Mask, bool) {
	masks := p.search.grown(m)
	if len(masks) == 0 {
		return drop.Mask{}, false
	}
	return masks[rng.IntN(len(masks))], true
}

func (p *population) shrink(rng *rand.Rand, m drop.Mask) (drop.Mask, bool) {
	layers := m.Layers()
	if len(layers) == 0 {
		return drop.Mask{}, false
	}
	return without(p.search.Roles, m, layers[rng.IntN(len(layers))])
}

func pick(rng *rand.Rand, from []Contender) drop.Mask {
	if len(from) == 0 {
		return drop.Mask{}
	}
	return from[rng.IntN(len(from))].Mask
}
