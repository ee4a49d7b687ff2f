package summary

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"attnbudget/parsers"
	"attnbudget/plan"
	"attnbudget/summary/stat"
)

const perplexityName = "perplexity evaluation c512"

// says tells whether one of the warnings has the part.
func says(warnings []string, part string) bool {
	return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, part) })
}

// measure makes up what the only record of an arm at a condition says of a metric.
func measure(ds *dataset, arm, condition string, m parsers.Measurement) {
	ds.at[place{arm, condition}][0].values[m.Metric] = m
}

// chunksOf makes n chunks of 100 tokens with these sums.
func chunksOf(n int, sum func(k int) float64) []parsers.Chunk {
	out := make([]parsers.Chunk, n)
	for k := range out {
		out[k] = parsers.Chunk{Index: k + 1, Tokens: 100, Sum: sum(k)}
	}
	return out
}

func TestTheNumberOfChunksChoosesTheMethod(t *testing.T) {
	run := newTestRun()
	withDivergence(run, farByArm)
	ds := newDataset(run.source())
	for _, c := range []struct {
		chunks      int
		head, check string // parts of methods; empty = none
	}{{5, "t over chunks", ""}, {6, "Hodges-Lehmann", "t over chunks"}, {19, "Hodges-Lehmann", "t over chunks"}, {20, "t over chunks", "Hodges-Lehmann"}, {1000, "t over chunks", "Hodges-Lehmann"}, {1001, "t over chunks", ""}} {
		for i, arm := range []string{"F16/none", "F16/two"} {
			for condition, metric := range map[string]string{perplexityName: plan.MetricNLL, divergenceName: plan.MetricMeanKLD} {
				measure(ds, arm, condition, parsers.Measurement{Metric: metric, Chunks: chunksOf(c.chunks, func(k int) float64 { return 300 + float64(i*(5+k%3)) })})
			}
		}
		clear(ds.compared)
		ppl := ds.compare(comparison{"F16/two", "F16/none", perplexityName, plan.MetricPerplexity})
		if !strings.Contains(ppl.Ratio.Method, c.head) || (ppl.Check != nil) != (c.check != "") || ppl.Check != nil && !strings.Contains(ppl.Check.Method, c.check) || ppl.Verdict != Worse {
			t.Errorf("perplexity over %d chunks: %+v, ratio %+v, check %+v", c.chunks, ppl, ppl.Ratio, ppl.Check)
		}
		kld := ds.compare(comparison{"F16/two", "F16/none", divergenceName, plan.MetricMeanKLD})
		if !strings.Contains(kld.Difference.Method, c.head) || kld.Verdict != Worse {
			t.Errorf("divergence over %d chunks: %+v, difference %+v", c.chunks, kld, kld.Difference)
		}
	}
}

func TestMethodsThatDisagreeLeaveItUndecided(t *testing.T) {
	interval := func(method string, lo, hi float64) *stat.Interval {
		return &stat.Interval{Est: (lo + hi) / 2, Lo: lo, Hi: hi, Bounded: true, Method: method}
	}
	for _, c := range []struct {
		head, check *stat.Interval
		verdict     string
	}{
		{interval("a", 1.1, 1.2), interval("b", 1.05, 1.2), Better},
		{interval("a", 1.1, 1.2), interval("b", 0.99, 1.2), Undecided},
		{interval("a", 0.99, 1.2), interval("b", 1.1, 1.2), Undecided},
		{interval("a", 1.1, 1.2), interval("b", 0.8, 0.9), Undecided},
		{interval("a", 0.8, 0.9), interval("b", 0.8, 0.9), Worse},
	} {
		disagree := c.verdict == Undecided
		ratio := Effect{Metric: plan.MetricTokensPerSecond, Ratio: c.head, Check: c.check}
		ratio.decideRatio()
		if ratio.Verdict != c.verdict || says(ratio.Warnings, "a and b disagree") != disagree {
			t.Errorf("ratio %+v, check %+v: %s, warnings %q", c.head, c.check, ratio.Verdict, ratio.Warnings)
		}
		head, check := *c.head, *c.check
		head.Est, head.Lo, head.Hi = head.Est-1, head.Lo-1, head.Hi-1
		check.Est, check.Lo, check.Hi = check.Est-1, check.Lo-1, check.Hi-1
		difference := Effect{Metric: plan.MetricSameTop}
		difference.decideDifference(head, &check)
		if difference.Verdict != c.verdict || says(difference.Warnings, "a and b disagree") != disagree {
			t.Errorf("difference %+v, check %+v: %s, warnings %q", head, check, difference.Verdict, difference.Warnings)
		}
	}
}

