package summary

import (
	"slices"

	"attnbudget/plan"
	"attnbudget/summary/stat"
)

// compareDivergence pairs chunks of the same text, both arms compared with the same base: the difference of two divergences
// says how much further from the base an arm is than another.
func (ds *dataset) compareDivergence(e *Effect) {
	arm, against, ok := ds.both(e)
	if !ok {
		return
	}
	if a, b := ds.arms[e.Arm].Model, ds.arms[e.Against].Model; a != b {
		e.Refused = "divergences of different models (" + a + ", " + b + ") are not compared: each has its own base"
		return
	}
	of := e.Metric
	if isPercentile(of) {
		of = plan.MetricMeanKLD
	}
	a, b := statChunks(arm.values[of].Chunks), statChunks(against.values[of].Chunks)
	switch {
	case len(a) > 0 && slices.Equal(a, b):
		e.Difference, e.Verdict = ptr(stat.Exact(0)), Equal
	case isPercentile(e.Metric):
		e.Refused = "percentiles have no error from which a difference could be told"
	case e.Metric == plan.MetricRMSDeltaP:
		d, err := stat.RMSDifference(a, b, Level)
		if err != nil {
			e.Refused = err.Error()
			return
		}
		e.P = tTest(d)
		e.decideDifference(d, nil)
	default:
		t, head, check, err := chunkDifference(a, b)
		if err != nil {
			e.Refused = err.Error()
			return
		}
		e.P = tTest(t)
		e.decideDifference(head, check)
	}
}

// decideDifference takes the side of a difference unless a second method, where there is one, says something else.
func (e *Effect) decideDifference(d stat.Interval, check *stat.Interval) {
	e.Difference = e.adopt(d)
	head := side(e.Difference, 0)
	if check != nil {
		e.adopt(*check) // for its warnings
		if check.Bounded && d.Bounded && side(check, 0) != head {
			e.warn("%s and %s disagree", d.Method, check.Method)
			head = 0
		}
	}
	e.Verdict = verdictOf(e.Metric, head)
}
