package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/gguf"
	"attnbudget/plan"
	"attnbudget/results"
)

const report = `{"schema": "attnbudget/calibration/1", "profiles": []}`

// newCalibration is a run whose plan waits for a calibration.
func newCalibration(t *testing.T) (*bench, plan.Calibration) {
	b := newBench(t)
	cal := plan.Calibration{ID: "c0", Report: filepath.Join(t.TempDir(), "calibrations", "c0.json"), Model: "m", Input: "builtin:text", Key: &plan.CalibrationKey{Budget: 0.1}}
	b.plan.Calibrations = []plan.Calibration{cal}
	return b, cal
}

// calibrates writes the report, as the executor does.
func calibrates(_ context.Context, job Job, progress func(Progress)) (Output, error) {
	progress(Progress{Phase: "every layer alone", Done: 1, Total: 4})
	if job.Kind != JobCalibrate || job.Model.Fingerprint != "f0" || job.Arm.Format != job.Model.Format || job.Threads != 2 {
		return Output{}, errors.New("not the job of this calibration")
	}
	if err := os.MkdirAll(filepath.Dir(job.Calibration.Report), 0o755); err != nil {
		return Output{}, err
	}
	return Output{}, os.WriteFile(job.Calibration.Report, []byte(report), 0o644)
}

func (b *bench) calibrate(ctx context.Context) error {
	return Calibrate(ctx, b.plan, b.dir, b.o, b.x, b.r)
}

func TestACalibrationIsMadeAndKeptInTheRun(t *testing.T) {
	b, cal := newCalibration(t)
	b.x.script["calibrate/m"] = calibrates
	if err := b.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "journal", []string{"session_start", "calibration_start m", "calibration_ready m", "session_end"},
		b.journal(results.EventSessionStart, results.EventCalibrationStart, results.EventCalibrationReady, results.EventSessionEnd))
	if kept, err := b.dir.Calibration("c0"); err != nil || string(kept) != report {
		t.Errorf("the run has %q, %v", kept, err)
	}

	// The cache is lost: the run's copy is put back, and nothing is measured.
	if err := os.RemoveAll(filepath.Dir(cal.Report)); err != nil {
		t.Fatal(err)
	}
	b.x.calls = nil
	if err := b.calibrate(t.Context()); err != nil || len(b.x.calls) > 0 {
		t.Errorf("%v, after the jobs %q", err, b.x.calls)
	}
	if back, err := os.ReadFile(cal.Report); err != nil || string(back) != report {
		t.Errorf("put back: %q, %v", back, err)
	}
}

func TestADamagedCopyOfAReportIsMadeAgain(t *testing.T) {
	b, _ := newCalibration(t)
	b.x.script["calibrate/m"] = calibrates
	if err := b.dir.WriteCalibration("c0", []byte(report[:9]), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "jobs", []string{"calibrate/m"}, b.x.calls)
	if kept, err := b.dir.Calibration("c0"); err != nil || string(kept) != report {
		t.Errorf("the run has %q, %v", kept, err)
	}
}

func TestACalibrationThatFailsSaysWhy(t *testing.T) {
	b, _ := newCalibration(t)
	b.x.script["calibrate/m"] = fails(results.Failure{Kind: results.OutOfMemory, Message: "no memory"})
	var failed *CalibrationError
	if err := b.calibrate(t.Context()); !errors.As(err, &failed) || failed.Failure.Kind != results.OutOfMemory || failed.Model != "m" {
		t.Errorf("got %v", err)
	}
	equal(t, "journal", []string{"calibration_failed m", "session_end"}, b.journal(results.EventCalibrationReady, results.EventCalibrationFailed, results.EventSessionEnd))
}

