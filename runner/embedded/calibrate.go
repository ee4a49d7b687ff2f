package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"attnbudget/atomicfile"
	"attnbudget/cachedir"
	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/plan"
)

// calibrate makes the report of the job's calibration. What it measures goes into a journal beside the reports, which
// calibrations of the same model on the same text share: one that was killed, and one with another budget or search, goes on
// from what is known.
func (c *child) calibrate(ctx context.Context, m *engine.Model) error {
	cal := c.job.Calibration
	k := cal.Key
	text, err := readInput(plan.Condition{Name: plan.Calibrate, Input: cal.Input, SHA256: k.InputSHA256})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(cal.Report), 0o755); err != nil {
		return fmt.Errorf("cache folder for calibrations (ATTNBUDGET_CACHE chooses another): %w", err)
	}
	journal := filepath.Join(filepath.Dir(cal.Report), journalName(*k))
	unlock, err := cachedir.Lock(ctx, journal+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	folder, name := filepath.Split(strings.TrimSuffix(cal.Report, ".json"))
	if r, err := calibrate.Load(cal.Report); err == nil && r.Model.Fingerprint == k.ModelFingerprint && r.CheckSurrogates(folder) == nil {
		return nil // made by another process while this one waited
	}
	r, err := calibrate.Run(ctx, calibrate.Job{
		Model: m, Fingerprint: k.ModelFingerprint, Text: text, TextName: filepath.Base(cal.Input), Journal: journal, Threads: c.job.Threads,
		Settings: calibrate.Settings{
			NCtx: k.Context, Search: k.SearchChunks, Heldout: k.HeldoutChunks, Metric: calibrate.Metric(k.Metric), Strategy: calibrate.Strategy(k.Search),
			Budget: k.Budget, MaxDamage: k.MaxDamage, Most: k.Steps, Shortlist: k.Shortlist,
		},
		Surrogate:       calibrate.SurrogatePlan{Kind: calibrate.SurrogateKind(k.Surrogate), Rank: k.Rank, Search: k.WithSurrogates},
		SurrogateFile:   func(profile string) string { return name + "." + profile + ".surrogate.gguf" },
		SurrogateFolder: folder,
		Progress:        func(p calibrate.Progress) { c.say.progress(p.Stage, int64(p.Done), int64(p.Total)) },
	})
	if err != nil {
		return err
	}
	data, err := r.JSON()
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(cal.Report, data)
}

// journalName is that of everything that decides a measured value; of surrogates in place also what they are fitted on.
func journalName(k plan.CalibrationKey) string {
	decides := []any{calibrate.JournalSchema, k.ModelFingerprint, k.EngineVersion, k.InputSHA256, k.Context}
	if k.WithSurrogates {
		decides = append(decides, k.Surrogate, k.Rank, k.SearchChunks)
	}
	b, err := json.Marshal(decides)
	if err != nil {
		panic("embedded: a name is always marshalable: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]) + ".journal"
}
