package summary

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/internal/golden"
	"attnbudget/plan"
	"attnbudget/results"

	"github.com/google/go-cmp/cmp"
)

// troubled is the run of newTestRun with what goes wrong in real ones: failures, gaps, a changed machine.
func troubled() (*testRun, results.Environment) {
	run := newTestRun()
	run.plan.Tables = append(run.plan.Tables,
		plan.Table{Title: "Speed at depth", Rows: []string{"depth"}, Columns: []string{"arm"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: plan.EffectRatio},
		plan.Table{Title: "Too much in a cell", Rows: []string{"mask"}, Cells: []string{plan.MetricTokensPerSecond}},
	)
	for _, r := range run.unitsOf("Q4_0/two", "tg16 @ d1024") {
		fail(r, results.OutOfMemory, "killed: out of memory\nlast lines of the log")
	}
	fail(run.unitsOf("F16/two", "pp128")[2], results.Timeout, "ran longer than 1m0s")
	delete(run.records, run.unitsOf("Q4_0/none", "pp128")[6].Unit.Name)
	other := testEnvironment
	other.Commit = "def"
	for _, arm := range []string{"F16/two", "Q4_0/none"} {
		run.unitsOf(arm, "tg16 @ d1024")[0].Environment = other.ID()
	}
	run.unitsOf("Q4_0/two", "hellaswag gloss-swag")[0].Stdout = hellaSwagOutput(50, 0)
	ppl := run.unitsOf("Q4_0/none", "perplexity evaluation c512")[0]
	ppl.Stdout = strings.Replace(ppl.Stdout, "[3]", "[3]nan,[4]", 1)
	return run, other
}

func TestSummaryAndTablesAreThoseOfTheGoldenFiles(t *testing.T) {
	run, other := troubled()
	for name, s := range map[string]*Summary{"clean": newTestRun().build(t), "troubled": run.build(t, other)} {
		files, err := s.Files()
		if err != nil {
			t.Fatal(err)
		}
		for file, data := range files {
			golden.Check(t, filepath.Join("testdata", name, file), data)
		}
		var text bytes.Buffer
		for i := range s.Tables {
			if err := s.Tables[i].WriteText(&text); err != nil {
				t.Fatal(err)
			}
			text.WriteByte('\n')
		}
		golden.Check(t, filepath.Join("testdata", name, "tables.txt"), text.Bytes())
	}
}

func TestKnownEffectsAreFound(t *testing.T) {
	s := newTestRun().build(t)
	masked := s.effect(t, "F16/two", "F16/none", "pp128", plan.MetricTokensPerSecond)
	if masked.Verdict != Better || !masked.Ratio.Contains(1.25) || masked.Ratio.N != testBlocks || masked.Check == nil {
		t.Errorf("a mask that is a quarter faster: %+v %+v", masked, masked.Ratio)
	}
	if w := masked.Ratio.Hi - masked.Ratio.Lo; w > 0.03 {
		t.Errorf("the interval is %v wide although the blocks drift together: pairing is lost", w)
	}
	ppl := s.effect(t, "F16/two", "F16/none", "perplexity evaluation c512", plan.MetricPerplexity)
	if ppl.Verdict != Worse || !ppl.Ratio.Contains(math.Exp(0.02)) || ppl.Ratio.N != 24 {
		t.Errorf("a mask that costs 0.02 nats: %+v %+v", ppl, ppl.Ratio)
	}
	kv := s.effect(t, "F16/two", "F16/none", "kv 2048", plan.MetricKVBytes)
	if kv.Verdict != Better || kv.Ratio.Est != 0.75 || kv.Difference.Est != -4194304 {
		t.Errorf("two of eight layers dropped: %+v", kv)
	}
	acc := s.effect(t, "F16/two", "F16/none", "hellaswag gloss-swag", plan.MetricHellaSwagAccuracy)
	if acc.Flips == nil || acc.Flips.Tasks != 60 || acc.Flips.Lost == 0 || math.Abs(acc.Difference.Est-float64(acc.Flips.Won-acc.Flips.Lost)/60) > 1e-12 {
		t.Errorf("flips: %+v", acc)
	}
}

func TestEveryArmIsComparedWithTheBaselineAndWithItsUnmaskedTwin(t *testing.T) {
	s := newTestRun().build(t)
	got := map[string][]string{}
	for _, e := range s.Effects {
		if e.Condition == "pp128" {
			got[e.Arm+" on "+e.Against] = e.Comparisons
		}
	}
	want := map[string][]string{
		"F16/two on F16/none":            {OnBaseline, OnMask},
		"Q4_0/none on F16/none":          {OnBaseline},
		"Q4_0/two on F16/none":           {OnBaseline},
		"Q4_0/two on Q4_0/none":          {OnMask},
		"F16/none (control) on F16/none": {OnBaseline},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheControlIsTheNoiseFloor(t *testing.T) {
	s := newTestRun().build(t)
	var timings, exact int
	for _, n := range s.NoiseFloor {
		switch n.Metric {
		case plan.MetricTokensPerSecond:
			timings++
			if n.Verdict != Undecided || !n.Ratio.Contains(1) {
				t.Errorf("two identical arms: %+v", n)
			}
		default:
			exact++
			if n.Verdict != Equal {
				t.Errorf("two identical arms: %+v", n)
			}
		}
	}
	if timings != 2 || exact < 4 {
		t.Errorf("%d timings and %d exact metrics in the noise floor", timings, exact)
	}
}

func TestPairsStayInsideAnEnvironment(t *testing.T) {
	run, other := troubled()
	s := run.build(t, other)
	e := s.effect(t, "F16/two", "F16/none", "tg16 @ d1024", plan.MetricTokensPerSecond)
	if len(e.Pairs) != testBlocks-1 || e.Pairs[0].Block != 1 {
		t.Errorf("pairs: %+v", e.Pairs)
	}
	if !slices.ContainsFunc(e.Warnings, func(w string) bool { return strings.Contains(w, "different environments") }) {
		t.Errorf("no warning of the block left out: %q", e.Warnings)
	}
	if len(s.Environments) != 2 || len(s.Environments[1].Changes) != 1 || s.Environments[1].Changes[0].Field != "commit" {
		t.Errorf("environments: %+v", s.Environments)
	}
}

func TestEvaluationsOfTwoEnvironmentsAreRefused(t *testing.T) {
	run := newTestRun()
	other := testEnvironment
	other.Commit = "def"
	for _, condition := range []string{"perplexity evaluation c512", "hellaswag gloss-swag", "kv 2048"} {
		run.unitsOf("F16/two", condition)[0].Environment = other.ID()
	}
	s := run.build(t, other)
	for condition, metric := range map[string]string{
		"perplexity evaluation c512": plan.MetricPerplexity, "hellaswag gloss-swag": plan.MetricHellaSwagAccuracy, "kv 2048": plan.MetricKVBytes,
	} {
		e := s.effect(t, "F16/two", "F16/none", condition, metric)
		if !strings.Contains(e.Refused, "different environments") || e.Verdict != "" || e.Ratio != nil || e.Difference != nil {
			t.Errorf("%s: %+v", condition, e)
		}
	}
}

func TestFailedUnitsAreShownWithTheirKind(t *testing.T) {
	run, other := troubled()
	s := run.build(t, other)
	all := s.cell(t, "Q4_0/two", "tg16 @ d1024", plan.MetricTokensPerSecond)
	if all.OK != 0 || all.Value != nil || len(all.Failures) != testBlocks || all.Failures[0].Kind != results.OutOfMemory {
		t.Errorf("a cell where everything failed: %+v", all)
	}
	if e := s.effect(t, "Q4_0/two", "F16/none", "tg16 @ d1024", plan.MetricTokensPerSecond); e.Refused == "" || e.Verdict != "" || e.Ratio != nil {
		t.Errorf("an effect of nothing: %+v", e)
	}
	some := s.cell(t, "F16/two", "pp128", plan.MetricTokensPerSecond)
	if some.OK != testBlocks-1 || some.Planned != testBlocks || len(some.Failures) != 1 {
		t.Errorf("a cell with a failure: %+v", some)
	}
	if gap := s.cell(t, "Q4_0/none", "pp128", plan.MetricTokensPerSecond); gap.Missing != 1 || gap.OK != testBlocks-1 {
		t.Errorf("a cell with a gap: %+v", gap)
	}
	if nan := s.cell(t, "Q4_0/none", "perplexity evaluation c512", plan.MetricPerplexity); len(nan.Failures) != 1 || nan.Failures[0].Kind != results.NaN {
		t.Errorf("a perplexity that is no number: %+v", nan)
	}
	if s.Units != (Units{Planned: 85, OK: 85 - testBlocks - 3, Failed: testBlocks + 2, Missing: 1}) {
		t.Errorf("units: %+v", s.Units)
	}
}

func TestDifferentTasksAreRefusedAndNotIntersected(t *testing.T) {
	run := newTestRun()
	run.unitsOf("F16/two", "hellaswag gloss-swag")[0].Stdout = hellaSwagOutput(50, 0)
	other := run.unitsOf("Q4_0/none", "hellaswag gloss-swag")[0]
	other.Stdout = strings.Replace(other.Stdout, `"hash":"6e340b9cffb37a98"`, `"hash":"0000000000000000"`, 1)
	s := run.build(t)
	for arm, why := range map[string]string{"F16/two": "different numbers of tasks", "Q4_0/none": "different tasks"} {
		e := s.effect(t, arm, "F16/none", "hellaswag gloss-swag", plan.MetricHellaSwagAccuracy)
		if !strings.Contains(e.Refused, why) || e.Verdict != "" || e.Difference != nil || e.Flips != nil {
			t.Errorf("%s: %+v", arm, e)
		}
	}
}

func TestOutputOfAnotherUnitIsAFailure(t *testing.T) {
	for _, c := range []struct{ name, condition, old, new, says string }{
		{"another mask", "pp128", `"attention_drop_layers": "3,5"`, `"attention_drop_layers": ""`, "attention_drop_layers"},
		{"another number of threads", "pp128", `"n_threads": 2`, `"n_threads": 3`, "n_threads"},
		{"another type of keys", "pp128", `"type_k": "f16"`, `"type_k": "q8_0"`, "type_k"},
		{"another type of values", "pp128", `"type_v": "f16"`, `"type_v": "q8_0"`, "type_v"},
		{"another depth", "tg16 @ d1024", `"n_depth": 1024`, `"n_depth": 512`, "n_depth"},
		{"a surrogate", "pp128", `"engine"`, `"attention_surrogate": "abc", "engine"`, "attention_surrogate"},
		{"two repetitions", "pp128", "", "", "2 samples"},
		{"two tests", "pp128", "", "", "several tokens_per_second"},
		{"no JSON line", "kv 2048", `{"kind":"kv"`, `{"kind":"other"`, "rounded text"},
	} {
		run := newTestRun()
		r := run.unitsOf("F16/two", c.condition)[0]
		switch was := r.Stdout; c.name {
		case "two repetitions":
			head, samples, _ := strings.Cut(r.Stdout, `"samples_ns": [ `)
			ns, _, _ := strings.Cut(samples, " ")
			_, rest, _ := strings.Cut(samples, `"engine"`)
			r.Stdout = head + `"samples_ns": [ ` + ns + ", " + ns + ` ], "samples_ts": [], "engine"` + rest
		case "two tests":
			r.Stdout += r.Stdout
		default:
			if r.Stdout = strings.Replace(was, c.old, c.new, 1); r.Stdout == was {
				t.Fatalf("%s: %q is not in the output", c.name, c.old)
			}
		}
		cell := run.build(t).cell(t, "F16/two", c.condition, map[bool]string{true: plan.MetricKVBytes, false: plan.MetricTokensPerSecond}[c.condition == "kv 2048"])
		if len(cell.Failures) != 1 || cell.Failures[0].Kind != results.Unparsable || !strings.Contains(cell.Failures[0].Message, c.says) {
			t.Errorf("%s: %+v", c.name, cell.Failures)
		}
	}
}

func TestOneBlockGivesValuesWithoutIntervals(t *testing.T) {
	run := newTestRun()
	for name, r := range run.records {
		if r.Unit.Block > 0 {
			delete(run.records, name)
		}
	}
	s := run.build(t)
	e := s.effect(t, "F16/two", "F16/none", "pp128", plan.MetricTokensPerSecond)
	if e.Verdict != Undecided || e.Ratio.Bounded || len(e.Warnings) == 0 {
		t.Errorf("one pair: %+v", e)
	}
	if _, err := s.Files(); err != nil {
		t.Error(err)
	}
}

func TestFewBlocksAreDecidedByTheT(t *testing.T) {
	run := newTestRun()
	for name, r := range run.records {
		if r.Unit.Block > 3 {
			delete(run.records, name)
		}
	}
	e := run.build(t).effect(t, "F16/two", "F16/none", "pp128", plan.MetricTokensPerSecond)
	if e.Ratio.N != 4 || !strings.Contains(e.Ratio.Method, "paired t") || e.Check != nil || e.Verdict != Better {
		t.Errorf("four pairs: %+v %+v", e, e.Ratio)
	}
}

func TestTheSameRecordsGiveTheSameBytes(t *testing.T) {
	run, other := troubled()
	dir := run.write(t, other)
	first, err := run.build(t, other).Files() // from memory
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := Build(dir)
		if err != nil {
			t.Fatal(err)
		}
		files, err := s.Files()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, files); diff != "" {
			t.Fatal(diff)
		}
	}
	if b := first[summaryFile]; bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("/somewhere/")) || !json.Valid(b) {
		t.Error("summary.json holds NaN, a path of this machine or is no JSON")
	}
}

