package calibrate

import (
	"bytes"
	"path/filepath"
	"testing"

	"attnbudget/internal/golden"
)

// sample is a report with something of everything.
func sample(t testing.TB) *Report {
	t.Helper()
	e := func(mean, se float64) Estimate { return Estimate{mean, se, 32} }
	d := func(mean, se float64) Damage { return Damage{NLL: e(mean, se), KL: e(mean+0.001, se/4)} }
	r := &Report{
		Schema: Schema, Engine: "1",
		Model:    ModelSummary{Name: "Sample", Arch: "gemma4", FileType: "Q8_0", Layers: 6, Fingerprint: "0123456789abcdef"},
		Text:     TextSummary{Name: "sample.txt", SHA256: "fedcba98", Tokens: 40960, BOS: true, NCtx: 512, Scored: 255, Search: span(32), Heldout: span(32)},
		Settings: Settings{Strategy: Beam}.defaults(), Undropped: Undropped{e(3.2, 0.03), e(3.1, 0.02)},
		Units: []UnitResult{
			{Layers: []int{2}, Role: "local", Search: d(0.01, 0.002), Ties: []string{"4"}, Shortlisted: true},
			{Layers: []int{4}, Role: "full, reads the keys and values of layer 1", Search: d(0.012, 0.002), Ties: []string{"2"}, Shortlisted: true},
			{Layers: []int{1, 4, 5}, Role: "full", Search: d(0.4, 0.02), Ties: []string{}},
		},
		Steps:       staircase(0.01, 0.03, 0.12),
		Greedy:      staircase(0.01, 0.035, 0.15),
		Evaluations: Evaluations{Alone: 96, Greedy: 160, Search: 200, Heldout: 160},
		Cautions:    []string{},
	}
	r.Steps[1].Removed, r.Steps[1].Added = []int{0}, []int{1, 2}
	r.Steps[1].Ties = []string{"0,4"}
	for i := range r.Steps {
		r.Steps[i].Cautions = cautions(r.Steps, i)
	}
	r.Profiles, r.BudgetExceeded = profiles(r.Steps, 0.05, 0.2)
	for i := range r.Profiles {
		r.Profiles[i].KV = KVBytes{NCtx: 2048, Undropped: 8 << 20, Dropped: 7 << 20}
	}
	return r
}

func TestReportForMachinesAndPeople(t *testing.T) {
	r := sample(t)
	data, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/report.json", data)
	again, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := again.JSON(); err != nil || !bytes.Equal(second, data) {
		t.Errorf("a report that was read and written again differs: %v", err)
	}
	var table bytes.Buffer
	if err := WriteTable(&table, r); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/report.txt", table.Bytes())
}

func TestPictures(t *testing.T) {
	for name, draw := range map[string]func(*Report) ([]byte, error){"layers.svg": BarsSVG, "curve.svg": CurveSVG} {
		data, err := draw(sample(t))
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", name), data)
	}
}