func TestAnInterruptGivesACalibrationUp(t *testing.T) {
	b, _ := newCalibration(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.x.script["calibrate/m"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		cancel()
		return hang(ctx, job, p)
	}
	if err := b.calibrate(ctx); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	equal(t, "journal", []string{"calibration_abort m", "session_end"}, b.journal(results.EventCalibrationAbort, results.EventSessionEnd))
}

func TestTheTimeToStopEndsACalibration(t *testing.T) {
	b, _ := newCalibration(t)
	b.x.script["calibrate/m"] = hang
	synctest.Test(t, func(t *testing.T) {
		b.o.Until = time.Now().Add(time.Hour)
		start := time.Now()
		if err := b.calibrate(t.Context()); !errors.Is(err, ErrUntil) || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
	for e, err := range b.dir.Journal() {
		if err != nil || e.Kind == results.EventSessionEnd && e.Message != StoppedUntil {
			t.Errorf("the session ended with %q, %v", e.Message, err)
		}
	}
}

func TestTheTimeLeftOfACalibrationFollowsFromWhatThisProcessMeasured(t *testing.T) {
	b, _ := newCalibration(t)
	b.x.script["calibrate/m"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		p(Progress{Phase: "greedy", Done: 50, Total: 100}) // of an earlier process
		time.Sleep(10 * time.Second)
		p(Progress{Phase: "greedy", Done: 60, Total: 100})
		return calibrates(ctx, job, func(Progress) {})
	}
	var left []float64
	b.r.on = func(e Event) {
		if e.Kind == EventCalibrationProgress && e.LeftSeconds != nil {
			left = append(left, *e.LeftSeconds)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if err := b.calibrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	equal(t, "seconds left", []float64{40}, left)
}

func TestRunKeepsReportsAndRefusesChangedOnes(t *testing.T) {
	b, cal := newCalibration(t)
	b.x.script["calibrate/m"] = calibrates
	if err := b.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.plan.Calibrations[0].SHA256 = "0000"
	if _, _, err := b.run(t.Context()); err == nil {
		t.Error("a report that is not the plan's was accepted")
	}
	other := report + "\n"
	if err := os.WriteFile(cal.Report, []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(other))
	b.plan.Calibrations[0].SHA256 = hex.EncodeToString(sum[:])
	b.mustRun()
	if kept, err := b.dir.Calibration("c0"); err != nil || string(kept) != other {
		t.Errorf("the run has %q, %v", kept, err)
	}
}

// fits writes a report with a surrogate file beside it.
func fits(_ context.Context, job Job, _ func(Progress)) (Output, error) {
	path := job.Calibration.Report
	file := strings.TrimSuffix(path, ".json") + ".max.surrogate.gguf"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Output{}, err
	}
	w, err := gguf.Create(file)
	if err != nil {
		return Output{}, err
	}
	if err := errors.Join(w.Add("bias", gguf.F32, []int{1}), w.Data("bias", []byte{1, 2, 3, 4}), w.Finish()); err != nil {
		return Output{}, err
	}
	f, err := gguf.Open(file)
	if err != nil {
		return Output{}, err
	}
	defer f.Close()
	text := fmt.Sprintf(`{"schema": %q, "profiles": [{"name": "max", "surrogate": {"kind": "mean", "file": %q, "hash": %q}}]}`,
		calibrate.Schema, filepath.Base(file), engine.HashSurrogates(f))
	return Output{}, os.WriteFile(path, []byte(text), 0o644)
}

func TestSurrogatesAreKeptAndPutBackWithTheirReport(t *testing.T) {
	b, cal := newCalibration(t)
	b.x.script["calibrate/m"] = fits
	if err := b.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const name = "c0.max.surrogate.gguf"
	cached, kept := filepath.Join(filepath.Dir(cal.Report), name), filepath.Join(b.dir.CalibrationFolder(), name)
	want, err := os.ReadFile(cached)
	if err != nil {
		t.Fatal(err)
	}
	same := func(path string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	same(kept)

	if err := os.RemoveAll(filepath.Dir(cal.Report)); err != nil {
		t.Fatal(err)
	}
	b.x.calls = nil
	if err := b.calibrate(t.Context()); err != nil || len(b.x.calls) > 0 {
		t.Errorf("%v, after the jobs %q", err, b.x.calls)
	}
	same(cached)

	// The run's copy has another content: it is of no use.
	if err := os.WriteFile(kept, bytes.Replace(want, []byte{1, 2, 3, 4}, []byte{1, 2, 3, 5}, 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "jobs", []string{"calibrate/m"}, b.x.calls)
	same(kept)

	// A run that did not calibrate keeps a copy too.
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(cal.Report)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	b.plan.Calibrations[0].SHA256 = hex.EncodeToString(sum[:])
	b.mustRun()
	same(kept)
}
