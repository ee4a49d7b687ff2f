package summary

import (
	"fmt"

	"attnbudget/summary/stat"
)

// signedRankFrom is the number of pairs from which the signed-rank interval exists at 95 %.
const signedRankFrom = 6

// power is that of the detectable effect printed beside an undecided one.
const power = 0.8

// compareTimes pairs blocks: a pair is one block that both arms finished in one environment.
func (ds *dataset) compareTimes(e *Effect) {
	arm, against := ds.pairs(e)
	if len(arm) == 0 {
		if e.Refused == "" {
			e.Refused = "no block in which both arms were measured in one environment"
		}
		return
	}
	d, err := stat.LogRatios(arm, against)
	if err != nil {
		e.Refused = err.Error()
		return
	}
	difference := make([]float64, len(arm))
	for i := range arm {
		difference[i] = arm[i] - against[i]
	}
	ratioT, ratioHL := stat.RatioT(d, Level), stat.RatioHL(d, Level)
	if len(d) < signedRankFrom {
		e.Ratio, e.Difference = e.adopt(ratioT), ptr(stat.MeanT(difference, Level))
	} else {
		e.Ratio, e.Difference = e.adopt(ratioHL), ptr(stat.HodgesLehmann(difference, Level))
		e.Check = e.adopt(ratioT)
	}
	e.Difference.Warnings = nil // they are those of the ratio
	e.P = tTest(stat.MeanT(d, Level))
	if r, large := stat.Lag1(d); large && len(d) >= signedRankFrom {
		e.warn("the ratios of successive blocks are correlated (lag 1: %.2f): the machine drifted", r)
	}
	e.decideRatio()
	if e.Verdict == Undecided {
		if r, ok := stat.DetectableRatio(d, Level, power); ok {
			e.Detectable = &r
		}
	}
}

// tTest is the p of the hypothesis that a mean with its t interval is zero; nil where there is no interval.
func tTest(mean stat.Interval) *float64 {
	if p, ok := stat.TwoSidedP(mean); ok {
		return &p
	}
	return nil
}

// pairs fills e.Pairs and returns the values of both arms.
func (ds *dataset) pairs(e *Effect) (arm, against []float64) {
	other := map[int]*observation{}
	for _, o := range ds.at[place{e.Against, e.Condition}] {
		other[o.unit.Block] = o
	}
	half, mixed, apart := 0, 0, 0
	for _, a := range ds.at[place{e.Arm, e.Condition}] {
		b := other[a.unit.Block]
		switch {
		case b == nil || !a.ok() || !b.ok():
			half++
			continue
		case a.record.Environment != b.record.Environment:
			mixed++
			continue
		case a.record.Session != b.record.Session:
			apart++
		}
		x, y := a.values[e.Metric].Value, b.values[e.Metric].Value
		arm, against = append(arm, x), append(against, y)
		e.Pairs = append(e.Pairs, Pair{a.unit.Block, a.record.Environment, x / y})
		e.Records = append(e.Records, a.file(), b.file())
	}
	if half > 0 {
		e.warn("%s without a pair: one or both arms have no good record", count(half, "block"))
	}
	if mixed > 0 {
		e.warn("%s left out: the two arms were measured in different environments", count(mixed, "block"))
	}
	if apart > 0 {
		e.warn("%s measured in two sessions, apart in time", count(apart, "pair"))
	}
	if n := environmentsOf(e.Pairs); n > 1 {
		e.warn("pairs of %d environments are taken together", n)
	}
	if len(arm) == 0 && half > 0 && mixed == 0 {
		e.Refused = fmt.Sprintf("%s and none with good records of both arms", count(half, "block"))
	}
	return arm, against
}

func environmentsOf(pairs []Pair) int {
	seen := map[string]bool{}
	for _, p := range pairs {
		seen[p.Environment] = true
	}
	return len(seen)
}
