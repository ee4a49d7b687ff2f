package calibrate

import (
	"fmt"
	"math"
)

// Strategy is how masks are searched.
type Strategy string

// The strategies. Greedy comes first in each of them.
const (
	Greedy Strategy = "greedy"
	Beam   Strategy = "beam"
	Evolve Strategy = "evolve"
)

// ParseStrategy reads the name of a strategy.
func ParseStrategy(s string) (Strategy, error) {
	switch t := Strategy(s); t {
	case Greedy, Beam, Evolve:
		return t, nil
	}
	return "", fmt.Errorf("unknown search %q: expected greedy, beam or evolve", s)
}

// Settings decide what is measured and chosen. A zero field takes its default.
type Settings struct {
	NCtx        int      `json:"n_ctx"`          // tokens of a chunk; default 512
	Search      int      `json:"search_chunks"`  // most chunks of the search split; default 32
	Heldout     int      `json:"heldout_chunks"` // most chunks of the held-out split; default 64
	Metric      Metric   `json:"metric"`         // what the search minimises; default kl
	Strategy    Strategy `json:"search"`         // default greedy
	Budget      float64  `json:"quality_budget"` // nats of held-out NLL; default 0.05
	MaxDamage   float64  `json:"max_damage"`     // nats of NLL on the search split where the search ends; default 4 Budget
	Most        int      `json:"most_steps"`     // 0 = no limit
	Shortlist   int      `json:"shortlist"`      // most units that are tried in company; 0 = no limit
	Alpha       float64  `json:"alpha"`          // error rate of stopping losers early; default 0.05; negative = nothing stops early
	Beam        int      `json:"beam_width"`     // default 4
	Survivors   int      `json:"survivors"`      // of evolve, a size; default 4
	Offspring   int      `json:"offspring"`      // of evolve, a size and generation; default 6
	Generations int      `json:"generations"`    // of evolve; default 8
	Limit       int      `json:"evaluations"`    // of evolve, beyond greedy's; 0 = no limit
	Seed        uint64   `json:"seed"`           // of the order of chunks and of evolve
}

func (s Settings) defaults() Settings {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&s.NCtx, 512)
	orInt(&s.Search, 32)
	orInt(&s.Heldout, 64)
	orInt(&s.Beam, 4)
	orInt(&s.Survivors, 4)
	orInt(&s.Offspring, 6)
	orInt(&s.Generations, 8)
	if s.Metric == "" {
		s.Metric = KL
	}
	if s.Strategy == "" {
		s.Strategy = Greedy
	}
	if s.Budget == 0 {
		s.Budget = 0.05
	}
	if s.MaxDamage == 0 {
		s.MaxDamage = 4 * s.Budget
	}
	if s.Alpha == 0 {
		s.Alpha = 0.05
	}
	return s
}

func (s Settings) check() error {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"context", s.NCtx}, {"number of search chunks", s.Search}, {"number of held-out chunks", s.Heldout}, {"number of steps", s.Most},
		{"shortlist", s.Shortlist}, {"beam width", s.Beam}, {"number of survivors", s.Survivors},
		{"number of offspring", s.Offspring}, {"number of generations", s.Generations}, {"number of evaluations", s.Limit},
	} {
		if n.value < 0 {
			return fmt.Errorf("calibration: the %s is %d, expected a positive number", n.name, n.value)
		}
	}
	if _, err := ParseMetric(string(s.Metric)); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if _, err := ParseStrategy(string(s.Strategy)); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	for _, n := range []float64{s.Budget, s.MaxDamage, s.Alpha} {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return fmt.Errorf("calibration: the quality budget is %g, the damage where the search ends %g nats, the error rate %g: expected finite numbers, as a report can hold no others", s.Budget, s.MaxDamage, s.Alpha)
		}
	}
	if !(s.Budget > 0) || !(s.MaxDamage >= s.Budget) {
		return fmt.Errorf("calibration: expected a positive quality budget and a search at least as far, found %g and %g nats", s.Budget, s.MaxDamage)
	}
	if s.Alpha >= 1 {
		return fmt.Errorf("calibration: the error rate of stopping early is %g, expected less than 1", s.Alpha)
	}
	return nil
}
