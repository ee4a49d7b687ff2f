package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attnbudget/engine/drop"

	"github.com/montanaflynn/stats"
)

// Names of profiles, in the order of a report.
const (
	Minimal     = "minimal"     // the first step
	Light       = "light"       // the last step inside half the quality budget
	Recommended = "recommended" // the last step inside the quality budget
	Max         = "max"         // the last step inside the damage that the search was told to go to, whatever it costs
)

// profiles names steps. Inside a budget means: this step and all before it, by the mean of the held-out NLL. A profile that
// no step qualifies for is left out; when not even the first step is inside the budget only max is left. Max goes by the
// search split, and is the first step when that is beyond it already.
func profiles(steps []StepResult, budget, most float64) (out []Profile, exceeded bool) {
	if len(steps) == 0 {
		return nil, true
	}
	inside := func(limit float64) int {
		n := slices.IndexFunc(steps, func(s StepResult) bool { return s.Heldout.NLL.Mean > limit })
		if n < 0 {
			n = len(steps)
		}
		return n - 1
	}
	recommended := inside(budget)
	if recommended >= 0 {
		out = append(out, profile(Minimal, steps[0], budget))
		if light := inside(budget / 2); light >= 0 {
			out = append(out, profile(Light, steps[light], budget))
		}
		out = append(out, profile(Recommended, steps[recommended], budget))
	}
	last := 0
	for i, s := range steps {
		if s.Search.NLL.Mean <= most {
			last = i
		}
	}
	return append(out, profile(Max, steps[last], budget)), recommended < 0
}

func profile(name string, s StepResult, budget float64) Profile {
	p := Profile{
		Name: name, Mask: s.Mask, Layers: s.Layers, Heldout: s.Heldout,
		WithinBudget: s.Heldout.NLL.Mean <= budget,
		Cautions:     slices.Clone(s.Cautions),
		Flags:        "--attention-drop-layers " + s.Mask,
	}
	if !p.WithinBudget {
		p.Cautions = append(p.Cautions, fmt.Sprintf("outside the quality budget of %g nats", budget))
	} else if e := s.Heldout.NLL; e.Mean+2*e.SE > budget {
		p.Cautions = append(p.Cautions, "inside the quality budget by less than two standard errors")
	}
	return p
}

// cautions says what to be wary of in step i of steps.
func cautions(steps []StepResult, i int) []string {
	out := []string{}
	if c := spike(steps, i); c != "" {
		out = append(out, c)
	}
	s := steps[i]
	held, searched := s.Heldout.NLL, s.Search.NLL
	if d := held.Mean - searched.Mean; math.Abs(d) > 3*math.Hypot(held.SE, searched.SE) {
		out = append(out, fmt.Sprintf("the held-out damage differs from that of the search split by %+.4f nats, more than three standard errors", d))
	}
	if len(s.Ties) > 0 {
		out = append(out, "tied with "+strings.Join(s.Ties, " and "))
	}
	return out
}

// spike reports a step that does more harm than those before it let expect: by more than two standard errors more than three
// times the median increment so far.
func spike(steps []StepResult, i int) string {
	if i == 0 {
		return ""
	}
	before := make([]float64, i)
	for k := range before {
		before[k] = steps[k].Increment.Mean
	}
	usual, err := stats.Median(before)
	if err != nil {
		panic("calibrate: a median always exists: " + err.Error())
	}
	usual = max(0, usual)
	if e := steps[i].Increment; e.Mean-2*e.SE > 3*usual {
		return fmt.Sprintf("a spike: the step adds %.4f nats, those before it %.4f in the median", e.Mean, usual)
	}
	return ""
}

// names lists masks in canonical form.
func names(masks []drop.Mask) []string {
	out := make([]string, len(masks))
	for i, m := range masks {
		out[i] = m.Canonical()
	}
	return out
}
