package summary

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"attnbudget/plan"
	"attnbudget/summary/stat"
)

// Table is one table of the campaign, laid out.
type Table struct {
	Title     string        `json:"title"`
	Metric    string        `json:"metric"`
	Effect    string        `json:"effect,omitempty"` // of plan
	Rows      []string      `json:"rows"`             // dimensions
	Columns   []string      `json:"columns,omitempty"`
	RowNames  [][]string    `json:"row_names"`           // a value for each dimension of Rows
	ColNames  [][]string    `json:"column_names"`        // a value for each dimension of Columns; one empty name without columns
	Cells     [][]TableCell `json:"cells"`               // [row][column]
	Footnotes []string      `json:"footnotes,omitempty"` // of cells
	Remarks   []string      `json:"remarks,omitempty"`   // of the whole table
}

// TableCell is what a table shows at one place and where it comes from.
type TableCell struct {
	Text      string         `json:"text"`
	Arm       string         `json:"arm,omitempty"`
	Condition string         `json:"condition,omitempty"`
	Against   string         `json:"against,omitempty"` // the arm that Effect compares with; the same as Arm where that is shown plain
	Value     *float64       `json:"value,omitempty"`
	Interval  *stat.Interval `json:"interval,omitempty"`
	Effect    *stat.Interval `json:"effect,omitempty"`
	Verdict   string         `json:"verdict,omitempty"`
	OK        int            `json:"ok"`
	Planned   int            `json:"planned"`
	Notes     []int          `json:"notes,omitempty"` // numbers of Footnotes, from 1
	Records   []string       `json:"records"`
}

func (ds *dataset) tables(s *Summary) []Table {
	cells := map[place]map[string]*Cell{}
	for i := range s.Cells {
		c := &s.Cells[i]
		p := place{c.Arm, c.Condition}
		if cells[p] == nil {
			cells[p] = map[string]*Cell{}
		}
		cells[p][c.Metric] = c
	}
	out := []Table{}
	for _, t := range ds.plan.Tables {
		l := &layout{ds: ds, def: t, cells: cells, at: map[[2]string][]place{}}
		out = append(out, l.table(s))
	}
	return out
}

// layout is a table while it is made.
type layout struct {
	ds      *dataset
	def     plan.Table
	cells   map[place]map[string]*Cell
	at      map[[2]string][]place // by row and column name
	rows    [][]string
	cols    [][]string
	notes   []string
	remarks []string
}

func joinName(name []string) string { return strings.Join(name, "\x00") }

func (l *layout) table(s *Summary) Table {
	l.arrange()
	t := Table{
		Title: l.def.Title, Metric: l.def.Cells, Effect: l.def.Effect,
		Rows: l.def.Rows, Columns: l.def.Columns, RowNames: l.rows, ColNames: l.cols, Cells: [][]TableCell{},
	}
	for _, row := range l.rows {
		line := make([]TableCell, len(l.cols))
		for i, col := range l.cols {
			line[i] = l.cell(row, col)
		}
		t.Cells = append(t.Cells, line)
	}
	l.write(t.Cells)
	l.general(s, t.Cells)
	t.Footnotes, t.Remarks = l.notes, l.remarks
	return t
}

// arrange finds the rows and columns, in the order in which the plan meets them, and what belongs where. The control
// stands only in tables by arm: everywhere else it is the baseline's double.
func (l *layout) arrange() {
	byArm := slices.Contains(l.def.Rows, plan.DimArm) || slices.Contains(l.def.Columns, plan.DimArm)
	seenRow, seenCol := map[string]bool{}, map[string]bool{}
	l.rows, l.cols = [][]string{}, [][]string{}
	for _, p := range l.order() {
		a, c := l.ds.arms[p.arm], l.ds.conditions[p.condition]
		if a.Control && !byArm || !slices.Contains(plan.MetricStages(l.def.Cells), c.Stage) || !l.wanted(a, c) {
			continue
		}
		row, hasRow := names(a, c, l.def.Rows)
		col, hasCol := names(a, c, l.def.Columns)
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
		l.at[[2]string{r, k}] = append(l.at[[2]string{r, k}], p)
	}
}

// order walks arms first when the rows begin with a dimension of arms, so that rows of one arm stay together.
func (l *layout) order() []place {
	places := l.ds.places()
	if len(l.def.Rows) > 0 && ofArm(l.def.Rows[0]) {
		rank := map[string]int{}
		for i, a := range l.ds.plan.Arms {
			rank[a.Name] = i
		}
		slices.SortStableFunc(places, func(p, q place) int { return rank[p.arm] - rank[q.arm] })
	}
	return places
}

func (l *layout) wanted(a plan.Arm, c plan.Condition) bool {
	for d, want := range l.def.Where {
		if v, _ := dimensionValue(a, c, d); v != want {
			return false
		}
	}
	return true
}

func names(a plan.Arm, c plan.Condition, dimensions []string) (out []string, ok bool) {
	out = make([]string, len(dimensions))
	for i, d := range dimensions {
		v, has := dimensionValue(a, c, d)
		if !has {
			return nil, false
		}
		out[i] = v
	}
	return out, true
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
	places := l.at[[2]string{joinName(row), joinName(col)}]
	out := TableCell{Records: []string{}}
	switch len(places) {
	case 0:
		out.Notes = append(out.Notes, l.note("not in the plan"))
		return out
	case 1:
	default:
		out.Notes = append(out.Notes, l.note("%s belong here: lay the table out by %s too", count(len(places), "result"), l.missingDimension(places)))
		return out
	}
	p := places[0]
	out.Arm, out.Condition = p.arm, p.condition
	c := l.cells[p][l.def.Cells]
	if c == nil {
		out.Planned = len(l.ds.at[p])
		out.Notes = append(out.Notes, l.absent(p)...)
		return out
	}
	out.OK, out.Planned, out.Value, out.Interval, out.Records = c.OK, c.Planned, c.Value, c.Interval, c.Records
	out.Notes = append(out.Notes, l.absences(c)...)
	if l.def.Effect != "" {
		l.effect(&out)
	}
	return out
}

// missingDimension names what tells several places of one cell apart.
func (l *layout) missingDimension(places []place) string {
	var out []string
	for _, d := range plan.Dimensions() {
		if d == plan.DimArm || d == plan.DimCondition || d == plan.DimStage {
			continue
		}
		values := map[string]bool{}
		for _, p := range places {
			v, _ := dimensionValue(l.ds.arms[p.arm], l.ds.conditions[p.condition], d)
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
func (l *layout) absent(p place) []int {
	for _, c := range l.cells[p] {
		if c.OK == 0 {
			return l.absences(c)
		}
	}
	return []int{l.note("the output has no %s", l.def.Cells)}
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
	e := l.ds.compare(comparison{c.Arm, against, c.Condition, l.def.Cells})
	c.Verdict = e.Verdict
	c.Effect = e.Ratio
	if l.def.Effect == plan.EffectDifference {
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

// change is what distinguishes the arm to compare with: Against, or the baseline's value of every dimension of arms in
// the columns. It is empty when that is the baseline itself.
func (l *layout) change() map[string]string {
	if len(l.def.Against) > 0 {
		return l.def.Against
	}
	out := map[string]string{}
	base := l.ds.arms[l.ds.plan.Baseline]
	for _, d := range l.def.Columns {
		if ofArm(d) {
			out[d] = armValue(base, d)
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
