package calibrate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// staircase are steps with these cumulative held-out damages, all with a standard error of 0.001.
func staircase(damage ...float64) []StepResult {
	out := make([]StepResult, len(damage))
	before := 0.0
	for i, d := range damage {
		e := Estimate{Mean: d, SE: 0.001, Chunks: 64}
		out[i] = StepResult{
			Mask: join(span(i + 1)), Layers: span(i + 1), Search: Damage{NLL: e}, Heldout: Damage{NLL: e},
			Increment: Estimate{Mean: d - before, SE: 0.001, Chunks: 64},
		}
		before = d
		out[i].Cautions = cautions(out, i)
	}
	return out
}

func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		name     string
		damage   []float64
		want     string
		exceeded bool
	}{
		{"all four", []float64{0.01, 0.02, 0.04, 0.06, 0.3}, "minimal 0 · light 0,1 · recommended 0,1,2 · max 0,1,2,3", false},
		{"the first step is beyond half the budget", []float64{0.04, 0.1}, "minimal 0 · recommended 0 · max 0,1", false},
		{"a step behind one beyond the budget does not count", []float64{0.01, 0.06, 0.04, 0.5}, "minimal 0 · light 0 · recommended 0 · max 0,1,2", false},
		{"not even the first step fits", []float64{0.07, 0.1}, "max 0,1", true},
		{"the first step is beyond everything", []float64{0.7}, "max 0", true},
		{"everything fits", []float64{0.001, 0.002}, "minimal 0 · light 0,1 · recommended 0,1 · max 0,1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ps, exceeded := profiles(staircase(c.damage...), 0.05, 0.2)
			var got []string
			for _, p := range ps {
				got = append(got, p.Name+" "+p.Mask)
				if p.Flags != "--attention-drop-layers "+p.Mask {
					t.Errorf("flags %q", p.Flags)
				}
				if p.WithinBudget != (p.Heldout.NLL.Mean <= 0.05) {
					t.Errorf("%s: within budget %v", p.Name, p.WithinBudget)
				}
				if p.WithinBudget == strings.Contains(strings.Join(p.Cautions, ";"), "outside the quality budget") {
					t.Errorf("%s: cautions %q", p.Name, p.Cautions)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " · ")); diff != "" || exceeded != c.exceeded {
				t.Errorf("exceeded %v %s", exceeded, diff)
			}
		})
	}
}

func TestMaxGoesByTheSearchSplitAndTheOthersByTheHeldOut(t *testing.T) {
	steps := staircase(0.01, 0.04, 0.1)
	steps[1].Search.NLL.Mean, steps[2].Heldout.NLL.Mean = 0.06, 0.3
	ps, _ := profiles(steps, 0.05, 0.2)
	if last := ps[len(ps)-1]; last.Name != Max || last.Mask != "0,1,2" || ps[2].Name != Recommended || ps[2].Mask != "0,1" {
		t.Errorf("%+v", ps)
	}
}

func TestASpikeIsACaution(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage []float64
		want   string // step numbers with the caution
	}{
		{"even steps", []float64{0.01, 0.02, 0.031, 0.042}, ""},
		{"one that is ten times the others", []float64{0.01, 0.02, 0.12, 0.13}, "2"},
		{"not beyond the noise", []float64{0.0001, 0.0006}, ""},
		{"beyond the median of two, the mean of both", []float64{0.001, 0.051, 0.151}, "1 2"},
		{"after steps that cost nothing", []float64{-0.001, -0.002, 0.01}, "2"},
	} {
		var got []string
		for i, s := range staircase(c.damage...) {
			if strings.Contains(strings.Join(s.Cautions, ";"), "spike") {
				got = append(got, join([]int{i}))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: spikes at %v, want %q", c.name, got, c.want)
		}
	}
}

func TestACautionMarksWhatNoiseCouldDecide(t *testing.T) {
	for damage, want := range map[float64]bool{0.0479: false, 0.0481: true, 0.05: true} { // the standard error is 0.001
		ps, _ := profiles(staircase(damage), 0.05, 0.2)
		if got := strings.Contains(strings.Join(ps[0].Cautions, ";"), "less than two standard errors"); got != want {
			t.Errorf("%g of a budget of 0.05: caution %t", damage, got)
		}
	}
	for apart, want := range map[float64]bool{0.0042: false, 0.0043: true, -0.0043: true} { // three standard errors are 0.003·√2
		steps := staircase(0.02)
		steps[0].Search.NLL.Mean += apart
		if got := strings.Contains(strings.Join(cautions(steps, 0), ";"), "differs from that of the search split"); got != want {
			t.Errorf("splits that are %g apart: caution %t", apart, got)
		}
	}
}

func TestAProfileOfAnotherModelIsRefusedWithBothFingerprints(t *testing.T) {
	ps, _ := profiles(staircase(0.01, 0.02, 0.2), 0.05, 0.2)
	r := &Report{Schema: Schema, Model: ModelSummary{Fingerprint: "1111"}, Profiles: ps}
	_, err := r.Profile("r.json", Recommended, "2222", full(4))
	var wrong *WrongModelError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "1111") || !strings.Contains(err.Error(), "2222") {
		t.Errorf("%v", err)
	}
	m, err := r.Profile("r.json", Recommended, "1111", full(4))
	if err != nil || m.Canonical() != "0,1" {
		t.Errorf("%s, %v", m, err)
	}
	if _, err := r.Profile("r.json", "best", "1111", full(4)); err == nil || !strings.Contains(err.Error(), "minimal, light, recommended, max") {
		t.Errorf("%v", err)
	}
	if _, err := r.Profile("r.json", Max, "1111", full(2)); err == nil {
		t.Error("layers that the model has not were accepted")
	}
}

func FuzzParse(f *testing.F) {
	data, err := sample(f).JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"schema":"attnbudget/calibration/1","profiles":[{"name":"max","layers":[0,0,-1,99]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		for _, p := range r.Profiles {
			if m, err := r.Profile("fuzz", p.Name, r.Model.Fingerprint, full(8)); err == nil && m.Has(8) {
				t.Error("a layer that is not there")
			}
		}
	})
}
