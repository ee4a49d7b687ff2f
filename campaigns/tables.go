package campaigns

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"attnbudget/plan"
)

func (c *Campaign) checkTables() {
	titles := map[string]int{}
	for i, t := range c.Tables {
		p := at("tables", i)
		if first, twice := titles[t.Title]; twice && t.Title != "" {
			c.doc.wrong(p.key("title"), "", "table %d has this title already", first+1)
		}
		titles[t.Title] = i
		for j, dimension := range t.Rows {
			c.checkDimension(dimension, p.key("rows").item(j), plan.Dimensions())
		}
		for j, dimension := range t.Columns {
			c.checkDimension(dimension, p.key("columns").item(j), plan.Dimensions())
			if slices.Contains(t.Rows, dimension) {
				c.doc.wrong(p.key("columns").item(j), "", "dimension %q is in the rows already", dimension)
			}
		}
		c.checkMetric(t.Cells, p.key("cells"))
		if len(t.Against) > 0 && t.Effect == "" {
			c.doc.wrongKey(p.key("against"), "add effect: ratio or effect: difference", `"against" needs "effect"`)
		}
		for _, dimension := range sortedKeys(t.Against) {
			if c.checkDimension(dimension, p.key("against").key(dimension), append(armDimensions(), plan.DimArm)) {
				c.checkValue(dimension, t.Against[dimension], p.key("against").key(dimension))
			}
		}
		for _, dimension := range sortedKeys(t.Where) {
			if c.checkDimension(dimension, p.key("where").key(dimension), plan.Dimensions()) {
				c.checkValue(dimension, t.Where[dimension], p.key("where").key(dimension))
			}
		}
	}
}

// checkDimension reports whether the dimension is one of the known; the mistake points at its key where it is one.
func (c *Campaign) checkDimension(name string, p path, known []string) bool {
	if slices.Contains(known, name) {
		return true
	}
	if name != "" {
		c.doc.wrongKey(p, suggestion(name, known), "unknown dimension %q", name)
	}
	return false
}

func (c *Campaign) checkMetric(metric string, p path) {
	if metric == "" {
		return
	}
	stages := plan.MetricStages(metric)
	if stages == nil {
		c.doc.wrong(p, suggestion(metric, plan.Metrics()), "unknown metric %q", metric)
		return
	}
	if !slices.ContainsFunc(c.Stages, func(s Stage) bool { return slices.Contains(stages, s.kind()) }) {
		c.doc.wrong(p, "add one of the stages "+fmt.Sprint(stages), "no stage of this campaign measures %s", metric)
	}
}

// checkValue notes a value of a dimension that nothing in the campaign has. Arms have their names from the matrix and are
// checked when that has been expanded.
func (c *Campaign) checkValue(dimension, value string, p path) {
	if slices.Contains(armDimensions(), dimension) {
		c.known(dimension, value, p)
		return
	}
	if dimension == plan.DimArm || !c.doc.clean(at("stages")) {
		return
	}
	var known []string
	for _, cond := range c.conditions {
		if value := conditionValue(cond.Condition, dimension); value != "" {
			known = append(known, value)
		}
	}
	slices.Sort(known)
	if known = slices.Compact(known); !slices.Contains(known, value) {
		c.doc.wrong(p, suggestion(value, known), "no condition of this campaign has the %s %q", dimension, value)
	}
}

// conditionValue is the value of a dimension that conditions have; empty where the condition has none of it.
func conditionValue(cond plan.Condition, dimension string) string {
	number := func(n int, has bool) string {
		if !has {
			return ""
		}
		return strconv.Itoa(n)
	}
	switch dimension {
	case plan.DimStage:
		return cond.Stage
	case plan.DimCondition:
		return cond.Name
	case plan.DimPrompt:
		return number(cond.Prompt, cond.Prompt > 0)
	case plan.DimGenerate:
		return number(cond.Generate, cond.Generate > 0)
	case plan.DimDepth:
		return number(cond.Depth, cond.Stage == plan.Depth)
	case plan.DimContext:
		return number(cond.Context, cond.Context > 0)
	}
	panic("campaigns: conditions have no dimension " + dimension)
}

