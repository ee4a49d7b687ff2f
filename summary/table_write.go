package summary

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"attnbudget/plan"
	"attnbudget/summary/stat"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// WriteText writes the table for a terminal: title, grid, footnotes, remarks.
func (t *Table) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", t.Title); err != nil {
		return err
	}
	if err := t.grid(w, renderer.NewBlueprint(tw.Rendition{Symbols: tw.NewSymbols(tw.StyleLight)}), plainText); err != nil {
		return err
	}
	return t.footnotes(w, plainText)
}

// WriteMarkdown writes the table for publication: title, pipe table, footnotes, remarks.
func (t *Table) WriteMarkdown(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "# %s\n\n", markdownText(t.Title)); err != nil {
		return err
	}
	if err := t.grid(w, renderer.NewMarkdown(), markdownText); err != nil {
		return err
	}
	return t.footnotes(w, markdownText)
}

func plainText(s string) string { return strings.Join(strings.Fields(s), " ") }

// markdownText keeps names and messages from being read as markup. The renderer escapes the bars of cells.
func markdownText(s string) string {
	return strings.NewReplacer("\\", "\\\\", "*", "\\*", "<", "&lt;", "`", "\\`").Replace(plainText(s))
}

func (t *Table) grid(w io.Writer, r tw.Renderer, clean func(string) string) error {
	align := make([]tw.Align, len(t.Rows)+len(t.ColNames))
	for i := range align {
		align[i] = tw.AlignRight
		if i < len(t.Rows) {
			align[i] = tw.AlignLeft
		}
	}
	table := tablewriter.NewTable(w,
		tablewriter.WithRenderer(r),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align),
	)
	table.Header(cleaned(t.header(), clean))
	for i, name := range t.RowNames {
		row := t.shown(t.Rows, name)
		for _, c := range t.Cells[i] {
			row = append(row, c.Text)
		}
		if err := table.Append(cleaned(row, clean)); err != nil {
			return err
		}
	}
	return table.Render()
}

// header names the row dimensions and the columns; a table without columns has one, called after its metric.
func (t *Table) header() []string {
	out := append([]string{}, t.Rows...)
	for _, name := range t.ColNames {
		switch {
		case len(name) > 0:
			out = append(out, strings.Join(t.shown(t.Columns, name), " / "))
		case len(t.Metrics) == 1:
			out = append(out, t.Metrics[0].heading())
		default:
			out = append(out, "")
		}
	}
	return out
}

// shown is a name as people read it: metrics by their labels, with the unit.
func (t *Table) shown(dimensions, name []string) []string {
	out := slices.Clone(name)
	for i, d := range dimensions {
		if d != plan.DimMetric {
			continue
		}
		for _, m := range t.Metrics {
			if m.Metric == name[i] {
				out[i] = m.heading()
			}
		}
	}
	return out
}

func (m TableMetric) heading() string { return display{label: m.Label, unit: m.Unit}.heading() }

func cleaned(in []string, clean func(string) string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = clean(s)
	}
	return out
}

// footnotes are paragraphs, which both forms read alike.
func (t *Table) footnotes(w io.Writer, clean func(string) string) error {
	for i, n := range t.Footnotes {
		if _, err := fmt.Fprintf(w, "\n%s %s\n", mark(i+1), clean(n)); err != nil {
			return err
		}
	}
	for _, r := range t.Remarks {
		if _, err := fmt.Fprintf(w, "\n%s\n", clean(r)); err != nil {
			return err
		}
	}
	return nil
}

// WriteCSV writes one line a cell with all numbers at full precision and in the metric's own unit: the values of the
// dimensions, the metric, then value, interval, effect and its interval, verdict, p, counts and records.
func (t *Table) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	dimensions := slices.Concat(t.Rows, t.Columns)
	byMetric := slices.Contains(dimensions, plan.DimMetric)
	header := dimensions
	if !byMetric {
		header = append(header, plan.DimMetric)
	}
	header = append(header, "value", "lo", "hi", "effect_kind", "effect", "effect_lo", "effect_hi", "verdict", "p", "p_holm",
		"ok", "planned", "arm", "condition", "against", "records")
	if err := out.Write(header); err != nil {
		return err
	}
	for i, row := range t.Cells {
		for j, c := range row {
			line := slices.Concat(t.RowNames[i], t.ColNames[j])
			if !byMetric {
				line = append(line, t.Metrics[0].Metric)
			}
			if err := out.Write(append(line, t.csvCell(&c)...)); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

func (t *Table) csvCell(c *TableCell) []string {
	_, lo, hi := csvInterval(c.Interval)
	kind := ""
	for _, m := range t.Metrics {
		if c.Effect != nil && m.Metric == c.Metric {
			kind = m.Effect
		}
	}
	effect, effectLo, effectHi := csvInterval(c.Effect)
	return []string{csvNumber(c.Value, 'f'), lo, hi, kind, effect, effectLo, effectHi, c.Verdict, csvNumber(c.P, 'g'), csvNumber(c.PHolm, 'g'),
		strconv.Itoa(c.OK), strconv.Itoa(c.Planned), c.Arm, c.Condition, c.Against, strings.Join(c.Records, " ")}
}

// csvNumber has the fewest digits that read back as the same number, in a format of package strconv.
func csvNumber(v *float64, format byte) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, format, -1, 64)
}

func csvInterval(i *stat.Interval) (est, lo, hi string) {
	switch {
	case i == nil:
		return "", "", ""
	case !i.Bounded:
		return csvNumber(&i.Est, 'f'), "", ""
	}
	return csvNumber(&i.Est, 'f'), csvNumber(&i.Lo, 'f'), csvNumber(&i.Hi, 'f')
}
