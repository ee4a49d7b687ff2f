package calibrate

import (
	"context"
	"fmt"
	"slices"

	"attnbudget/engine/drop"
)

// Search looks for masks that do little damage on the search split.
type Search struct {
	Roles     []drop.Role
	Metric    Metric
	Chunks    []int   // the search split, in the order in which a race measures it
	Alpha     float64 // error rate of a race, see race; 0 = no mask stops early
	Most      int     // most steps; 0 = as many as there are units
	MaxDamage float64 // nats of NLL on the search split; the search ends with the first step beyond it

	ledger *ledger
	allow  map[int]bool // first layers of the units that may be dropped; nil = all
}

// NewSearch prepares a search. The fields of s are those of the literal it was given.
func NewSearch(s Search, m Measure) *Search {
	s.ledger = newLedger(m)
	return &s
}

// Evaluations is the number of scores, one mask on one chunk, that Alone and the searches since asked for.
func (s *Search) Evaluations() int { return s.ledger.evaluations() }

// Step is the best mask found of one size.
type Step struct {
	Mask   drop.Mask
	Scores []Score     // on the search split
	Ties   []drop.Mask // masks of the same choice that cannot be told from Mask at the two-sided 5% level
	Field  []Contender // all that were compared in that choice, the best first
}

// NLL is the estimated damage on the search split in nats.
func (t Step) NLL() Estimate { return estimate(NLL.all(t.Scores)) }

// Alone measures every unit on top of nothing, on the whole search split, the least harmful first: phase A.
func (s *Search) Alone(ctx context.Context) ([]Contender, error) {
	masks := s.grown(drop.Mask{})
	if len(masks) == 0 {
		return nil, fmt.Errorf("the model has no layer whose attention may be dropped")
	}
	field := make([]Contender, len(masks))
	for i, m := range masks {
		field[i].Mask = m
	}
	if err := s.extend(ctx, field, s.Chunks); err != nil {
		return nil, err
	}
	s.sort(field)
	return field, nil
}

// Shortlist restricts the search to the units that are worth trying in company, given Alone's result: those whose damage
// alone is not beyond MaxDamage by more than two standard errors, and of them the best n (0 = all).
func (s *Search) Shortlist(alone []Contender, n int) []int {
	s.allow = map[int]bool{}
	var out []int
	for _, c := range alone {
		e := estimate(NLL.all(c.Scores))
		if n > 0 && len(out) == n || e.Mean-2*e.SE > s.MaxDamage {
			continue
		}
		lead := c.Mask.Layers()[0]
		s.allow[lead] = true
		out = append(out, lead)
	}
	slices.Sort(out)
	return out
}

// grown lists the valid masks of mask and one more unit.
func (s *Search) grown(mask drop.Mask) []drop.Mask {
	var out []drop.Mask
	for _, u := range Units(s.Roles, mask) {
		if s.allow != nil && !s.allow[u[0]] {
			continue
		}
		if m, ok := with(s.Roles, mask, u); ok {
			out = append(out, m)
		}
	}
	return out
}

func (s *Search) most() int {
	if s.Most > 0 {
		return s.Most
	}
	return len(s.Roles)
}

// Greedy commits, step after step, the unit that does the least damage on top of those already committed.
func (s *Search) Greedy(ctx context.Context) ([]Step, error) {
	var steps []Step
	mask := drop.Mask{}
	for range s.most() {
		masks := s.grown(mask)
		if len(masks) == 0 {
			break
		}
		field, err := s.race(ctx, masks, 1)
		if err != nil {
			return nil, err
		}
		step := s.step(field)
		steps, mask = append(steps, step), step.Mask
		if step.NLL().Mean > s.MaxDamage {
			break
		}
	}
	return steps, nil
}

// step makes a step of the winner of a sorted field.
func (s *Search) step(field []Contender) Step {
	best := field[0]
	t := Step{Mask: best.Mask, Scores: best.Scores, Field: field}
	for _, c := range field[1:] {
		if !c.Out && s.worse(c, best).tied() {
			t.Ties = append(t.Ties, c.Mask)
		}
	}
	return t
}