// kind is the plan's name of a stage's kind; empty for a stage that could not be read.
func (s Stage) kind() string {
	switch {
	case s.Throughput != nil:
		return plan.Throughput
	case s.Depth != nil:
		return plan.Depth
	case s.KV != nil:
		return plan.KV
	case s.Perplexity != nil:
		return plan.Perplexity
	case s.HellaSwag != nil:
		return plan.HellaSwag
	case s.Winogrande != nil:
		return plan.Winogrande
	}
	return ""
}

// tables are the tables of the campaign, or the default ones.
func (c *Campaign) tables(arms []plan.Arm, baseline plan.Arm) []plan.Table {
	if len(c.Tables) == 0 {
		return c.defaultTables(arms, baseline)
	}
	out := make([]plan.Table, len(c.Tables))
	for i, t := range c.Tables {
		out[i] = plan.Table{Title: t.Title, Rows: t.Rows, Columns: t.Columns, Cells: t.Cells, Effect: t.Effect, Against: t.Against, Where: t.Where}
	}
	return out
}

// defaultTables are what an attention-drop experiment is asked first: what it gains in speed and memory, what it costs in
// quality. The columns are the masks; where there is only one, the first other dimension of the arms that varies.
func (c *Campaign) defaultTables(arms []plan.Arm, baseline plan.Arm) []plan.Table {
	varies := func(dimension string) bool {
		return slices.ContainsFunc(arms, func(a plan.Arm) bool { return armValue(a, dimension) != armValue(baseline, dimension) })
	}
	layout := func(more string, dimensions ...string) (rows, columns []string) {
		for _, dimension := range dimensions {
			switch {
			case !varies(dimension):
			case columns == nil:
				columns = []string{dimension}
			default:
				rows = append(rows, dimension)
			}
		}
		return append(rows, more), columns
	}
	var out []plan.Table
	add := func(title, metric, effect string, rows, columns []string, where map[string]string) {
		if columns == nil {
			effect = ""
		}
		stages := plan.MetricStages(metric)
		if slices.ContainsFunc(c.Stages, func(s Stage) bool { return slices.Contains(stages, s.kind()) }) {
			out = append(out, plan.Table{Title: title, Rows: rows, Columns: columns, Cells: metric, Effect: effect, Where: where})
		}
	}
	rows, columns := layout(plan.DimCondition, plan.DimMask, plan.DimFormat, plan.DimKV, plan.DimModel)
	add("Speed in tokens per second", plan.MetricTokensPerSecond, plan.EffectRatio, rows, columns, nil)
	memoryRows, memoryColumns := layout(plan.DimContext, plan.DimMask, plan.DimKV, plan.DimModel)
	var where map[string]string
	if varies(plan.DimFormat) { // the cache does not depend on how the weights are stored
		where = map[string]string{plan.DimFormat: baseline.Format}
	}
	add("KV cache memory in bytes", plan.MetricKVBytes, plan.EffectRatio, memoryRows, memoryColumns, where)
	add("Perplexity", plan.MetricPerplexity, plan.EffectRatio, rows, columns, nil)
	add("HellaSwag accuracy", plan.MetricHellaSwagAccuracy, plan.EffectDifference, rows, columns, nil)
	add("Winogrande accuracy", plan.MetricWinograndeAccuracy, plan.EffectDifference, rows, columns, nil)
	return out
}

// armValue is the value of a dimension that arms have.
func armValue(a plan.Arm, dimension string) string {
	switch dimension {
	case plan.DimModel:
		return a.Model
	case plan.DimFormat:
		return a.Format
	case plan.DimMask:
		return a.Mask.Name
	case plan.DimKV:
		return a.KV()
	case plan.DimArm:
		return a.Name
	}
	panic("campaigns: arms have no dimension " + dimension)
}

// sortedKeys makes the order of mistakes independent of the map's.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
