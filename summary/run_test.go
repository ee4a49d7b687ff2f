package summary

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// testRun makes run directories with records such as the engine writes, from made-up numbers.
type testRun struct {
	plan    *plan.Plan
	records map[string]*results.Record // by unit name
	r       *rand.Rand
}

const testBlocks = 7

var testEnvironment = results.Environment{Machine: "m", CPU: "A CPU", Cores: 2, Commit: "abc"}

// newTestRun plans two formats by two masks with a control, over five conditions.
func newTestRun() *testRun {
	p := &plan.Plan{
		Schema: plan.Schema, Campaign: "test", CampaignSHA256: "c0ffee", Seed: 1, Order: plan.OrderRandom,
		Repetitions: testBlocks, Threads: 2, Baseline: "F16/none",
		Models: []plan.Model{{Name: "glossary", Source: "builtin:glossary-5m", Fingerprint: "f"}},
		Conditions: []plan.Condition{
			{Name: "pp128", Stage: plan.Throughput, Repetitions: testBlocks, Prompt: 128},
			{Name: "tg16 @ d1024", Stage: plan.Depth, Repetitions: testBlocks, Generate: 16, Depth: 1024},
			{Name: "kv 2048", Stage: plan.KV, Repetitions: 1, Context: 2048},
			{Name: "perplexity evaluation c512", Stage: plan.Perplexity, Repetitions: 1, Context: 512, Input: "/somewhere/evaluation.txt"},
			{Name: "hellaswag gloss-swag", Stage: plan.HellaSwag, Repetitions: 1, Context: 512, Input: "builtin:gloss-swag"},
		},
		Tables: []plan.Table{
			{Title: "Speed", Rows: []string{"condition", "format"}, Columns: []string{"mask"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: plan.EffectRatio},
			{Title: "Memory", Rows: []string{"context"}, Columns: []string{"mask"}, Cells: []string{plan.MetricKVBytes}, Effect: plan.EffectRatio, Where: map[string]string{"format": "F16"}},
			{Title: "Perplexity: what it costs", Rows: []string{"format"}, Columns: []string{"mask"}, Cells: []string{plan.MetricPerplexity}, Effect: plan.EffectDifference},
			{Title: "HellaSwag", Rows: []string{"arm"}, Cells: []string{plan.MetricHellaSwagAccuracy}, Effect: plan.EffectDifference},
			{Title: "Quality", Rows: []string{"format", "mask"}, Columns: []string{"metric"}, Cells: []string{plan.MetricPerplexity, plan.MetricHellaSwagAccuracy},
				Effect: plan.EffectAuto, Against: map[string]string{"mask": "none"}},
		},
	}
	masks := []plan.Mask{{Name: "none", Layers: []int{}}, {Name: "two", Layers: []int{3, 5}}}
	for _, format := range []string{"F16", "Q4_0"} {
		for _, m := range masks {
			p.Arms = append(p.Arms, plan.Arm{Name: format + "/" + m.Name, Model: "glossary", Format: format, Mask: m, TypeK: "f16", TypeV: "f16", Engine: plan.EngineEmbedded})
		}
	}
	control := p.Arms[0]
	control.Name, control.Control = "F16/none (control)", true
	p.Arms = append(p.Arms, control)
	t := &testRun{plan: p, records: map[string]*results.Record{}, r: rand.New(rand.NewPCG(1, 2))}
	for _, c := range p.Conditions {
		for block := range c.Repetitions {
			for position, a := range p.Arms {
				t.unit(a, c, block, position)
			}
		}
	}
	return t
}

func (t *testRun) unit(a plan.Arm, c plan.Condition, block, position int) {
	k := plan.Key{
		ModelFingerprint: "f", Format: a.Format, Mask: plan.CanonicalMask(a.Mask.Layers), TypeK: a.TypeK, TypeV: a.TypeV, Engine: a.Engine,
		EngineVersion: "1", Threads: 2, Stage: c.Stage, Prompt: c.Prompt, Generate: c.Generate, Depth: c.Depth, Context: c.Context,
		Block: block, Control: a.Control,
	}
	u := plan.Unit{ID: k.ID(), Name: fmt.Sprintf("%s/%s/%03d", c.Name, a.Name, block), Arm: a.Name, Condition: c.Name, Block: block, Position: position, Key: k}
	t.plan.Units = append(t.plan.Units, u)
	t.records[u.Name] = &results.Record{
		Unit: u, Arm: a, Condition: c, Session: "s1", Environment: testEnvironment.ID(), Outcome: results.OK,
		Started: time.Unix(1700000000, 0).UTC(), Ended: time.Unix(1700000001, 0).UTC(),
		Stdout: (t.output(a, c, block)),
	}
}

// output makes up what a unit prints. A dropped mask is a quarter faster and a little worse, Q4_0 a tenth faster.
func (t *testRun) output(a plan.Arm, c plan.Condition, block int) string {
	masked, small := len(a.Mask.Layers) > 0, a.Format == "Q4_0"
	switch c.Stage {
	case plan.KV:
		return kvOutput(c.Context, map[bool]int{false: 8, true: 6}[masked])
	case plan.Perplexity:
		return perplexityOutput(boolFloat(masked)*0.02 + boolFloat(small)*0.0002)
	case plan.HellaSwag:
		return hellaSwagOutput(60, boolFloat(masked)*0.02+boolFloat(small)*0.01)
	}
	speed := 1000 * (1 + 0.25*boolFloat(masked) + 0.1*boolFloat(small)) * math.Exp(0.1*math.Sin(float64(block))+0.004*t.r.NormFloat64())
	return benchOutput(c, a, speed)
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func benchOutput(c plan.Condition, a plan.Arm, speed float64) string {
	ns := int64(1e9 * float64(c.Prompt+c.Generate) / speed)
	ts := 1e9 * float64(c.Prompt+c.Generate) / float64(ns)
	return fmt.Sprintf(`{"build_commit": "abc", "build_number": 1, "n_threads": 2, "type_k": "f16", "type_v": "f16", "n_prompt": %d, "n_gen": %d, "n_depth": %d, `+
		`"avg_ns": %d, "stddev_ns": 0, "avg_ts": %.6f, "stddev_ts": 0.000000, "samples_ns": [ %d ], "samples_ts": [ %.6g ], "engine": "embedded", "attention_drop_layers": %q}`+"\n",
		c.Prompt, c.Generate, c.Depth, ns, ts, ns, ts, plan.CanonicalMask(a.Mask.Layers))
}

func kvOutput(context, layers int) string {
	bytes := context * layers * 256 * 2
	mib := float64(bytes) / (1 << 20)
	numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(make([]int, layers)), " ", ","), "[]")
	return fmt.Sprintf("llama_kv_cache: size = %7.2f MiB (%6d cells, %3d layers,  1/1 seqs), K (f16): %7.2f MiB, V (f16): %7.2f MiB\n", 2*mib, context, layers, mib, mib) +
		fmt.Sprintf(`{"kind":"kv","n_ctx":%d,"n_seq_max":1,"caches":[{"name":"plain","cells":%d,"layers":[%s],"type_k":"f16","type_v":"f16","bytes_k":%d,"bytes_v":%d}],"bytes":%d}`+"\n",
			context, context, numbers, bytes, bytes, 2*bytes)
}

