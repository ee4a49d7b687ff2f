package campaigns

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/quant"
	"attnbudget/plan"
)

const divergence = "stages: [{kl-divergence: {text: builtin:evaluation, context: 128, chunks: 3}}]\n"

func TestDivergenceIsFromTheBaselineWhoseLogitsAreAState(t *testing.T) {
	c := load(t, "formats: [Q4_0, F16]\nmasks: {a: [0], none: []}\nbaseline: {format: F16, mask: none}\ncontrol: aa\n"+divergence)
	p := c.Plan()
	if len(p.States) != 1 || len(p.Units) != 5 {
		t.Fatalf("%d states, %d units", len(p.States), len(p.Units))
	}
	s := p.States[0]
	// The header, 3 chunks of 128 tokens, and for each of their 63 scored tokens 2 bytes an entry of the vocabulary and 8 more.
	vocab := int64(p.Models[0].Vocab)
	if want := 20 + 4*3*128 + 3*63*(2*(vocab+vocab%2)+8); s.Bytes != want {
		t.Errorf("%d bytes, want %d", s.Bytes, want)
	}
	if s.Arm != "F16/none" || s.Key.Kind != plan.StateLogits || s.Key.Context != 128 || s.Key.Chunks != 3 || s.Key.InputSHA256 != p.Conditions[0].SHA256 || s.Key.Depth != 0 {
		t.Errorf("%+v", s)
	}
	for _, u := range p.Units {
		if u.State != s.ID || u.Key.Base != "F16, nothing dropped, kv f16" {
			t.Errorf("%s has state %q and base %q", u.Name, u.State, u.Key.Base)
		}
	}
	if p.Conditions[0].Name != "kl-divergence evaluation c128 n3" || p.Units[0].Name != "kl-divergence/evaluation-c128-n3/"+strings.ReplaceAll(p.Units[0].Arm, "/", "-")+"/001" {
		t.Errorf("condition %q, unit %q", p.Conditions[0].Name, p.Units[0].Name)
	}
	e := c.Estimate(p, nil)
	without := *p
	without.States = nil
	if less := c.Estimate(&without, nil); e.Disk-less.Disk != s.Bytes || e.Time <= less.Time {
		t.Errorf("the logits add %d bytes and %v to the estimate", e.Disk-less.Disk, e.Time-less.Time)
	}
}

func TestLogitsFormatsAreOtherUnitsWithOtherBases(t *testing.T) {
	const formats = `formats: [Q4_0, F16]
baseline: {format: F16}
stages:
  - kl-divergence: {text: builtin:evaluation, context: 128, chunks: 3, logits_format: float32}
  - kl-divergence: {text: builtin:evaluation, context: 128, chunks: 3, logits_format: upstream}
`
	c := load(t, formats)
	p := c.Plan()
	if len(p.States) != 2 || len(p.Units) != 4 {
		t.Fatalf("%d states, %d units", len(p.States), len(p.Units))
	}
	exact, coded := p.States[0], p.States[1]
	// A head of 4096 bytes, the tokens of 3 chunks, and for each of their 63 scored tokens 4 bytes an entry of the vocabulary.
	if want := 4096 + 4*3*128 + 3*63*4*int64(p.Models[0].Vocab); exact.Bytes != want || exact.Bytes < coded.Bytes*19/10 {
		t.Errorf("%d bytes in float32, want %d; %d in upstream's format", exact.Bytes, want, coded.Bytes)
	}
	if exact.Key.LogitsFormat != "float32" || coded.Key.LogitsFormat != "" || exact.ID == coded.ID {
		t.Errorf("states %+v and %+v", exact, coded)
	}
	for i, u := range p.Units {
		want := []plan.State{exact, exact, coded, coded}[i]
		if u.State != want.ID || u.Key.LogitsFormat != want.Key.LogitsFormat {
			t.Errorf("%s has state %s and key %+v", u.Name, u.State, u.Key)
		}
	}
	if d := p.Units[0].Key.Diff(p.Units[2].Key); len(d) != 1 || d[0] != (plan.Difference{Field: "logits_format", New: "float32"}) {
		t.Errorf("the formats' units differ in %+v", d)
	}
	if name := p.Conditions[0].Name; name != "kl-divergence evaluation c128 n3 float32" || p.Conditions[1].Name != strings.TrimSuffix(name, " float32") {
		t.Errorf("conditions %q and %q", name, p.Conditions[1].Name)
	}
	silent := load(t, "formats: [Q4_0, F16]\nbaseline: {format: F16}\n"+divergence).Plan()
	for i, u := range silent.Units {
		if u.ID != p.Units[2+i].ID {
			t.Errorf("%s: saying the default makes it another unit", u.Name)
		}
	}
	e := c.Estimate(p, nil)
	without := *p
	without.States = nil
	if less := c.Estimate(&without, nil); e.Disk-less.Disk != exact.Bytes { // the two are not there at one time
		t.Errorf("the logits add %d bytes to the estimate, want %d", e.Disk-less.Disk, exact.Bytes)
	}
}

