package summary

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/summary/stat"
)

func TestNoDigitIsShownThatTheIntervalDoesNotSupport(t *testing.T) {
	for _, c := range []struct {
		est, lo, hi float64
		effect      string
		want        string
	}{
		{1.3127, 1.2841, 1.3412, plan.EffectRatio, "1.313× [1.284, 1.341]"},
		{1.3127, 1.2541, 1.3712, plan.EffectRatio, "1.31× [1.25, 1.37]"},
		{1.3127, 1.0841, 1.6412, plan.EffectRatio, "1.31× [1.08, 1.64]"},
		{2.0001, 0.1075, 37.185, plan.EffectRatio, "2.0× [0.1, 37.2]"},
		{0.75, 0.75, 0.75, plan.EffectRatio, "0.75×"},
		{1.0 / 3, 1.0 / 3, 1.0 / 3, plan.EffectRatio, "0.3333×"},
		{0.5068, 0.4219, 0.5918, plan.EffectDifference, "+0.51 [+0.42, +0.59]"},
		{-0.5068, -0.5918, -0.4219, plan.EffectDifference, "-0.51 [-0.59, -0.42]"},
		{15234, 12234, 18234, plan.EffectDifference, "+15200 [+12200, +18200]"},
		// Rounding must not move an end onto what the interval excludes.
		{1.0041, 1.00004, 1.00816, plan.EffectRatio, "1.00410× [1.00004, 1.00816]"},
	} {
		i := &stat.Interval{Est: c.est, Lo: c.lo, Hi: c.hi, Bounded: true}
		if got := effectText(&TableCell{Effect: i, Verdict: Better}, c.effect, newDisplay(plan.MetricTokensPerSecond, nil)); got != c.want {
			t.Errorf("%v [%v, %v] as %s: %s, want %s", c.est, c.lo, c.hi, c.effect, got, c.want)
		}
	}
	points := &stat.Interval{Est: -0.0833, Lo: -0.177, Hi: -0.0034, Bounded: true}
	if got, want := effectText(&TableCell{Effect: points, Verdict: Worse}, plan.EffectDifference, newDisplay(plan.MetricHellaSwagAccuracy, nil)), "-8.3 pp [-17.7, -0.3]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFixedRoundsBeforeThePointToo(t *testing.T) {
	for _, c := range []struct {
		v        float64
		decimals int
		want     string
	}{{1234.5678, 2, "1234.57"}, {1234.5678, 0, "1235"}, {1234.5678, -2, "1200"}, {-0.004, 2, "0.00"}, {0, 3, "0.000"}, {95, -1, "100"}} {
		if got := fixed(c.v, c.decimals); got != c.want {
			t.Errorf("fixed(%v, %d) = %q, want %q", c.v, c.decimals, got, c.want)
		}
	}
}

func TestMarksAreLettersAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for n := 1; n <= 700; n++ {
		if m := mark(n); seen[m] {
			t.Fatalf("note %d has the mark %s, which is taken", n, m)
		} else {
			seen[m] = true
		}
	}
}

func TestTablesLeaveOutWhatHasNoValueOfADimension(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{
		{Title: "by prompt", Rows: []string{"prompt"}, Columns: []string{"mask", "format"}, Cells: []string{plan.MetricTokensPerSecond}},
		{Title: "filtered", Rows: []string{"condition"}, Columns: []string{"mask"}, Cells: []string{plan.MetricTokensPerSecond}, Where: map[string]string{"format": "Q4_0", "stage": "depth"}},
		{Title: "by stage", Rows: []string{"format"}, Columns: []string{"mask", "stage"}, Cells: []string{plan.MetricTokensPerSecond}},
	}
	s := run.build(t)
	prompt, filtered, stage := s.Tables[0], s.Tables[1], s.Tables[2]
	if !slices.EqualFunc(prompt.RowNames, [][]string{{"128"}}, slices.Equal) || len(prompt.ColNames) != 4 {
		t.Errorf("rows %v, columns %v: a generation has no prompt and the control is not a column", prompt.RowNames, prompt.ColNames)
	}
	if len(filtered.Cells) != 1 || filtered.Cells[0][1].Arm != "Q4_0/two" || filtered.Cells[0][1].Condition != "tg16 @ d1024" {
		t.Errorf("filtered: %+v", filtered.Cells)
	}
	if len(stage.ColNames) != 4 || stage.Cells[0][0].Text == missingText {
		t.Errorf("columns of two dimensions: %v", stage.ColNames)
	}
}

