package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const calibrating = `name: calibrating
models: {glossary: builtin:glossary-5m}
masks: {none: [], max: {profile: max}}
baseline: {mask: none}
stages:
  - calibrate: {context: 64, search_chunks: 8, heldout_chunks: 8, steps: 2, quality_budget: 0.5}
  - kv: {contexts: [256]}
`

// reports are the files of a kind in the calibrations of the cache beside the run, or of the run itself.
func reports(t *testing.T, dir, pattern string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "calibrations", pattern))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(text)
	}
	return out
}

// TestACalibrationThatIsEndedGoesOn kills a run while it calibrates, interrupts it once, and lets it finish: it ends with the
// report of an unbroken run, and what was measured was measured once.
func TestACalibrationThatIsEndedGoesOn(t *testing.T) {
	work := t.TempDir()
	file := filepath.Join(work, "calibrating.yaml")
	if err := os.WriteFile(file, []byte(calibrating), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, cache := filepath.Join(work, "broken", "run"), filepath.Join(work, "broken", "cache")
	measured := func() int {
		lines := 0
		for _, text := range reports(t, cache, "*.journal") {
			lines += bytes.Count([]byte(text), []byte("\n"))
		}
		return lines
	}

	s := startRun(t, file, dir)
	s.await(`"phase":"every layer alone"`)
	s.await(`"phase":"every layer alone"`) // the second report comes after something was measured
	s.cmd.Process.Kill()
	s.exit()
	killed := measured()
	if killed == 0 || len(reports(t, cache, "*.json")) > 0 {
		t.Errorf("killed, it left %d lines of measurements and %d reports", killed, len(reports(t, cache, "*.json")))
	}

	s = startRun(t, file, dir)
	s.await(`"event":"calibration_progress"`)
	s.cmd.Process.Signal(syscall.SIGINT)
	if code, said := s.exit(); code != exitInterrupted {
		t.Errorf("exit %d, want %d: %s", code, exitInterrupted, said)
	}
	if measured() < killed {
		t.Errorf("%d of %d lines of measurements are left", measured(), killed)
	}

	s = startRun(t, file, dir)
	if code, said := s.exit(); code != exitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	whole := startRun(t, file, filepath.Join(work, "whole", "run"))
	if code, said := whole.exit(); code != exitDone {
		t.Fatalf("the unbroken run: exit %d: %s", code, said)
	}
	want := reports(t, filepath.Join(work, "whole", "run"), "*.json")
	for name, text := range want {
		if reports(t, dir, "*.json")[name] != text {
			t.Errorf("report %s differs from that of the unbroken run", name)
		}
	}
	if len(want) != 1 || goodRecords(t, dir) != 2 {
		t.Errorf("%d reports, %d records", len(want), goodRecords(t, dir))
	}
	broken, unbroken := measured(), 0
	for _, text := range reports(t, filepath.Join(work, "whole", "cache"), "*.journal") {
		unbroken += bytes.Count([]byte(text), []byte("\n"))
	}
	if broken != unbroken {
		t.Errorf("%d lines of measurements, %d of the unbroken run", broken, unbroken)
	}
}

// TestTwoCalibrationsOfOneReportShareItsJournal starts two commands at once: neither writes over what the other has
// measured.
func TestTwoCalibrationsOfOneReportShareItsJournal(t *testing.T) {
	report := filepath.Join(t.TempDir(), "r.json")
	command := func(chunks string) *exec.Cmd {
		return exec.Command(program, "calibrate", "-m", "builtin:glossary-5m", "-o", report, "-c", "32", "--search-chunks", chunks, "--heldout-chunks", "8", "--steps", "1", "-t", "1")
	}
	first, second := command("8"), command("11")
	if err := errors.Join(first.Start(), second.Start()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Wait(), second.Wait()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(strings.TrimSuffix(report, ".json") + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !json.Valid([]byte(line)) || seen[line] {
			t.Fatalf("%d lines are whole, then comes %q", len(seen), line)
		}
		seen[line] = true
	}
	if len(seen) < 1+9*8 {
		t.Errorf("%d lines of measurements", len(seen))
	}
}
