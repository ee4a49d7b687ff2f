package campaigns

import (
	"fmt"
	"maps"
	"slices"

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
		c.checkLayout(t, p)
		c.checkCells(t, p)
		if len(t.Against) > 0 && t.Effect == "" {
			c.doc.wrongKey(p.key("against"), "add effect: auto", `"against" needs "effect"`)
		}
		c.checkValues(t.Against, p.key("against"), plan.ArmDimensions())
		c.checkValues(t.Where, p.key("where"), plan.UnitDimensions())
		if c.doc.clean(p, at("stages")) {
			for j, metric := range t.Cells {
				c.checkShown(t, metric, p.key("cells").item(j))
			}
		}
	}
}

func (c *Campaign) checkLayout(t Table, p path) {
	for j, dimension := range t.Rows {
		c.checkDimension(dimension, p.key("rows").item(j), plan.Dimensions())
	}
	for j, dimension := range t.Columns {
		c.checkDimension(dimension, p.key("columns").item(j), plan.Dimensions())
		if slices.Contains(t.Rows, dimension) {
			c.doc.wrong(p.key("columns").item(j), "", "dimension %q is in the rows already", dimension)
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

// checkCells checks the metrics, and that several of them are laid out by metric, and one is not.
func (c *Campaign) checkCells(t Table, p path) {
	for j, metric := range t.Cells {
		c.checkMetric(metric, p.key("cells").item(j))
		if t.Effect == plan.EffectRatio && slices.Contains(plan.MetricStages(metric), plan.KLDivergence) {
			c.doc.wrong(p.key("effect"), "write effect: auto", "effects on %s are differences: the base has next to none to divide by", metric)
		}
	}
	row, column := slices.Index(t.Rows, plan.DimMetric), slices.Index(t.Columns, plan.DimMetric)
	const hint = `list several metrics in "cells", or leave it out`
	switch {
	case len(t.Cells) > 1 && row < 0 && column < 0:
		c.doc.wrong(p.key("cells"), "write columns: [metric]", `several metrics need the dimension "metric" in "rows" or "columns"`)
	case len(t.Cells) == 1 && row >= 0:
		c.doc.wrong(p.key("rows").item(row), hint, `the dimension "metric" needs several metrics, found one`)
	case len(t.Cells) == 1 && column >= 0:
		c.doc.wrong(p.key("columns").item(column), hint, `the dimension "metric" needs several metrics, found one`)
	}
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
	if !c.measures(metric) {
		c.doc.wrong(p, "add one of the stages "+fmt.Sprint(stages), "no stage of this campaign measures %s", metric)
	}
}

func (c *Campaign) measures(metric string) bool {
	stages := plan.MetricStages(metric)
	return slices.ContainsFunc(c.Stages, func(s Stage) bool { return slices.Contains(stages, s.kind()) })
}

// checkShown notes a metric that the table would show nowhere: because every condition that measures it lacks a
// dimension of the layout, or is left out by "where".
func (c *Campaign) checkShown(t Table, metric string, p path) {
	var left []condition
	for _, cond := range c.conditions {
		if slices.Contains(plan.MetricStages(metric), cond.Stage) {
			left = append(left, cond)
		}
	}
	for _, dimension := range slices.Concat(t.Rows, t.Columns) {
		if dimension == plan.DimMetric || plan.OfArm(dimension) {
			continue
		}
		left = slices.DeleteFunc(left, func(cond condition) bool { _, has := cond.Value(dimension); return !has })
		if len(left) == 0 {
			c.doc.wrong(p, "lay the table out by dimensions that it has, such as "+plan.DimCondition,
				"no condition that measures %s has the dimension %q of this table", metric, dimension)
			return
		}
	}
	for _, dimension := range sortedKeys(t.Where) {
		if plan.OfArm(dimension) {
			continue
		}
		left = slices.DeleteFunc(left, func(cond condition) bool { value, _ := cond.Value(dimension); return value != t.Where[dimension] })
	}
	if len(left) == 0 {
		c.doc.wrong(p, `change "where", or leave the metric out`, `"where" leaves no condition that measures %s`, metric)
	}
}

// checkValues checks a mapping of dimensions to values.
func (c *Campaign) checkValues(values map[string]string, p path, known []string) {
	for _, dimension := range sortedKeys(values) {
		if c.checkDimension(dimension, p.key(dimension), known) {
			c.checkValue(dimension, values[dimension], p.key(dimension))
		}
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
		if value, has := cond.Value(dimension); has {
			known = append(known, value)
		}
	}
	slices.Sort(known)
	if known = slices.Compact(known); !slices.Contains(known, value) {
		c.doc.wrong(p, suggestion(value, known), "no condition of this campaign has the %s %q", dimension, value)
	}
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
	case s.MultipleChoice != nil:
		return plan.MultipleChoice
	case s.KLDivergence != nil:
		return plan.KLDivergence
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

// sortedKeys makes the order of mistakes independent of the map's.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
