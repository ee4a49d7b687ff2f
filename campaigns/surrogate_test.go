package campaigns

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/gguf"
	weights "attnbudget/engine/model"
	"attnbudget/plan"
)

const standing = `masks: {none: [], plain: {profile: max}, stand: {profile: max, surrogate: fitted}}
stages:
  - calibrate: {context: 64, surrogate: mean}
  - kv: {contexts: [256]}
`

// fittedReport puts a report where the calibration is looked for, whose max drops layer 3, and a constant in its place
// beside it; without file, one that does harm.
func fittedReport(t *testing.T, cal plan.Calibration, p calibrate.SurrogatePlan, file bool) {
	t.Helper()
	folder := filepath.Dir(cal.Report)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &calibrate.SurrogateResult{Kind: calibrate.MeanSurrogate, Mask: "3", Layers: weights.Surrogates{3: {Bias: make([]float32, 256)}}}
	if file {
		s.File = cal.ID + ".max.surrogate.gguf"
		path := filepath.Join(folder, s.File)
		if err := s.Write(path, glossaryFingerprint(t)); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s.Hash = engine.HashSurrogates(f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := calibrate.Report{
		Schema: calibrate.Schema, Model: calibrate.ModelSummary{Fingerprint: glossaryFingerprint(t)}, Surrogate: p,
		Profiles: []calibrate.Profile{{Name: calibrate.Max, Layers: []int{3}, Surrogate: s}},
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cal.Report, string(b))
}

func TestAProfileComesWithWhatWasFittedForIt(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	p := load(t, standing).Plan()
	if got, want := drops(p), []string{"none: ", "plain: max of calibration " + p.Calibrations[0].ID, "stand: max of calibration " + p.Calibrations[0].ID + " with its surrogate"}; !slices.Equal(got, want) {
		t.Errorf("before the calibration the arms are %q, want %q", got, want)
	}
	cal := p.Pending()[0]
	fittedReport(t, cal, calibrate.SurrogatePlan{Kind: calibrate.MeanSurrogate}, true)
	p = load(t, standing).Plan()
	if got, want := drops(p), []string{"none: ", "plain: 3", "stand: 3"}; !slices.Equal(got, want) || len(p.Warnings) > 0 {
		t.Fatalf("arms %q, want %q; warnings %q", got, want, p.Warnings)
	}
	plain, stand := p.Arms[1].Mask, p.Arms[2].Mask
	if plain.Surrogate != "" || plain.SurrogateHash != "" || plain.Fitted {
		t.Errorf("the plain mask is %+v", plain)
	}
	if stand.Surrogate != filepath.Join(filepath.Dir(cal.Report), cal.ID+".max.surrogate.gguf") || len(stand.SurrogateHash) != 64 || !stand.Fitted || stand.Calibration != cal.ID {
		t.Errorf("the mask with a surrogate is %+v", stand)
	}
	for _, u := range p.Units {
		if (u.Arm == "stand") != (u.Key.Surrogate == stand.SurrogateHash) {
			t.Errorf("unit %s has the surrogate %q", u.Name, u.Key.Surrogate)
		}
	}
	states := load(t, strings.Replace(standing, "kv: {contexts: [256]}", "depth: {depths: [16], generate: 1}", 1)).Plan().States
	for _, s := range states {
		if (s.Arm == "stand") != (s.Key.Surrogate == stand.SurrogateHash) {
			t.Errorf("the cache of %s has the surrogate %q", s.Arm, s.Key.Surrogate)
		}
	}
	if len(states) != 3 {
		t.Errorf("%d states, want one of each arm", len(states))
	}

	// A surrogate that is gone, or is another, is made again with its report.
	for name, spoil := range map[string]func() error{
		"gone":    func() error { return os.Remove(stand.Surrogate) },
		"another": func() error { b, err := builtin.Open("glossary-5m"); write(t, stand.Surrogate, string(b)); return err },
	} {
		fittedReport(t, cal, calibrate.SurrogatePlan{Kind: calibrate.MeanSurrogate}, true)
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if p := load(t, standing).Plan(); len(p.Pending()) != 1 {
			t.Errorf("%s: %d calibrations wait", name, len(p.Pending()))
		}
	}
}

func TestAProfileWithoutItsSurrogateIsWorthAWarning(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	cal := load(t, standing).Plan().Calibrations[0]
	fittedReport(t, cal, calibrate.SurrogatePlan{Kind: calibrate.MeanSurrogate}, false)
	p := load(t, standing).Plan()
	if got, want := drops(p), []string{"none: ", "plain: 3"}; !slices.Equal(got, want) {
		t.Errorf("arms %q, want %q", got, want)
	}
	if w := strings.Join(p.Warnings, "\n"); !strings.Contains(w, `mask "stand" has no surrogate in model "glossary": what was fitted does harm`) {
		t.Errorf("warnings %q", w)
	}

	searched := strings.Replace(standing, "surrogate: mean", "surrogate: mean, search_with_surrogates: true", 1)
	cal = load(t, searched).Plan().Calibrations[0]
	fittedReport(t, cal, calibrate.SurrogatePlan{Kind: calibrate.MeanSurrogate, Search: true}, true)
	p = load(t, searched).Plan()
	if w := strings.Join(p.Warnings, "\n"); len(p.Warnings) != 1 || !strings.Contains(w, `mask "plain" has no surrogate in model "glossary", but the layers that it drops were chosen with surrogates in place`) {
		t.Errorf("warnings %q", w)
	}
}

func TestFittingTakesTime(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	c, plain := load(t, standing), load(t, strings.Replace(strings.Replace(standing, ", surrogate: mean", "", 1), ", surrogate: fitted", "", 1))
	with, without := c.Estimate(c.Plan(), nil).Time, plain.Estimate(plain.Plan(), nil).Time
	if with <= without {
		t.Errorf("%v with surrogates, %v without", with, without)
	}
}