func TestEveryValueListsRecordsThatExist(t *testing.T) {
	run, other := troubled()
	dir := run.write(t, other)
	s, err := Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	exist := func(what string, records []string) {
		if len(records) == 0 {
			t.Errorf("%s lists no records", what)
		}
		for _, r := range records {
			if _, err := os.Stat(filepath.Join(dir, r)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for _, c := range s.Cells {
		if c.Value != nil {
			exist(c.Arm+" "+c.Condition+" "+c.Metric, c.Records)
		}
	}
	for _, e := range s.Effects {
		if e.Refused == "" {
			exist(e.Arm+" on "+e.Against, e.Records)
		}
	}
	for _, table := range s.Tables {
		for _, row := range table.Cells {
			for _, c := range row {
				if c.Value != nil {
					exist(table.Title+": "+c.Text, c.Records)
				}
			}
		}
	}
}

func TestWriteThenCheckFindsNoDifference(t *testing.T) {
	run, other := troubled()
	dir := run.write(t, other)
	s, err := Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, s); err != nil {
		t.Fatal(err)
	}
	if d, err := Check(dir); err != nil || len(d) != 0 {
		t.Errorf("%v, %v", d, err)
	}
	leftovers, err := filepath.Glob(filepath.Join(dir, "**", ".summary-*"))
	if err != nil || len(leftovers) != 0 {
		t.Errorf("temporary files: %v, %v", leftovers, err)
	}
}

func TestCheckFindsWhatWasChangedAddedAndRemoved(t *testing.T) {
	dir := newTestRun().write(t)
	s, err := Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, s); err != nil {
		t.Fatal(err)
	}
	speed := filepath.Join(dir, "tables", "01-speed.md")
	b, err := os.ReadFile(speed)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"01-speed.md":            func() error { return os.WriteFile(speed, bytes.Replace(b, []byte("1.2"), []byte("1.3"), 1), 0o644) },
		"02-memory.csv":          func() error { return os.Remove(filepath.Join(dir, "tables", "02-memory.csv")) },
		"09-a-flattering-one.md": func() error { return os.WriteFile(filepath.Join(dir, "tables", "09-a-flattering-one.md"), b, 0o644) },
	} {
		if err := change(); err != nil {
			t.Fatal(name, err)
		}
	}
	got, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, d := range got {
		files = append(files, filepath.Base(d.File))
	}
	if want := []string{"01-speed.md", "02-memory.csv", "09-a-flattering-one.md"}; !slices.Equal(files, want) {
		t.Errorf("differences %v, want in %v", got, want)
	}
	if got[0].Line == 0 || !strings.Contains(got[0].Reason, "the records give") {
		t.Errorf("the changed line is not told: %v", got[0])
	}
	if err := Write(dir, s); err != nil {
		t.Fatal(err)
	}
	if d, err := Check(dir); err != nil || len(d) != 0 {
		t.Errorf("after writing again: %v, %v", d, err)
	}
}