func TestAgainstNamesTheArmToCompareWith(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{
		{Title: "formats", Rows: []string{"mask"}, Columns: []string{"format"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: plan.EffectRatio, Where: map[string]string{"condition": "pp128"}},
		{Title: "against", Rows: []string{"mask"}, Columns: []string{"format"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: plan.EffectRatio,
			Against: map[string]string{"format": "Q4_0", "mask": "none"}, Where: map[string]string{"condition": "pp128"}},
		{Title: "an arm", Rows: []string{"mask"}, Columns: []string{"format"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: plan.EffectRatio,
			Against: map[string]string{"arm": "F16/two"}, Where: map[string]string{"condition": "pp128"}},
		{Title: "nobody", Rows: []string{"mask"}, Columns: []string{"format"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: plan.EffectRatio,
			Against: map[string]string{"format": "Q2_K"}, Where: map[string]string{"condition": "pp128"}},
	}
	s := run.build(t)
	want := [][]string{
		{"F16/none", "F16/none", "F16/two", "F16/two"},
		{"Q4_0/none", "Q4_0/none", "Q4_0/none", "Q4_0/none"},
		{"F16/two", "F16/two", "F16/two", "F16/two"},
		{"", "", "", ""},
	}
	for i, table := range s.Tables {
		var got []string
		for _, row := range table.Cells {
			for _, c := range row {
				got = append(got, c.Against)
				if (c.Against != "" && c.Against != c.Arm) != (c.Effect != nil) {
					t.Errorf("%s: %s against %q has the effect %v", table.Title, c.Arm, c.Against, c.Effect)
				}
			}
		}
		if !slices.Equal(got, want[i]) {
			t.Errorf("%s: against %q, want %q", table.Title, got, want[i])
		}
	}
	if len(s.Tables[3].Footnotes) != 1 || !strings.Contains(s.Tables[3].Footnotes[0], "no arm like it with format Q2_K") {
		t.Errorf("footnotes: %q", s.Tables[3].Footnotes)
	}
}

func TestAMetricThatAnOutputLacksIsMissingWithAReason(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{{Title: "states", Rows: []string{"mask"}, Cells: []string{plan.MetricRecurrentBytes}, Where: map[string]string{"format": "F16"}}}
	table := run.build(t).Tables[0]
	if c := table.Cells[0][0]; !strings.HasPrefix(c.Text, missingText) || len(table.Footnotes) != 1 || table.Footnotes[0] != "the output has no recurrent_bytes" {
		t.Errorf("%+v, %q", c, table.Footnotes)
	}
}

func TestNamesAndMessagesCannotBreakATable(t *testing.T) {
	run := newTestRun()
	for i := range run.plan.Tables {
		run.plan.Tables[i].Title += " | *bold* `code`\nsecond line"
	}
	fail(run.unitsOf("F16/two", "kv 2048")[0], results.Crash, "panic: | *x* <b>\ngoroutine 1")
	table := run.build(t).Tables[1]
	var md, text, sheet bytes.Buffer
	for _, err := range []error{table.WriteMarkdown(&md), table.WriteText(&text), table.WriteCSV(&sheet)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if s := md.String(); !strings.HasPrefix(s, "# Memory | \\*bold\\* \\`code\\` second line\n") || !strings.Contains(s, "failed: crash: panic: | \\*x\\* &lt;b>\n") {
		t.Errorf("Markdown:\n%s", s)
	}
	rows, err := csv.NewReader(&sheet).ReadAll()
	if err != nil || len(rows) != 3 || len(rows[0]) != len(rows[2]) {
		t.Errorf("CSV: %v, %v", rows, err)
	}
}

func TestSlugsAreFileNames(t *testing.T) {
	for title, want := range map[string]string{
		"Speed in tokens per second": "speed-in-tokens-per-second",
		"  ÄÖ / ../../etc":           "etc",
		"日本":                         "table",
		strings.Repeat("long ", 30):  strings.TrimSuffix(strings.Repeat("long-", 12), "-"),
	} {
		if got := slug(title); got != want {
			t.Errorf("slug(%q) = %q, want %q", title, got, want)
		}
	}
}

func TestFewBlocksShowTheDigitsThatTheirSpreadSupports(t *testing.T) {
	run := newTestRun()
	for name, r := range run.records {
		if r.Unit.Block > 3 {
			delete(run.records, name)
		}
	}
	for block, r := range run.unitsOf("F16/none", "pp128")[:4] { // mean 1000, half-width of its t interval 205
		r.Stdout = benchOutput(r.Condition, r.Arm, []float64{1150, 850, 1050, 950}[block])
	}
	run.plan.Tables = []plan.Table{{Title: "Speed", Rows: []string{"mask"}, Cells: []string{plan.MetricTokensPerSecond}, Where: map[string]string{"condition": "pp128", "format": "F16"}}}
	if c := run.build(t).Tables[0].Cells[0][0]; c.Text != "1000 (n 4/7)ᵃ" || c.Interval.Bounded {
		t.Errorf("%q, %+v", c.Text, c.Interval)
	}
	for block, r := range run.unitsOf("F16/none", "pp128")[:4] { // half-width 2.05
		r.Stdout = benchOutput(r.Condition, r.Arm, []float64{1001.5, 998.5, 1000.5, 999.5}[block])
	}
	if c := run.build(t).Tables[0].Cells[0][0]; c.Text != "1000.0 (n 4/7)ᵃ" {
		t.Errorf("%q", c.Text)
	}
}

func TestAControlThatDiffersIsCountedAtItsWorstCondition(t *testing.T) {
	run := newTestRun()
	for block, r := range run.unitsOf("F16/none (control)", "pp128") {
		r.Stdout = benchOutput(r.Condition, r.Arm, 1.1*1000*(1+0.001*float64(block)))
	}
	for _, r := range run.unitsOf("F16/none", "pp128") {
		r.Stdout = benchOutput(r.Condition, r.Arm, 1000)
	}
	table := run.build(t).Tables[0]
	for _, part := range []string{"noise floor: the control, a second baseline, came out at most 1.1033× [1.1011, 1.1055] from it (pp128)", "at 1 condition the interval excludes equality"} {
		if !hasRemark(table, part) {
			t.Errorf("no remark has %q: %q", part, table.Remarks)
		}
	}
}
