package summary

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attnbudget/plan"
)

// general adds the remarks, which belong to no single cell: how to read the table, what it leaves out, how much of it
// stands after correction, what changed under way and how far apart two identical arms came out.
func (l *layout) general(s *Summary, cells [][]TableCell) {
	l.remark(l.legend(cells))
	l.remark(l.masks(cells))
	l.remark(l.inputs(cells))
	l.remark(l.leftOut())
	l.holm(cells)
	if used := l.environments(s, cells); len(used) > 1 {
		l.remark(environmentNote(used))
	}
	l.noise(s)
	if l.ds.plan.Order == plan.OrderSequential && slices.Contains(l.def.Cells, plan.MetricTokensPerSecond) {
		l.remark(sequentialNote)
	}
	l.remark(l.detectable(cells))
	l.remarks = append(l.remarks, l.warnings(cells)...)
}

func (l *layout) remark(s string) {
	if s != "" {
		l.remarks = append(l.remarks, s)
	}
}

// masks says which layers the masks that the table names drop.
func (l *layout) masks(cells [][]TableCell) string {
	if !l.laidOutBy(plan.DimMask) && !l.laidOutBy(plan.DimArm) {
		return ""
	}
	var parts []string
	for c := range all(cells) {
		arm := l.ds.arms[c.Arm]
		m := arm.Mask
		if len(m.Layers) == 0 {
			continue
		}
		name, stands := m.Name, ""
		if m.Surrogate != "" {
			stands = " with surrogates"
		}
		if m.Profile != "" && len(l.ds.plan.Models) > 1 {
			name += " in " + arm.Model // a profile means other layers in every model
		}
		if s := name + " = " + strings.ReplaceAll(plan.CanonicalMask(m.Layers), ",", ", ") + stands; !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "masks, by the layers whose attention they drop: " + strings.Join(parts, "; ")
}

// inputs names the texts and tasks behind the scores, where no row or column does.
func (l *layout) inputs(cells [][]TableCell) string {
	if l.laidOutBy(plan.DimCondition) {
		return ""
	}
	var names []string
	for c := range all(cells) {
		if cond := l.ds.conditions[c.Condition]; cond.Input != "" && !slices.Contains(names, cond.Name) {
			names = append(names, cond.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "scored on: " + strings.Join(names, "; ")
}

// leftOut names the conditions that measure a metric of the table but have no value of one of its dimensions.
func (l *layout) leftOut() string {
	var order []string
	names := map[string][]string{} // of conditions, by what they lack
	for _, s := range l.spots() {
		_, lacks, ok := l.names(s, slices.Concat(l.def.Rows, l.def.Columns))
		switch {
		case ok || slices.Contains(names[lacks], s.condition):
			continue
		case names[lacks] == nil:
			order = append(order, lacks)
		}
		names[lacks] = append(names[lacks], s.condition)
	}
	for i, lacks := range order {
		order[i] = fmt.Sprintf("without %s: %s", lacks, strings.Join(names[lacks], "; "))
	}
	if len(order) == 0 {
		return ""
	}
	return "left out, " + strings.Join(order, "; ")
}

// environments lists those that made records of the table's values.
func (l *layout) environments(s *Summary, cells [][]TableCell) []Environment {
	used := map[string]bool{}
	for c := range all(cells) {
		if shown := l.cells[place{c.Arm, c.Condition}][c.Metric]; shown != nil {
			for _, v := range shown.Values {
				used[v.Environment] = true
			}
		}
	}
	var out []Environment
	for _, e := range s.Environments {
		if used[e.ID] {
			out = append(out, e)
		}
	}
	return out
}

func environmentNote(environments []Environment) string {
	var changes []string
	for _, e := range environments[1:] {
		for _, d := range e.Changes {
			changes = append(changes, fmt.Sprintf("%s %s -> %s", d.Field, d.Old, d.New))
		}
	}
	s := fmt.Sprintf("measured in %d environments, paired only within one", len(environments))
	if len(changes) > 0 {
		s += ": " + strings.Join(changes, ", ")
	}
	return s
}

// noise says of each metric how far the control came out from the baseline; what is true of several is said once.
func (l *layout) noise(s *Summary) {
	var order []string
	metrics := map[string][]string{} // labels, by what is said of them
	for _, m := range l.def.Cells {
		text := l.noiseOf(s, m)
		if text == "" {
			continue
		}
		if metrics[text] == nil {
			order = append(order, text)
		}
		metrics[text] = append(metrics[text], l.displays[m].label)
	}
	for _, text := range order {
		of := ""
		if len(l.def.Cells) > 1 {
			of = " of " + strings.Join(metrics[text], ", ")
		}
		l.remark("noise floor" + of + ": the control, a second baseline, came out " + text)
	}
}

// noiseOf is the noise floor of a metric at its worst condition.
func (l *layout) noiseOf(s *Summary, metric string) string {
	worst, size, outside := (*Noise)(nil), -1.0, 0
	for i := range s.NoiseFloor {
		n := &s.NoiseFloor[i]
		if n.Metric != metric {
			continue
		}
		if n.Verdict == Better || n.Verdict == Worse {
			outside++
		}
		if v := distance(n); v > size {
			worst, size = n, v
		}
	}
	if worst == nil {
		return ""
	}
	if worst.Verdict == Equal {
		return "exactly equal"
	}
	i, effect := worst.Ratio, plan.EffectRatio
	if i == nil || l.effectOf(metric) == plan.EffectDifference {
		i, effect = worst.Difference, plan.EffectDifference
	}
	text := fmt.Sprintf("at most %s from it (%s)", effectText(&TableCell{Effect: i}, effect, l.displays[metric]), worst.Condition)
	if outside > 0 {
		text += fmt.Sprintf("; at %s the interval excludes equality, where about one in twenty should: distrust small effects", count(outside, "condition"))
	}
	return text
}

// distance is how far an effect is from none.
func distance(n *Noise) float64 {
	switch {
	case n.Ratio != nil && n.Ratio.Est > 0:
		return math.Abs(math.Log(n.Ratio.Est))
	case n.Difference != nil:
		return math.Abs(n.Difference.Est)
	}
	return 0
}

// detectable says how large an effect would have had to be to show, where timings are undecided.
func (l *layout) detectable(cells [][]TableCell) string {
	least, most := math.Inf(1), 0.0
	for c := range all(cells) {
		if c.Verdict != Undecided {
			continue
		}
		if d := l.compare(c).Detectable; d != nil {
			least, most = min(least, *d), max(most, *d)
		}
	}
	if most == 0 {
		return ""
	}
	from, to := detectableText(least), detectableText(most)
	if from != to {
		to = from + " to " + to
	}
	return fmt.Sprintf("where it says %s, so many blocks with so much noise show a ratio of %s or more, with %.0f %% power", undecidedText, to, 100*power)
}

// detectableText rounds up the distance from 1 to two digits.
func detectableText(ratio float64) string {
	d := max(ratio-1, 1e-6)
	decimals := max(1-int(math.Floor(math.Log10(d))), 0)
	scale := math.Pow10(decimals)
	return fixed(math.Ceil(ratio*scale)/scale, decimals) + "×"
}

// warnings lists what the comparisons of this table warn of, with where.
func (l *layout) warnings(cells [][]TableCell) []string {
	var order []string
	where := map[string][]string{}
	for c := range all(cells) {
		if c.Effect == nil {
			continue
		}
		for _, w := range l.compare(c).Warnings {
			if where[w] == nil {
				order = append(order, w)
			}
			where[w] = append(where[w], c.Arm+", "+c.Condition)
		}
	}
	out := make([]string, len(order))
	for i, w := range order {
		out[i] = w + " (" + shortList(where[w]) + ")"
	}
	return out
}

// shortList names the first two.
func shortList(names []string) string {
	if len(names) > 2 {
		return fmt.Sprintf("%s; %s; %d more", names[0], names[1], len(names)-2)
	}
	return strings.Join(names, "; ")
}
