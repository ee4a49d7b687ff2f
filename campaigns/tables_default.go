package campaigns

import (
	"slices"

	"attnbudget/plan"
)

// defaultTables are what an attention-drop experiment is asked first: what it gains in speed, what in memory, and what it
// costs in quality, as far as the stages measure it.
func (c *Campaign) defaultTables(arms []plan.Arm, baseline plan.Arm) []plan.Table {
	varying := func(dimensions ...string) []string {
		return slices.DeleteFunc(dimensions, func(dimension string) bool {
			return !slices.ContainsFunc(arms, func(a plan.Arm) bool { return a.Value(dimension) != baseline.Value(dimension) })
		})
	}
	of := varying(plan.DimMask, plan.DimFormat, plan.DimKV, plan.DimModel)
	var out []plan.Table
	if c.measures(plan.MetricTokensPerSecond) {
		out = append(out, byFirst("Speed", plan.MetricTokensPerSecond, of, plan.DimCondition))
	}
	if c.measures(plan.MetricKVBytes) {
		t := byFirst("KV cache", plan.MetricKVBytes, varying(plan.DimMask, plan.DimKV, plan.DimModel), plan.DimContext)
		if slices.Contains(of, plan.DimFormat) { // the cache does not depend on how the weights are stored
			t.Where = map[string]string{plan.DimFormat: baseline.Format}
		}
		out = append(out, t)
	}
	if t := c.qualityTable(of, baseline); len(t.Cells) > 0 {
		out = append(out, t)
	}
	return out
}

// byFirst has the values of the first dimension as columns, compared with the baseline's, and a row for the others and the
// one of conditions.
func byFirst(title, metric string, of []string, ofCondition string) plan.Table {
	t := plan.Table{Title: title, Cells: []string{metric}}
	if len(of) > 0 {
		t.Columns, of, t.Effect = of[:1], of[1:], plan.EffectAuto
	}
	t.Rows = append(slices.Clone(of), ofCondition)
	return t
}

// qualityTable has perplexity, divergence and the accuracies side by side, one row an arm, compared with the arm that has the
// baseline's value of the first dimension. A metric that several conditions measure has a column for each.
func (c *Campaign) qualityTable(of []string, baseline plan.Arm) plan.Table {
	t := plan.Table{Title: "Quality"}
	several := false
	for _, metric := range []string{plan.MetricPerplexity, plan.MetricMeanKLD, plan.MetricSameTop, plan.MetricHellaSwagAccuracy, plan.MetricWinograndeAccuracy, plan.MetricChoiceAccuracy} {
		conditions := 0
		for _, cond := range c.conditions {
			if slices.Contains(plan.MetricStages(metric), cond.Stage) {
				conditions++
			}
		}
		if conditions > 0 {
			t.Cells = append(t.Cells, metric)
		}
		several = several || conditions > 1
	}
	if len(t.Cells) > 1 {
		t.Columns = append(t.Columns, plan.DimMetric)
	}
	if several {
		t.Columns = append(t.Columns, plan.DimCondition)
	}
	if len(of) == 0 {
		t.Rows = []string{plan.DimModel}
		return t
	}
	// The compared dimension varies fastest, so that what is compared stands together.
	t.Rows = append(slices.Clone(of[1:]), of[0])
	t.Effect, t.Against = plan.EffectAuto, map[string]string{of[0]: baseline.Value(of[0])}
	return t
}
