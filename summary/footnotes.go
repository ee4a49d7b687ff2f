package summary

import (
	"fmt"
	"math"
	"strings"

	"attnbudget/plan"
)

// general adds the remarks, which belong to no single cell: how to read the table, what changed under way and how far
// apart two identical arms came out.
func (l *layout) general(s *Summary, cells [][]TableCell) {
	if legend := l.legend(cells); legend != "" {
		l.remarks = append(l.remarks, legend)
	}
	if used := l.environments(s, cells); len(used) > 1 {
		l.remarks = append(l.remarks, environmentNote(used))
	}
	if n := l.noise(s); n != "" {
		l.remarks = append(l.remarks, n)
	}
	if l.ds.plan.Order == plan.OrderSequential && l.def.Cells == plan.MetricTokensPerSecond {
		l.remarks = append(l.remarks, sequentialNote)
	}
	if d := l.detectable(cells); d != "" {
		l.remarks = append(l.remarks, d)
	}
	l.remarks = append(l.remarks, l.warnings(cells)...)
}

// legend says what the numbers are.
func (l *layout) legend(cells [][]TableCell) string {
	var parts []string
	timings, undecided, equal, compared, intervals := false, false, false, false, false
	for _, row := range cells {
		for _, c := range row {
			timings = timings || c.Value != nil && timed(l.ds.conditions[c.Condition].Stage)
			compared = compared || c.Effect != nil
			intervals = intervals || c.Effect != nil && c.Effect.Lo < c.Effect.Hi
			undecided = undecided || c.Effect != nil && c.Verdict == Undecided
			equal = equal || c.Effect != nil && c.Verdict == Equal
		}
	}
	if timings {
		parts = append(parts, "medians over blocks")
	}
	if compared {
		what := "ratio to"
		if l.def.Effect == plan.EffectDifference {
			what = "difference from"
		}
		note := "in brackets the " + what + " " + l.reference()
		if intervals {
			note = fmt.Sprintf("in brackets the paired %s %s with its 95 %% interval", what, l.reference())
		}
		parts = append(parts, note)
	}
	if undecided {
		parts = append(parts, undecidedText+" cannot be told from noise")
	}
	if equal {
		parts = append(parts, equalText+" exactly equal")
	}
	return strings.Join(parts, "; ")
}

func (l *layout) reference() string {
	if change := l.change(); len(change) > 0 {
		return describe(change)
	}
	return "the baseline " + l.ds.plan.Baseline
}

// environments lists those that made records of the table's values.
func (l *layout) environments(s *Summary, cells [][]TableCell) []Environment {
	used := map[string]bool{}
	for _, row := range cells {
		for _, c := range row {
			if shown := l.cells[place{c.Arm, c.Condition}][l.def.Cells]; shown != nil {
				for _, v := range shown.Values {
					used[v.Environment] = true
				}
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

// noise says how far the control came out from the baseline, at its worst condition for this table's metric.
func (l *layout) noise(s *Summary) string {
	worst, size, outside := (*Noise)(nil), -1.0, 0
	for i := range s.NoiseFloor {
		n := &s.NoiseFloor[i]
		if n.Metric != l.def.Cells {
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
	i, effect := worst.Ratio, plan.EffectRatio
	if i == nil {
		i, effect = worst.Difference, plan.EffectDifference
	}
	if worst.Verdict == Equal {
		return "noise floor: the control, a second baseline, came out exactly equal"
	}
	text := fmt.Sprintf("noise floor: the control, a second baseline, came out at most %s from it (%s)",
		effectText(&TableCell{Effect: i}, effect, l.def.Cells), worst.Condition)
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
	for _, row := range cells {
		for _, c := range row {
			if c.Verdict != Undecided {
				continue
			}
			if d := l.ds.compare(comparison{c.Arm, c.Against, c.Condition, l.def.Cells}).Detectable; d != nil {
				least, most = min(least, *d), max(most, *d)
			}
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
	for _, row := range cells {
		for _, c := range row {
			if c.Effect == nil {
				continue
			}
			e := l.ds.compare(comparison{c.Arm, c.Against, c.Condition, l.def.Cells})
			for _, w := range e.Warnings {
				if where[w] == nil {
					order = append(order, w)
				}
				where[w] = append(where[w], c.Arm+", "+c.Condition)
			}
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