func TestAccuraciesAreDecidedByNewcombeAndMcNemarTogether(t *testing.T) {
	ds := newDataset(newTestRun().source())
	const condition = "hellaswag gloss-swag"
	for _, c := range []struct {
		counts  stat.Paired
		warns   bool
		verdict string
	}{
		{stat.Paired{Both: 40, Won: 2, Lost: 20, None: 38}, false, Worse},
		{stat.Paired{Both: 40, Won: 20, Lost: 2, None: 38}, false, Better},
		{stat.Paired{Both: 40, Won: 10, Lost: 10, None: 40}, false, Undecided},
		{stat.Paired{Both: 40, None: 40}, false, Equal},
		{stat.Paired{Won: 6, Lost: 15, None: 19}, true, Undecided},          // [-0.420, -0.002], p = 0.0525
		{stat.Paired{Both: 5, Won: 4, Lost: 12, None: 79}, true, Undecided}, // [-0.164, 0.001], p = 0.0490
	} {
		answers := map[string][]parsers.Answer{}
		add := func(n int, arm, base bool) {
			for range n {
				hash := fmt.Sprintf("%016x", len(answers["F16/two"]))
				answers["F16/two"] = append(answers["F16/two"], parsers.Answer{Hash: hash, Correct: arm})
				answers["F16/none"] = append(answers["F16/none"], parsers.Answer{Hash: hash, Correct: base})
			}
		}
		add(c.counts.Both, true, true)
		add(c.counts.Won, true, false)
		add(c.counts.Lost, false, true)
		add(c.counts.None, false, false)
		slices.Reverse(answers["F16/two"]) // the order of the tasks is no matter
		for arm, a := range answers {
			measure(ds, arm, condition, parsers.Measurement{Metric: plan.MetricHellaSwagAccuracy, Answers: a})
		}
		clear(ds.compared)
		e := ds.compare(comparison{"F16/two", "F16/none", condition, plan.MetricHellaSwagAccuracy})
		if e.Verdict != c.verdict || says(e.Warnings, "disagree") != c.warns || e.Flips.Won != c.counts.Won || e.Flips.Lost != c.counts.Lost {
			t.Errorf("%+v: %+v, flips %+v", c.counts, e, e.Flips)
		}
	}
}

func TestPerplexitiesOfDifferentModelsAreRefused(t *testing.T) {
	run := newTestRun()
	run.plan.Arms[1].Model = "other"
	e := run.build(t).effect(t, "F16/two", "F16/none", perplexityName, plan.MetricPerplexity)
	if !strings.Contains(e.Refused, "different models") || e.Ratio != nil || e.Verdict != "" {
		t.Errorf("%+v", e)
	}
}

func TestPairsApartInTimeOrOfSeveralEnvironmentsAreCountedInAWarning(t *testing.T) {
	run := newTestRun()
	other := testEnvironment
	other.Commit = "def"
	run.unitsOf("F16/two", "pp128")[1].Session = "s2"
	for _, arm := range []string{"F16/two", "F16/none"} {
		run.unitsOf(arm, "pp128")[2].Environment = other.ID()
	}
	e := run.build(t, other).effect(t, "F16/two", "F16/none", "pp128", plan.MetricTokensPerSecond)
	if len(e.Pairs) != testBlocks || !says(e.Warnings, "1 pair measured in two sessions") || !says(e.Warnings, "pairs of 2 environments") {
		t.Errorf("%d pairs, warnings %q", len(e.Pairs), e.Warnings)
	}
	if clean := run.build(t, other).effect(t, "Q4_0/none", "F16/none", "tg16 @ d1024", plan.MetricTokensPerSecond); len(clean.Warnings) != 0 {
		t.Errorf("warnings %q", clean.Warnings)
	}
}

