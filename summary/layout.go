package summary

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"attnbudget/plan"
)

// spot is where a table finds a value.
type spot struct {
	place
	metric string
}

// layout is a table while it is made.
type layout struct {
	ds       *dataset
	def      plan.Table
	cells    map[place]map[string]*Cell
	at       map[[2]string][]spot // by row and column name
	rows     [][]string
	cols     [][]string
	displays map[string]display // by metric
	notes    []string
	remarks  []string
}

func joinName(name []string) string { return strings.Join(name, "\x00") }

// laidOutBy tells whether a dimension makes rows or columns.
func (l *layout) laidOutBy(dimension string) bool {
	return slices.Contains(l.def.Rows, dimension) || slices.Contains(l.def.Columns, dimension)
}

func (l *layout) table(s *Summary) Table {
	l.arrange()
	t := Table{
		Title: l.def.Title, Metrics: []TableMetric{},
		Rows: l.def.Rows, Columns: l.def.Columns, RowNames: l.rows, ColNames: l.cols, Cells: [][]TableCell{},
	}
	for _, row := range l.rows {
		line := make([]TableCell, len(l.cols))
		for i, col := range l.cols {
			line[i] = l.cell(row, col)
		}
		t.Cells = append(t.Cells, line)
	}
	for _, m := range l.def.Cells {
		d := newDisplay(m, valuesOf(t.Cells, m))
		l.displays[m] = d
		t.Metrics = append(t.Metrics, TableMetric{m, d.label, d.unit, l.effectOf(m)})
	}
	l.write(t.Cells)
	l.general(s, t.Cells)
	t.Footnotes, t.Remarks = l.notes, l.remarks
	return t
}

// effectOf is how the table gives the effects on a metric; empty where it gives none.
func (l *layout) effectOf(metric string) string {
	if l.def.Effect == plan.EffectAuto {
		return plan.UsualEffect(metric)
	}
	return l.def.Effect
}

// arrange finds the rows and columns and what belongs where. The control stands only in tables by arm: everywhere else
// it is the baseline's double.
func (l *layout) arrange() {
	seenRow, seenCol := map[string]bool{}, map[string]bool{}
	l.rows, l.cols = [][]string{}, [][]string{}
	for _, s := range l.spots() {
		row, _, hasRow := l.names(s, l.def.Rows)
		col, _, hasCol := l.names(s, l.def.Columns)
		if !hasRow || !hasCol {
			continue
		}
		r, k := joinName(row), joinName(col)
		if !seenRow[r] {
			seenRow[r], l.rows = true, append(l.rows, row)
		}
		if !seenCol[k] {
			seenCol[k], l.cols = true, append(l.cols, col)
		}
		l.at[[2]string{r, k}] = append(l.at[[2]string{r, k}], s)
	}
	l.sort(l.rows, l.def.Rows)
	l.sort(l.cols, l.def.Columns)
}

// spots lists what the table is about: the places whose stage yields a metric of it and that "where" lets in.
func (l *layout) spots() []spot {
	var out []spot
	for _, m := range l.def.Cells {
		for _, p := range l.ds.places() {
			s := spot{p, m}
			if l.ds.arms[p.arm].Control && !l.laidOutBy(plan.DimArm) || !slices.Contains(plan.MetricStages(m), l.ds.conditions[p.condition].Stage) || !l.wanted(s) {
				continue
			}
			out = append(out, s)
		}
	}
	return out
}

// value is the value of a dimension at a spot; has is false where the condition has none of it.
func (l *layout) value(s spot, dimension string) (value string, has bool) {
	switch {
	case dimension == plan.DimMetric:
		return s.metric, true
	case plan.OfArm(dimension):
		return l.ds.arms[s.arm].Value(dimension), true
	}
	return l.ds.conditions[s.condition].Value(dimension)
}

// sort brings names into the order of their first dimension, then of the second and so on; the values of a dimension
// come as in the plan.
func (l *layout) sort(names [][]string, dimensions []string) {
	slices.SortFunc(names, func(a, b []string) int {
		for i, d := range dimensions {
			if c := l.rank(d, a[i]) - l.rank(d, b[i]); c != 0 {
				return c
			}
		}
		return 0
	})
}

func (l *layout) rank(dimension, value string) int {
	switch {
	case dimension == plan.DimMetric:
		return slices.Index(l.def.Cells, value)
	case plan.OfArm(dimension):
		return slices.IndexFunc(l.ds.plan.Arms, func(a plan.Arm) bool { return a.Value(dimension) == value })
	}
	return slices.IndexFunc(l.ds.plan.Conditions, func(c plan.Condition) bool { v, has := c.Value(dimension); return has && v == value })
}

func (l *layout) wanted(s spot) bool {
	for d, want := range l.def.Where {
		if v, _ := l.value(s, d); v != want {
			return false
		}
	}
	return true
}

// names are the values of dimensions at a spot, or the first of them that it lacks.
func (l *layout) names(s spot, dimensions []string) (out []string, lacks string, ok bool) {
	out = make([]string, len(dimensions))
	for i, d := range dimensions {
		v, has := l.value(s, d)
		if !has {
			return nil, d, false
		}
		out[i] = v
	}
	return out, "", true
}

