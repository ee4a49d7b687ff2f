package summary

import (
	"fmt"

	"attnbudget/plan"
	"attnbudget/summary/stat"
)

// holm adjusts the p values of each metric's comparisons in the table and says how many of the differences that are marked
// stand. The control is no question that the table asks.
func (l *layout) holm(cells [][]TableCell) {
	for _, metric := range l.def.Cells {
		var family []*TableCell
		for c := range all(cells) {
			if c.Metric == metric && c.P != nil && !l.ds.arms[c.Arm].Control {
				family = append(family, c)
			}
		}
		if len(family) == 0 {
			continue
		}
		p := make([]float64, len(family))
		for i, c := range family {
			p[i] = *c.P
		}
		for i, adjusted := range stat.Holm(p) {
			family[i].PHolm = &adjusted
		}
		if r := l.holmRemark(family); r != "" {
			l.remark(l.labelled(metric) + r)
		}
	}
}

func (l *layout) holmRemark(family []*TableCell) string {
	marked := 0
	var fall []string
	for _, c := range family {
		if c.Verdict != Better && c.Verdict != Worse {
			continue
		}
		marked++
		if *c.PHolm > 1-Level {
			fall = append(fall, l.where(c))
		}
	}
	if marked == 0 || len(family) < 2 {
		return ""
	}
	s := fmt.Sprintf("marked differences that stand after Holm's correction for %d comparisons: %d of %d", len(family), marked-len(fall), marked)
	if len(fall) > 0 {
		s += "; not " + shortList(fall)
	}
	return s
}

// labelled begins a remark on one metric of several.
func (l *layout) labelled(metric string) string {
	if len(l.def.Cells) == 1 {
		return ""
	}
	return l.displays[metric].label + ": "
}

// where names a cell by its arm, and by its condition where the table has several of its metric.
func (l *layout) where(c *TableCell) string {
	if timed(l.ds.conditions[c.Condition].Stage) || l.laidOutBy(plan.DimCondition) {
		return c.Arm + ", " + c.Condition
	}
	return c.Arm
}
