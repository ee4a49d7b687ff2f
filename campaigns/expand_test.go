package campaigns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attnbudget/internal/golden"
	"attnbudget/plan"
)

// load reads a campaign of one builtin model from text.
func load(t *testing.T, text string) *Campaign {
	t.Helper()
	path := filepath.Join(t.TempDir(), "campaign.yaml")
	if err := os.WriteFile(path, []byte("name: test\nmodels: {glossary: builtin:glossary-5m}\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	return loadFile(t, path)
}

func loadFile(t *testing.T, path string) *Campaign {
	t.Helper()
	c, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

const prompt16 = "stages: [{throughput: {prompt: [16]}}]\n"

func TestMatrixMakesTheArms(t *testing.T) {
	const lists = "formats: [F16, Q8_0, Q4_0]\nmasks: {none: [], a: [0], b: [1]}\nrun: {order: random}\n"
	for _, test := range []struct{ name, text, arms, baseline, warnings string }{
		{"one arm bears the name of its model", "", "glossary", "glossary", ""},
		{"parts with one value are left out", "formats: [Q8_0, F16]\n", "Q8_0 F16", "Q8_0", ""},
		{"the first dimension varies slowest", "formats: [F16, Q8_0]\nmasks: {a: [0], none: []}\n", "F16/a F16/none Q8_0/a Q8_0/none", "F16/none", ""},
		{"types of keys and values apart", "kv_types: [f16, {k: q8_0, v: f16}, q4_0/q4_0]\n", "f16 q8_0-f16 q4_0", "f16", ""},
		{"baseline by parts", lists + "baseline: {format: Q4_0, mask: b}\n",
			"F16/none F16/a F16/b Q8_0/none Q8_0/a Q8_0/b Q4_0/none Q4_0/a Q4_0/b", "Q4_0/b", ""},
		{"zip walks lists together", lists + "matrix: {zip: [[format, mask]]}\n", "F16/none Q8_0/a Q4_0/b", "F16/none", ""},
		{"only keeps what matches any entry", lists + "matrix: {only: [{format: F16}, {mask: [a, b], format: Q4_0}]}\n",
			"F16/none F16/a F16/b Q4_0/a Q4_0/b", "F16/none", ""},
		{"exclude leaves out what matches any entry", lists + "matrix: {exclude: [{format: [Q8_0, Q4_0], mask: a}, {mask: b}]}\n",
			"F16/none F16/a Q8_0/none Q4_0/none", "F16/none", ""},
		{"include adds to what is left, with parts of the baseline", lists + "matrix: {only: [{format: F16}], include: [{format: Q2_K}, {mask: b, kv: q8_0}]}\n",
			"F16/none/f16 F16/a/f16 F16/b/f16 Q2_K/none/f16 F16/b/q8_0", "F16/none/f16", ""},
		{"entries that match nothing are worth a warning", lists + "matrix: {only: [{format: F16}], exclude: [{format: Q4_0}, {mask: a}]}\n",
			"none b", "none", `line 6: entry 1 of "exclude" matches no arm`},
		{"equal masks under two names are one", "masks: {none: [], ab: [0, 1], ba: [1, 0]}\n", "none ab", "none",
			`mask "ba" drops the same layers as "ab": its arms are left out where the other's exist`},
		{"a baseline by the name that was left out", "masks: {none: [], ab: [0, 1], ba: [1, 0]}\nbaseline: {mask: ba}\n", "none ab", "ab",
			`mask "ba" drops the same layers as "ab": its arms are left out where the other's exist`},
		{"an included arm that is there", "matrix: {include: [{format: F16}]}\n", "glossary", "glossary",
			"the included arm glossary/F16/none/f16 is in the matrix already"},
		{"the control repeats the baseline", "formats: [F16, Q8_0]\ncontrol: aa\n", "F16 Q8_0 F16/control", "F16", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := load(t, test.text+prompt16).Plan()
			var arms []string
			for _, a := range p.Arms {
				arms = append(arms, a.Name)
			}
			if got := strings.Join(arms, " "); got != test.arms {
				t.Errorf("arms\n%s, want\n%s", got, test.arms)
			}
			if p.Baseline != test.baseline {
				t.Errorf("baseline %s, want %s", p.Baseline, test.baseline)
			}
			if got := strings.Join(p.Warnings, "\n"); got != test.warnings {
				t.Errorf("warnings\n%s, want\n%s", got, test.warnings)
			}
		})
	}
}

func TestTheSameModelUnderTwoNamesIsOneArm(t *testing.T) {
	c := load(t, "masks: {none: []}\n"+prompt16)
	twin := *c.models[0]
	twin.Name = "twin"
	c.models = append(c.models, &twin)
	c.Models = append(c.Models, NamedModel{Name: "twin"})
	c.expandArms()
	if len(c.arms) != 1 || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], `model "twin" is the same file as "glossary"`) {
		t.Errorf("%d arms, warnings %q", len(c.arms), c.Warnings)
	}
	c.models = c.models[:1]
}

