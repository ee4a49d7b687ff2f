package campaigns

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attnbudget/engine/builtin"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/quant"
	"attnbudget/plan"
)

const profiled = `masks: {none: [], recommended: {profile: recommended}, max: {profile: max}}
stages:
  - calibrate: {context: 64}
  - kv: {contexts: [256]}
`

// calibrated puts a report with the profiles, layers by name, where the calibration is looked for.
func calibrated(t *testing.T, cal plan.Calibration, fingerprint string, profiles map[string][]int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(cal.Report), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, cal.Report, reportOf(t, fingerprint, profiles))
}

func reportOf(t *testing.T, fingerprint string, profiles map[string][]int) string {
	t.Helper()
	r := calibrate.Report{Schema: calibrate.Schema, Model: calibrate.ModelSummary{Fingerprint: fingerprint}}
	for _, name := range profileNames() {
		if layers, has := profiles[name]; has {
			r.Profiles = append(r.Profiles, calibrate.Profile{Name: name, Layers: layers})
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// drops lists what every arm drops.
func drops(p *plan.Plan) []string {
	var out []string
	for _, a := range p.Arms {
		out = append(out, a.Name+": "+a.Mask.Drops())
	}
	return out
}

func glossaryFingerprint(t *testing.T) string {
	t.Helper()
	sum, err := builtin.SHA256("builtin:glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestProfilesAreUnknownUntilTheCalibrationIsMade(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	c := load(t, profiled)
	p := c.Plan()
	pending := p.Pending()
	if len(pending) != 1 || len(p.Arms) != 3 || len(p.Warnings) != 1 {
		t.Fatalf("%d calibrations wait, %d arms, warnings %q", len(pending), len(p.Arms), p.Warnings)
	}
	if got := pending[0].Masks; !slices.Equal(got, []string{"recommended", "max"}) {
		t.Errorf("masks %q", got)
	}
	ids := map[string]bool{}
	for _, u := range p.Units {
		ids[u.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("units of unknown masks pass for others: %d ids of %d units", len(ids), len(p.Units))
	}
	whole := c.Estimate(p, nil)
	calibrated(t, pending[0], glossaryFingerprint(t), map[string][]int{calibrate.Recommended: {3, 0}, calibrate.Max: {0, 2, 3}})
	c = load(t, profiled)
	p = c.Plan()
	if got, want := drops(p), []string{"none: ", "recommended: 0,3", "max: 0,2,3"}; !slices.Equal(got, want) {
		t.Errorf("arms %q, want %q", got, want)
	}
	if len(p.Pending()) != 0 || len(p.Warnings) != 0 || p.Calibrations[0].SHA256 == "" {
		t.Errorf("%d calibrations wait, warnings %q", len(p.Pending()), p.Warnings)
	}
	if m := p.Arms[1].Mask; m.Profile != "recommended" || m.Calibration != pending[0].ID || m.Hash == "" {
		t.Errorf("mask %+v", m)
	}
	if rest := c.Estimate(p, nil).Time; whole.Time < rest+time.Second {
		t.Errorf("the calibration costs nothing: %v with it, %v without", whole.Time, rest)
	}
}

func TestAProfileThatEqualsAnotherMaskIsOneArm(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	cal := load(t, profiled).Plan().Calibrations[0]
	for name, test := range map[string]struct {
		profiles map[string][]int
		arms     []string
		warning  string
	}{
		"equal":  {map[string][]int{calibrate.Recommended: {0}, calibrate.Max: {0}}, []string{"none: ", "recommended: 0"}, `mask "max" drops the same layers as "recommended"`},
		"absent": {map[string][]int{calibrate.Max: {0}}, []string{"none: ", "max: 0"}, `mask "recommended" drops nothing in model "glossary"`},
		"none":   {nil, []string{"glossary: "}, `mask "max" drops nothing`},
	} {
		calibrated(t, cal, glossaryFingerprint(t), test.profiles)
		p := load(t, profiled).Plan()
		if got := drops(p); !slices.Equal(got, test.arms) {
			t.Errorf("%s: arms %q, want %q", name, got, test.arms)
		}
		if !strings.Contains(strings.Join(p.Warnings, "\n"), test.warning) {
			t.Errorf("%s: warnings %q", name, p.Warnings)
		}
		if len(p.Calibrations) != 1 {
			t.Errorf("%s: the plan forgets where its masks come from", name)
		}
	}
}

func TestAProfileMeansOtherLayersInEveryModel(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	folder := t.TempDir()
	quantised(t, folder, quant.Q8_0)
	file := write(t, filepath.Join(folder, "two.yaml"), "name: two\nmodels: {g: builtin:glossary-5m, q: Q8_0.gguf}\nbaseline: {mask: max}\n"+
		profiled+"  - kl-divergence: {text: builtin:evaluation, context: 64, chunks: 1}\n")
	waiting := loadFile(t, file).Plan()
	if len(waiting.Pending()) != 2 || len(waiting.Arms) != 6 {
		t.Fatalf("%d calibrations wait, %d arms", len(waiting.Pending()), len(waiting.Arms))
	}
	for i, profiles := range []map[string][]int{{calibrate.Recommended: {0}, calibrate.Max: {0, 2}}, {calibrate.Recommended: {3}, calibrate.Max: {3, 4}}} {
		calibrated(t, waiting.Calibrations[i], waiting.Models[i].Fingerprint, profiles)
	}
	p := loadFile(t, file).Plan()
	want := []string{"g/F16/none: ", "g/F16/recommended: 0", "g/F16/max: 0,2", "q/Q8_0/none: ", "q/Q8_0/recommended: 3", "q/Q8_0/max: 3,4"}
	if got := drops(p); !slices.Equal(got, want) {
		t.Errorf("arms %q, want %q", got, want)
	}
	for _, u := range p.Units {
		if u.Arm == "q/Q8_0/none" && u.Key.Stage == plan.KLDivergence && u.Key.Base != "Q8_0, layers 3,4 dropped, kv f16" {
			t.Errorf("the base of model q is %q", u.Key.Base)
		}
	}
}

func TestAReportIsUsedForItsModelAlone(t *testing.T) {
	folder := t.TempDir()
	quantised(t, folder, quant.Q8_0)
	write(t, filepath.Join(folder, "r.json"), reportOf(t, glossaryFingerprint(t), map[string][]int{calibrate.Max: {2}}))
	const head = "name: two\nmodels: {g: builtin:glossary-5m, q: Q8_0.gguf}\nmasks: {none: [], max: {profile: max, report: r.json}}\n"
	_, err := Load(t.Context(), write(t, filepath.Join(folder, "both.yaml"), head+prompt16))
	if err == nil || !strings.Contains(err.Error(), glossaryFingerprint(t)) || strings.Count(err.Error(), "measured on another model") != 1 {
		t.Errorf("got %v", err)
	}
	p := loadFile(t, write(t, filepath.Join(folder, "one.yaml"), head+"matrix: {exclude: [{model: q, mask: max}]}\n"+prompt16)).Plan()
	if got, want := drops(p), []string{"g/F16/none: ", "g/F16/max: 2", "q/Q8_0/none: "}; !slices.Equal(got, want) {
		t.Errorf("arms %q, want %q", got, want)
	}
	if len(p.Calibrations) != 1 || p.Calibrations[0].Key != nil || p.Calibrations[0].ID != p.Calibrations[0].SHA256[:16] {
		t.Errorf("calibrations %+v", p.Calibrations)
	}
}

// The model of a combination that is excluded is not calibrated; a stage that no mask uses calibrates all.
func TestOnlyModelsWithProfilesAreCalibrated(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	folder := t.TempDir()
	quantised(t, folder, quant.Q8_0)
	const head = "name: two\nmodels: {g: builtin:glossary-5m, q: Q8_0.gguf}\n"
	for tail, want := range map[string]int{
		"matrix: {exclude: [{model: q, mask: [recommended, max]}]}\n" + profiled: 1,
		"stages: [{calibrate: {}}]\n":                                            2,
	} {
		p := loadFile(t, write(t, filepath.Join(folder, "c.yaml"), head+tail)).Plan()
		if len(p.Pending()) != want {
			t.Errorf("%d calibrations wait, want %d", len(p.Pending()), want)
		}
	}
}

func TestWhatDecidesAReportDecidesItsName(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	seen := map[string]string{}
	for _, s := range []string{"", "context: 128", "quality_budget: 0.1", "max_damage: 1", "metric: nll", "search: beam", "search_chunks: 8", "heldout_chunks: 8", "steps: 2", "shortlist: 3", "surrogate: mean", "surrogate: linear", "surrogate: linear, rank: 8", "surrogate: linear, search_with_surrogates: true", "text: builtin:evaluation"} {
		id := load(t, "stages: [{calibrate: {"+s+"}}]\n").Plan().Calibrations[0].ID
		if other, twice := seen[id]; twice {
			t.Errorf("%q and %q share a report", s, other)
		}
		seen[id] = s
	}
	if id := load(t, "stages: [{calibrate: {surrogate: linear, rank: 32, search_with_surrogates: false}}]\n").Plan().Calibrations[0].ID; seen[id] != "surrogate: linear" {
		t.Errorf("the default rank is not that of %q", seen[id])
	}
	same := load(t, "run: {threads: 3}\nstages: [{calibrate: {max_damage: 0.2, quality_budget: 5e-2}}]\n").Plan().Calibrations[0].ID
	if s, known := seen[same]; !known || s != "" {
		t.Error("defaults or threads decide the name of a report")
	}
}