// perplexityOutput makes 24 chunks whose mean nll is worse by about so much.
func perplexityOutput(worse float64) string {
	r := rand.New(rand.NewPCG(3, 4)) // the text is the same for all arms
	var b, running strings.Builder
	fmt.Fprintf(&b, "perplexity: calculating perplexity over 24 chunks, n_ctx=512, batch_size=2048, n_seq=4\n")
	var nll, nll2 float64
	n := 0
	for k := range 24 {
		mean := 3.2 + 0.2*r.NormFloat64() + worse*(1+0.3*r.NormFloat64())
		sum, sum2 := 255*mean, 255*(mean*mean+9)
		nll, nll2, n = nll+sum, nll2+sum2, n+255
		fmt.Fprintf(&b, `{"kind":"perplexity_chunk","chunk":%d,"tokens":255,"nll":%v,"nll2":%v}`+"\n", k+1, sum, sum2)
		fmt.Fprintf(&running, "[%d]%.4f,", k+1, math.Exp(nll/float64(n)))
	}
	mean := nll / float64(n)
	ppl := math.Exp(mean)
	fmt.Fprintf(&b, "%s\nFinal estimate: PPL = %.4f +/- %.5f\n", running.String(), ppl, ppl*math.Sqrt((nll2/float64(n)-mean*mean)/float64(n-1)))
	return b.String()
}

