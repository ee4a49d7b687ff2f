package summary

import (
	"fmt"
	"slices"
	"strings"

	"attnbudget/plan"
)

// legend says what the numbers are.
func (l *layout) legend(cells [][]TableCell) string {
	var parts []string
	timings, undecided, equal, points := false, false, false, false
	for c := range all(cells) {
		timings = timings || c.Value != nil && timed(l.ds.conditions[c.Condition].Stage)
		undecided = undecided || c.Effect != nil && c.Verdict == Undecided
		equal = equal || c.Effect != nil && c.Verdict == Equal
		decided := c.Effect != nil && (c.Verdict == Better || c.Verdict == Worse)
		points = points || decided && isFraction(c.Metric) && l.effectOf(c.Metric) == plan.EffectDifference
	}
	if len(l.def.Cells) == 1 && len(l.def.Columns) > 0 { // else the head of the column says it
		parts = append(parts, l.displays[l.def.Cells[0]].heading())
	}
	if timings {
		parts = append(parts, "medians over blocks")
	}
	if e := l.effectLegend(cells); e != "" {
		parts = append(parts, e)
	}
	if points {
		parts = append(parts, "pp percentage points")
	}
	if undecided {
		parts = append(parts, undecidedText+" cannot be told from noise")
	}
	if equal {
		parts = append(parts, equalText+" exactly equal")
	}
	return strings.Join(parts, "; ")
}

// effectLegend says what stands in brackets.
func (l *layout) effectLegend(cells [][]TableCell) string {
	kinds := map[string][]string{} // labels of metrics by the kind of their effects
	intervals := false
	for c := range all(cells) {
		if c.Effect == nil {
			continue
		}
		intervals = intervals || c.Effect.Lo < c.Effect.Hi
		kind, label := l.effectOf(c.Metric), l.displays[c.Metric].label
		if !slices.Contains(kinds[kind], label) {
			kinds[kind] = append(kinds[kind], label)
		}
	}
	paired, interval := "", ""
	if intervals {
		paired, interval = "paired ", " with its 95 % interval"
	}
	ratios, differences := kinds[plan.EffectRatio], kinds[plan.EffectDifference]
	switch {
	case len(ratios)+len(differences) == 0:
		return ""
	case len(differences) == 0:
		return fmt.Sprintf("in brackets the %sratio to %s%s", paired, l.reference(), interval)
	case len(ratios) == 0:
		return fmt.Sprintf("in brackets the %sdifference from %s%s", paired, l.reference(), interval)
	}
	return fmt.Sprintf("in brackets the %seffect against %s%s: a ratio of %s, a difference of %s",
		paired, l.reference(), interval, strings.Join(ratios, ", "), strings.Join(differences, ", "))
}

func (l *layout) reference() string {
	if change := l.change(); len(change) > 0 {
		return describe(change)
	}
	return "the baseline " + l.ds.plan.Baseline
}
