package summary

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"attnbudget/plan"
)

func texts(cells [][]TableCell) [][]string {
	out := make([][]string, len(cells))
	for i, row := range cells {
		for _, c := range row {
			out[i] = append(out[i], c.Text)
		}
	}
	return out
}

func hasRemark(table Table, part string) bool {
	return slices.ContainsFunc(table.Remarks, func(r string) bool { return strings.Contains(r, part) })
}

func TestMetricsStandSideBySideWithTheirUsualEffects(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{{
		Title: "Quality", Rows: []string{"format", "mask"}, Columns: []string{"metric"},
		Cells: []string{plan.MetricPerplexity, plan.MetricHellaSwagAccuracy, plan.MetricKVBytes}, Effect: plan.EffectAuto, Against: map[string]string{"mask": "none"},
	}}
	s := run.build(t)
	table := s.Tables[0]
	want := []string{"24.85 (1.0208× [1.0187, 1.0229])", "83 (-8.3 pp [-17.7, -0.3])", "12 (0.75×)"}
	if got := texts(table.Cells)[1]; !slices.Equal(got, want) {
		t.Errorf("F16/two: %q, want %q", got, want)
	}
	if got := table.header(); !slices.Equal(got, []string{"format", "mask", "PPL", "HellaSwag (%)", "KV (MiB)"}) {
		t.Errorf("header: %q", got)
	}
	if bytes := table.Cells[0][2]; *bytes.Value != 16777216 {
		t.Errorf("the value of 16 MiB is %v", *bytes.Value)
	}
	for _, part := range []string{"a ratio of PPL, KV, a difference of HellaSwag", "scored on: perplexity evaluation c512; hellaswag gloss-swag", "noise floor of PPL, HellaSwag, KV: the control"} {
		if !hasRemark(table, part) {
			t.Errorf("no remark has %q: %q", part, table.Remarks)
		}
	}
}

func TestColumnsAreGroupedByTheirFirstDimension(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{
		{Title: "a", Rows: []string{"format"}, Columns: []string{"metric", "mask"}, Cells: []string{plan.MetricHellaSwagAccuracy, plan.MetricPerplexity}},
		{Title: "b", Rows: []string{"metric"}, Columns: []string{"mask", "format"}, Cells: []string{plan.MetricHellaSwagAccuracy, plan.MetricPerplexity}},
	}
	s := run.build(t)
	for i, want := range []string{
		"[[hellaswag_accuracy none] [hellaswag_accuracy two] [perplexity none] [perplexity two]]",
		"[[none F16] [none Q4_0] [two F16] [two Q4_0]]",
	} {
		if got := fmt.Sprint(s.Tables[i].ColNames); got != want {
			t.Errorf("columns %s, want %s", got, want)
		}
	}
	if got := fmt.Sprint(s.Tables[1].RowNames); got != "[[hellaswag_accuracy] [perplexity]]" {
		t.Errorf("rows %s", got)
	}
}

func TestStagesShareARowWhereTheirConditionsAgree(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{
		{Title: "by context", Rows: []string{"context"}, Columns: []string{"metric"}, Cells: []string{plan.MetricKVBytes, plan.MetricPerplexity, plan.MetricHellaSwagAccuracy},
			Where: map[string]string{"format": "F16", "mask": "none"}},
		{Title: "by depth", Rows: []string{"depth"}, Columns: []string{"metric"}, Cells: []string{plan.MetricTokensPerSecond, plan.MetricKVBytes},
			Where: map[string]string{"format": "F16", "mask": "none"}},
	}
	s := run.build(t)
	if got := texts(s.Tables[0].Cells); !slices.EqualFunc(got, [][]string{{"16", "—ᵃ", "—ᵃ"}, {"—ᵃ", "24.3", "92"}}, slices.Equal) {
		t.Errorf("by context: %q", got)
	}
	if notes := s.Tables[0].Footnotes; !slices.Equal(notes, []string{"not in the plan"}) {
		t.Errorf("footnotes: %q", notes)
	}
	if !hasRemark(s.Tables[1], "left out, without depth: pp128; kv 2048") {
		t.Errorf("cells vanish silently: %q", s.Tables[1].Remarks)
	}
}

func TestOnlyMasksThatTheTableNamesAreExplained(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{
		{Title: "masks", Rows: []string{"mask"}, Columns: []string{"format"}, Cells: []string{plan.MetricPerplexity}},
		{Title: "one", Rows: []string{"mask"}, Columns: []string{"format"}, Cells: []string{plan.MetricPerplexity}, Where: map[string]string{"mask": "none"}},
		{Title: "formats", Rows: []string{"format"}, Cells: []string{plan.MetricPerplexity}, Where: map[string]string{"mask": "two"}},
	}
	for i, table := range run.build(t).Tables {
		if got := hasRemark(table, "masks, by the layers whose attention they drop: two = 3, 5"); got != (i == 0) {
			t.Errorf("%s: %q", table.Title, table.Remarks)
		}
	}
}