func TestRatiosThatAreCorrelatedAreWarnedOf(t *testing.T) {
	ds := newDataset(newTestRun().source())
	for i, c := range []struct {
		ratio  func(block int) float64
		warned bool
	}{
		{func(block int) float64 { return 1 + 0.1*float64(block%2) }, true},
		{func(block int) float64 { return 1 + 0.01*float64(block) }, false}, // of seven values on a line the lag 1 is 0.57, inside the band of 0.76
		{func(int) float64 { return 1.1 }, false},
	} {
		for arm, ratio := range map[string]func(int) float64{"F16/two": c.ratio, "F16/none": func(int) float64 { return 1 }} {
			for block, o := range ds.at[place{arm, "pp128"}] {
				o.values[plan.MetricTokensPerSecond] = parsers.Measurement{Metric: plan.MetricTokensPerSecond, Value: 1000 * ratio(block)}
			}
		}
		clear(ds.compared)
		e := ds.compare(comparison{"F16/two", "F16/none", "pp128", plan.MetricTokensPerSecond})
		if says(e.Warnings, "the machine drifted") != c.warned {
			t.Errorf("%d: warnings %q", i, e.Warnings)
		}
	}
}

func TestRoundedBytesAreDifferentOnlyBeyondTheirRounding(t *testing.T) {
	ds := newDataset(newTestRun().source())
	for _, c := range []struct {
		arm, against, rounding float64
		verdict                string
	}{{900, 1000, 0, Better}, {1000, 1000, 0, Equal}, {900, 1000, 40, Better}, {900, 1000, 50, Undecided}, {1000, 1000, 50, Undecided}} {
		measure(ds, "F16/two", "kv 2048", parsers.Measurement{Metric: plan.MetricKVBytes, Value: c.arm, Rounding: c.rounding})
		measure(ds, "F16/none", "kv 2048", parsers.Measurement{Metric: plan.MetricKVBytes, Value: c.against, Rounding: c.rounding})
		clear(ds.compared)
		if e := ds.compare(comparison{"F16/two", "F16/none", "kv 2048", plan.MetricKVBytes}); e.Verdict != c.verdict || says(e.Warnings, "rounded") != (c.verdict == Undecided) {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

func TestADeterministicValueThatDiffersBetweenBlocksIsWarnedOf(t *testing.T) {
	m := parsers.Measurement{Metric: plan.MetricKVCells, Value: 10, Rounding: 0.5}
	c := Cell{Metric: m.Metric, Values: []BlockValue{{Block: 0, Value: 10}, {Block: 1, Value: 10}, {Block: 2, Value: 11}}}
	c.quality(map[string]parsers.Measurement{m.Metric: m})
	want := []string{"block 0 gives 10, block 2 gives 11: expected the same", "read from rounded output, within 0.5"}
	if !slices.Equal(c.Warnings, want) {
		t.Errorf("%q, want %q", c.Warnings, want)
	}
}

func TestAnArmLikeAnotherIsOfTheSameEngineAndNoControl(t *testing.T) {
	run := newTestRun()
	last := len(run.plan.Arms) - 1
	run.plan.Arms[0], run.plan.Arms[last] = run.plan.Arms[last], run.plan.Arms[0] // the control before the baseline
	foreign := run.plan.Arms[last]
	foreign.Name, foreign.Engine = "F16/none (upstream)", "llama.cpp"
	run.plan.Arms = slices.Insert(run.plan.Arms, 0, foreign)
	ds := newDataset(run.source())
	none := map[string]string{plan.DimMask: "none"}
	if got, ok := ds.armWith(ds.arms["F16/two"], none); !ok || got != "F16/none" {
		t.Errorf("%s, %t", got, ok)
	}
	if got, ok := ds.armWith(foreign, none); !ok || got != foreign.Name {
		t.Errorf("%s, %t", got, ok)
	}
	if got, ok := ds.armWith(foreign, map[string]string{plan.DimMask: "two"}); ok {
		t.Errorf("%s is of another engine", got)
	}
}

func TestFewChunksThatAreCorrelatedAreWarnedOfWhateverIsMeasured(t *testing.T) {
	run := newTestRun()
	withDivergence(run, farByArm)
	ds := newDataset(run.source())
	for condition, metric := range map[string]string{perplexityName: plan.MetricNLL, divergenceName: plan.MetricMeanKLD} {
		for i, arm := range []string{"F16/none", "F16/two"} {
			measure(ds, arm, condition, parsers.Measurement{Metric: metric, Chunks: chunksOf(12, func(k int) float64 { return 300 + float64(i*(20+k)) })})
		}
		if e := ds.compare(comparison{"F16/two", "F16/none", condition, metric}); !says(e.Warnings, "neighbouring chunks are correlated") {
			t.Errorf("%s: %q", metric, e.Warnings)
		}
	}
}
