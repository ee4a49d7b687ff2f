package summary

import (
	"fmt"
	"math"
	"slices"

	"attnbudget/plan"
	"attnbudget/summary/stat"
)

// Verdicts.
const (
	Better    = "better"
	Worse     = "worse"
	Undecided = "undecided" // cannot be told from noise
	Equal     = "equal"     // exactly
)

// comparison is an arm compared with another, one metric at one condition.
type comparison struct {
	arm, against, condition, metric string
}

// higherIsBetter says which way a metric should go.
func higherIsBetter(metric string) bool {
	return slices.Contains([]string{
		plan.MetricTokensPerSecond, plan.MetricHellaSwagAccuracy, plan.MetricWinograndeAccuracy, plan.MetricWinograndeCorrected,
		plan.MetricChoiceAccuracy, plan.MetricSameTop, plan.MetricMeanDeltaP,
	}, metric)
}

// effects compares every arm with the baseline and with the arm that differs only in its mask.
func (ds *dataset) effects() []Effect {
	out := []Effect{}
	for _, p := range ds.places() {
		for _, metric := range ds.metrics(p) {
			if metric == plan.MetricNLL || isPercentile(metric) {
				continue // the difference of nll is the logarithm of the ratio of perplexities; percentiles have no effects
			}
			for _, r := range ds.references(p.arm) {
				if len(ds.at[place{r.arm, p.condition}]) == 0 {
					continue
				}
				e := ds.compare(comparison{p.arm, r.arm, p.condition, metric})
				e.Comparisons = r.why
				out = append(out, e)
			}
		}
	}
	return out
}

// reference is an arm to compare with, and why.
type reference struct {
	arm string
	why []string
}

func (ds *dataset) references(name string) []reference {
	a, base := ds.arms[name], ds.arms[ds.plan.Baseline]
	var out []reference
	if name != base.Name {
		out = append(out, reference{base.Name, []string{OnBaseline}})
	}
	if a.Control || a.Mask.Same(base.Mask) {
		return out
	}
	twin, ok := ds.armWith(a, map[string]string{plan.DimMask: base.Mask.Name})
	switch {
	case !ok:
	case twin == base.Name:
		out[0].why = append(out[0].why, OnMask)
	default:
		out = append(out, reference{twin, []string{OnMask}})
	}
	return out
}

// armWith finds the arm that is like a except for the given dimensions; a change of the arm itself decides alone.
func (ds *dataset) armWith(a plan.Arm, change map[string]string) (string, bool) {
	if name, named := change[plan.DimArm]; named {
		_, known := ds.arms[name]
		return name, known
	}
	for _, b := range ds.plan.Arms {
		like := !b.Control && b.Engine == a.Engine
		for _, d := range []string{plan.DimModel, plan.DimFormat, plan.DimMask, plan.DimKV} {
			want, changed := change[d]
			if !changed {
				want = a.Value(d)
			}
			like = like && b.Value(d) == want
		}
		if like {
			return b.Name, true
		}
	}
	return "", false
}

// compare pairs two arms at a condition. What cannot be paired is refused with the reason.
func (ds *dataset) compare(c comparison) Effect {
	if e, ok := ds.compared[c]; ok {
		return e
	}
	e := Effect{Arm: c.arm, Against: c.against, Condition: c.condition, Metric: c.metric, Records: []string{}}
	switch stage := ds.conditions[c.condition].Stage; {
	case timed(stage):
		ds.compareTimes(&e)
	case stage == plan.Perplexity:
		ds.comparePerplexity(&e)
	case stage == plan.KLDivergence:
		ds.compareDivergence(&e)
	case stage == plan.HellaSwag || stage == plan.Winogrande || stage == plan.MultipleChoice:
		ds.compareAccuracy(&e)
	default:
		ds.compareExact(&e)
	}
	if e.Refused != "" {
		e.Verdict, e.Ratio, e.Difference, e.P = "", nil, nil, nil
	}
	ds.compared[c] = e
	return e
}

func (e *Effect) warn(format string, args ...any) {
	e.Warnings = append(e.Warnings, fmt.Sprintf(format, args...))
}

// adopt passes an interval's own warnings on to the effect, where they are read.
func (e *Effect) adopt(i stat.Interval) *stat.Interval {
	for _, w := range i.Warnings {
		if !slices.Contains(e.Warnings, w) {
			e.Warnings = append(e.Warnings, w)
		}
	}
	i.Warnings = nil
	return &i
}

// side says on which side of neutral an interval lies: 1 above, -1 below, 0 not told.
func side(i *stat.Interval, neutral float64) int {
	switch {
	case i == nil || i.Contains(neutral):
		return 0
	case i.Est > neutral:
		return 1
	}
	return -1
}

// verdictOf turns a side into words.
func verdictOf(metric string, side int) string {
	switch {
	case side == 0:
		return Undecided
	case (side > 0) == higherIsBetter(metric):
		return Better
	}
	return Worse
}

// decideRatio takes the headline's side unless a second method says something else.
func (e *Effect) decideRatio() {
	head := side(e.Ratio, 1)
	if e.Check != nil && e.Check.Bounded && e.Ratio.Bounded && side(e.Check, 1) != head {
		e.warn("%s and %s disagree", e.Ratio.Method, e.Check.Method)
		head = 0
	}
	e.Verdict = verdictOf(e.Metric, head)
}

// measured returns the first good observation of an arm that has the metric.
func (ds *dataset) measured(arm, condition, metric string) *observation {
	for _, o := range ds.at[place{arm, condition}] {
		if _, ok := o.values[metric]; ok {
			return o
		}
	}
	return nil
}

// both returns the observations of a deterministic stage to compare, or refuses.
func (ds *dataset) both(e *Effect) (arm, against *observation, ok bool) {
	arm, against = ds.measured(e.Arm, e.Condition, e.Metric), ds.measured(e.Against, e.Condition, e.Metric)
	switch {
	case arm == nil:
		e.Refused = "no record of " + e.Arm + " has " + e.Metric
	case against == nil:
		e.Refused = "no record of " + e.Against + " has " + e.Metric
	case arm.record.Environment != against.record.Environment:
		e.Records = []string{arm.file(), against.file()}
		e.Refused = "the two records are from different environments, which are never paired"
	default:
		e.Records = []string{arm.file(), against.file()}
		return arm, against, true
	}
	return nil, nil, false
}

// compareExact compares numbers that have no noise, such as bytes.
func (ds *dataset) compareExact(e *Effect) {
	arm, against, ok := ds.both(e)
	if !ok {
		return
	}
	a, b := arm.values[e.Metric], against.values[e.Metric]
	e.Difference = ptr(stat.Exact(a.Value - b.Value))
	if b.Value != 0 {
		e.Ratio = ptr(stat.Exact(a.Value / b.Value))
	}
	slack := a.Rounding + b.Rounding
	switch {
	case slack > 0 && math.Abs(a.Value-b.Value) <= slack:
		e.Verdict = Undecided
		e.warn("the outputs are rounded by up to %v", slack)
	case a.Value == b.Value:
		e.Verdict = Equal
	default:
		e.Verdict = verdictOf(e.Metric, side(e.Difference, 0))
	}
}

// noiseFloor lists the effects of the control.
func noiseFloor(effects []Effect, control string) []Noise {
	var out []Noise
	for _, e := range effects {
		if control != "" && e.Arm == control && e.Refused == "" {
			out = append(out, Noise{e.Condition, e.Metric, e.Verdict, e.Ratio, e.Difference})
		}
	}
	return out
}