// order writes the units of a plan as condition:block:arm.
func order(p *plan.Plan) string {
	var out []string
	for _, u := range p.Units {
		out = append(out, fmt.Sprintf("%s:%d:%s", u.Condition, u.Block, u.Arm))
	}
	return strings.Join(out, " ")
}

func TestOrders(t *testing.T) {
	const campaign = "formats: [F16, Q8_0]\nstages:\n  - throughput: {prompt: [1, 2]}\n  - kv: {contexts: [8]}\n"
	for name, want := range map[string]string{
		"abba":       "pp1:0:F16 pp1:0:Q8_0 pp2:0:F16 pp2:0:Q8_0 pp1:1:Q8_0 pp1:1:F16 pp2:1:Q8_0 pp2:1:F16 kv 8:0:F16 kv 8:0:Q8_0",
		"sequential": "pp1:0:F16 pp1:1:F16 pp1:0:Q8_0 pp1:1:Q8_0 pp2:0:F16 pp2:1:F16 pp2:0:Q8_0 pp2:1:Q8_0 kv 8:0:F16 kv 8:0:Q8_0",
	} {
		p := load(t, "run: {repetitions: 2, order: "+name+"}\n"+campaign).Plan()
		if got := order(p); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
}

func TestDefaultOrderFollowsTheNumberOfArms(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 plan.OrderSequential,
		"control: aa\n":                    plan.OrderABBA,
		"formats: [F16, Q8_0]\n":           plan.OrderABBA,
		"masks: {n: [], a: [0], b: [1]}\n": plan.OrderRandom,
	} {
		if got := load(t, text+prompt16).Plan().Order; got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

const everyStage = `stages:
  - throughput: {prompt: [16, 32], generate: [4]}
  - depth: {depths: [0, 64, 128], generate: 4, prompt: 8}
  - kv: {contexts: [256, 512]}
  - perplexity: {text: builtin:evaluation, chunks: 2}
  - hellaswag: {tasks: builtin:gloss-swag, limit: 3}
  - winogrande: {tasks: builtin:gloss-grande, limit: 3}
  - kl-divergence: {text: builtin:evaluation, context: 128, chunks: 2}
`

// What holds of every plan, whatever its order.
func TestBlocksAreCompleteAndUnitsUnique(t *testing.T) {
	for _, name := range []string{plan.OrderABBA, plan.OrderRandom, plan.OrderSequential} {
		t.Run(name, func(t *testing.T) {
			p := load(t, "formats: [F16, Q4_0]\nmasks: {none: [], a: [0], b: [1, 2]}\ncontrol: aa\nrun: {threads: 2, repetitions: 4, order: "+name+"}\n"+everyStage).Plan()
			type block struct {
				condition string
				block     int
			}
			arms, positions, traces := map[block][]string{}, map[block][]int{}, map[block]string{}
			ids, names, states := map[string]bool{}, map[string]bool{}, map[string]bool{}
			for _, s := range p.States {
				states[s.ID] = true
			}
			last := -1
			for _, u := range p.Units {
				b := block{u.Condition, u.Block}
				arms[b] = append(arms[b], u.Arm)
				positions[b] = append(positions[b], u.Position)
				if first, seen := traces[b]; seen && first != u.Key.Trace {
					t.Errorf("%s has the trace %q, another arm of its block %q", u.Name, u.Key.Trace, first)
				}
				traces[b] = u.Key.Trace
				if ids[u.ID] || names[u.Name] || u.ID != u.Key.ID() {
					t.Errorf("%s (%s) is not unique or its id is not its key's", u.Name, u.ID)
				}
				ids[u.ID], names[u.Name] = true, true
				if strings.ContainsAny(u.Name, " *?[") || strings.Count(u.Name, "/") != 3 {
					t.Errorf("%q is no glob target", u.Name)
				}
				if (u.State != "") != (u.Key.Depth > 0 || u.Key.Stage == plan.KLDivergence) || u.State != "" && !states[u.State] {
					t.Errorf("%s at depth %d has the state %q", u.Name, u.Key.Depth, u.State)
				}
				stage := slices.Index(stageKinds(), u.Key.Stage)
				if stage < last {
					t.Errorf("%s comes after a later stage", u.Name)
				}
				last = stage
			}
			repetitions := 0
			for _, cond := range p.Conditions {
				repetitions += cond.Repetitions
			}
			if len(arms) != repetitions {
				t.Errorf("%d blocks, want %d", len(arms), repetitions)
			}
			for b, got := range arms {
				slices.Sort(got)
				if len(slices.Compact(got)) != len(p.Arms) {
					t.Errorf("block %v has not every arm: %v", b, got)
				}
				for i, position := range positions[b] {
					if i != position {
						t.Errorf("block %v is executed in positions %v", b, positions[b])
						break
					}
				}
			}
			// 7 arms at 2 depths, but the control has the baseline's states; and the logits of the baseline.
			if len(p.States) != 6*2+1 {
				t.Errorf("%d states, want 13", len(p.States))
			}
		})
	}
}

func TestSeedDecidesOrderAndTokens(t *testing.T) {
	const campaign = "formats: [F16, Q8_0, Q4_0]\nmasks: {none: [], a: [0], b: [1]}\n" + prompt16
	one, again, other := load(t, campaign).Plan(), load(t, campaign).Plan(), load(t, "run: {seed: 2}\n"+campaign).Plan()
	if order(one) != order(again) || one.Units[0].ID != again.Units[0].ID {
		t.Error("the same seed gave another plan")
	}
	if order(one) == order(other) {
		t.Error("another seed gave the same order")
	}
	if one.Units[0].Key.Trace == other.Units[0].Key.Trace {
		t.Error("another seed gave the same tokens")
	}
	blocks := map[string]bool{}
	for i := 0; i < len(one.Units); i += len(one.Arms) {
		blocks[order(&plan.Plan{Units: one.Units[i : i+len(one.Arms)]})[len("pp16:0:"):]] = true
	}
	if len(blocks) < 2 {
		t.Error("every block has the same order")
	}
}

func TestEqualCampaignsGiveEqualPlans(t *testing.T) {
	c := loadFile(t, "testdata/plan/small.yaml")
	if diff := cmp.Diff(c.Plan(), loadFile(t, "testdata/plan/small.yaml").Plan()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(c.Plan(), c.Plan()); diff != "" {
		t.Error("the second plan of a campaign differs", diff)
	}
}

func TestRenderedPlan(t *testing.T) {
	c := loadFile(t, "testdata/plan/small.yaml")
	p := c.Plan()
	e := c.Estimate(p, nil)
	var text, units, json bytes.Buffer
	for _, err := range []error{WriteText(&text, p, e, false), WriteText(&units, p, e, true), WriteJSON(&json, p, e)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	golden.Check(t, "testdata/plan/small.txt", text.Bytes())
	golden.Check(t, "testdata/plan/small-units.txt", units.Bytes())
	golden.Check(t, "testdata/plan/small.json", json.Bytes())
}

func TestRenderingReportsAFailedWrite(t *testing.T) {
	c := loadFile(t, "testdata/plan/small.yaml")
	p := c.Plan()
	for limit := range 40 {
		if err := WriteText(&shortWriter{left: 20 * limit}, p, plan.Estimate{}, false); err == nil {
			t.Fatalf("a writer that fails after %d bytes went unnoticed", 20*limit)
		}
	}
}

type shortWriter struct{ left int }

func (w *shortWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, os.ErrClosed
	}
	return len(b), nil
}

func TestOnlyWhatDecidesAResultIsInTheKey(t *testing.T) {
	units := func(text string) map[string]plan.Unit {
		out := map[string]plan.Unit{}
		for _, u := range load(t, text).Plan().Units {
			out[u.ID] = u
		}
		return out
	}
	const base = "formats: [F16, Q8_0]\nrun: {threads: 2, repetitions: 2}\n" + everyStage
	before := units(base)
	kept := func(after map[string]plan.Unit) (n int) {
		for id := range before {
			if _, ok := after[id]; ok {
				n++
			}
		}
		return n
	}
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"another name of a mask":   {"masks: {nothing: []}\n" + base, len(before)},
		"another order":            {strings.Replace(base, "repetitions: 2", "repetitions: 2, order: random", 1), len(before)},
		"one more repetition":      {strings.Replace(base, "repetitions: 2", "repetitions: 3", 1), len(before)},
		"one more format":          {strings.Replace(base, "Q8_0", "Q8_0, Q4_0", 1), len(before)},
		"a control":                {"control: aa\n" + base, len(before)},
		"another number of chunks": {strings.Replace(base, "chunks: 2", "chunks: 3", 1), len(before) - 2},
		"another number of tasks":  {strings.Replace(base, "gloss-swag, limit: 3", "gloss-swag, limit: 4", 1), len(before) - 2},
		"another baseline":         {"baseline: {format: Q8_0}\n" + base, len(before) - 2}, // the units of kl-divergence
		"other threads":            {strings.Replace(base, "threads: 2", "threads: 1", 1), 0},
	} {
		if got := kept(units(test.text)); got != test.want {
			t.Errorf("%s keeps %d of %d units, want %d", name, got, len(before), test.want)
		}
	}
}

func TestStatesTakeTheBytesOfTheirCaches(t *testing.T) {
	p := load(t, "masks: {none: [], two: [0, 3]}\nkv_types: [f16, q8_0]\nstages: [{depth: {depths: [512], generate: 1}}]\n").Plan()
	got := map[string]int64{}
	for _, s := range p.States {
		got[s.Arm] = s.Bytes
	}
	const layer = 512 * 2 * 2 * 64 // cells x (keys and values) x heads x elements
	want := map[string]int64{
		"none/f16": 8 * layer * 2, "two/f16": 6 * layer * 2,
		"none/q8_0": 8 * layer * 34 / 32, "two/q8_0": 6 * layer * 34 / 32,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestInputsThatShareANameAreToldApart(t *testing.T) {
	folder := t.TempDir()
	text := strings.Repeat("a text that is long enough for two chunks of sixteen tokens\n", 20)
	for _, name := range []string{"a/wiki.txt", "b/wiki.txt", "campaign.yaml"} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "campaign.yaml" {
			text = "name: test\nmodels: {m: builtin:glossary-5m}\nstages:\n  - perplexity: {text: a/wiki.txt, context: 16}\n  - perplexity: {text: b/wiki.txt, context: 16}\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		text += name
	}
	p := loadFile(t, filepath.Join(folder, "campaign.yaml")).Plan()
	var names, units, sums []string
	for i, cond := range p.Conditions {
		names, units, sums = append(names, cond.Name), append(units, p.Units[i].Name), append(sums, cond.SHA256)
	}
	want := []string{"perplexity a/wiki.txt c16", "perplexity b/wiki.txt c16"}
	if !slices.Equal(names, want) || units[0] == units[1] || sums[0] == sums[1] {
		t.Errorf("conditions %q, units %q, hashes %q", names, units, sums)
	}
}

// The runner finds a condition by its name.
func TestConditionsThatWouldShareANameAreRefused(t *testing.T) {
	folder := t.TempDir()
	text := strings.Repeat("a text that is long enough for two chunks of sixteen tokens\n", 20)
	for _, name := range []string{"b.txt", "b.csv", "b.txt.old"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(folder, "campaign.yaml")
	campaign := "name: test\nmodels: {m: builtin:glossary-5m}\nstages:\n"
	for _, name := range []string{"b.txt", "b.csv", "b.txt.old"} { // two share the name b and are called by their paths, of which one is the name of the third
		campaign += "  - perplexity: {text: " + name + ", context: 16}\n"
	}
	if err := os.WriteFile(file, []byte(campaign), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(t.Context(), file)
	if err == nil {
		var names []string
		for _, cond := range c.Plan().Conditions {
			names = append(names, cond.Name)
		}
		t.Fatalf("conditions %q", names)
	}
	var mistakes Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) != 1 || mistakes[0].Line != 6 || !strings.Contains(err.Error(), `"perplexity b.txt c16"`) {
		t.Error(err)
	}
}

func TestTooManyIncludedArmsAreRefusedAndNotCutOff(t *testing.T) {
	var masks, names []string
	for i := range 200 {
		name := fmt.Sprintf("m%d", i)
		masks, names = append(masks, name+": ["+fmt.Sprint(i%8)+"]"), append(names, name)
	}
	text := "masks: {none: [], " + strings.Join(masks, ", ") + "}\nmatrix: {only: [{mask: none}], include: [{mask: [" + strings.Join(names, ", ") +
		"], format: [" + strings.Join(Formats(), ", ") + "], kv: [f16, q8_0, q4_0, f32, f16/q8_0, f16/q4_0]}]}\n"
	if n := len(names) * len(Formats()) * 6; n <= maxArms {
		t.Fatalf("only %d arms", n)
	}
	path := filepath.Join(t.TempDir(), "campaign.yaml")
	if err := os.WriteFile(path, []byte("name: test\nmodels: {glossary: builtin:glossary-5m}\n"+text+prompt16), 0o644); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(t.Context(), path); err == nil || !strings.Contains(err.Error(), "more than 10000 arms") {
		t.Errorf("%d arms, error %v", len(c.Plan().Arms), err)
	}
}

func TestEstimateFollowsWhatWasMeasured(t *testing.T) {
	c := load(t, "formats: [F16, Q8_0]\nrun: {threads: 2, repetitions: 4, order: abba}\n"+everyStage)
	p := c.Plan()
	nominal := c.Estimate(p, nil)
	if nominal.Time <= 0 || nominal.Memory <= c.models[0].Bytes || nominal.Disk <= 0 || !strings.Contains(nominal.Method, "nominal") {
		t.Fatalf("nominal estimate %+v", nominal)
	}
	all, some := map[string]time.Duration{}, map[string]time.Duration{}
	e := estimator{campaign: c, plan: p}
	e.index()
	for i, u := range p.Units {
		all[u.ID] = time.Second
		if i%3 == 0 {
			some[u.ID] = 10 * e.nominal(u)
		}
	}
	if got := c.Estimate(p, all); got.Method != "measured" || got.Time < time.Duration(len(p.Units))*time.Second {
		t.Errorf("all measured: %+v", got)
	}
	got := c.Estimate(p, some)
	if ratio := float64(got.Time) / float64(nominal.Time); ratio < 9.99 || ratio > 10.01 {
		t.Errorf("units that took ten times the nominal time give %v, %v times the nominal %v", got.Time, ratio, nominal.Time)
	}
	if !strings.Contains(got.Method, "units measured") {
		t.Errorf("method %q", got.Method)
	}
}

func TestEstimateGrowsWithTheWork(t *testing.T) {
	estimate := func(text string) plan.Estimate {
		c := load(t, "run: {threads: 1, repetitions: 2}\n"+text)
		return c.Estimate(c.Plan(), nil)
	}
	small := estimate("stages: [{throughput: {prompt: [64]}}]\n")
	for name, text := range map[string]string{
		"a longer prompt":  "stages: [{throughput: {prompt: [1024]}}]\n",
		"one more arm":     "formats: [F16, Q8_0]\n" + "stages: [{throughput: {prompt: [64]}}]\n",
		"a depth":          "stages: [{throughput: {prompt: [64]}}, {depth: {depths: [1024], generate: 1}}]\n",
		"more repetitions": "stages: [{throughput: {prompt: [64, 65]}}]\n",
	} {
		if got := estimate(text); got.Time <= small.Time || got.Disk < small.Disk {
			t.Errorf("%s: %+v, not more than %+v", name, got, small)
		}
	}
}

func TestDefaultTablesAreSpeedMemoryAndQuality(t *testing.T) {
	const quality = "stages: [{throughput: {prompt: [16]}}, {kv: {contexts: [64]}}, {perplexity: {text: builtin:evaluation, context: 64, chunks: 2}}, " +
		"{hellaswag: {tasks: builtin:gloss-swag, limit: 4}}, {winogrande: {tasks: builtin:gloss-grande, limit: 4}}]\n"
	three := []string{plan.MetricPerplexity, plan.MetricHellaSwagAccuracy, plan.MetricWinograndeAccuracy}
	for _, test := range []struct {
		name, text string
		want       []plan.Table
	}{
		{"masks and formats", "formats: [F16, Q8_0]\nmasks: {none: [], a: [0]}\n" + quality, []plan.Table{
			{Title: "Speed", Rows: []string{"format", "condition"}, Columns: []string{"mask"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: "auto"},
			{Title: "KV cache", Rows: []string{"context"}, Columns: []string{"mask"}, Cells: []string{plan.MetricKVBytes}, Effect: "auto", Where: map[string]string{"format": "F16"}},
			{Title: "Quality", Rows: []string{"format", "mask"}, Columns: []string{"metric"}, Cells: three, Effect: "auto", Against: map[string]string{"mask": "none"}},
		}},
		{"formats alone", "formats: [F16, Q8_0]\n" + quality, []plan.Table{
			{Title: "Speed", Rows: []string{"condition"}, Columns: []string{"format"}, Cells: []string{plan.MetricTokensPerSecond}, Effect: "auto"},
			{Title: "KV cache", Rows: []string{"context"}, Cells: []string{plan.MetricKVBytes}, Where: map[string]string{"format": "F16"}},
			{Title: "Quality", Rows: []string{"format"}, Columns: []string{"metric"}, Cells: three, Effect: "auto", Against: map[string]string{"format": "F16"}},
		}},
		{"one arm", quality, []plan.Table{
			{Title: "Speed", Rows: []string{"condition"}, Cells: []string{plan.MetricTokensPerSecond}},
			{Title: "KV cache", Rows: []string{"context"}, Cells: []string{plan.MetricKVBytes}},
			{Title: "Quality", Rows: []string{"model"}, Columns: []string{"metric"}, Cells: three},
		}},
		{"one metric at two conditions", "masks: {none: [], a: [0]}\nstages: [{perplexity: {text: builtin:evaluation, context: 64, chunks: 2}}, {perplexity: {text: builtin:calibration, context: 64, chunks: 2}}]\n", []plan.Table{
			{Title: "Quality", Rows: []string{"mask"}, Columns: []string{"condition"}, Cells: three[:1], Effect: "auto", Against: map[string]string{"mask": "none"}},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, load(t, test.text).Plan().Tables); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestATableKeepsItsListOfMetrics(t *testing.T) {
	p := load(t, "masks: {none: [], a: [0]}\n"+prompt16+"tables: [{title: A, rows: [mask], cells: tokens_per_second, effect: auto}]\n").Plan()
	if want := []string{plan.MetricTokensPerSecond}; !slices.Equal(p.Tables[0].Cells, want) || p.Tables[0].Effect != plan.EffectAuto {
		t.Errorf("%+v", p.Tables[0])
	}
}