func TestADamagedRecordIsNotedAndCountsAsMissing(t *testing.T) {
	run := newTestRun()
	dir := run.write(t)
	r := run.unitsOf("F16/none", "kv 2048")[0]
	path := filepath.Join(dir, recordFile(r.Unit.ID))
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.Units.Missing != 1 || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], r.Unit.ID) {
		t.Errorf("units %+v, notes %q", s.Units, s.Notes)
	}
}

func TestARunWithoutAPlanIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := Build(dir); err == nil {
		t.Error("an empty folder is summarised")
	}
	if _, err := results.Create(dir, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(dir); err == nil {
		t.Error("a run without a plan is summarised")
	}
}

func TestSequentialRunsSayThatDriftIsNotCancelled(t *testing.T) {
	run := newTestRun()
	run.plan.Order = plan.OrderSequential
	s := run.build(t)
	if !slices.Contains(s.Notes, sequentialNote) || !slices.Contains(s.Tables[0].Remarks, sequentialNote) {
		t.Errorf("notes %q, remarks %q", s.Notes, s.Tables[0].Remarks)
	}
	if slices.Contains(s.Tables[1].Remarks, sequentialNote) {
		t.Error("bytes drift")
	}
}

func TestCheckForgivesOnlyTheLastDigitsOfFractions(t *testing.T) {
	for _, c := range []struct {
		found, want string
		same        bool
	}{
		{`"est": 1.2544951736221231,`, `"est": 1.2544951736221228,`, true},
		{`"est": 0.75,`, `"est": 0.7500000000000001,`, true},
		{`"est": 2.1e-17`, `"est": 0.0`, true},
		{"F16,1.2544951736221231,ok", "F16,1.2544951736221228,ok", true},
		{`"est": 1.25449,`, `"est": 1.25450,`, false},
		{`"est": 1.2544951736221231,`, `"lo": 1.2544951736221228,`, false},
		{`"est": 1.2544951736221231`, `"est": 1.2544951736221228,`, false},
		{`"value": 4294967296`, `"value": 4294967297`, false},
		{`"id": "12345678901234"`, `"id": "12345678901235"`, false},
		{"commit 1234567890123 -> a", "commit 1234567890124 -> a", false},
	} {
		if got := sameLine(c.found, c.want); got != c.same {
			t.Errorf("%s and %s: same %t, want %t", c.found, c.want, got, c.same)
		}
	}
	text := []byte("a 1.5\nb 2.5\n")
	if d, differs := firstDifference("f", text, append(bytes.Clone(text), "c\n"...)); !differs || d.Line != 3 {
		t.Errorf("a line that is missing: %v", d)
	}
}
