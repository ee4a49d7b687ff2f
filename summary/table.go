package summary

import "attnbudget/summary/stat"

// Table is one table of the campaign, laid out.
type Table struct {
	Title     string        `json:"title"`
	Metrics   []TableMetric `json:"metrics"`
	Rows      []string      `json:"rows"` // dimensions
	Columns   []string      `json:"columns,omitempty"`
	RowNames  [][]string    `json:"row_names"`           // a value for each dimension of Rows
	ColNames  [][]string    `json:"column_names"`        // a value for each dimension of Columns; one empty name without columns
	Cells     [][]TableCell `json:"cells"`               // [row][column]
	Footnotes []string      `json:"footnotes,omitempty"` // of cells
	Remarks   []string      `json:"remarks,omitempty"`   // of the whole table
}

// TableMetric is a metric that a table shows, and how its texts write it.
type TableMetric struct {
	Metric string `json:"metric"`
	Label  string `json:"label"`            // what people call it: PPL
	Unit   string `json:"unit,omitempty"`   // of the numbers in Text, where the label does not say it: MiB
	Effect string `json:"effect,omitempty"` // plan.EffectRatio or EffectDifference
}

// TableCell is what a table shows at one place and where it comes from. Its numbers have the metric's own unit.
type TableCell struct {
	Text      string         `json:"text"`
	Arm       string         `json:"arm,omitempty"`
	Condition string         `json:"condition,omitempty"`
	Metric    string         `json:"metric,omitempty"`
	Against   string         `json:"against,omitempty"` // the arm that Effect compares with; the same as Arm where that is shown plain
	Value     *float64       `json:"value,omitempty"`
	Interval  *stat.Interval `json:"interval,omitempty"`
	Effect    *stat.Interval `json:"effect,omitempty"`
	Verdict   string         `json:"verdict,omitempty"`
	P         *float64       `json:"p,omitempty"`      // of the Effect
	PHolm     *float64       `json:"p_holm,omitempty"` // adjusted for all comparisons of the metric in this table
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
		l := &layout{ds: ds, def: t, cells: cells, at: map[[2]string][]spot{}, displays: map[string]display{}}
		out = append(out, l.table(s))
	}
	return out
}
