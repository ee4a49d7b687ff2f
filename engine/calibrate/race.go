package calibrate

import (
	"cmp"
	"context"
	"slices"

	"attnbudget/engine/drop"
)

// Contender is a mask in a race.
type Contender struct {
	Mask   drop.Mask
	Scores []Score // on the first chunks of the search split; on all of them unless it is out
	Out    bool    // measured no further, because enough others are better beyond doubt
}

// race measures masks chunk by chunk and sorts them by their mean, those that are out last. After 4, 8, 16 ... chunks a mask is out
// when `keep` others are better by a one-sided paired t-test at level alpha / (keep * (len(masks)-1) * looks). By the
// inequality of Bonferroni the probability that any of the `keep` best masks of the whole split goes out is then at most
// alpha, as far as means over chunks are normal. alpha 0 measures everything.
func (s *Search) race(ctx context.Context, masks []drop.Mask, keep int) ([]Contender, error) {
	field := make([]Contender, len(masks))
	for i, m := range masks {
		field[i] = Contender{Mask: m}
	}
	looks := looks(len(s.Chunks))
	level := s.Alpha / float64(max(1, keep*(len(masks)-1)*(len(looks)-1)))
	from := 0
	for _, to := range looks {
		if err := s.extend(ctx, field, s.Chunks[from:to]); err != nil {
			return nil, err
		}
		if from = to; to < len(s.Chunks) && s.Alpha > 0 {
			s.eliminate(field, keep, level)
		}
	}
	s.sort(field)
	return field, nil
}

// looks are the numbers of chunks after which a race is looked at; the last is n.
func looks(n int) []int {
	var out []int
	for k := 4; k < n; k *= 2 {
		out = append(out, k)
	}
	return append(out, n)
}

// extend measures those still in on more chunks.
func (s *Search) extend(ctx context.Context, field []Contender, chunks []int) error {
	var masks []drop.Mask
	for _, c := range field {
		if !c.Out {
			masks = append(masks, c.Mask)
		}
	}
	scores, err := s.ledger.score(ctx, masks, chunks)
	if err != nil {
		return err
	}
	for i := range field {
		if !field[i].Out {
			field[i].Scores = append(field[i].Scores, scores[0]...)
			scores = scores[1:]
		}
	}
	return nil
}

// eliminate decides for all at once, so that the order of the field does not matter.
func (s *Search) eliminate(field []Contender, keep int, level float64) {
	out := make([]bool, len(field))
	for i, c := range field {
		if c.Out {
			continue
		}
		better := 0
		for j, other := range field {
			if i != j && !other.Out && s.worse(c, other).above(level) {
				better++
			}
		}
		out[i] = better >= keep
	}
	for i, o := range out {
		field[i].Out = field[i].Out || o
	}
}

// worse estimates by how much a is worse than b.
func (s *Search) worse(a, b Contender) Estimate {
	return paired(s.Metric.all(a.Scores), s.Metric.all(b.Scores))
}

func (s *Search) mean(c Contender) float64 { return estimate(s.Metric.all(c.Scores)).Mean }

// sort puts the best first and those that are out last; of equals the one with the smaller canonical form.
func (s *Search) sort(field []Contender) {
	slices.SortStableFunc(field, func(a, b Contender) int {
		if a.Out != b.Out {
			if a.Out {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(s.mean(a), s.mean(b)), cmp.Compare(a.Mask.Canonical(), b.Mask.Canonical()))
	})
}
