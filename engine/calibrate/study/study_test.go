package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/builtin"
	"attnbudget/engine/calibrate"
	"attnbudget/internal/markdown"

	"github.com/google/go-cmp/cmp"
)

const (
	doc   = "docs/calibration.md"
	model = "engine/testdata/conformance/models/llama-tiny.gguf"
)

// inTheModule makes the module's root the working folder, as it is for go run.
func inTheModule(t *testing.T) string {
	t.Helper()
	t.Chdir("../../..")
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// heads are the first lines of the tables in a part.
func heads(part string) []string {
	var out []string
	before := ""
	for line := range strings.Lines(part) {
		if strings.HasPrefix(line, "|---") {
			out = append(out, before)
		}
		before = line
	}
	return out
}

// A small study writes the tables that the document has, and touches nothing else.
func TestTheStudyWritesTheDocumentsTables(t *testing.T) {
	old := inTheModule(t)
	path := filepath.Join(t.TempDir(), "calibration.md")
	if err := os.WriteFile(path, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, notes bytes.Buffer
	args := []string{"-m", model, "-write", path, "-c", "64", "-chunks", "8", "-other-chunks", "2", "-speed-chunks", "8", "-steps", "1", "-real-text", filepath.Join(t.TempDir(), "absent")}
	if err := run(t.Context(), args, &out, &notes); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 || !strings.Contains(notes.String(), "real models skipped: ") {
		t.Errorf("printed %q, noted %q", out.String(), notes.String())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was, is := markdown.Parts(old), markdown.Parts(string(text))
	for name, content := range was {
		real := strings.HasPrefix(name, fetched[0].part) || strings.HasPrefix(name, fetched[1].part)
		if real != (is[name] == content) {
			t.Errorf("part %s: written = %v", name, is[name] != content)
		}
		if diff := cmp.Diff(heads(content), heads(is[name])); diff != "" {
			t.Errorf("part %s has other tables (-document +study):\n%s", name, diff)
		}
		old = strings.Replace(old, markdown.Part(name, content), name, 1)
	}
	rest := string(text)
	for name, content := range is {
		rest = strings.Replace(rest, markdown.Part(name, content), name, 1)
	}
	if diff := cmp.Diff(old, rest); diff != "" {
		t.Errorf("the text between the parts was changed:\n%s", diff)
	}
}

func TestWithoutADocumentTheStudyPrints(t *testing.T) {
	old := inTheModule(t)
	var out, notes bytes.Buffer
	if err := run(t.Context(), []string{"-m", model, "-sections", "prediction", "-c", "64", "-other-chunks", "2", "-steps", "1"}, &out, &notes); err != nil {
		t.Fatal(err)
	}
	parts := markdown.Parts(out.String())
	if names := slices.Collect(maps.Keys(parts)); !slices.Equal(names, []string{"prediction"}) {
		t.Errorf("printed the parts %q", names)
	}
	if diff := cmp.Diff(heads(markdown.Parts(old)["prediction"]), heads(parts["prediction"])); diff != "" {
		t.Error(diff)
	}
	if err := run(t.Context(), []string{"-sections", "nonsense"}, &out, &notes); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
}

func TestRealModelsAreTabulatedAsInTheDocument(t *testing.T) {
	old := inTheModule(t)
	dir := t.TempDir()
	t.Setenv("ATTNBUDGET_CACHE", dir)
	if err := os.Mkdir(filepath.Join(dir, "models"), 0o755); err != nil {
		t.Fatal(err)
	}
	place := func(path string, content []byte, err error) string {
		if err == nil {
			err = os.WriteFile(path, content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, m := range fetched {
		content, err := os.ReadFile(model)
		place(filepath.Join(dir, "models", m.file), content, err)
	}
	text, err := builtin.Open("builtin:calibration")
	first, second := place(filepath.Join(dir, "wiki.valid.tokens"), text, err), place(filepath.Join(dir, "wiki.test.raw"), text, nil)
	var out, notes bytes.Buffer
	if err := run(t.Context(), []string{"-sections", "real", "-c", "32", "-real-text", first, "-real-other", second}, &out, &notes); err != nil {
		t.Fatal(err)
	}
	got, want := markdown.Parts(out.String()), markdown.Parts(old)
	for name := range want {
		real := strings.HasPrefix(name, fetched[0].part) || strings.HasPrefix(name, fetched[1].part)
		if _, put := got[name]; put != real {
			t.Errorf("part %q: %v", name, put)
		}
	}
	for name, content := range got {
		if diff := cmp.Diff(heads(want[name]), heads(content)); diff != "" {
			t.Errorf("part %s has other tables (-document +study):\n%s", name, diff)
		}
	}
}

func TestLayersAloneAreTabulatedByTheirHarm(t *testing.T) {
	r := &calibrate.Report{}
	for i := range 9 {
		d := calibrate.Damage{KL: calibrate.Estimate{Mean: float64(i), SE: 0.5}, NLL: calibrate.Estimate{Mean: float64(-i), SE: 0.25}}
		r.Units = append(r.Units, calibrate.UnitResult{Layers: []int{8 - i}, Search: d})
		if i < 2 {
			r.Steps = append(r.Steps, calibrate.StepResult{Mask: []string{"8", "7,8"}[i], Heldout: d})
		}
	}
	r.Profiles = []calibrate.Profile{
		{Name: calibrate.Minimal, Mask: "8", WithinBudget: true}, {Name: calibrate.Recommended, Mask: "8", WithinBudget: true}, {Name: calibrate.Max, Mask: "7,8"},
	}
	var out bytes.Buffer
	s := &study{doc: document{out: &out}}
	if err := s.putReal(r); err != nil {
		t.Fatal(err)
	}
	got := markdown.Parts(out.String())["layers"]
	for _, row := range []string{
		"| 8 | 0.0000 ± 0.5000 | 0.0000 ± 0.2500 |\n", "| 5 | 3.0000 ± 0.5000 | -3.0000 ± 0.2500 |\n| median of the 9 layers | 4.0000 | -4.0000 |\n| 1 | 7.0000",
		"| 8 | 0.0000 ± 0.2500 | 0.0000 ± 0.5000 | minimal, recommended |\n", "| 7,8 | -1.0000 ± 0.2500 | 1.0000 ± 0.5000 | max, outside the budget |",
	} {
		if !strings.Contains(got, row) {
			t.Errorf("no %q in\n%s", row, got)
		}
	}
}

func TestUpstreamsFiguresAreReadFromTheModelCard(t *testing.T) {
	inTheModule(t)
	got, err := zeroedLayers()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"none": "0.0000", "0": "0.0087", "1": "0.5154", "2": "0.0681", "3": "0.0598", "4": "0.0913", "5": "0.2221", "6": "0.1288", "7": "0.0879",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
