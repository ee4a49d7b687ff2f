package calibrate

import (
	"context"
	"slices"

	"attnbudget/engine/drop"
)

// Beam grows the `width` best masks of every step instead of one, and returns for every size on greedy's path the best mask
// it or greedy found: never worse than greedy on the search split.
func (s *Search) Beam(ctx context.Context, greedy []Step, width int) ([]Step, error) {
	beam := []drop.Mask{{}}
	var found []Contender
	for range len(greedy) {
		masks := s.successors(beam)
		if len(masks) == 0 {
			break
		}
		field, err := s.race(ctx, masks, width)
		if err != nil {
			return nil, err
		}
		found = append(found, field...)
		beam = beam[:0]
		for _, c := range field[:min(width, len(field))] { // none of them is out: enough others would have to be better
			beam = append(beam, c.Mask)
		}
	}
	return s.improve(greedy, found), nil
}

// successors are the different masks that are a mask of beam and one more unit.
func (s *Search) successors(beam []drop.Mask) []drop.Mask {
	seen := map[drop.Mask]bool{}
	var out []drop.Mask
	for _, b := range beam {
		for _, m := range s.grown(b) {
			if !seen[m] {
				seen[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// improve replaces each step by the best of what was found with as many layers, where that is better.
func (s *Search) improve(steps []Step, found []Contender) []Step {
	out := make([]Step, len(steps))
	for i, t := range steps {
		field := []Contender{{Mask: t.Mask, Scores: t.Scores}}
		at := map[drop.Mask]int{t.Mask: 0}
		for _, c := range slices.Concat(t.Field, found) {
			if len(c.Mask.Layers()) != len(t.Mask.Layers()) {
				continue
			}
			if k, seen := at[c.Mask]; !seen {
				at[c.Mask] = len(field)
				field = append(field, c)
			} else if field[k].Out {
				field[k] = c // it may have been measured to the end since
			}
		}
		s.sort(field)
		out[i] = s.step(field)
	}
	return out
}
