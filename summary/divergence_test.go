package summary

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"attnbudget/plan"
)

const (
	divergenceName = "kl-divergence evaluation c9"
	choiceName     = "multiple-choice arc"
)

// withDivergence adds a divergence and a multiple-choice condition to the run; far says how far from the base an arm is.
func withDivergence(run *testRun, far func(plan.Arm) float64) {
	kl := plan.Condition{Name: divergenceName, Stage: plan.KLDivergence, Repetitions: 1, Context: 9, Input: "builtin:evaluation"}
	mc := plan.Condition{Name: choiceName, Stage: plan.MultipleChoice, Repetitions: 1, Context: 512, Input: "/data/arc.jsonl"}
	run.plan.Conditions = append(run.plan.Conditions, kl, mc)
	for i, a := range run.plan.Arms {
		run.unit(a, kl, 0, i)
		run.unitsOf(a.Name, divergenceName)[0].Stdout = divergenceOutput(far(a))
		run.unit(a, mc, 0, i)
		run.unitsOf(a.Name, choiceName)[0].Stdout = choiceOutput(60, 0.02*boolFloat(len(a.Mask.Layers) > 0))
	}
}

// farByArm is more for Q4_0 than for a mask.
func farByArm(a plan.Arm) float64 {
	return 1e-6 + 0.01*boolFloat(len(a.Mask.Layers) > 0) + 0.03*boolFloat(a.Format == "Q4_0")
}

// divergenceOutput makes 24 chunks of 4 tokens, of which upstream prints no statistics, with about this mean divergence.
func divergenceOutput(far float64) string {
	r := rand.New(rand.NewPCG(7, 8)) // the text is the same for all arms
	var b, table strings.Builder
	b.WriteString("kl_divergence: computing over 24 chunks, n_ctx=9, batch_size=2048, n_seq=4\n")
	var n, kld, squares, top float64
	for chunk := range 24 {
		var values, deltas []string
		var k, k2, d, d2, d4 float64
		for range 4 {
			v := far * (0.7 + 0.6*r.Float64())
			p := -math.Sqrt(far) * (0.3 + 0.1*r.NormFloat64())
			v, p = float64(float32(v)), float64(float32(p))
			k, k2, d, d2, d4 = k+v, k2+v*v, d+p, d2+p*p, d4+p*p*p*p
			values, deltas = append(values, fmt.Sprint(float32(v))), append(deltas, fmt.Sprint(float32(p)))
		}
		same := 4 - int(boolFloat(far > 0.005 && chunk%2 == 0)+boolFloat(far > 0.035 && chunk%3 != 0))
		n, kld, squares, top = n+4, kld+k, squares+d2, top+float64(same)
		fmt.Fprintf(&b, `{"kind":"kl_chunk","chunk":%d,"tokens":4,"nll":12,"nll2":40,"nll_base":12,"nll_base2":40,"nll_nll_base":40,"kld":%v,"kld2":%v,`+
			`"p_diff":%v,"p_diff2":%v,"p_diff4":%v,"same_top":%d,"kld_values":[%s],"p_diff_values":[%s]}`+"\n",
			chunk+1, k, k2, d, d2, d4, same, strings.Join(values, ","), strings.Join(deltas, ","))
		fmt.Fprintf(&table, "%4d    %9.4f ±    0.1000    %10.5f ±    0.00000    %10.5f ±    0.00100    %6.3f ±  0.100 %%    %6.3f ±  0.100 %%\n",
			chunk+1, math.Exp(3), 0.0, kld/n, 100*math.Sqrt(squares/n), 100*top/n)
	}
	return b.String() + table.String()
}

// choiceOutput answers questions with three or four answers.
func choiceOutput(n int, worse float64) string {
	r := rand.New(rand.NewPCG(9, 9))
	var b, table strings.Builder
	table.WriteString("task\tacc_norm\n")
	right := 0
	for i := range n {
		gold := -2 + 0.3*r.NormFloat64() - worse*10*r.Float64()
		pick, others := 0, "-2.4,-2.5,-2.6"[:len("-2.4,-2.5")+5*(i%2)]
		if gold <= -2.4 {
			pick = 1
		} else {
			right++
		}
		hash := sha256.Sum256([]byte{byte(i)})
		fmt.Fprintf(&b, `{"kind":"multiple_choice_task","n":%d,"task":%d,"hash":"%x","scores":[%v,%s],"gold":0,"pick":%d,"margin":%v}`+"\n", i+1, i, hash[:8], gold, others, pick, gold+2.4)
		fmt.Fprintf(&table, "%d\t%.8f\n", i+1, 100*float64(right)/float64(i+1))
	}
	p := float64(right) / float64(n)
	return b.String() + table.String() + fmt.Sprintf("Final result: %.4f +/- %.4f\nRandom chance: 28.5714 +/- 5.9\n", 100*p, 100*math.Sqrt(p*(1-p)/float64(n-1)))
}

