package summary

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

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
		row := append([]string{}, name...)
		for _, c := range t.Cells[i] {
			row = append(row, c.Text)
		}
		if err := table.Append(cleaned(row, clean)); err != nil {
			return err
		}
	}
	return table.Render()
}

// header names the row dimensions and the columns; a table without columns has one, called after the metric.
func (t *Table) header() []string {
	out := append([]string{}, t.Rows...)
	for _, name := range t.ColNames {
		if len(name) == 0 {
			out = append(out, t.Metric)
			continue
		}
		out = append(out, strings.Join(name, " / "))
	}
	return out
}

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

// WriteCSV writes one line a cell with all numbers at full precision: the values of the dimensions, then value,
// interval, effect and its interval, verdict, counts and records.
func (t *Table) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	header := append(append([]string{}, t.Rows...), t.Columns...)
	header = append(header, t.Metric, "lo", "hi", "effect", "effect_lo", "effect_hi", "verdict", "ok", "planned", "arm", "condition", "against", "records")
	if err := out.Write(header); err != nil {
		return err
	}
	for i, row := range t.Cells {
		for j, c := range row {
			line := append(append([]string{}, t.RowNames[i]...), t.ColNames[j]...)
			value := ""
			if c.Value != nil {
				value = shortest(*c.Value)
			}
			_, lo, hi := csvInterval(c.Interval)
			effect, effectLo, effectHi := csvInterval(c.Effect)
			line = append(line, value, lo, hi, effect, effectLo, effectHi, c.Verdict,
				strconv.Itoa(c.OK), strconv.Itoa(c.Planned), c.Arm, c.Condition, c.Against, strings.Join(c.Records, " "))
			if err := out.Write(line); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

func csvInterval(i *stat.Interval) (est, lo, hi string) {
	switch {
	case i == nil:
		return "", "", ""
	case !i.Bounded:
		return shortest(i.Est), "", ""
	}
	return shortest(i.Est), shortest(i.Lo), shortest(i.Hi)
}

// shortest has the fewest digits that read back as the same number, without an exponent.
func shortest(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