func TestEveryModelHasABaseOfItsOwn(t *testing.T) {
	folder := t.TempDir()
	quantised(t, folder, quant.Q8_0)
	const head = "name: test\nmodels: {glossary: builtin:glossary-5m, q: Q8_0.gguf}\nmasks: {none: [], a: [0]}\n"
	p := loadFile(t, write(t, filepath.Join(folder, "own.yaml"), head+divergence)).Plan()
	makers := map[string]string{}
	for _, s := range p.States {
		makers[s.ID] = s.Arm
	}
	for _, u := range p.Units {
		model := strings.SplitN(u.Arm, "/", 2)[0]
		want := map[string]string{"glossary": "glossary/F16/none", "q": "q/Q8_0/none"}[model]
		if makers[u.State] != want {
			t.Errorf("%s is compared with %s, want %s", u.Arm, makers[u.State], want)
		}
	}
	if len(p.States) != 2 {
		t.Errorf("%d states", len(p.States))
	}

	path := write(t, filepath.Join(folder, "without.yaml"), head+"matrix: {exclude: [{model: q, mask: none}]}\n"+divergence)
	_, err := Load(t.Context(), path)
	want := path + `:5:26: kl-divergence compares every arm with its model's arm of format F16, mask none and KV type f16; there is none of model "q"`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestMultipleChoiceCountsItsTasks(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "q.jsonl"), `{"question": "What is a tiger?", "choices": ["a wooden table", "a large feline"], "gold": 1}
{"question": "What is a gull?", "choices": ["a wooden table", "a sea bird", "ice"], "gold": 1}
`)
	const head = "name: test\nmodels: {glossary: builtin:glossary-5m}\n"
	c := loadFile(t, write(t, filepath.Join(folder, "c.yaml"), head+"stages: [{multiple-choice: {tasks: q.jsonl, limit: 3}}]\n"))
	p := c.Plan()
	u := p.Units[0]
	if u.Key.Stage != plan.MultipleChoice || u.Key.Tasks != 3 || u.Key.Context != defaultContext || u.Name != "multiple-choice/q-n3/glossary/001" || len(u.Key.InputSHA256) != 64 {
		t.Errorf("%+v", u)
	}
	if w := c.work[workKey{"glossary", p.Conditions[0].Name}]; w.passes != 2 || w.length < 10 {
		t.Errorf("work %+v", w)
	}
	if !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "3 tasks are wanted, it has 2") }) {
		t.Errorf("warnings %q", p.Warnings)
	}
	if len(p.Tables) != 1 || !slices.Equal(p.Tables[0].Cells, []string{plan.MetricChoiceAccuracy}) {
		t.Errorf("tables %+v", p.Tables)
	}
}