func TestBytesAreWrittenInTheUnitOfTheSmallest(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		values   []float64
		unit     string
		decimals int
	}{
		{[]float64{2 * mib, 1.75 * mib}, "MiB", 2},
		{[]float64{2 * mib, 40 * 1024 * mib}, "MiB", 0},
		{[]float64{3 * 1024 * mib, 0}, "GiB", 0},
		{[]float64{mib - 1}, "KiB", 3},
		{[]float64{1000}, "B", 0},
		{[]float64{0}, "B", 0},
		{nil, "B", 0},
		{[]float64{5e18}, "TiB", 3},
	} {
		d := newDisplay(plan.MetricKVBytes, c.values)
		if d.unit != c.unit || d.decimals != c.decimals {
			t.Errorf("%v: %d decimals of %s, want %d of %s", c.values, d.decimals, d.unit, c.decimals, c.unit)
		}
	}
}

func TestEveryMetricHasALabelAndAnEffect(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range plan.Metrics() {
		d := newDisplay(m, nil)
		if d.label == m || seen[d.heading()] {
			t.Errorf("%s is called %q", m, d.heading())
		}
		seen[d.heading()] = true
		if (plan.UsualEffect(m) == plan.EffectDifference) != (d.unit == "%" || d.unit == "nats") {
			t.Errorf("the usual effect of %s is a %s", m, plan.UsualEffect(m))
		}
	}
}

func TestScoresOfGuessingAreMarked(t *testing.T) {
	run := newTestRun()
	run.plan.Tables = []plan.Table{{Title: "Quality", Rows: []string{"arm"}, Columns: []string{"metric"}, Cells: []string{plan.MetricPerplexity, plan.MetricHellaSwagAccuracy}}}
	run.unitsOf("F16/two", "hellaswag gloss-swag")[0].Stdout = hellaSwagOutput(60, 0.5)
	run.plan.Models[0].Vocab = 24
	s := run.build(t)
	acc := s.cell(t, "F16/two", "hellaswag gloss-swag", plan.MetricHellaSwagAccuracy)
	if acc.Interval.Lo > 0.25 || !slices.Contains(acc.Warnings, "no better than guessing: the interval reaches down to 25 %") {
		t.Errorf("%+v %+v", acc, acc.Interval)
	}
	if fine := s.cell(t, "F16/none", "hellaswag gloss-swag", plan.MetricHellaSwagAccuracy); len(fine.Warnings) > 0 {
		t.Errorf("warned of %v: %q", *fine.Value, fine.Warnings)
	}
	table := s.Tables[0]
	row := slices.IndexFunc(table.RowNames, func(name []string) bool { return name[0] == "F16/two" })
	for i, part := range []string{"worse than guessing, which has a perplexity of 24", "no better than guessing"} {
		c := table.Cells[row][i]
		if len(c.Notes) != 1 || !strings.Contains(table.Footnotes[c.Notes[0]-1], part) || !strings.HasSuffix(c.Text, mark(c.Notes[0])) {
			t.Errorf("%q with %q, want a footnote with %q", c.Text, table.Footnotes, part)
		}
	}
	run.plan.Models[0].Vocab = 0
	if c := run.build(t).cell(t, "F16/two", "perplexity evaluation c512", plan.MetricPerplexity); len(c.Warnings) > 0 {
		t.Errorf("warned without knowing the vocabulary: %q", c.Warnings)
	}
}

func TestHolmIsTakenOverTheComparisonsOfAMetricInATable(t *testing.T) {
	run := newTestRun()
	s := run.build(t)
	table := s.Tables[3] // HellaSwag by arm: three arms and the control against the baseline
	adjusted := map[string]float64{}
	for _, row := range table.Cells {
		for _, c := range row {
			if c.PHolm != nil {
				adjusted[c.Arm] = *c.PHolm / *c.P
			}
		}
	}
	if len(adjusted) != 3 || adjusted["F16/two"] == 0 {
		t.Errorf("a family of %v, want the three arms that are neither baseline nor control", adjusted)
	}
	e := s.effect(t, "F16/two", "F16/none", "hellaswag gloss-swag", plan.MetricHellaSwagAccuracy)
	if e.P == nil || *e.P != e.Flips.MidP {
		t.Errorf("the p of tasks is McNemar's mid-p: %+v", e)
	}
	if !hasRemark(s.Tables[0], "marked differences that stand after Holm's correction for 4 comparisons: 4 of 4") {
		t.Errorf("speed: %q", s.Tables[0].Remarks)
	}
	if hasRemark(s.Tables[1], "Holm") || s.effect(t, "F16/two", "F16/none", "kv 2048", plan.MetricKVBytes).P != nil {
		t.Error("exact numbers are tested")
	}
}

func TestADifferenceThatFallsToHolmIsNamed(t *testing.T) {
	run := newTestRun()
	l := &layout{ds: newDataset(source{plan: run.plan}), def: run.plan.Tables[3], displays: map[string]display{}}
	cells := [][]TableCell{{}}
	for i, p := range []float64{0.03, 0.001, 0.4} {
		c := TableCell{Arm: run.plan.Arms[i+1].Name, Condition: "hellaswag gloss-swag", Metric: plan.MetricHellaSwagAccuracy, P: &p, Verdict: Worse}
		if p > 0.05 {
			c.Verdict = Undecided
		}
		cells[0] = append(cells[0], c)
	}
	l.holm(cells)
	want := []string{"marked differences that stand after Holm's correction for 3 comparisons: 1 of 2; not F16/two"}
	if !slices.Equal(l.remarks, want) {
		t.Errorf("%q, want %q", l.remarks, want)
	}
}