// hellaSwagOutput answers tasks of which a share comes out wrong that was right before.
func hellaSwagOutput(n int, worse float64) string {
	r := rand.New(rand.NewPCG(5, 6))
	var b, table strings.Builder
	table.WriteString("task\tacc_norm\t95% confidence interval\n")
	right := 0
	for i := range n {
		scores := []float64{-2 + 0.3*r.NormFloat64() - worse*10*r.Float64(), -2.4, -2.5, -2.6}
		best := 0
		if scores[0] <= scores[1] {
			best = 1
		}
		if best == 0 {
			right++
		}
		hash := sha256.Sum256([]byte{byte(i)})
		fmt.Fprintf(&b, `{"kind":"hellaswag_task","n":%d,"task":%d,"hash":"%x","scores":[%v,-2.4,-2.5,-2.6],"gold":0,"pick":%d,"margin":%v}`+"\n", i+1, i, hash[:8], scores[0], best, scores[0]+2.4)
		p, f := float64(right)/float64(i+1), float64(i+1)
		const z = 1.95996398454
		centre, half := (p+z*z/(2*f))/(1+z*z/f), z/(1+z*z/f)*math.Sqrt(p*(1-p)/f+z*z/(4*f*f))
		fmt.Fprintf(&table, "%d\t%.8f%%\t[%.4f%%, %.4f%%]\n", i+1, 100*p, 100*(centre-half), 100*(centre+half))
	}
	return b.String() + table.String()
}

// unitsOf returns the records at an arm and a condition, by block.
func (t *testRun) unitsOf(arm, condition string) []*results.Record {
	var out []*results.Record
	for _, u := range t.plan.Units {
		if u.Arm == arm && u.Condition == condition {
			out = append(out, t.records[u.Name])
		}
	}
	return out
}

func fail(r *results.Record, kind, message string) {
	r.Outcome, r.Failure, r.Stdout = results.Failed, &results.Failure{Kind: kind, Message: message, ExitCode: 1}, ""
}

// write stores the run and returns its directory.
func (t *testRun) write(tb testing.TB, environments ...results.Environment) string {
	tb.Helper()
	dir := tb.TempDir()
	d, err := results.Create(dir, "test")
	if err != nil {
		tb.Fatal(err)
	}
	if err := d.SetPlan([]byte("name: test\n"), t.plan); err != nil {
		tb.Fatal(err)
	}
	for _, e := range append(environments, testEnvironment) {
		if err := d.WriteEnvironment(e); err != nil {
			tb.Fatal(err)
		}
	}
	for _, u := range t.plan.Units {
		if r := t.records[u.Name]; r != nil {
			if err := d.WriteRecord(r); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return dir
}

// source is the run without being stored.
func (t *testRun) source(environments ...results.Environment) source {
	src := source{plan: t.plan, records: map[string]*results.Record{}, environments: map[string]results.Environment{}}
	for _, r := range t.records {
		src.records[r.Unit.ID] = r
	}
	for _, e := range append(environments, testEnvironment) {
		src.environments[e.ID()] = e
	}
	return src
}

// build summarises the run without storing it.
func (t *testRun) build(tb testing.TB, environments ...results.Environment) *Summary {
	tb.Helper()
	return summarise(t.source(environments...))
}

func (s *Summary) effect(tb testing.TB, arm, against, condition, metric string) Effect {
	tb.Helper()
	for _, e := range s.Effects {
		if e.Arm == arm && e.Against == against && e.Condition == condition && e.Metric == metric {
			return e
		}
	}
	tb.Fatalf("no effect of %s on %s at %s, %s", arm, against, condition, metric)
	return Effect{}
}

func (s *Summary) cell(tb testing.TB, arm, condition, metric string) Cell {
	tb.Helper()
	for _, c := range s.Cells {
		if c.Arm == arm && c.Condition == condition && c.Metric == metric {
			return c
		}
	}
	tb.Fatalf("no cell of %s at %s, %s", arm, condition, metric)
	return Cell{}
}