func TestDivergencesArePairedChunkByChunk(t *testing.T) {
	run := newTestRun()
	withDivergence(run, farByArm)
	s := run.build(t)
	for metric, better := range map[string]bool{plan.MetricMeanKLD: false, plan.MetricSameTop: false, plan.MetricMeanDeltaP: false, plan.MetricRMSDeltaP: false} {
		e := s.effect(t, "Q4_0/two", "Q4_0/none", divergenceName, metric)
		if e.Refused != "" || e.Difference == nil || !e.Difference.Bounded || e.Ratio != nil || e.P == nil || (e.Verdict == Better) != better || e.Difference.N != 24 {
			t.Errorf("%s: %+v", metric, e)
		}
	}
	e := s.effect(t, "F16/two", "F16/none", divergenceName, plan.MetricMeanKLD)
	if d := e.Difference; e.Verdict != Worse || math.Abs(d.Est-0.01) > 5e-4 || d.Lo <= 0 || d.Hi-d.Lo > 2e-3 || len(e.Records) != 2 {
		t.Errorf("%+v %+v", e, d)
	}
	for _, n := range s.NoiseFloor {
		if n.Condition == divergenceName && n.Verdict != Equal {
			t.Errorf("the control: %+v", n)
		}
	}
	c := s.cell(t, "Q4_0/none", divergenceName, plan.MetricMeanKLD)
	if c.Interval == nil || !c.Interval.Contains(0.03) || c.TokenError == nil || c.DesignEffect == nil {
		t.Errorf("%+v", c)
	}
	rms := s.cell(t, "Q4_0/none", divergenceName, plan.MetricRMSDeltaP)
	if i := rms.Interval; i == nil || math.Abs(i.Est-*rms.Value) > 1e-12 || i.Lo >= i.Est || i.Hi <= i.Est || rms.DesignEffect != nil {
		t.Errorf("%+v %+v", rms, rms.Interval)
	}
}

func TestPercentilesOfDivergenceHaveLevelsButNoEffects(t *testing.T) {
	run := newTestRun()
	withDivergence(run, farByArm)
	run.plan.Tables = []plan.Table{{Title: "KLD", Rows: []string{"arm"}, Columns: []string{"metric"}, Effect: plan.EffectAuto,
		Cells: []string{plan.MetricMeanKLD, plan.MetricMedianKLD, plan.MetricMaxKLD}}}
	s := run.build(t)
	for _, e := range s.Effects {
		if isPercentile(e.Metric) {
			t.Errorf("an effect on %s", e.Metric)
		}
	}
	table := s.Tables[0]
	for i, row := range table.Cells {
		name, median := table.RowNames[i][0], row[1]
		switch {
		case median.Value == nil:
			t.Errorf("%s has no median", name)
		case name == run.plan.Baseline:
		case strings.Contains(name, "control"):
			if median.Verdict != Equal {
				t.Errorf("the control's median: %+v", median)
			}
		case median.Effect != nil || len(median.Notes) != 1 || !strings.Contains(table.Footnotes[median.Notes[0]-1], "percentiles have no error"):
			t.Errorf("%s: %+v", name, median)
		}
	}
	if want := []string{"arm", "KLD (nats)", "median KLD (nats)", "maximum KLD (nats)"}; fmt.Sprint(table.header()) != fmt.Sprint(want) {
		t.Errorf("header %q", table.header())
	}
}

func TestDivergencesOfDifferentTextsOrModelsAreRefused(t *testing.T) {
	run := newTestRun()
	withDivergence(run, farByArm)
	r := run.unitsOf("F16/two", divergenceName)[0]
	r.Stdout = strings.Replace(divergenceOutput(0.01), "over 24 chunks", "over 23 chunks", 1)
	lines := strings.SplitAfter(r.Stdout, "\n")
	r.Stdout = strings.Join(append(lines[:24:24], lines[25:48]...), "")
	if e := run.build(t).effect(t, "F16/two", "F16/none", divergenceName, plan.MetricMeanKLD); !strings.Contains(e.Refused, "23 and 24 chunks do not pair") {
		t.Errorf("other chunks: %+v", e)
	}
	run = newTestRun()
	withDivergence(run, farByArm)
	run.plan.Models = append(run.plan.Models, plan.Model{Name: "other"})
	run.plan.Arms[1].Model = "other"
	if e := run.build(t).effect(t, "F16/two", "F16/none", divergenceName, plan.MetricRMSDeltaP); !strings.Contains(e.Refused, "different models") {
		t.Errorf("other models: %+v", e)
	}
}

func TestMultipleChoiceIsPairedTaskByTask(t *testing.T) {
	run := newTestRun()
	withDivergence(run, farByArm)
	s := run.build(t)
	e := s.effect(t, "F16/two", "F16/none", choiceName, plan.MetricChoiceAccuracy)
	if e.Flips == nil || e.Flips.Tasks != 60 || e.Flips.Lost == 0 || e.Verdict == Better {
		t.Errorf("%+v", e)
	}
	run.unitsOf("F16/two", choiceName)[0].Stdout = choiceOutput(60, 0.5)
	c := run.build(t).cell(t, "F16/two", choiceName, plan.MetricChoiceAccuracy)
	if len(c.Warnings) != 1 || c.Warnings[0] != "no better than guessing: the interval reaches down to 29 %" { // half of the tasks have three answers
		t.Errorf("%q", c.Warnings)
	}
}
