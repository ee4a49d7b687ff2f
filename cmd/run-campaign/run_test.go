package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

const two = `name: two
models: {glossary: builtin:glossary-5m}
run: {threads: 1}
stages:
  - perplexity: {text: builtin:evaluation, context: 64, chunks: 1}
  - kv: {contexts: [64]}
`

// planned writes a campaign into a new folder and makes its plan and run directory there.
func planned(t *testing.T, campaign string) (file string, p plan.Plan, dir *results.Dir) {
	t.Helper()
	work := t.TempDir()
	t.Setenv("ATTNBUDGET_CACHE", filepath.Join(work, "cache"))
	file = filepath.Join(work, "campaign.yaml")
	if err := os.WriteFile(file, []byte(campaign), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(program, "plan", file, "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Plan plan.Plan }
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	if dir, err = results.Create(filepath.Join(work, "run"), out.Plan.Campaign); err != nil {
		t.Fatal(err)
	}
	return file, out.Plan, dir
}

// What keeps the runner from going on must be said even where units have failed before.
func TestARunThatCannotGoOnSaysWhyAndIsNoFinishedRun(t *testing.T) {
	file, p, dir := planned(t, two)
	for _, u := range p.Units { // a folder in the place of its checkpoint fails the evaluation, and cannot be removed after the other unit
		if err := os.MkdirAll(filepath.Join(dir.CheckpointPath(u.ID), "in the way"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := exec.Command(program, "run", file, "--dir", dir.Path(), "--progress", "none").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("%v, want exit %d", err, exitFailed)
	}
	for _, want := range []string{"1 units done, 1 failed, 0 left", "run-campaign: checkpoint of unit kv/"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// The time of a resumed unit is that of its last part alone.
func TestResumedUnitsSayNothingOfTheTimeOfWholeOnes(t *testing.T) {
	_, p, dir := planned(t, two)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, u := range p.Units {
		r := &results.Record{Unit: u, Started: start, Ended: start.Add(time.Hour), Outcome: results.OK, Resumed: i}
		if err := dir.WriteRecord(r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := durations(dir.Path())
	if err != nil || len(got) != 1 || got[p.Units[0].ID] != time.Hour {
		t.Errorf("%v, %v", got, err)
	}
}

// A calibration may take hours. What is run after it must be the campaign that the run directory and the kernels were chosen for.
func TestACampaignThatIsEditedDuringItsCalibrationIsNotRun(t *testing.T) {
	work := t.TempDir()
	file, dir := filepath.Join(work, "campaign.yaml"), filepath.Join(work, "run")
	const campaign = "name: edited\nmodels: {glossary: builtin:glossary-5m}\nmasks: {none: [], r: {profile: minimal}}\nrun: {threads: 1}\nstages:\n" +
		"  - calibrate: {context: 16, search_chunks: 8, heldout_chunks: 8, steps: 1}\n  - kv: {contexts: [64]}\n"
	if err := os.WriteFile(file, []byte(campaign), 0o644); err != nil {
		t.Fatal(err)
	}
	s := startRun(t, file, dir)
	s.await(results.EventCalibrationStart)
	if err := os.WriteFile(file, []byte(strings.Replace(campaign, "name: edited", "name: another", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, said := s.exit(); code != exitFailed || !strings.Contains(said, "changed while it was calibrated; run again") {
		t.Errorf("exit %d, want %d: %s", code, exitFailed, said)
	}
}

func TestADryRunRefusesWhatTheRunWouldRefuse(t *testing.T) {
	work := t.TempDir()
	file, dir := filepath.Join(work, "campaign.yaml"), filepath.Join(work, "run")
	if err := os.WriteFile(file, []byte(two), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := results.Create(dir, "another"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", file, "--dir", dir}, {"run", file, "--dir", dir, "--dry-run"}} {
		var out, said bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &said); code != exitFailed || !strings.Contains(said.String(), `holds a run of campaign "another", not of "two"`) {
			t.Errorf("%q: exit %d, want %d; it printed %q and said %q", args, code, exitFailed, out.String(), said.String())
		}
	}
}