// note returns the number of a footnote, adding it if it is new.
func (l *layout) note(format string, args ...any) int {
	s := fmt.Sprintf(format, args...)
	i := slices.Index(l.notes, s)
	if i < 0 {
		i = len(l.notes)
		l.notes = append(l.notes, s)
	}
	return i + 1
}

// cell gathers what is known of one place; its text is written when all cells are known.
func (l *layout) cell(row, col []string) TableCell {
	spots := l.at[[2]string{joinName(row), joinName(col)}]
	out := TableCell{Records: []string{}}
	switch len(spots) {
	case 0:
		out.Notes = append(out.Notes, l.note("not in the plan"))
		return out
	case 1:
	default:
		out.Notes = append(out.Notes, l.note("%s belong here: lay the table out by %s too", count(len(spots), "result"), l.missingDimension(spots)))
		return out
	}
	at := spots[0]
	out.Arm, out.Condition, out.Metric = at.arm, at.condition, at.metric
	c := l.cells[at.place][at.metric]
	if c == nil {
		out.Planned = len(l.ds.at[at.place])
		out.Notes = append(out.Notes, l.absent(at)...)
		return out
	}
	out.OK, out.Planned, out.Value, out.Interval, out.Records = c.OK, c.Planned, c.Value, c.Interval, c.Records
	out.Notes = append(out.Notes, l.absences(c)...)
	if !timed(l.ds.conditions[at.condition].Stage) { // timings have remarks of their own
		for _, w := range c.Warnings {
			out.Notes = append(out.Notes, l.note("%s", w))
		}
	}
	if l.def.Effect != "" {
		l.effect(&out)
	}
	return out
}

// missingDimension names what tells several spots of one cell apart.
func (l *layout) missingDimension(spots []spot) string {
	var out []string
	for _, d := range plan.Dimensions() {
		if d == plan.DimArm || d == plan.DimCondition || d == plan.DimStage {
			continue
		}
		values := map[string]bool{}
		for _, s := range spots {
			v, _ := l.value(s, d)
			values[v] = true
		}
		if len(values) > 1 {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return plan.DimCondition
	}
	return strings.Join(out, " or ")
}

// absent says why a place has no cell of the metric at all.
func (l *layout) absent(at spot) []int {
	for _, c := range l.cells[at.place] {
		if c.OK == 0 {
			return l.absences(c)
		}
	}
	return []int{l.note("the output has no %s", at.metric)}
}

// absences says which units of a cell have no value, and why.
func (l *layout) absences(c *Cell) []int {
	var out []int
	add := func(n int) {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for _, f := range c.Failures {
		add(l.note("failed: %s: %s", f.Kind, firstLine(f.Message)))
	}
	if c.Missing > 0 {
		add(l.note("not run yet, or the record is damaged"))
	}
	return out
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// all visits the cells row by row.
func all(cells [][]TableCell) iter.Seq[*TableCell] {
	return func(yield func(*TableCell) bool) {
		for _, row := range cells {
			for i := range row {
				if !yield(&row[i]) {
					return
				}
			}
		}
	}
}

// effect compares the cell's arm with that of the same row that has the values of Against, or of the baseline.
func (l *layout) effect(c *TableCell) {
	against, ok := l.against(l.ds.arms[c.Arm])
	if !ok {
		c.Notes = append(c.Notes, l.note("nothing to compare with: the plan has no arm like it with %s", describe(l.change())))
		return
	}
	c.Against = against
	if against == c.Arm {
		return
	}
	e := l.compare(c)
	c.Verdict, c.P = e.Verdict, e.P
	c.Effect = e.Ratio
	if l.effectOf(c.Metric) == plan.EffectDifference {
		c.Effect = e.Difference
	}
	if e.Refused != "" && c.Value != nil {
		c.Notes = append(c.Notes, l.note("not compared with %s: %s", against, e.Refused))
	}
	for _, r := range e.Records {
		if !slices.Contains(c.Records, r) {
			c.Records = append(slices.Clip(c.Records), r)
		}
	}
}

// compare is the comparison that a cell shows.
func (l *layout) compare(c *TableCell) Effect {
	return l.ds.compare(comparison{c.Arm, c.Against, c.Condition, c.Metric})
}

// change is what distinguishes the arm to compare with: Against, or the baseline's value of every dimension of arms in
// the columns. It is empty when that is the baseline itself.
func (l *layout) change() map[string]string {
	if len(l.def.Against) > 0 {
		return l.def.Against
	}
	out := map[string]string{}
	base := l.ds.arms[l.ds.plan.Baseline]
	for _, d := range l.def.Columns {
		if plan.OfArm(d) {
			out[d] = base.Value(d)
		}
	}
	return out
}

func (l *layout) against(a plan.Arm) (string, bool) {
	change := l.change()
	if len(change) == 0 || a.Control {
		return l.ds.plan.Baseline, true
	}
	return l.ds.armWith(a, change)
}

func describe(change map[string]string) string {
	var out []string
	for _, d := range slices.Sorted(maps.Keys(change)) {
		out = append(out, d+" "+change[d])
	}
	return strings.Join(out, ", ")
}
